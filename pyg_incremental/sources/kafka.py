"""Events from a partition of a topic of Kafka (the `kafka` extra)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyg_incremental.sources.encoded import decoded
from pyg_incremental.sources.log import AT_ONCE, Decode, LogSource

_BEGINNING = -2
_OWN = {
    "enable.auto.commit": False,  # where it is, is kept in the checkpoints of who reads it
    "enable.partition.eof": False,
    "auto.offset.reset": "error",  # records that are gone are not to be passed over in silence
}


class KafkaSource(LogSource):
    """Reads one partition of a topic; its position is the offset of the next record.

    One partition, because only within one are records in the same order whenever they are read
    again. Records are written by a `confluent_kafka.Producer`: `produce(topic, encoded(delta))`.

    Args:
        config: The settings of a `confluent_kafka.Consumer`, such as `bootstrap.servers`.
        topic: The topic.
        partition: The partition.
        start: The offset to begin at; the first one that is there by default.
        wait: Seconds to wait for a record where there is none.
        decode: What the value of a record says; what `encoded` has made by default.

    Raises:
        ImportError: If confluent-kafka is not installed.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        *,
        partition: int = 0,
        start: int = _BEGINNING,
        wait: float = 0.1,
        decode: Decode = decoded,
    ) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise ImportError(
                "KafkaSource needs confluent-kafka, which is not installed; "
                "pip install 'pyg-incremental[kafka]'"
            ) from error
        super().__init__(start, decode)
        self._kafka, self._at = confluent_kafka, (topic, partition)
        self._wait = wait
        self._consumer = confluent_kafka.Consumer({"group.id": "pyg-incremental", **config, **_OWN})
        self.open(start)

    def open(self, position: int) -> None:
        """See `Source`."""
        super().open(position)
        self._consumer.assign([self._kafka.TopicPartition(*self._at, position)])

    def _records(self, after: int, wait: bool) -> list[tuple[int, bytes]]:
        # The consumer goes on by itself from where it was, which is `after`.
        found = self._consumer.consume(1, timeout=self._wait if wait else 0.0)
        if found:  # it would wait for as many as are asked for
            found += self._consumer.consume(AT_ONCE, timeout=0.0)
        records = []
        for message in found:
            if message.error() is not None:
                self.open(self._position)  # what was read behind it is read again
                raise self._kafka.KafkaException(message.error())
            offset: Any = message.offset()  # which every record that was read has
            records.append((offset + 1, message.value() or b""))
        return records

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
