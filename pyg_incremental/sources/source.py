"""Where events come from: a source that is pulled, and goes on from any position that it gave."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from pyg_incremental.delta.describe import GraphDelta


class Event(NamedTuple):
    """What a source gives.

    Attributes:
        position: Where the source goes on behind this event: a plain value as in JSON.
        value: What happened: a mapping from fields to values, or a `GraphDelta`, which may be many
            events in one. What could not be read is here as it came.
        error: Why it could not be read; None if it could.
        at: When it arrived, in seconds as `time.perf_counter`, where the source knows.
    """

    position: Any
    value: Any
    error: Exception | None = None
    at: float | None = None


@runtime_checkable
class Source(Protocol):
    """Events in an order that is the same whenever it is read again."""

    def next_batch(self, max_events: int) -> list[Event]:
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

    def next_batch(self, max_events: int) -> list[Event]:
        """See `Source`."""
        values = [*self._next, *islice(self._iterator, max_events - len(self._next))]
        taken = len(values)
        if GraphDelta in set(map(type, values)):  # of which each may be many events
            taken, count = 0, 0
            while taken < len(values) and count < max_events:
                count += num_events(values[taken])
                if taken and count > max_events:
                    break
                taken += 1
        first, self._next = self._given + 1, values[taken:]
        self._given += taken
        # As `Event(...)`, which takes three times as long.
        new = tuple.__new__
        return [
            new(Event, (position, value, None, None))
            for position, value in enumerate(values[:taken], first)
        ]

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


def num_events(value: Any) -> int:
    """How many events a value is: the edges, rows and removed nodes of a delta; else one.

    What cannot be counted is one: whether a record can be read is seen to by who reads it, and
    those behind it do not have to wait for that.
    """
    if not isinstance(value, GraphDelta):
        return 1
    return sum(
        _count(given, how)
        for name, how in _EVENTS.items()
        for given in _each(getattr(value, name, None))
    )


def _count(value: Any, how: Callable[[Any], int]) -> int:
    try:
        return how(value)
    except Exception:  # it may be anything
        return 1


def _num_edges(edges: Any) -> int:
    return len(edges) if hasattr(edges, "columns") else int(np.shape(edges)[-1])


def _num_rows(rows: Any) -> int:
    """Rows of features; one may come without its first dimension."""
    return len(rows) if np.ndim(rows) > 1 else int(len(rows) > 0)


_EVENTS: Mapping[str, Callable[[Any], int]] = {
    "edge_index_add": _num_edges,
    "edge_index_del": _num_edges,
    "x_changes": lambda changes: len(changes[0]),
    "x_add": _num_rows,
    "nodes_del": len,
}


def _each(value: Any) -> list[Any]:
    """What is given of each type."""
    if value is None:
        return []
    return [of for of in value.values() if of is not None] if isinstance(value, dict) else [value]
