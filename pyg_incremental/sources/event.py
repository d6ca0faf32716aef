"""What a source gives: events, and how many of them a value is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, overload

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


class Events(Sequence[Event]):
    """Events in a row, field by field: an object for each takes longer than much that is done next.

    Args:
        positions: Where the source goes on behind each.
        values: What happened.
        errors: Why values could not be read, by their places.
        at: When each arrived; None where the source does not know that of each.
    """

    __slots__ = ("at", "errors", "positions", "values")

    def __init__(
        self,
        positions: Sequence[Any] = (),
        values: Sequence[Any] = (),
        errors: Mapping[int, Exception] | None = None,
        at: Sequence[float] | None = None,
    ) -> None:
        self.positions, self.values = positions, values
        self.errors: Mapping[int, Exception] = errors or {}
        self.at = at

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Events":
        """The same events, field by field."""
        if isinstance(events, Events):
            return events
        rows = [*events]
        if not rows:
            return cls()
        positions, values, errors, at = zip(*rows, strict=True)
        wrong = {n: error for n, error in enumerate(errors) if error is not None}
        return cls(positions, values, wrong, None if None in at else at)

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, place: int) -> Event: ...

    @overload
    def __getitem__(self, place: slice) -> "Events": ...

    def __getitem__(self, place: int | slice) -> "Event | Events":
        at = self.at
        if isinstance(place, slice):
            places = range(len(self))[place]
            errors = {places.index(n): why for n, why in self.errors.items() if n in places}
            positions, values = self.positions[place], self.values[place]
            return Events(positions, values, errors, None if at is None else at[place])
        n = range(len(self))[place]
        moment = None if at is None else at[n]
        return Event(self.positions[n], self.values[n], self.errors.get(n), moment)

    def __add__(self, more: "Events") -> "Events":
        if not self or not more:
            return self or more
        count = len(self)
        errors = {**self.errors, **{count + n: why for n, why in more.errors.items()}}
        at = None if self.at is None or more.at is None else [*self.at, *more.at]
        positions, values = [*self.positions, *more.positions], [*self.values, *more.values]
        return Events(positions, values, errors, at)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    def __repr__(self) -> str:
        return repr([*self])


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


def num_of_all(values: Sequence[Any]) -> int:
    """How many events some values are."""
    return sum(map(num_events, values)) if GraphDelta in set(map(type, values)) else len(values)


def num_taken(values: Sequence[Any], max_events: int) -> int:
    """How many of some values make at most so many events; one at least, if there is any."""
    if max_events < 1 or GraphDelta not in set(map(type, values[:max_events])):
        return min(len(values), max(max_events, 0))
    count = 0
    for n, value in enumerate(values):
        count += num_events(value)
        if count >= max_events:
            return n if n and count > max_events else n + 1
    return len(values)


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
