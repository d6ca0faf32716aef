"""Events from a topic of Kafka (the `kafka` extra)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyg_incremental.sources.encoded import decoded
from pyg_incremental.sources.event import Event, Events
from pyg_incremental.sources.log import AT_ONCE, Decode, LogSource

_BEGINNING = -2
_OWN = {
    "enable.auto.commit": False,  # where it is, is kept in the checkpoints of who reads it
    "enable.partition.eof": False,
    "auto.offset.reset": "error",  # records that are gone are not to be passed over in silence
}
_PATIENCE = 10.0
"""Seconds to wait for the list of partitions."""


class KafkaSource(LogSource):
    """Reads one partition of a topic, several, or all.

    The position in one partition is the offset of the next record; that in several a list with one
    for each. Kafka has no order between partitions, so what has to stay in order, such as an edge
    that comes and goes, belongs in one: give its records one key. Records are written by a
    `confluent_kafka.Producer`: `produce(topic, encoded(delta))`.

    Args:
        config: The settings of a `confluent_kafka.Consumer`, such as `bootstrap.servers`.
        topic: The topic.
        partition: The partition; several; or None for all that the topic has now.
        start: The position to begin at; the first records that are there by default.
        wait: Seconds to wait for a record where there is none.
        decode: What the value of a record says; what `encoded` has made by default.
        time_field: The field in which each event gets the timestamp of its record, in seconds since
            1970; see the topic's `message.timestamp.type` for whose time that is.

    Raises:
        ImportError: If confluent-kafka is not installed.
        LookupError: If all partitions are asked for, and there is no such topic.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        *,
        partition: int | Sequence[int] | None = 0,
        start: int | Sequence[int] = _BEGINNING,
        wait: float = 0.1,
        decode: Decode = decoded,
        time_field: str | None = None,
    ) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise ImportError(
                "KafkaSource needs confluent-kafka, which is not installed; "
                "pip install 'pyg-incremental[kafka]'"
            ) from error
        super().__init__(start, decode, time_field)
        self._kafka, self._topic, self._wait = confluent_kafka, topic, wait
        self._consumer = confluent_kafka.Consumer({"group.id": "pyg-incremental", **config, **_OWN})
        self._is_one = isinstance(partition, int)
        chosen = self._all() if partition is None else partition
        self._partitions = [chosen] if isinstance(chosen, int) else [*chosen]
        self.open(start)

    def _all(self) -> list[int]:
        told = self._consumer.list_topics(self._topic, timeout=_PATIENCE).topics[self._topic]
        if not told.partitions:
            raise LookupError(f"KafkaSource: there is no topic '{self._topic}' ({told.error})")
        return sorted(told.partitions)

    def open(self, position: int | Sequence[int]) -> None:
        """See `Source`; partitions that have come since are read from their beginning."""
        given = [position] if isinstance(position, int) else [*position]
        offsets = [*given, *[_BEGINNING] * (len(self._partitions) - len(given))]
        super().open(offsets)
        self._consumer.assign([
            self._kafka.TopicPartition(self._topic, partition, offset)
            for partition, offset in zip(self._partitions, offsets, strict=True)
        ])  # fmt: skip

    def position(self) -> Any:
        """See `Source`."""
        return self._position[0] if self._is_one else [*self._position]

    def next_batch(self, max_events: int) -> Events:
        """See `Source`; of several partitions, one after the other."""
        at = self._position
        found = super().next_batch(max_events)
        self._position = at
        return self._in_order(found)

    def next_until(self, position: Any) -> Events:
        """The events between here and a position, as they were given before it was reached.

        Which partition a record comes from first is chance, and nothing of `next_batch`: so who
        takes the same events once more asks for them by where they end.

        Args:
            position: A position that an event had.

        Returns:
            All of them, or none if some are not there yet.
        """
        goal = [position] if self._is_one else position
        while not self._reaches(goal) and self._read(wait=True):
            pass
        if not self._reaches(goal):
            return Events()
        found: list[Event] = []
        later: list[Event] = []
        for event in self._ahead:
            n, offset = event.position
            (found if offset <= goal[n] else later).append(event)
        self._keep(Events.of(later))
        return self._in_order(found)

    def _reaches(self, goal: Sequence[int]) -> bool:
        last = dict(self._ahead.positions)
        return all(max(last.get(n, at), at) >= goal[n] for n, at in enumerate(self._position))

    def _in_order(self, found: Sequence[Event]) -> Events:
        """Events partition by partition, each with the position of the source behind it."""
        events = []
        for event in sorted(found, key=lambda event: event.position[0]):
            n, offset = event.position
            self._position = [*self._position]
            self._position[n] = offset
            events.append(event._replace(position=self.position()))
        return Events.of(events)

    def _records(self, after: Any, wait: bool) -> list[tuple[Any, bytes, float]]:
        # The consumer goes on by itself from where it was, which is `after`.
        found = self._consumer.consume(1, timeout=self._wait if wait else 0.0)
        if found:  # it would wait for as many as are asked for
            found += self._consumer.consume(AT_ONCE, timeout=0.0)
        records = []
        for message in found:
            if message.error() is not None:
                self.open(self._position)  # what was read behind it is read again
                raise self._kafka.KafkaException(message.error())
            # Every record that was read has these two.
            partition: Any = message.partition()
            offset: Any = message.offset()
            at = self._partitions.index(partition)
            records.append(((at, offset + 1), message.value() or b"", message.timestamp()[1] / 1e3))
        return records

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
