"""Where events come from: a source that is pulled, and goes on from any position that it gave."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from pyg_incremental.sources.event import Event, Events, num_taken


@runtime_checkable
class Source(Protocol):
    """Events in an order that is the same whenever it is read again."""

    def next_batch(self, max_events: int) -> Sequence[Event]:
        """The next events, in order: at most so many, but at least one value if there is any.

        In a `GraphDelta` an edge that comes or goes, a new row and a removed node are an event
        each. An empty list says that there is nothing now.
        """
        ...

    def position(self) -> Any:
        """Where the source is after the last event that it gave: a plain value as in JSON."""
        ...

    def open(self, position: Any) -> None:
        """Go on from a position that this source gave, or another one like it."""
        ...


class IterableSource:
    """Any iterable of mappings, or of `GraphDelta`; its position is how many of them were given.

    Args:
        values: A list or the like, which can be read again; a function that returns an iterator; or
            an iterator, which can only go on.
    """

    def __init__(self, values: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        self._values = values
        self._given = 0
        self._next: list[Any] = []
        self._iterator = self._begin()

    def _begin(self) -> Iterator[Any]:
        return iter(self._values() if callable(self._values) else self._values)

    def next_batch(self, max_events: int) -> Events:
        """See `Source`."""
        values = [*self._next, *islice(self._iterator, max(0, max_events - len(self._next)))]
        taken, first = num_taken(values, max_events), self._given + 1
        self._next = values[taken:]
        self._given += taken
        return Events(range(first, first + taken), values[:taken])

    def position(self) -> int:
        """See `Source`."""
        return self._given

    def open(self, position: int) -> None:
        """See `Source`.

        Raises:
            ValueError: If the position lies behind what an iterator has given, or beyond the end.
        """
        if self._iterator is self._values:
            if position < self._given:
                raise ValueError(
                    f"an iterator that has given {self._given} values cannot go back to "
                    f"{position}; pass a list, or a function that returns an iterator"
                )
        else:
            self._iterator, self._given, self._next = self._begin(), 0, []
        while self._given < position:
            if self._next:
                self._next.pop(0)
            elif next(self._iterator, self) is self:
                raise ValueError(f"the values end after {self._given}, before {position}")
            self._given += 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}(at {self._given})"
