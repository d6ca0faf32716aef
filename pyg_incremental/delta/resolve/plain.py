"""The most common deltas in one look: edges come and go, rows of one input change, nodes come.

Everything else, and everything that is not valid, is left to those who look closer and can say what
is wrong.
"""

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta.describe import BY_ID, GraphDelta
from pyg_incremental.delta.given import EDGE_DATA
from pyg_incremental.delta.resolve.edges import ResolvedEdges
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.graph.storage import IN_NUMPY
from pyg_incremental.typing import MAX_EDGES, MAX_NODES

_NONE = np.empty(0, np.int64)
_NO_EDGES = np.empty((2, 0), np.int64)
_NO_DATA: Mapping[str, Tensor] = {}
_LONG, _STRIDED = torch.int64, torch.strided  # looked up in every small update


class PlainDelta(NamedTuple):
    """A delta that looks plain; whether it fits the graph was not asked yet.

    Attributes:
        added: Edges that come, int64 `[2, k]`.
        gone: Edges that leave, int64 `[2, m]`.
        name: The node input.
        ids: Its rows that change, int64 `[c]`; those of new nodes first.
        rows: The new rows, `[c, ...]`, or None.
        more: How many nodes are new.
        data: What belongs to the edges that come, `[k, ...]`, by name.
        leave: Whether `ids` are nodes that leave.
    """

    added: Ids
    gone: Ids
    name: str
    ids: Ids
    rows: Tensor | None
    more: int = 0
    data: Mapping[str, Tensor] = _NO_DATA
    leave: bool = False


class PlainResolver:
    """Accepts plain deltas.

    Args:
        graph: The graph that edges are of where nothing else is said.
        num_nodes: The current number of nodes of each kind.
        key: How deltas call it where they say which graph they mean.
        named: Whether they have to.
        kinds: The kinds at which its edges start and to which they lead.
        names: What deltas call the features of the first one, the input itself first; if the
            other is another one, it has none.
        like: These without rows, `[0, ...]`.
        alone: Whether there is nothing else: no other graph, kind or input.
        can_grow: Whether there can be more nodes.

    Attributes:
        graph: The graph.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        num_nodes: Mapping[str, int],
        key: Hashable,
        named: bool,
        kinds: tuple[str, str],
        names: tuple[str, ...],
        like: Tensor,
        alone: bool,
        can_grow: bool,
    ) -> None:
        self.graph, self._alone, self._can_grow = graph, alone, can_grow
        self._num_nodes, self._key, self._kind = num_nodes, key, kinds[0]
        self._target = kinds[1]
        self._joins_two = self._target != self._kind
        self._name, self._names, self._like, self._named = names[0], names, like, named

    def resolve(
        self, delta: GraphDelta
    ) -> tuple[ResolvedEdges | None, tuple[Tensor, Tensor] | None] | None:
        """Changes of edges, and ids and rows of features; None if the delta is not plain."""
        parts = None if self.graph.edge_data else delta.plain_parts
        plain = None if parts is None else self.plain(*parts)
        return None if plain is None else self.accepted(plain)

    def plain(self, edge_index_add: Any, edge_index_del: Any, x_changes: Any) -> PlainDelta | None:
        """The parts of a delta, if they come in the most common form."""
        added = _NO_EDGES if edge_index_add is None else self._edges(edge_index_add)
        gone = _NO_EDGES if edge_index_del is None else self._edges(edge_index_del)
        if added is None or gone is None or (self.graph.edge_data and added.shape[1]):
            return None
        ids, rows = _NONE, None
        if x_changes is not None:
            given = self._rows(x_changes)
            if given is None:
                return None
            ids = given[0].numpy()  # of an id listed twice others find out which row counts
            rows = given[1] if ids.size else None
        if self._joins_two and not self._are_there(added, ids):
            return None
        parts = added, gone, self._name, ids, rows, 0, _NO_DATA, False
        return tuple.__new__(PlainDelta, parts)  # sooner made than `PlainDelta(...)`

    def keyed(
        self, edge_index_add: Any, gone: Ids, data: Mapping[str, Tensor]
    ) -> PlainDelta | None:
        """Edges that come with a row `[k, ...]` of each of `data`, and others that are there.

        `gone`, int64 `[2, m]`, are there; None if those that come are not in the most common form.
        """
        added = self._edges(edge_index_add)
        if added is None or self._joins_two or (
            added.shape[1] and data.keys() != self.graph.edge_data.keys()
        ):  # fmt: skip
            return None
        parts = added, gone, self._name, _NONE, None, 0, data, False
        return tuple.__new__(PlainDelta, parts)  # sooner made than `PlainDelta(...)`

    def of(self, delta: GraphDelta) -> PlainDelta | None:
        """A delta with more than the most common parts, if these come in their common form too.

        New nodes, data of edges that come, both directions, edges that need not be there (but are);
        or nodes that leave, and nothing else.
        """
        if delta.edge_changes is not None or delta.which != "newest" or self._joins_two:
            return None
        if not (
            delta.pairs_add is delta.pairs_del is delta.edge_data_del is delta.node_ids
            is delta.edge_ids_del is delta.values is None
        ):  # fmt: skip
            return None
        if delta.missing not in ("error", "ignore") or delta.invalid not in ("error", "skip"):
            return None
        if delta.nodes_del is not None:
            return self._of_leaving(delta) if self._alone else None
        added, gone = self._edges(delta.edge_index_add), self._edges(delta.edge_index_del)
        if added is None or gone is None:
            return None
        data = self._data(delta, added.shape[1])
        if data is None:
            return None
        if delta.undirected:
            added, data = _in_both(added, data)
            gone, _ = _in_both(gone, _NO_DATA)
        new, changed = self._new(_only(delta.x_add, self._names)), None
        if delta.x_add is not None and new is None:
            return None
        if delta.x_changes is not None:
            changed = self._rows(delta.x_changes)
            if changed is None:
                return None
        more = 0 if new is None else new.shape[0]
        ids, rows = self._joined(new, changed)
        return PlainDelta(added, gone, self._name, ids, rows, more, data)

    def _are_there(self, added: Ids, ids: Ids) -> bool:
        """Whether edges that come, `[2, k]`, join nodes of both kinds that are there already.

        Compiled code holds all ids against one bound only; those of edges that leave, and negative
        ones, need no other.
        """
        nodes, targets = self._num_nodes[self._kind], self._num_nodes[self._target]
        there = _are_below(added[0], nodes) and _are_below(added[1], targets)
        return there and _are_below(ids, nodes)

    def _of_leaving(self, delta: GraphDelta) -> PlainDelta | None:
        """Nodes whose edges leave, and whose features become zero."""
        nodes = delta.nodes_del
        beside = [delta.edge_index_add, delta.edge_index_del, delta.x_changes, delta.x_add]
        beside += [getattr(delta, name) for name in (*EDGE_DATA, "edge_data_add")]
        if type(nodes) is not Tensor or nodes.dtype is not _LONG or nodes.dim() != 1:
            return None
        if nodes.is_cpu and nodes.layout is _STRIDED and all(part is None for part in beside):
            ids = np.unique(nodes.numpy())
            if ids.size and ids[0] >= 0 and ids[-1] < self._num_nodes[self._kind]:
                _, slots = self.graph.resolve_removal(_NONE, _NONE, ids, ids)
                rows = self._like.new_zeros((ids.size, *self._like.shape[1:]))
                gone = self.graph.ends_of(slots)
                return PlainDelta(_NO_EDGES, gone, self._name, ids, rows, leave=True)
        return None

    def _joined(
        self, new: Tensor | None, changed: tuple[Tensor, Tensor] | None
    ) -> tuple[Ids, Tensor | None]:
        """Ids and rows of new nodes and of others."""
        first = self._num_nodes[self._kind]
        ids, rows = _NONE, None
        if new is not None:
            ids, rows = np.arange(first, first + new.shape[0]), new
        if changed is not None and changed[0].shape[0]:
            others = changed[0].numpy()
            ids = np.concatenate([ids, others]) if ids.size else others
            rows = changed[1] if rows is None else torch.cat([rows, changed[1]])
        return ids, rows if ids.size else None

    def _new(self, x_add: Any) -> Tensor | None:
        """Rows of new nodes."""
        if not self._can_grow or not _is_like(x_add, self._like):
            return None
        count = self._num_nodes[self._kind] + x_add.shape[0]
        return x_add if count <= MAX_NODES else None

    def _data(self, delta: GraphDelta, count: int) -> Mapping[str, Tensor] | None:
        """Data of the edges that come, by name; None if they are said in any other way."""
        given: dict[str, Any] = {
            name: rows
            for key, name in EDGE_DATA.items()
            if (rows := getattr(delta, key)) is not None
        }
        more, expected = delta.edge_data_add, self.graph.edge_data
        if type(delta.edge_index_add) is dict:  # else nothing is said with its name
            more = _only(more, (self._key,))
        if more is not None:
            if type(more) is not dict or not given.keys().isdisjoint(more):
                return None
            given |= more
        if not count and not given:
            return _NO_DATA
        if given.keys() != expected.keys():
            return None
        for name, rows in given.items():
            if not _is_like(rows, expected[name]) or rows.shape[0] != count:
                return None
            if rows.dtype not in IN_NUMPY:  # the write would be taken for somebody else's
                return None
        return given

    def accepted(
        self, delta: PlainDelta
    ) -> tuple[ResolvedEdges | None, tuple[Tensor, Tensor] | None] | None:
        """What `resolve` returns, if the parts fit the graph."""
        graph, count = self.graph, delta.added.shape[1]
        if count and graph.num_edges + count > MAX_EDGES:
            return None
        limit = max(self._num_nodes[self._kind], self._num_nodes[self._target])
        slots = graph.accept(delta.added, delta.gone, delta.ids, limit)
        return None if slots is None else resolved_plain(delta, slots)

    def _edges(self, value: Any) -> Ids | None:
        """Edges of the graph, said with its name, or without where that is enough.

        As int64 `[2, k]`; None if they come in any other form.
        """
        if value is None:
            return _NO_EDGES
        own = _only(value, (self._key,))
        if self._named and own is value:
            return None
        value = own
        if (
            type(value) is not Tensor
            or value.dtype is not _LONG
            or not value.is_cpu
            or value.layout is not _STRIDED
        ):
            return None
        edges: Ids = (value if value.is_contiguous() else value.contiguous()).numpy()
        return edges if edges.ndim == 2 and edges.shape[0] == 2 else None  # sooner of an array

    def _rows(self, value: Any) -> tuple[Tensor, Tensor] | None:
        value = _only(value, self._names)
        if type(value) is not tuple or len(value) != 2:
            return None
        ids, rows = value
        if (
            type(ids) is not Tensor
            or ids.dtype is not _LONG
            or ids.dim() != 1
            or not ids.is_cpu
            or ids.layout is not _STRIDED
            or not _is_like(rows, self._like)
            or rows.shape[0] != ids.shape[0]
        ):
            return None
        return (ids if ids.is_contiguous() else ids.contiguous()), rows


def described(parts: tuple[Any, ...] | None) -> GraphDelta:
    """The delta of which these are parts, for those who look closer.

    Args:
        parts: Edges that come, edges that leave, and changes of features, and then ids of edges
            that come and leave, if there are some, as users give them; or edges alone as they were
            read; None for nothing at all.
    """
    if not isinstance(parts, PlainDelta):
        edges, ids = (parts or ())[:3], dict(zip(BY_ID, (parts or ())[3:], strict=False))
        return GraphDelta(*edges, **ids)
    added, gone = (torch.from_numpy(e) if e.size else None for e in (parts.added, parts.gone))
    return GraphDelta(added, gone, edge_data_add=dict(parts.data) or None)


def _only(value: Any, names: tuple[Hashable, ...]) -> Any:
    """What is said of something with one of its names, or without."""
    if type(value) is dict and len(value) == 1:
        for name in names:
            if name in value:
                return value[name]
    return value


def _are_below(ids: Ids, count: int) -> bool:
    """Whether all of some ids are smaller."""
    if ids.size == 1:  # a comparison of arrays takes longer than the rest
        return bool(ids[0] < count)
    return not ids.size or bool(ids.max() < count)


def _is_like(rows: Any, like: Tensor) -> bool:
    """Whether these are rows of the same dtype, device and width, however many."""
    return (
        type(rows) is Tensor
        and rows.dtype is like.dtype
        and not rows.requires_grad
        and rows.device == like.device
        and rows.layout is _STRIDED
        and rows.dim() == like.dim()
        and rows.shape[1:] == like.shape[1:]
    )


def resolved_plain(
    delta: PlainDelta, slots: Ids
) -> tuple[ResolvedEdges | None, tuple[Tensor, Tensor] | None]:
    """Changes of edges, and ids and rows of features, int64 `[c]` and `[c, ...]`.

    `slots`, int64 `[m]`, are those of the edges that leave.
    """
    edges = None
    if delta.added.shape[1] or slots.size:
        edges = ResolvedEdges(slots, delta.added, {}, _NONE, {})
    return edges, None if delta.rows is None else (torch.from_numpy(delta.ids), delta.rows)


def _in_both(edges: Ids, data: Mapping[str, Tensor]) -> tuple[Ids, Mapping[str, Tensor]]:
    """Edges and their data in both directions, a self-loop once."""
    again = edges[0] != edges[1]
    both = np.concatenate([edges, edges[::-1, again]], axis=1)
    at = torch.from_numpy(again)
    return both, {name: torch.cat([rows, rows[at]]) for name, rows in data.items()}
