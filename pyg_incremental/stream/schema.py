"""Which field of an event is what."""

import contextlib
import math
import struct
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from functools import cached_property
from itertools import chain, compress
from operator import itemgetter
from typing import Any, Literal, TypeVar, get_args
from uuid import UUID

import numpy as np

from pyg_incremental.delta.given import Ids
from pyg_incremental.stream.feature import Feature

T = TypeVar("T")
Kind = Literal["edge_add", "edge_del", "edge_change", "node", "node_del"]
Rows = np.ndarray[Any, np.dtype[Any]]
Times = np.ndarray[Any, np.dtype[np.float64]]
Shapes = Mapping[str, tuple[int, ...]]
Type = Any
"""A type of nodes, a string, or of edges, `(source, relation, target)`; None where there is one."""
_NUMBERS = (int, float, Decimal, datetime)
_NAMES = {str, int, UUID}
_TRUTHS, _LARGEST = {bool, np.bool_}, np.iinfo(np.int64).max
_NOT_OF_AN_EVENT = (MemoryError, OSError)
"""Errors that say nothing of what is read; the same may be read later."""
KINDS: tuple[Kind, ...] = get_args(Kind)
OF_EDGES, OF_NODES = KINDS[:3], KINDS[3:]


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


ByKind = dict[Kind, OfKind]
Columns = dict[Type, ByKind]
"""What events say, by the type that they are of, and then by kind."""


def ends_of(of: Type) -> tuple[Type, Type]:
    """The types of nodes at both ends of edges of a type; of one of nodes itself."""
    return (of[0], of[-1]) if isinstance(of, tuple) else (of, of)


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
    def types(self) -> Mapping[Type, "Schema"]:
        """The schema of each type of events."""
        return {None: self}

    @property
    def fields(self) -> list[str]:
        """The fields of events that features are made of."""
        return [*dict.fromkeys(f.of for f in self.features if f.of is not None)]

    def read(
        self, values: Sequence[Any], shapes: Mapping[Type, Shapes], named: Container[Type] = ()
    ) -> Columns:
        """What events say, column by column.

        Args:
            values: The events.
            shapes: The shape of a row of `'x'`, and of each edge input, as far as it is known, by
                type.
            named: The types of nodes that have names.

        Raises:
            MalformedError: If some do not say what is expected of them.
        """
        own = shapes.get(None, {})
        return _each(values, lambda some: {None: self.by_kind(some, None, own, named)}, _joined)

    def by_kind(
        self, values: Sequence[Any], of: Type, shapes: Shapes, named: Container[Type]
    ) -> ByKind:
        """What events of one type say, by kind; their places are those in `values`.

        Raises:
            Exception: What a read of anything may raise; see `read`.
        """
        by_name = [end in named for end in ends_of(of)]
        codes = self._codes(values, of)
        if len({*codes}) == 1:
            kind = KINDS[codes[0]]
            ids = self._ids_of(kind, values, by_name)
            return {kind: self._of_kind(kind, values, np.arange(len(values)), ids, shapes)}
        code = np.frombuffer(bytes(codes), np.uint8)
        counts = np.bincount(code, minlength=len(KINDS)).tolist()
        found = {}
        for alike in (OF_EDGES, OF_NODES):  # of which the same fields say the nodes
            there = [k for k in alike if counts[KINDS.index(k)]]
            if there:
                at = np.flatnonzero((code < len(OF_EDGES)) == (alike is OF_EDGES))
                ids, its = self._ids_of(there[0], _those(values, at), by_name), code[at]
                for kind in there:
                    own = np.flatnonzero(its == KINDS.index(kind))
                    found[kind] = self._of_kind(kind, values, at[own], ids.take(own, 1), shapes)
        return found

    def _codes(self, values: Sequence[Any], of: Type) -> Sequence[int]:
        """The place in `KINDS` of the kind of each event."""
        if self.kind is None:
            return [KINDS.index("node" if isinstance(of, str) else "edge_add")] * len(values)
        codes = {
            name: KINDS.index(kind) for name, kind in self.kinds.items()
            if of is None or (kind in OF_NODES) == (type(of) is str)
        }  # fmt: skip
        said = [*map(itemgetter(self.kind), values)]
        try:
            return [*map(codes.__getitem__, said)]
        except KeyError:
            wrong = next(name for name in said if name not in codes)
            raise ValueError(f"'{self.kind}' is {wrong!r}, expected one of {[*codes]}") from None

    def _ids_of(self, kind: Kind, values: Sequence[Any], by_name: Sequence[bool]) -> Any:
        """The ends of edges, `[2, k]`, or the nodes, `[1, k]`, of events of a kind."""
        names = [self.node] if kind in OF_NODES else [self.src, self.dst]
        if not any(by_name):
            return _integers(values, names)
        return np.stack([
            _node_names(values, name) if is_name else _integers(values, [name])[0]
            for name, is_name in zip(names, by_name, strict=False)
        ])  # fmt: skip

    def _of_kind(
        self, kind: Kind, values: Sequence[Any], at: Ids, ids: Any, shapes: Shapes
    ) -> OfKind:
        """The events of a kind, with the rows that belong to them."""
        if kind in ("edge_del", "node_del") or not (
            kind == "node" or self.edge_data or self.features
        ):
            return OfKind(at, ids, {})
        own = _those(values, at)
        if kind == "node":
            return OfKind(at, ids, {"x": _rows(own, self.x, shapes.get("x"))})
        data = {name: _rows(own, of, shapes.get(name)) for name, of in self.edge_data.items()}
        if not self.features:
            return OfKind(at, ids, data)
        times = np.zeros(len(own)) if self.time is None else _finite(own, self.time)
        made = [times, *(_finite(own, name) for name in self.fields)]
        return OfKind(at, ids, data, np.stack(made, axis=1))

    def times(self, values: Sequence[Any]) -> Times:
        """The event times, float64 `[k]`; NaN where the schema names no field for it.

        Raises:
            MalformedError: If some have none.
        """
        return _each(values, self._times, np.concatenate)

    def _times(self, values: Sequence[Any]) -> Times:
        return np.full(len(values), np.nan) if self.time is None else _finite(values, self.time)

    def ids(self, values: Sequence[Any]) -> list[Any]:
        """The names of the events; None where the schema names no field for it.

        Raises:
            MalformedError: If some have none.
        """
        return _each(values, self._ids, _chained)

    def _ids(self, values: Sequence[Any]) -> list[Any]:
        return [None] * len(values) if self.event_id is None else _named(values, self.event_id)

    def types_of(self, values: Sequence[Any]) -> list[Type]:
        """The type of each event that can be read."""
        return [None] * len(values)


@dataclass(frozen=True)
class HeteroSchema:
    """Which field of an event is what, where there are several types of nodes and edges.

    Attributes:
        types: The schema of the events of each type: of nodes, `'film'`, or of edges, `('user',
            'rates', 'film')`. That of a type of nodes says `node`, `x` and `new_x`, the features of
            those that come with an edge of any type; its events are rows of nodes unless `kind`
            says something else. `event_id` tells the events of its own type apart.
        type: The field that says of which type an event is.
        called: What its values mean. By default a type of nodes is called by its name, and one of
            edges as PyG does, `'user__rates__film'`, or by its relation, `'rates'`, where no other
            type is called so.

    Raises:
        ValueError: If types do not go together.
    """

    types: Mapping[Type, Schema]
    type: str = "type"
    called: Mapping[Any, Type] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for of in self.types:
            is_edge = isinstance(of, tuple) and len(of) == 3 and all(type(p) is str for p in of)
            if type(of) is not str and not is_edge:
                raise ValueError(
                    "types: expected types of nodes, 'film', and of edges, ('user', 'rates', "
                    f"'film') (got {of!r})"
                )
        if unknown := [of for of in self.called.values() if of not in self.types]:
            raise ValueError(f"called: {unknown} are not among the types, {[*self.types]}")
        if len({schema.which for schema in self.types.values()}) > 1:
            raise ValueError("types: which='oldest' has to be said of all types, or of none")
        made = [
            (end, feature.channel)
            for of, schema in self.types.items()
            for feature in schema.features
            for end in {*feature.ends(ends_of(of))}
        ]
        if len({*made}) < len(made):
            raise ValueError(f"features: expected one for each channel of a type (got {made})")
        if any(schema.features for of, schema in self.types.items() if type(of) is str):
            raise ValueError("features: they are made of edges; give them to a type of edges")

    @property
    def which(self) -> Literal["newest", "oldest"]:
        """Which of several edges of one pair is deleted or changed."""
        return next((schema.which for schema in self.types.values()), "newest")

    @cached_property
    def _types_by_name(self) -> Mapping[Any, Type]:
        relations = [of[1] for of in self.types if type(of) is not str]
        found = {name: of for of in self.types for name in _names_of(of)}
        short = {
            of[1]: of for of in self.types if type(of) is not str and relations.count(of[1]) == 1
        }
        return {**short, **found, **self.called}

    def types_of(self, values: Sequence[Any]) -> list[Type]:
        """The type of each event that can be read."""
        known = self._types_by_name
        return [known[name] for name in map(itemgetter(self.type), values)]

    def _each_type(
        self, values: Sequence[Any]
    ) -> Iterable[tuple[Type, Schema, Ids, Sequence[Any]]]:
        """The events of each type that is there, with their places."""
        known = self._types_by_name
        said = [*map(itemgetter(self.type), values)]
        if not {*said} <= known.keys():
            wrong = next(name for name in said if name not in known)
            raise ValueError(f"'{self.type}' is {wrong!r}, expected one of {[*known]}")
        found = [*map(known.__getitem__, said)]
        for of, schema in self.types.items():
            is_own = [of == other for other in found]
            if any(is_own):
                yield of, schema, np.flatnonzero(is_own), [*compress(values, is_own)]

    def read(
        self, values: Sequence[Any], shapes: Mapping[Type, Shapes], named: Container[Type] = ()
    ) -> Columns:
        """What events say, column by column; see `Schema.read`."""

        def read(some: Sequence[Any]) -> Columns:
            columns: Columns = {}
            for of, schema, at, own in self._each_type(some):
                columns[of] = schema.by_kind(own, of, shapes.get(of, {}), named)
                for kind in columns[of].values():
                    kind.at = at[kind.at]
            return columns

        return _each(values, read, _joined)

    def times(self, values: Sequence[Any]) -> Times:
        """The event times, float64 `[k]`; see `Schema.times`."""

        def read(some: Sequence[Any]) -> Times:
            times = np.empty(len(some))
            for _, schema, at, own in self._each_type(some):
                times[at] = schema._times(own)
            return times

        return _each(values, read, np.concatenate)

    def ids(self, values: Sequence[Any]) -> list[Any]:
        """The names of the events, each with its type; see `Schema.ids`."""

        def read(some: Sequence[Any]) -> list[Any]:
            names: list[Any] = [None] * len(some)
            for of, schema, at, own in self._each_type(some):
                if schema.event_id is not None:
                    for n, name in zip(at.tolist(), schema._ids(own), strict=True):
                        names[n] = of, name
            return names

        return _each(values, read, _chained)


AnySchema = Schema | HeteroSchema


def _names_of(of: Type) -> list[str]:
    return [of] if type(of) is str else ["__".join(of)]


def _each(
    values: Sequence[Any], read: Callable[[Sequence[Any]], T], join: Callable[[list[T]], T]
) -> T:
    """What is read of all values; where that fails, of each by itself.

    Whether an event can be read says itself, and no other one that happens to be read with it.

    Args:
        values: The events.
        read: What some of them say.
        join: Puts together what was read of each.

    Raises:
        MalformedError: If some cannot be read.
    """
    try:
        return read(values)
    except _NOT_OF_AN_EVENT:
        raise
    except Exception as error:  # events are anybody's
        found, reasons = [], {}
        for at, value in enumerate(values):
            try:
                found.append(read([value]))
            except _NOT_OF_AN_EVENT:
                raise
            except Exception as why:
                reasons[at] = _reason(why, value)
        if reasons:
            raise MalformedError(reasons) from error
        return join(found)


def _joined(each: list[Columns]) -> Columns:
    """What was read of one event after the other.

    Raises:
        MalformedError: If some have rows of another shape than most.
    """
    found: dict[tuple[Type, Kind], list[tuple[int, OfKind]]] = {}
    for at, columns in enumerate(each):
        for of, kinds in columns.items():
            for kind, own in kinds.items():
                found.setdefault((of, kind), []).append((at, own))
    done: Columns = {}
    reasons: dict[int, str] = {}
    for (of, kind), some in found.items():
        shapes = [str({k: [*rows.shape[1:]] for k, rows in own.data.items()}) for _, own in some]
        usual = max(dict.fromkeys(shapes), key=shapes.count)
        for (at, _), shape in zip(some, shapes, strict=True):
            if shape != usual:
                reasons[at] = f"rows have the shapes {shape}, expected those of the others, {usual}"
        if not reasons:
            rows = [own for _, own in some]
            values = [own.values for own in rows if own.values is not None]
            done.setdefault(of, {})[kind] = OfKind(
                np.array([at for at, _ in some]),
                np.concatenate([own.ids for own in rows], axis=1),
                {k: np.concatenate([own.data[k] for own in rows]) for k in rows[0].data},
                np.concatenate(values) if values else None,
            )
    if reasons:
        raise MalformedError(reasons)
    return done


def _chained(each: list[list[Any]]) -> list[Any]:
    return [*chain.from_iterable(each)]


def _those(values: Sequence[Any], at: Ids) -> Sequence[Any]:
    """Some of the values; all of them as they are."""
    return values if at.size == len(values) else [values[n] for n in at.tolist()]


def _integers(values: Sequence[Any], names: Sequence[str]) -> Ids:
    """What fields say, `[len(names), len(values)]`."""
    found = [[*map(itemgetter(name), values)] for name in names]
    with contextlib.suppress(struct.error):  # in a fifth of the time that numpy takes
        them = np.empty((len(names), len(values)), np.int64)
        struct.pack_into(f"{them.size}q", them.data, 0, *chain.from_iterable(found))
        may_be_truths = them.view(np.uint64) < 2
        if not may_be_truths.any() or all(
            type(found[row][n]) is int for row, n in np.argwhere(may_be_truths).tolist()
        ):
            return them
    for name, given in zip(names, found, strict=True):
        ids = np.array(given)
        # A truth value among integers would become one.
        is_id = ids.dtype.kind in "iu" and _TRUTHS.isdisjoint(map(type, given))
        if not is_id or ids.ndim != 1 or (ids > _LARGEST).any():
            raise ValueError(f"'{name}' is {given[0]!r}, expected the id of a node, an integer")
    return np.array(found, np.int64)


def _node_names(values: Sequence[Any], name: str) -> Any:
    found = _plain([*map(itemgetter(name), values)])
    if not set(map(type, found)) <= _NAMES:
        raise ValueError(f"'{name}' is {found[0]!r}, expected the name of a node")
    names = np.empty(len(found), object)
    names[:] = found
    return names


def _plain(values: list[Any]) -> list[Any]:
    """Strings and integers of Python in the place of NumPy's."""
    if set(map(type, values)) <= _NAMES:
        return values
    return [value.item() if isinstance(value, np.generic) else value for value in values]


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


def _finite(values: Sequence[Any], name: str) -> Times:
    found = [*map(itemgetter(name), values)]
    times = _as_numbers(np.array(found))
    is_number = times.dtype.kind in "iuf" and _TRUTHS.isdisjoint(map(type, found))
    if not is_number or times.ndim != 1 or not np.isfinite(times).all():
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
    ids = _plain([*map(itemgetter(name), values)])
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
