"""Sources that read the records of a log, of which each is one value."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.sources.source import Event, num_events

Decode = Callable[[Any], Any]
AT_ONCE = 1024
"""Records that are asked for at a time."""


class LogSource(ABC):
    """Reads records in order, some ahead of what is given; see `Source`.

    A record that cannot be read is given as an event with an error, so that those behind it do not
    wait for it.

    Args:
        start: The position to begin at.
        decode: What a record says.
        time_field: The field in which a value that is a dict gets the seconds since 1970 at which
            the log took the record, if the log tells; None for none.
    """

    def __init__(self, start: Any, decode: Decode, time_field: str | None = None) -> None:
        self._decode, self._time_field = decode, time_field
        self._position = self._read_to = start
        self._ahead: deque[Event] = deque()

    @abstractmethod
    def _records(self, after: Any, wait: bool) -> Sequence[tuple[Any, ...]]:
        """Some of the records behind a position.

        Args:
            after: The position.
            wait: Whether to wait a little if there are none.

        Returns:
            For each the position behind it, what it holds, and, if the log tells, the seconds since
            1970 at which it took it.
        """

    def next_batch(self, max_events: int) -> list[Event]:
        """See `Source`."""
        found: list[Event] = []
        count, ahead = 0, self._ahead
        while count < max_events:
            if not ahead and not self._read(wait=not found):
                break
            event = ahead[0]
            count += num_events(event.value) if type(event.value) is GraphDelta else 1
            if found and count > max_events:
                break
            found.append(ahead.popleft())
        if found:
            self._position = found[-1].position
        return found

    def _read(self, wait: bool) -> bool:
        """Read some records ahead; returns whether there were any."""
        decode, ahead, field = self._decode, self._ahead, self._time_field
        records = self._records(self._read_to, wait)
        for position, data, *at in records:
            try:
                value = decode(data)
                if field is not None and at and isinstance(value, dict):
                    value = {**value, field: at[0]}
                ahead.append(Event(position, value))
            except Exception as error:  # `decode` may be anybody's
                ahead.append(Event(position, data, error))
        if records:
            self._read_to = records[-1][0]
        return bool(records)

    def position(self) -> Any:
        """See `Source`."""
        return self._position

    def open(self, position: Any) -> None:
        """See `Source`."""
        self._ahead.clear()
        self._position = self._read_to = position

    def __repr__(self) -> str:
        return f"{type(self).__name__}(at {self.position()!r})"
