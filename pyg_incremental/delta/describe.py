"""What changed: the public description of one group of changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData

from pyg_incremental.errors import InvalidDeltaError


class HasState(Protocol):
    """What a delta is turned around against: an `IncrementalModel`."""

    def inverse(self, delta: GraphDelta) -> GraphDelta:
        """The delta that undoes `delta`, read off the current state."""


F = TypeVar("F", bound=Callable[..., Any])
_COLUMNS = (("src", "dst"), ("source", "target"))
EDGE_DATA = {"edge_weight_add": "edge_weight", "edge_attr_add": "edge_attr"}


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
        edge_index_add: Edges to add, int64 `[2, k]`. An edge that is there already gets one more
            occurrence.
        edge_index_del: Edges to delete, int64 `[2, m]`; each listed pair loses its most recently
            added occurrence.
        x_changes: `(ids, rows)`: nodes, int64 `[c]`, and their new features, `[c, in_channels]`. Of
            an id listed twice the last row counts.
        edge_weight_add: Weights of the added edges, `[k]`.
        edge_attr_add: Attributes of the added edges, `[k, edge_dim]`.
        edge_changes: `(edge_index, {'edge_weight': w, 'edge_attr': a})`: new data for edges that
            are there, `[2, r]` and `[r, ...]`; the most recently added occurrence of each pair
            takes them.
        x_add: Features of new nodes, `[n, in_channels]`; their ids follow the last one.
        nodes_del: Nodes to remove, int64 `[d]`: their edges leave, their ids stay and read as
            isolated nodes with zero features.
        edge_data_add: Data of the added edges by the name of the edge input, `[k, ...]` each:
            what a model needs that takes other edge inputs than `edge_weight` and `edge_attr`.
        undirected: Take every edge of this delta in both directions (a self-loop once).
        missing: What to do about deleted or changed edges that are not there: `'error'` or
            `'ignore'`.
    """

    edge_index_add: Any = None
    edge_index_del: Any = None
    x_changes: Any = None
    edge_weight_add: Any = None
    edge_attr_add: Any = None
    edge_changes: Any = None
    x_add: Any = None
    nodes_del: Any = None
    edge_data_add: Any = None
    undirected: bool = False
    missing: Literal["error", "ignore"] = "error"

    def __repr__(self) -> str:
        given = self._given()
        return f"GraphDelta({', '.join(given)})"

    def _given(self) -> list[str]:
        """The fields that say something."""
        return [
            f.name
            for f in fields(self)
            if getattr(self, f.name) is not f.default and getattr(self, f.name) is not None
        ]

    def alone(self) -> GraphDelta:
        """The delta that stands in the place of `edge_index_add`, or this one if there is none.

        Nothing may be given beside it.
        """
        delta = self.edge_index_add
        if not isinstance(delta, GraphDelta):
            return self
        beside = self._given()[1:]
        if beside:
            raise InvalidDeltaError(
                "apply_delta: expected either one GraphDelta or keywords (got a GraphDelta and "
                f"{', '.join(beside)}); put everything into the GraphDelta"
            )
        return delta

    @property
    def plain_parts(self) -> tuple[Any, Any, Any] | None:
        """`edge_index_add`, `edge_index_del` and `x_changes`, if nothing else is said."""
        if self.undirected or self.missing != "error" or not (
            self.edge_weight_add is self.edge_attr_add is self.edge_changes is self.x_add
            is self.nodes_del is self.edge_data_add is None
        ):  # fmt: skip
            return None
        return self.edge_index_add, self.edge_index_del, self.x_changes

    def both_directions(self) -> GraphDelta:
        """The same changes with `undirected` written out."""
        if not self.undirected:
            return self
        if self._keys():
            return self._key_by_key(GraphDelta.both_directions)
        parts: dict[str, Any] = {"undirected": False}
        if self.edge_index_add is not None:
            edges, again = _mirrored(as_edges(self.edge_index_add, "edge_index_add"))
            parts["edge_index_add"] = edges
            for name in EDGE_DATA:
                rows = getattr(self, name)
                if rows is not None:
                    parts[name] = _repeated(as_rows(rows, name), again, name)
            if self.edge_data_add is not None:
                parts["edge_data_add"] = {
                    k: _repeated(as_rows(v, k), again, k)
                    for k, v in added_data(self.edge_data_add).items()
                }
        if self.edge_index_del is not None:
            parts["edge_index_del"], _ = _mirrored(as_edges(self.edge_index_del, "edge_index_del"))
        if self.edge_changes is not None:
            edge_index, data = edge_change_parts(self.edge_changes)
            edges, again = _mirrored(edge_index)
            data = {
                k: _repeated(as_rows(v, f"edge_changes[1]['{k}']"), again, k)
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
            and delta.missing == "error"
        )
        if plain and delta.edge_index_add is not None and delta.edge_index_del is not None:
            added = as_edges(delta.edge_index_add, "edge_index_add")
            deleted = as_edges(delta.edge_index_del, "edge_index_del")
            stays_added, stays_deleted = _without_common(pair_keys(added), pair_keys(deleted))
            parts["edge_index_add"] = torch.from_numpy(added[:, stays_added])
            parts["edge_index_del"] = torch.from_numpy(deleted[:, stays_deleted])
        return replace(delta, **parts)

    def _keys(self) -> list[Any]:
        """The types of nodes and edges, if the fields are given by type."""
        return list(dict.fromkeys(k for v in self._keyed().values() for k in v))

    def _keyed(self) -> dict[str, Mapping[Any, Any]]:
        """The fields that are given by type."""
        given = {name: getattr(self, name) for name in self._given()}
        return {
            name: value
            for name, value in given.items()
            if isinstance(value, Mapping)
            and (name != "edge_data_add" or all(isinstance(v, Mapping) for v in value.values()))
        }

    def _key_by_key(self, change: Callable[[GraphDelta], GraphDelta]) -> GraphDelta:
        """The same done to what is said of each type, and to what is said without one."""
        keyed = self._keyed()
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


# Reading what a user hands in ----------------------------------------------------------------


def refuse_data(value: object, name: str) -> None:
    """A whole graph is not a delta."""
    if isinstance(value, (Data, HeteroData)):
        raise InvalidDeltaError(
            f"{name} got a {type(value).__name__} object, which is a whole graph; a delta names "
            "only what changes: pass edge_index_add=..., edge_index_del=... or x_changes=(ids, "
            "rows), or call the model on the new graph"
        )


def as_rows(value: Any, name: str) -> Any:
    """A tensor as it is; anything else as an array, which is later converted to the right dtype."""
    if isinstance(value, Tensor):
        return value.detach()
    refuse_data(value, name)
    try:
        rows = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise _not_numbers(value, name, error) from error
    return rows


def as_tensor(value: Any, name: str) -> Tensor:
    """A tensor, from a tensor, an array or nested lists."""
    rows = as_rows(value, name)
    try:
        return torch.as_tensor(rows)
    except (TypeError, ValueError) as error:
        raise _not_numbers(value, name, error) from error


def _not_numbers(value: Any, name: str, error: Exception) -> InvalidDeltaError:
    return InvalidDeltaError(
        f"{name}: expected a tensor, an array or a list of numbers (got {type(value).__name__}: "
        f"{error})"
    )


def added_data(value: Any) -> Mapping[str, Any]:
    """The entries of `edge_data_add`."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidDeltaError(
            "edge_data_add: expected a mapping from the name of an edge input to its rows, as in "
            f"{{'edge_type': [k]}} (got {_describe(value)})"
        )
    return value


def _integers(value: Any, name: str, empty: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:
    if (
        type(value) is Tensor
        and value.dtype is torch.int64
        and value.dim() == len(empty)
        and value.is_cpu
        and value.layout is torch.strided
    ):
        return value.contiguous().numpy()
    t = as_tensor(value, name)
    if isinstance(t, EdgeIndex):
        t = t.as_tensor()
    if t.numel() == 0 and (t.dim() == 1 or t.shape == empty):
        return np.empty(empty, np.int64)
    if t.is_meta or t.layout is not torch.strided:
        raise InvalidDeltaError(
            f"{name}: expected a dense tensor on device 'cpu' (got device '{t.device}', layout "
            f"{t.layout})"
        )
    if t.dtype.is_floating_point or t.dtype.is_complex or t.dtype is torch.bool:
        raise InvalidDeltaError(f"{name}: expected integers (got {t.dtype}); ids are int64")
    return t.cpu().contiguous().to(torch.int64).numpy()


def as_edges(value: Any, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Edges as int64 `[2, k]`, from a tensor, an array, two lists, or a table with named columns.

    Raises:
        InvalidDeltaError: If it is something else, or does not say which ids are the sources.
    """
    if hasattr(value, "columns") and hasattr(value, "__getitem__"):
        value = _ends_of_table(value, name)
    elif isinstance(value, (list, tuple)) and np.shape(_plain(value)) == (2, 2):
        raise InvalidDeltaError(
            f"{name}: two lists of two ids may be two pairs, or sources above targets (got "
            f"{value}); say which with torch.tensor([sources, targets]), or torch.tensor(pairs).t()"
        )
    edges = _integers(value, name, (2, 0))
    if edges.ndim != 2 or edges.shape[0] != 2:
        hint = "; pass its transpose" if edges.ndim == 2 and edges.shape[1] == 2 else ""
        raise InvalidDeltaError(
            f"{name}: expected shape [2, num_edges], sources above targets (got "
            f"{list(edges.shape)}){hint}"
        )
    return edges


def _plain(value: Any) -> Any:
    """Nested lists as they are; nothing where their shape cannot be told."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError):
        return None


def _ends_of_table(table: Any, name: str) -> np.ndarray[Any, Any]:
    """The columns of sources and targets of a table such as a data frame, `[2, k]`."""
    columns = list(table.columns)
    for source, target in _COLUMNS:
        if source in columns and target in columns:
            return np.stack([np.asarray(table[source]), np.asarray(table[target])])
    raise InvalidDeltaError(
        f"{name}: expected a table with columns "
        f"{' or '.join(f'{s!r} and {t!r}' for s, t in _COLUMNS)} (got {columns}); rename them, or "
        "pass torch.tensor([sources, targets])"
    )


def as_ids(value: Any, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Node ids as int64 `[k]`."""
    ids = _integers(value, name, (0,))
    if ids.ndim == 0:
        ids = ids.reshape(1)
    if ids.ndim != 1:
        raise InvalidDeltaError(
            f"{name}: expected a list of node ids, shape [k] (got {list(ids.shape)})"
        )
    return ids


def x_change_parts(value: Any) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Any]:
    """Ids and rows of `x_changes`."""
    refuse_data(value, "x_changes")
    if isinstance(value, Mapping) or not isinstance(value, (tuple, list)) or len(value) != 2:
        raise InvalidDeltaError(
            f"x_changes: expected a pair (ids [c], rows [c, in_channels]) (got {_describe(value)})"
        )
    return as_ids(value[0], "x_changes[0]"), value[1]


def edge_change_parts(value: Any) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Mapping[str, Any]]:
    """Edges and data of `edge_changes`."""
    refuse_data(value, "edge_changes")
    if not isinstance(value, (tuple, list)) or len(value) != 2 or not isinstance(value[1], Mapping):
        raise InvalidDeltaError(
            "edge_changes: expected a pair (edge_index [2, r], {'edge_weight': [r], 'edge_attr': "
            f"[r, edge_dim]}}) (got {_describe(value)})"
        )
    return as_edges(value[0], "edge_changes[0]"), value[1]


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)} items"
    return type(value).__name__


# Small algebra on ids and pairs --------------------------------------------------------------


def pair_keys(edges: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """One int64 per edge, equal for equal pairs."""
    keys: np.ndarray[Any, np.dtype[np.int64]] = (edges[0] << 32) | edges[1]
    return keys


def last_of_each(keys: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Positions of the last occurrence of every key, ascending."""
    if keys.size < 2 or np.all(keys[1:] > keys[:-1]):
        return np.arange(keys.size)
    _, at = np.unique(keys[::-1], return_index=True)
    return np.sort(keys.size - 1 - at)


def _mirrored(
    edges: np.ndarray[Any, np.dtype[np.int64]],
) -> tuple[Tensor, np.ndarray[Any, np.dtype[np.bool_]]]:
    again = edges[0] != edges[1]
    return torch.from_numpy(np.concatenate([edges, edges[::-1, again]], axis=1)), again


def _repeated(rows: Any, again: np.ndarray[Any, np.dtype[np.bool_]], name: str) -> Any:
    if not rows.ndim or rows.shape[0] != again.size:
        raise InvalidDeltaError(
            f"{name}: expected one row for each of the {again.size} listed edges (got shape "
            f"{list(rows.shape)})"
        )
    if isinstance(rows, Tensor):
        return torch.cat([rows, rows[torch.from_numpy(again)]])
    return np.concatenate([rows, rows[again]])


def _without_common(
    a: np.ndarray[Any, np.dtype[np.int64]], b: np.ndarray[Any, np.dtype[np.int64]]
) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Masks that leave out, pair by pair, what occurs on both sides."""

    def rank(keys: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        order = np.argsort(keys, kind="stable")
        grouped = keys[order]
        first = np.searchsorted(grouped, grouped, side="left")
        out = np.empty(keys.size, np.int64)
        out[order] = np.arange(keys.size) - first
        return out

    left = np.stack([a, rank(a)], axis=1)
    right = np.stack([b, rank(b)], axis=1)
    common = {tuple(k) for k in left.tolist()} & {tuple(k) for k in right.tolist()}
    return (
        np.array([tuple(k) not in common for k in left.tolist()], bool),
        np.array([tuple(k) not in common for k in right.tolist()], bool),
    )
