"""Sinks on servers: a stream of Redis, a topic of Kafka, an address that takes requests."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from pyg_incremental.stream.sinks import line_of


class _Waiting(ABC):
    """Keeps records until a server has them.

    What a server does not take is tried again with the next record, in order, and before a
    checkpoint, which is not written if it fails then too. So each record comes at least once.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, bytes]] = deque()

    def __call__(self, record: Any) -> None:
        """Hand over a record, a named tuple, and those that wait.

        Raises:
            Exception: Whatever comes of it; the record is kept.
        """
        self._waiting.append((_key(record), line_of(record)))
        self.flush()

    def flush(self) -> None:
        """Hand over the records that wait.

        Raises:
            Exception: Whatever comes of it; they are kept.
        """
        while self._waiting:
            self._send(*self._waiting[0])
            self._waiting.popleft()

    @abstractmethod
    def _send(self, key: str, data: bytes) -> None:
        """Return when the server has a record."""


class RedisSink(_Waiting):
    """Appends records to a stream of Redis: entries with a `key`, and an object of JSON in `data`.

    What the server does not take is kept in memory, and tried again with the next record and
    before a checkpoint.

    Args:
        client: A `redis.Redis`.
        stream: The name of the stream.
    """

    def __init__(self, client: Any, stream: str) -> None:
        super().__init__()
        self._client, self._stream = client, stream

    def _send(self, key: str, data: bytes) -> None:
        self._client.xadd(self._stream, {"key": key, "data": data})


class Webhook(_Waiting):
    """Sends each record to an address, as a POST request with an object of JSON.

    The header `Idempotency-Key` is the same when a record comes again. Any answer but one of
    success is an error: the record is kept in memory, and tried again with the next one and before
    a checkpoint. The stream waits for each answer.

    Args:
        url: The address, `http://` or `https://`.
        headers: More headers, such as `{"Authorization": "Bearer ..."}`.
        timeout: Seconds to wait for an answer.

    Raises:
        ValueError: If the address is of another kind.
    """

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, timeout: float = 5.0
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url: expected an address of http:// or https:// (got {url!r})")
        super().__init__()
        self._url, self._headers, self._timeout = url, {**(headers or {})}, timeout

    def _send(self, key: str, data: bytes) -> None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key, **self._headers}
        try:
            with urlopen(Request(self._url, data, headers), timeout=self._timeout) as answer:
                answer.read()
        except HTTPError as refused:
            refused.close()  # it holds the connection
            raise


class KafkaSink:
    """Writes records to a topic of Kafka: objects of JSON, each with its key.

    Records are on their way when it returns. Before a checkpoint they have to be there; those that
    the cluster did not take are sent again then.

    Args:
        producer: A `confluent_kafka.Producer`.
        topic: The topic.
        timeout: Seconds to wait for the cluster before a checkpoint.
    """

    def __init__(self, producer: Any, topic: str, *, timeout: float = 30.0) -> None:
        self._producer, self._topic, self._timeout = producer, topic, timeout
        self._failed: deque[tuple[str, bytes]] = deque()
        self._error: Any = None

    def __call__(self, record: Any) -> None:
        """Send a record, a named tuple.

        Raises:
            BufferError: If too many are on their way; it is kept.
        """
        self._send(_key(record), line_of(record))
        self._producer.poll(0)

    def _send(self, key: str, data: bytes) -> None:
        def told(error: Any, _: Any) -> None:
            if error is not None:
                self._error = error
                self._failed.append((key, data))

        try:
            self._producer.produce(self._topic, data, key, on_delivery=told)
        except BaseException:
            self._failed.append((key, data))
            raise

    def flush(self) -> None:
        """Return when the cluster has all records.

        Raises:
            OSError: If it does not have them in time; they are kept.
        """
        for _ in range(len(self._failed)):
            self._send(*self._failed.popleft())
        left = self._producer.flush(self._timeout) + len(self._failed)
        if left:
            raise OSError(f"KafkaSink: {left} records are not in '{self._topic}' ({self._error})")


def _key(record: Any) -> str:
    """What a record has in common with itself when it comes again."""
    if hasattr(record, "version"):
        return f"{record.version}/{record.what}/{record.node}"
    return str(record.position)
