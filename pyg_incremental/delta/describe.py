"""What changed: the public description of one group of changes."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import Any, Literal, Protocol, TypedDict, TypeVar

import numpy as np
import torch

from pyg_incremental.delta.given import (
    EDGE_DATA,
    added_data,
    as_edges,
    as_ids,
    as_rows,
    deleted_data,
    edge_change_parts,
    last_of_each,
    mirrored,
    pair_keys,
    repeated,
    without_common,
    x_change_parts,
)
from pyg_incremental.delta.joined import joined
from pyg_incremental.delta.summary import summary
from pyg_incremental.delta.tables import has_more_columns, refuse_more_columns
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.typing import Changes, EdgeChanges, Nodes, Numbers, Pairs


class HasState(Protocol):
    """What a delta is turned around against: an `IncrementalModel`."""

    def inverse(self, delta: GraphDelta) -> GraphDelta:
        """The delta that undoes `delta`, read off the current state."""


F = TypeVar("F", bound=Callable[..., Any])


class Fields(TypedDict, total=False):
    """What `apply_delta` takes by name only: the other fields of a `GraphDelta`."""

    edge_weight_add: Numbers | Mapping[Any, Numbers] | None
    edge_attr_add: Numbers | Mapping[Any, Numbers] | None
    edge_changes: EdgeChanges | Mapping[Any, EdgeChanges] | None
    x_add: Numbers | Mapping[Any, Numbers] | None
    nodes_del: Nodes | Mapping[Any, Nodes] | None
    edge_data_add: Mapping[str, Numbers] | Mapping[Any, Mapping[str, Numbers]] | None
    pairs_add: Pairs | Mapping[Any, Pairs] | None
    pairs_del: Pairs | Mapping[Any, Pairs] | None
    edge_data_del: Mapping[str, Numbers] | Mapping[Any, Mapping[str, Numbers]] | None
    undirected: bool
    missing: Literal["error", "ignore"]
    which: Literal["newest", "oldest"]
    invalid: Literal["error", "skip"]
    node_ids: Any
    values: Any
    edge_ids_add: Any
    edge_ids_del: Any


T = TypeVar("T")

_MEANT = {
    "add": "edge_index_add", "add_edge": "edge_index_add", "add_edges": "edge_index_add",
    "added": "edge_index_add", "edge_add": "edge_index_add", "edges": "edge_index_add",
    "edges_add": "edge_index_add", "edge_index": "edge_index_add", "insert": "edge_index_add",
    "del": "edge_index_del", "del_edges": "edge_index_del", "delete": "edge_index_del",
    "deleted": "edge_index_del", "edge_del": "edge_index_del", "edges_del": "edge_index_del",
    "edge_index_remove": "edge_index_del", "remove": "edge_index_del",
    "remove_edges": "edge_index_del", "removed": "edge_index_del",
    "x": "x_changes", "x_new": "x_changes", "features": "x_changes", "update": "x_changes",
    "add_nodes": "x_add", "new_nodes": "x_add", "node_add": "x_add", "nodes": "x_add",
    "nodes_add": "x_add", "new_x": "x_add", "num_nodes": "x_add",
    "del_nodes": "nodes_del", "node_del": "nodes_del", "remove_nodes": "nodes_del",
    "nodes_remove": "nodes_del", "edge_weight": "edge_weight_add", "weight": "edge_weight_add",
    "edge_attr": "edge_attr_add", "edge_type": "edge_data_add", "edge_time": "edge_data_add",
    "time": "edge_data_add", "timestamp": "edge_data_add",
}  # fmt: skip
"""What people call the fields that other libraries call otherwise."""


def _no_field(name: str, known: list[str]) -> str:
    """What to say of a keyword that is no field of a delta."""
    near = _MEANT.get(name) or next(iter(difflib.get_close_matches(name, known, 1, 0.75)), None)
    if near == "edge_data_add":
        cure = f"data of edges come as edge_data_add={{{name!r}: rows}}"
    elif near is not None:
        cure = f"write {near}=..."
    else:
        cure = f"the fields are {', '.join(known)}"
    return f"a delta has no field {name!r} (got {name}=...); {cure}"


def _holds_what_is_said(cls: type[T]) -> type[T]:
    """Let a delta hold what is said alone, and answer a keyword that is no field by what is meant.

    What is not said is looked up in the class, so a delta is made, and read, in the time that its
    fields take, of which most deltas have one or two.
    """
    plain: Any = cls.__init__
    of_all: Any = fields(cls)  # type: ignore[arg-type]
    defaults = {f.name: f.default for f in of_all}
    order = (*defaults,)

    @wraps(plain)
    def init(self: Any, *given: Any, **named: Any) -> None:
        if given:
            if len(given) > len(order) or not named.keys().isdisjoint(order[: len(given)]):
                plain(self, *given, **named)  # which raises
            named = dict(zip(order, given, strict=False)) | named
        held = vars(self)
        for name, value in named.items():
            if name not in defaults:
                raise InvalidDeltaError(_no_field(name, [*order]))
            if value is not None and value is not defaults[name]:
                held[name] = value

    cls.__init__ = init  # type: ignore[method-assign]
    return cls


@_holds_what_is_said
@dataclass(frozen=True, eq=False)
class GraphDelta:
    """A group of changes to a graph, applied as one.

    They take effect in this order: new nodes, deletions (of edges that were there before),
    additions, changes of features and edge data, removals of nodes.

    With several types of nodes or edges every field is a dict: fields of nodes by node type (of a
    call with a pair `'src'` and `'dst'`), fields of edges by edge type, or by the name of the
    argument that is the graph. What it holds is then as below. Fields of nodes may name an argument
    too, such as `'pos'` or `'hyperedge_weight'`, where there is more than one with a row for each
    node; hyperedges are nodes of the type `'hyperedge'`.

    Attributes:
        edge_index_add: Edges to add, int64 `[2, k]`, or a table with columns `src` and `dst` (or
            `source` and `target`, `from` and `to`, `u` and `v`), such as a data frame, of which
            columns that are called like an edge input are the data of the edges. An edge that is
            there already gets one more occurrence.
        edge_index_del: Edges to delete, int64 `[2, m]`; each listed pair loses its most recently
            added occurrence (but see `which`, and `edge_data_del`). Columns of a table that are
            called like an edge input are `edge_data_del`, and others are refused.
        x_changes: `(ids, rows)`: nodes, int64 `[c]`, and their new features, `[c, in_channels]`, or
            one id and its row `[in_channels]`. Of an id listed twice the last row counts.
        edge_weight_add: Weights of the added edges, `[k]`.
        edge_attr_add: Attributes of the added edges, `[k, edge_dim]`.
        edge_changes: `(edge_index, {'edge_weight': w, 'edge_attr': a})`: new data for edges that
            are there, `[2, r]` and `[r, ...]`, or a table as above; the most recently added
            occurrence of each pair takes them (but see `which`).
        x_add: Features of new nodes, `[n, in_channels]`, or `[in_channels]` of one; their ids
            follow the last one.
        nodes_del: Nodes to remove, int64 `[d]`: their edges leave, their ids stay and read as
            isolated nodes with zeros in every input: features, states, whatever has a row for each
            node. They leave the graphs that `batch` names, unless a step on all rows reads it.
        edge_data_add: Data of the added edges by the name of the edge input, `[k, ...]` each:
            what a model needs that takes other edge inputs than `edge_weight` and `edge_attr`.
        undirected: Take every edge of this delta in both directions (a self-loop once).
        missing: What to do about deleted or changed edges that are not there: `'error'` or
            `'ignore'`.
        which: Which of several edges of one pair is deleted or changed: the one added last,
            `'newest'`, or first, `'oldest'`, as in a sliding window.
        pairs_add: Pairs of nodes to be watched from now on, `[2, k]`, where the model is called
            with some (`edge_label_index`); their rows of the output come last. A dict by argument
            if there are several such. What is given here may as well be given as edges of that
            argument; `undirected` has nothing to do with it. Ids in other shapes come as the model
            takes them: triples `[k, 3]`, or `(users, candidates)`, `[k]` and `[k, m]`.
        pairs_del: Pairs to be watched no longer, `[2, m]`; each listed one loses one occurrence.
        edge_data_del: Which of several edges of one pair are deleted: those with these data, by the
            name of the edge input, `[m, ...]` each. All that are given have to be equal once
            rounded to the dtype of the first pass (NaN equals NaN); of several such `which` tells.
        invalid: What to do about entries that do not fit, which are ids of nodes that are not
            there, and edges to delete or change that are not: refuse the delta, `'error'`, or leave
            them out, `'skip'`, so that `Update.refused` names them. What is wrong with a whole
            field (its shape, dtype or missing data), or with new nodes, is an error either way.
        node_ids: The names of the new nodes, `[n]`, beside `x_add`, where the first call gave nodes
            names (`node_ids=`). All fields call nodes by their names then: strings, integers of 64
            bits or UUIDs. The names of removed nodes may be given again.
        values: What arguments are from now on that are neither of nodes nor of edges, by name:
            `{'now': t}`, a tensor of the shape of the first call, or a number or text that was one.
            What reads them is computed anew, as in a first pass.
        edge_ids_add: The ids of the added edges, `[k]`, where the first call gave edges ids
            (`edge_ids=`): strings, integers of 64 bits or UUIDs. Ids of edges that have left may be
            given again. With `undirected` both directions of an edge have its id.
        edge_ids_del: Edges to delete by their ids alone, `[m]`, in the place of `edge_index_del`.

    Numbers come as tensors, arrays or lists, and are rounded to the dtype of the first pass;
    floats in the place of integers are refused, and so is what that dtype cannot hold.

    `d1 + d2` is the delta that does what `d1` and then `d2` do, in one update.
    """

    edge_index_add: GraphDelta | Pairs | Mapping[Any, Pairs] | None = None
    edge_index_del: Pairs | Mapping[Any, Pairs] | None = None
    x_changes: Changes | Mapping[Any, Changes] | None = None
    edge_weight_add: Numbers | Mapping[Any, Numbers] | None = None
    edge_attr_add: Numbers | Mapping[Any, Numbers] | None = None
    edge_changes: EdgeChanges | Mapping[Any, EdgeChanges] | None = None
    x_add: Numbers | Mapping[Any, Numbers] | None = None
    nodes_del: Nodes | Mapping[Any, Nodes] | None = None
    edge_data_add: Mapping[str, Numbers] | Mapping[Any, Mapping[str, Numbers]] | None = None
    undirected: bool = False
    missing: Literal["error", "ignore"] = "error"
    which: Literal["newest", "oldest"] = "newest"
    pairs_add: Pairs | Mapping[Any, Pairs] | None = None
    pairs_del: Pairs | Mapping[Any, Pairs] | None = None
    edge_data_del: Mapping[str, Numbers] | Mapping[Any, Mapping[str, Numbers]] | None = None
    invalid: Literal["error", "skip"] = "error"
    node_ids: Any = None
    values: Any = None
    edge_ids_add: Any = None
    edge_ids_del: Any = None

    def __repr__(self) -> str:
        given = (summary(name, getattr(self, name)) for name in self.says)
        return f"GraphDelta({', '.join(given)})"

    @property
    def says(self) -> list[str]:
        """The fields that say something, in their order."""
        held = vars(self)
        return [name for name in _FIELDS if name in held]

    def alone(self) -> GraphDelta:
        """The delta that stands in the place of `edge_index_add`, or this one if there is none.

        Nothing may be given beside it.
        """
        delta = self.edge_index_add
        if not isinstance(delta, GraphDelta):
            return self
        beside = self.says[1:]
        if beside:
            raise InvalidDeltaError(
                "apply_delta: expected either one GraphDelta or keywords (got a GraphDelta and "
                f"{', '.join(beside)}); put everything into the GraphDelta"
            )
        return delta

    @property
    def plain_parts(self) -> tuple[Any, Any, Any] | None:
        """`edge_index_add`, `edge_index_del` and `x_changes`, if nothing else is said."""
        held = vars(self)
        if not held.keys() <= _PLAIN:
            return None
        return self.edge_index_add, self.edge_index_del, self.x_changes

    @property
    def parts_by_id(self) -> tuple[Any, ...] | None:
        """The same, and `edge_ids_add` and `edge_ids_del`, if nothing but these is said."""
        held = vars(self)
        if not held.keys() <= _PLAIN_BY_ID:
            return None
        ids = self.edge_ids_add, self.edge_ids_del
        return (self.edge_index_add, self.edge_index_del, self.x_changes, *ids)

    @property
    def says_something(self) -> bool:
        """Whether anything is to change."""
        return not {*self.says} <= {"undirected", "missing", "which", "invalid"}

    @property
    def tells_apart(self) -> bool:
        """Whether edges to delete are told apart by their data."""
        if self.edge_data_del is not None or self.edge_ids_del is not None:
            return True
        given = [self.edge_index_del, self.pairs_del]
        every = [v for g in given for v in (g.values() if isinstance(g, Mapping) else [g])]
        tables = [v for v in every if v is not None and not isinstance(v, torch.Tensor)]
        return any(has_more_columns(value, "edge_index_del") for value in tables)

    def both_directions(self) -> GraphDelta:
        """The same changes with `undirected` written out.

        Raises:
            InvalidDeltaError: If edges are a table with data, which only a model can read.
        """
        if not self.undirected:
            return self
        if self._keys():
            return self._key_by_key(GraphDelta.both_directions)
        self._refuse_more_columns()
        parts: dict[str, Any] = {"undirected": False}
        if self.edge_index_add is not None:
            edges, listed = mirrored(as_edges(self.edge_index_add, "edge_index_add"))
            parts["edge_index_add"] = edges
            for name in EDGE_DATA:
                rows = getattr(self, name)
                if rows is not None:
                    parts[name] = repeated(as_rows(rows, name), listed, name)
            if self.edge_data_add is not None:
                parts["edge_data_add"] = {
                    k: repeated(as_rows(v, k), listed, k)
                    for k, v in added_data(self.edge_data_add).items()
                }
        if self.edge_index_del is not None:
            edges, listed = mirrored(as_edges(self.edge_index_del, "edge_index_del"))
            parts["edge_index_del"] = edges
            if self.edge_data_del is not None:
                parts["edge_data_del"] = {
                    k: repeated(as_rows(v, k), listed, k)
                    for k, v in deleted_data(self.edge_data_del).items()
                }
        if self.edge_changes is not None:
            edge_index, data = edge_change_parts(self.edge_changes)
            edges, listed = mirrored(edge_index, in_turn=True)
            data = {
                k: repeated(as_rows(v, f"edge_changes[1]['{k}']"), listed, k)
                for k, v in data.items()
            }
            parts["edge_changes"] = (edges, data)
        return replace(self, **parts)

    def coalesce(self) -> GraphDelta:
        """The same changes, each said once.

        Of several rows for one node or one edge the last is kept. Without edge data an edge that is
        deleted and added again is left out of both lists (unless `missing='ignore'`, where the
        deletion may have no object).
        """
        if self._keys():
            return self._key_by_key(GraphDelta.coalesce)
        self._refuse_more_columns()
        delta = self.both_directions()
        parts: dict[str, Any] = {}
        if delta.x_changes is not None:
            ids, rows = x_change_parts(delta.x_changes)
            keep = last_of_each(ids)
            parts["x_changes"] = (
                torch.from_numpy(ids[keep]),
                as_rows(rows, "x_changes[1]")[keep],
            )
        if delta.edge_changes is not None:
            edge_index, data = edge_change_parts(delta.edge_changes)
            keep = last_of_each(pair_keys(edge_index))
            parts["edge_changes"] = (
                torch.from_numpy(edge_index[:, keep]),
                {k: as_rows(v, k)[keep] for k, v in data.items()},
            )
        if delta.nodes_del is not None:
            parts["nodes_del"] = torch.from_numpy(np.unique(as_ids(delta.nodes_del, "nodes_del")))
        plain = (
            delta.edge_weight_add is None
            and delta.edge_attr_add is None
            and delta.edge_data_add is None
            and delta.edge_data_del is None
            and delta.edge_ids_add is None
            and delta.missing == "error"
        )
        if plain and delta.edge_index_add is not None and delta.edge_index_del is not None:
            added = as_edges(delta.edge_index_add, "edge_index_add")
            deleted = as_edges(delta.edge_index_del, "edge_index_del")
            stays_added, stays_deleted = without_common(pair_keys(added), pair_keys(deleted))
            parts["edge_index_add"] = torch.from_numpy(added[:, stays_added])
            parts["edge_index_del"] = torch.from_numpy(deleted[:, stays_deleted])
        return replace(delta, **parts)

    def __add__(self, then: GraphDelta) -> GraphDelta:
        """What this delta and then another one do, as one.

        Edges of the first that the second deletes are left out, and so are changes of edges that
        the second deletes.

        Raises:
            InvalidDeltaError: If one delta cannot say it without looking at the graph: the second
                names edges, or gives features, of nodes that the first removes; it adds an edge of
                a pair whose data the first changes; it deletes or changes the oldest edge of a pair
                of which the first adds one; or they differ in `missing`, in `which`, or in which
                data edges come with.
        """
        if not isinstance(then, GraphDelta):
            return NotImplemented
        for delta in (self, then):
            delta._refuse_more_columns()
            for field in ("node_ids", "edge_ids_del"):
                if getattr(delta, field) is not None:
                    raise InvalidDeltaError(
                        f"two deltas as one: {field} say who is meant, which only the model knows; "
                        "apply one after the other"
                    )
        return GraphDelta(**joined(self.both_directions(), then.both_directions()))

    def _keys(self) -> list[Any]:
        """The types of nodes and edges, if the fields are given by type."""
        return list(dict.fromkeys(k for v in self.keyed().values() for k in v))

    def keyed(self) -> dict[str, Mapping[Any, Any]]:
        """The fields that are given by type."""
        given = {name: getattr(self, name) for name in self.says}
        return {
            name: value
            for name, value in given.items()
            if isinstance(value, Mapping)
            and (
                name not in ("edge_data_add", "edge_data_del")
                or all(isinstance(v, Mapping) for v in value.values())
            )
        }

    def _refuse_more_columns(self) -> None:
        """See that no table holds data of edges, where nobody would read them."""
        tables = ("edge_index_add", "edge_index_del", "edge_changes", "pairs_add", "pairs_del")
        for name in tables:
            given = getattr(self, name)
            for value in given.values() if isinstance(given, Mapping) else [given]:
                refuse_more_columns(value, name)

    def _key_by_key(self, change: Callable[[GraphDelta], GraphDelta]) -> GraphDelta:
        """The same done to what is said of each type, and to what is said without one."""
        keyed = self.keyed()
        made: dict[str, Any] = {name: {} for name in keyed}
        nothing = GraphDelta(undirected=self.undirected, missing=self.missing)
        for key in self._keys():
            own = {name: value[key] for name, value in keyed.items() if key in value}
            if self.undirected and isinstance(key, tuple) and key[0] != key[-1]:
                raise InvalidDeltaError(
                    f"undirected: {key!r} connects two kinds of nodes, so its edges have one "
                    "direction; give both edge types"
                )
            part = change(replace(nothing, **own))
            for name in own:
                made[name][key] = getattr(part, name)
        unkeyed: dict[str, Any] = dict.fromkeys(keyed)
        rest = change(replace(self, **unkeyed))
        return replace(rest, undirected=False, **made)

    def inverse(self, model: HasState) -> GraphDelta:
        """The delta that undoes this one, read off the state before it is applied.

        New nodes cannot be taken out again; the inverse removes their edges and sets their features
        to zero.

        Args:
            model: The `IncrementalModel` to which this delta is about to be applied.
        """
        return model.inverse(self)


_FIELDS = [f.name for f in fields(GraphDelta)]
_PLAIN = {"edge_index_add", "edge_index_del", "x_changes"}
BY_ID = ("edge_ids_add", "edge_ids_del")
"""The fields that name edges by their ids."""
_PLAIN_BY_ID = {*_PLAIN, *BY_ID}


def with_fields_of(method: Callable[..., Any]) -> Callable[[F], F]:
    """Show the parameters of a method that takes a delta in the signature of another one.

    That one takes them as `*changes, **fields` and hands them to `GraphDelta`; its own keywords
    follow.

    Args:
        method: The method that names them.
    """

    def decorate(other: F) -> F:
        plain = inspect.Parameter.KEYWORD_ONLY
        own = inspect.signature(other)
        named = inspect.signature(method).parameters
        more = [p for p in own.parameters.values() if p.kind is plain and p.name not in named]
        shown = [*named.values(), *more]
        other.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        return other

    return decorate
