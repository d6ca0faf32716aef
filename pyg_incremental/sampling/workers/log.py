"""Sources that read the records of a log, of which each is one delta."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.sampling.workers.source import num_events

Decode = Callable[[bytes], GraphDelta]
AT_ONCE = 256
"""Records that are asked for at a time."""


class LogSource(ABC):
    """Reads records in order, some ahead of what is given; see `Source`.

    Args:
        start: The position to begin at.
        decode: What a record says.
    """

    def __init__(self, start: Any, decode: Decode) -> None:
        self._decode = decode
        self._position = self._read_to = start
        self._ahead: deque[tuple[Any, bytes]] = deque()

    @abstractmethod
    def _records(self, after: Any, wait: bool) -> list[tuple[Any, bytes]]:
        """Some of the records behind a position, each with the position behind it.

        Args:
            after: The position.
            wait: Whether to wait a little if there are none.
        """

    def next_batch(self, max_events: int) -> list[GraphDelta]:
        """See `Source`.

        Raises:
            ValueError: If the next record cannot be read; `position` is before it then.
        """
        found: list[GraphDelta] = []
        count = 0
        while count < max_events:
            if not self._ahead:
                self._ahead.extend(self._records(self._read_to, wait=not found))
                if not self._ahead:
                    break
                self._read_to = self._ahead[-1][0]
            position, data = self._ahead[0]
            try:
                delta = self._decode(data)
            except Exception as error:  # `decode` may be anybody's
                if found:
                    break
                raise ValueError(
                    f"the record before position {position!r} is no delta ({error}); "
                    f"open({position!r}) goes on behind it"
                ) from error
            count += num_events(delta)
            if found and count > max_events:
                break
            self._ahead.popleft()
            self._position = position
            found.append(delta)
        return found

    def position(self) -> Any:
        """See `Source`."""
        return self._position

    def open(self, position: Any) -> None:
        """See `Source`."""
        self._ahead.clear()
        self._position = self._read_to = position

    def __repr__(self) -> str:
        return f"{type(self).__name__}(at {self._position!r})"
