"""Where events come from: a source that is pulled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from pyg_incremental.delta.describe import GraphDelta


class Source(Protocol):
    """Events in an order that is the same whenever it is read again."""

    def next_batch(self, max_events: int) -> list[GraphDelta]:
        """The next events, in order: at most so many, but at least one delta if there is any.

        An edge that comes or goes, a new row and a removed node are an event each. An empty list
        says that there is nothing now.
        """
        ...

    def position(self) -> Any:
        """Where the source is after the last event that it gave: a plain value as in JSON."""
        ...

    def open(self, position: Any) -> None:
        """Go on from a position that `position` gave, of this source or of another one like it."""
        ...


class IterableSource:
    """Any iterable of `GraphDelta`; its position is how many of them were given.

    Args:
        deltas: A list or the like, which can be read again; a function that returns an iterator; or
            an iterator, which can only go on.
    """

    def __init__(self, deltas: Iterable[GraphDelta] | Callable[[], Iterable[GraphDelta]]) -> None:
        self._deltas = deltas
        self._given = 0
        self._next: GraphDelta | None = None
        self._iterator = self._begin()

    def _begin(self) -> Iterator[GraphDelta]:
        return iter(self._deltas() if callable(self._deltas) else self._deltas)

    def next_batch(self, max_events: int) -> list[GraphDelta]:
        """See `Source`."""
        found: list[GraphDelta] = []
        count = 0
        while True:
            delta = self._next if self._next is not None else next(self._iterator, None)
            self._next = delta
            if delta is None:
                break
            count += num_events(delta)
            if found and count > max_events:
                break
            found.append(delta)
            self._next = None
            if count >= max_events:
                break
        self._given += len(found)
        return found

    def position(self) -> int:
        """See `Source`."""
        return self._given

    def open(self, position: int) -> None:
        """See `Source`.

        Raises:
            ValueError: If the position lies behind what an iterator has given, or beyond the end.
        """
        if self._iterator is self._deltas:
            if position < self._given:
                raise ValueError(
                    f"an iterator that has given {self._given} deltas cannot go back to "
                    f"{position}; pass a list, or a function that returns an iterator"
                )
        else:
            self._iterator, self._given, self._next = self._begin(), 0, None
        while self._given < position:
            if self._next is None and next(self._iterator, None) is None:
                raise ValueError(f"the deltas end after {self._given}, before {position}")
            self._next = None
            self._given += 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}(at {self._given})"


def num_events(delta: GraphDelta) -> int:
    """How many edges, rows and removed nodes a delta names.

    What cannot be counted is one: whether a record can be read is seen to by who reads it, and
    those behind it do not have to wait for that.
    """
    return sum(
        _count(value, how)
        for name, how in _EVENTS.items()
        for value in _each(getattr(delta, name, None))
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


_EVENTS: dict[str, Callable[[Any], int]] = {
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
