"""Which field of an event is what."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from itertools import compress
from operator import itemgetter
from typing import Any, Literal, TypeVar, get_args
from uuid import UUID

import numpy as np

from pyg_incremental.delta.given import Ids
from pyg_incremental.stream.feature import Feature

T = TypeVar("T")
Kind = Literal["edge_add", "edge_del", "edge_change", "node", "node_del"]
Rows = np.ndarray[Any, np.dtype[Any]]
Shapes = Mapping[str, tuple[int, ...]]
ReadIds = Callable[[Sequence[Any], str], Any]
_NUMBERS = (int, float, Decimal, datetime)
_NAMES = {str, int, UUID}
_OF_DATA = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
KINDS: tuple[Kind, ...] = get_args(Kind)


class MalformedError(ValueError):
    """Events that do not say what the schema expects of them.

    Attributes:
        reasons: What is wrong with each, by its place in what was read.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__("; ".join(f"event {at}: {reason}" for at, reason in reasons.items()))
        self.reasons = reasons


class OfKind:
    """The events of one kind.

    Attributes:
        at: Their places in what was read, int64 `[k]`, ascending.
        ids: The ends of edges, int64 `[2, k]`, or the nodes, int64 `[1, k]`; or their names.
        data: Rows that belong to them by name, `[k, ...]`.
        values: What features are made of, float64 `[k, 1 + fields]`: the time, 0 where there is
            none, and `Schema.fields`. None if there is nothing like that.
    """

    __slots__ = ("at", "data", "ids", "values")

    def __init__(
        self, at: Ids, ids: Ids, data: Mapping[str, Rows], values: Rows | None = None
    ) -> None:
        self.at, self.ids, self.data, self.values = at, ids, data, values


class Columns:
    """What events say, by kind.

    Attributes:
        of: The events of each kind that is there.
    """

    __slots__ = ("of",)

    def __init__(self, of: Mapping[Kind, OfKind]) -> None:
        self.of = of


@dataclass(frozen=True)
class Schema:
    """Which field of an event is what: a mapping such as a row, or an object of JSON.

    Attributes:
        src: The field of the node where an edge starts: its name, if nodes were given names
            (`node_ids`), else its number.
        dst: The field of the node to which it leads.
        kind: The field that says what an event is; None if all events are edges that come.
        kinds: What its values mean: `'edge_add'`, `'edge_del'`, `'edge_change'` (new data for an
            edge that is there), `'node'` (features of a node, which is new if its id is the
            number of nodes) and `'node_del'`. By default they are called so.
        node: The field of the node in events that are about one.
        x: The field of its features, a list of numbers, or the fields of one number each.
        new_x: The features, `[in_channels]`, of nodes that come with their first edge, of which
            there was no event; None where an edge of a node that is not there is left out. For
            nodes with names.
        edge_data: For each edge input of the model, such as `'edge_weight'`, the field of its
            value, or the fields of one number each.
        time: The field of the event time, a number, or a moment (`datetime`), which counts as its
            seconds since 1970; see `Window`.
        event_id: The field of a name, a string or an integer, that a producer gives to each event:
            one that comes again is left out.
        features: Channels of `x` that are made of events, such as how many there were of a node;
            see `Feature`. What an event says of these channels counts for a new node only.
        undirected: Take every edge in both directions. A feature of one end is that of the event.
        which: Which of several edges of one pair is deleted or changed; see `GraphDelta`.

    Raises:
        ValueError: If a kind is none, or a feature does not go with the rest.
    """

    src: str = "src"
    dst: str = "dst"
    kind: str | None = None
    kinds: Mapping[Any, Kind] = field(default_factory=lambda: {kind: kind for kind in KINDS})
    node: str = "node"
    x: str | Sequence[str] = "x"
    new_x: Sequence[float] | None = None
    edge_data: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    time: str | None = None
    event_id: str | None = None
    features: Sequence[Feature] = ()
    undirected: bool = False
    which: Literal["newest", "oldest"] = "newest"

    def __post_init__(self) -> None:
        for name, kind in self.kinds.items():
            if kind not in KINDS:
                raise ValueError(f"kinds[{name!r}]: expected one of {KINDS} (got {kind!r})")
        channels = [feature.channel for feature in self.features]
        if len({*channels}) < len(channels):
            raise ValueError(f"features: expected one for each channel (got channels {channels})")
        if self.features and self.which != "newest":
            raise ValueError(
                "features: events do not say which edge is the oldest, as some were there before "
                f"them; expected which='newest' (got {self.which!r})"
            )
        if self.time is None and any(feature.needs_time for feature in self.features):
            raise ValueError(
                "features: within= and half_life= need the field of the event time; pass time="
            )

    @property
    def fields(self) -> list[str]:
        """The fields of events that features are made of."""
        return [*dict.fromkeys(f.of for f in self.features if f.of is not None)]

    def read(self, values: Sequence[Any], shapes: Shapes, by_name: bool = False) -> Columns:
        """What events say, column by column.

        Args:
            values: The events.
            shapes: The shape of a row of `'x'`, and of each edge input, as far as it is known.
            by_name: Whether nodes have names.

        Raises:
            MalformedError: If some do not say what is expected of them.
        """
        ids = _node_names if by_name else _integers
        return _each(values, lambda some: self._columns(some, shapes, ids))

    def _columns(self, values: Sequence[Any], shapes: Shapes, ids_of: ReadIds) -> Columns:
        if self.kind is None:
            return Columns({"edge_add": self._of_kind("edge_add", values, None, shapes, ids_of)})
        said = [*map(itemgetter(self.kind), values)]
        kinds = set(map(self.kinds.get, said))
        if None in kinds:
            wrong = next(name for name in said if name not in self.kinds)
            raise ValueError(f"'{self.kind}' is {wrong!r}, expected one of {[*self.kinds]}")
        found = {}
        for kind in KINDS:
            if kind in kinds:
                names = {name for name, meant in self.kinds.items() if meant == kind}
                is_own = [*map(names.__contains__, said)]
                own, at = [*compress(values, is_own)], np.flatnonzero(is_own)
                found[kind] = self._of_kind(kind, own, at, shapes, ids_of)
        return Columns(found)

    def _of_kind(
        self, kind: Kind, values: Sequence[Any], at: Ids | None, shapes: Shapes, ids_of: ReadIds
    ) -> OfKind:
        places: Ids = np.arange(len(values)) if at is None else at
        if kind in ("node", "node_del"):
            ids = ids_of(values, self.node)[None]
            data = {} if kind == "node_del" else {"x": _rows(values, self.x, shapes.get("x"))}
            return OfKind(places, ids, data)
        pairs = np.stack([ids_of(values, self.src), ids_of(values, self.dst)])
        if kind == "edge_del":
            return OfKind(places, pairs, {})
        named = self.edge_data.items()
        data = {k: _rows(values, of, shapes.get(k)) for k, of in named}
        if not self.features:
            return OfKind(places, pairs, data)
        times = np.zeros(len(values)) if self.time is None else _finite(values, self.time)
        made = [times, *(_finite(values, name) for name in self.fields)]
        return OfKind(places, pairs, data, np.stack(made, axis=1))

    def times(self, values: Sequence[Any]) -> "np.ndarray[Any, np.dtype[np.float64]]":
        """The event times, float64 `[k]`.

        Raises:
            MalformedError: If some have none.
        """
        name = self.time or ""
        return _each(values, lambda some: _finite(some, name))

    def ids(self, values: Sequence[Any]) -> list[Any]:
        """The names of the events.

        Raises:
            MalformedError: If some have none.
        """
        name = self.event_id or ""
        return _each(values, lambda some: _named(some, name))


def _each(values: Sequence[Any], read: Callable[[Sequence[Any]], T]) -> T:
    """What is read of all values; where that fails, which of them cannot be read, and why.

    Raises:
        MalformedError: If some cannot be.
    """
    try:
        return read(values)
    except _OF_DATA as error:  # events are anybody's
        reasons = {}
        for at, value in enumerate(values):
            try:
                read([value])
            except _OF_DATA as why:
                reasons[at] = _reason(why, value)
        if not reasons:  # each may be read, but not with the others
            reasons = dict.fromkeys(range(1, len(values)), _reason(error, values[0]))
        raise MalformedError(reasons) from error


def _integers(values: Sequence[Any], name: str) -> Ids:
    found = [*map(itemgetter(name), values)]
    ids = np.array(found)
    # A truth value among integers would become one.
    if ids.dtype.kind != "i" or ids.ndim != 1 or bool in set(map(type, found)):
        raise ValueError(f"'{name}' is {found[0]!r}, expected the id of a node, an integer")
    return ids.astype(np.int64, copy=False)


def _node_names(values: Sequence[Any], name: str) -> Any:
    found = [*map(itemgetter(name), values)]
    if not set(map(type, found)) <= _NAMES:
        raise ValueError(f"'{name}' is {found[0]!r}, expected the name of a node")
    names = np.empty(len(found), object)
    names[:] = found
    return names


def _rows(values: Sequence[Any], names: str | Sequence[str], shape: tuple[int, ...] | None) -> Rows:
    if isinstance(names, str):
        found = [*map(itemgetter(names), values)]
    else:
        found = [[value[name] for name in names] for value in values]
    rows = np.array(found)
    rows = _as_numbers(rows)
    if rows.dtype.kind not in "iufb":
        raise ValueError(f"{names!r} is {found[0]!r}, expected numbers")
    if shape is None or rows.shape[1:] == shape:
        return rows
    if math.prod(rows.shape[1:]) != math.prod(shape):
        raise ValueError(f"{names!r} is {found[0]!r}, expected numbers of shape {[*shape]}")
    return rows.reshape(-1, *shape)


def _finite(values: Sequence[Any], name: str) -> "np.ndarray[Any, np.dtype[np.float64]]":
    found = [*map(itemgetter(name), values)]
    times = _as_numbers(np.array(found))
    if times.dtype.kind not in "iuf" or times.ndim != 1 or not np.isfinite(times).all():
        raise ValueError(f"'{name}' is {found[0]!r}, expected a finite number")
    return times.astype(np.float64, copy=False)


def _as_numbers(values: Rows) -> Rows:
    """Large integers, decimals and moments as float64: seconds since 1970, UTC if not said."""
    if values.dtype.kind != "O" or not all(
        isinstance(v, _NUMBERS) and type(v) is not bool for v in values.flat
    ):
        return values
    numbers: Rows = np.array([*map(_as_number, values.flat)])
    numbers.shape = values.shape
    return numbers


def _as_number(value: Any) -> float:
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or timezone.utc).timestamp()
    return float(value)


def _named(values: Sequence[Any], name: str) -> list[Any]:
    ids = [*map(itemgetter(name), values)]
    for given in ids:
        if type(given) not in (str, int):
            raise ValueError(f"'{name}' is {given!r}, expected a string or an integer")
    return ids


def _reason(error: Exception, value: Any) -> str:
    """What to say of an event that cannot be read."""
    if isinstance(error, KeyError):
        return f"there is no field {error}"
    if isinstance(error, TypeError) and not hasattr(value, "keys"):
        return f"expected fields by name, as a dict has (got {type(value).__name__})"
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
