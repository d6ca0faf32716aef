"""Sources that read the records of a log, of which each is one value."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from pyg_incremental.sources.event import Events, num_of_all, num_taken

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
        self._keep(Events())

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

    def next_batch(self, max_events: int) -> Events:
        """See `Source`."""
        while self._num_ahead < max_events and self._read(wait=not self._ahead):
            pass
        taken = num_taken(self._ahead.values, max_events)
        found = self._ahead[:taken]
        self._keep(self._ahead[taken:])
        if found:
            self._position = found.positions[-1]
        return found

    def _read(self, wait: bool) -> bool:
        """Read some records ahead; returns whether there were any."""
        decode, field = self._decode, self._time_field
        values: list[Any] = []
        errors: dict[int, Exception] = {}
        records = self._records(self._read_to, wait)
        for _, data, *at in records:
            try:
                value = decode(data)
                if field is not None and at and isinstance(value, dict):
                    value = {**value, field: at[0]}
            except Exception as error:  # `decode` may be anybody's
                value, errors[len(values)] = data, error
            values.append(value)
        positions = [position for position, *_ in records]
        self._keep(self._ahead + Events(positions, values, errors))
        if positions:
            self._read_to = positions[-1]
        return bool(positions)

    def _keep(self, ahead: Events) -> None:
        """Have these ready to be given."""
        self._ahead, self._num_ahead = ahead, num_of_all(ahead.values)

    def position(self) -> Any:
        """See `Source`."""
        return self._position

    def open(self, position: Any) -> None:
        """See `Source`."""
        self._keep(Events())
        self._position = self._read_to = position

    def __repr__(self) -> str:
        return f"{type(self).__name__}(at {self.position()!r})"
