"""Events from a stream of Redis (the `redis` extra)."""

from __future__ import annotations

from typing import Any

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.sources.encoded import decoded, encoded
from pyg_incremental.sources.log import AT_ONCE, Decode, LogSource


class RedisSource(LogSource):
    """Reads one stream of Redis (6.2 or newer); its position is the id of the last entry.

    It belongs to no consumer group: where it is, is kept in the checkpoints of who reads it.
    Entries that were trimmed away are not missed.

    Args:
        client: A `redis.Redis` that gives bytes, which is the default.
        stream: The name of the stream.
        start: The id behind which to begin; everything that is there by default.
        wait: Seconds to wait for an entry where there is none.
        field: The field of an entry that holds the event; None if all its fields are the
            event, as strings.
        decode: What that field says, such as `json.loads`; what `write` has put there by default.
        time_field: The field in which each event gets the time at which Redis took it, in seconds
            since 1970: the time of a stream for which events have none of their own.

    Example:
        >>> source = RedisSource(redis.Redis(), "edges")  # doctest: +SKIP
        >>> source.write(GraphDelta(edge_index_add=[[0], [1]]))  # doctest: +SKIP
    """

    def __init__(
        self,
        client: Any,
        stream: str,
        *,
        start: str = "0-0",
        wait: float = 0.1,
        field: str | None = "delta",
        decode: Decode = decoded,
        time_field: str | None = None,
    ) -> None:
        super().__init__(start, _strings if field is None else decode, time_field)
        self._client, self._stream, self._wait = client, stream, wait
        self._field = None if field is None else field.encode()

    def _records(self, after: str, wait: bool) -> list[tuple[str, Any, float]]:
        found = self._behind(after)
        if not found and wait and self._wait > 0:
            self._client.xread({self._stream: after}, 1, block=max(1, int(1e3 * self._wait)))
            found = self._behind(after)
        name = self._field
        return [
            (entry.decode(), fields if name is None else fields.get(name, b""), _seconds(entry))
            for entry, fields in found
        ]

    def _behind(self, after: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
        found: list[Any] = self._client.xrange(self._stream, f"({after}", "+", AT_ONCE)
        return found

    def write(self, delta: GraphDelta) -> str:
        """Append a delta to the stream; returns its id.

        Raises:
            ValueError: If it cannot be written, see `encoded`.
        """
        entry: bytes = self._client.xadd(self._stream, {self._field or "delta": encoded(delta)})
        return entry.decode()


def _seconds(entry: bytes) -> float:
    """An id begins with the milliseconds since 1970, unless who wrote it said something else."""
    return int(entry.partition(b"-")[0]) / 1e3


def _strings(fields: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in fields.items()}
