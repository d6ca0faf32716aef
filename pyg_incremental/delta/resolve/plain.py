"""The most common delta in one look: edges without data come and go, and rows of one input change.

Everything else, and everything that is not valid, is left to those who look closer and can say what
is wrong.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.resolve.edges import ResolvedEdges
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.typing import MAX_EDGES

_NONE = np.empty(0, np.int64)
_NO_EDGES = np.empty((2, 0), np.int64)
_LONG, _STRIDED = torch.int64, torch.strided  # looked up in every small update


class PlainDelta(NamedTuple):
    """A delta that looks plain; whether it fits the graph was not asked yet.

    Attributes:
        added: Edges that come, int64 `[2, k]`.
        gone: Edges that leave, int64 `[2, m]`.
        name: The node input.
        ids: Its rows that change, int64 `[c]`.
        rows: The new rows, `[c, ...]`, or None.
    """

    added: Ids
    gone: Ids
    name: str
    ids: Ids
    rows: Tensor | None


class PlainResolver:
    """Accepts plain deltas.

    Args:
        graph: The only graph, without edge data.
        num_nodes: The current number of nodes of each kind.
        kind: The only kind.
        name: Its only input.
        like: That input without rows, `[0, ...]`.
    """

    def __init__(
        self, graph: DynamicGraph, num_nodes: Mapping[str, int], kind: str, name: str, like: Tensor
    ) -> None:
        self._graph = graph
        self._num_nodes, self._kind = num_nodes, kind
        self._name, self._like = name, like
        self._tail = like.shape[1:]

    def resolve(
        self, delta: GraphDelta
    ) -> tuple[ResolvedEdges | None, tuple[Tensor, Tensor] | None] | None:
        """Changes of edges, and ids and rows of features; None if the delta is not plain."""
        parts = delta.plain_parts
        plain = None if parts is None else self.plain(*parts)
        return None if plain is None else self.accepted(plain)

    def plain(self, edge_index_add: Any, edge_index_del: Any, x_changes: Any) -> PlainDelta | None:
        """The parts of a delta, if they come in the most common form."""
        added, gone = _edges(edge_index_add), _edges(edge_index_del)
        if added is None or gone is None:
            return None
        ids, rows = _NONE, None
        if x_changes is not None:
            given = self._rows(x_changes)
            if given is None:
                return None
            ids = given[0].numpy()  # of an id listed twice others find out which row counts
            rows = given[1] if ids.size else None
        return PlainDelta(added, gone, self._name, ids, rows)

    def accepted(
        self, delta: PlainDelta
    ) -> tuple[ResolvedEdges | None, tuple[Tensor, Tensor] | None] | None:
        """What `resolve` returns, if the parts fit the graph."""
        graph, count = self._graph, delta.added.shape[1]
        if count and graph.num_edges + count > MAX_EDGES:
            return None
        slots = graph.accept(delta.added, delta.gone, delta.ids, self._num_nodes[self._kind])
        return None if slots is None else resolved_plain(delta, slots)

    def _rows(self, value: Any) -> tuple[Tensor, Tensor] | None:
        if type(value) is not tuple or len(value) != 2:
            return None
        ids, rows = value
        like = self._like
        if (
            type(ids) is not Tensor
            or type(rows) is not Tensor
            or ids.dtype is not _LONG
            or ids.dim() != 1
            or not ids.is_cpu
            or ids.layout is not _STRIDED
            or rows.dtype is not like.dtype
            or rows.requires_grad
            or rows.device != like.device
            or rows.layout is not _STRIDED
            or rows.shape[1:] != self._tail
            or rows.shape[0] != ids.shape[0]
        ):
            return None
        return (ids if ids.is_contiguous() else ids.contiguous()), rows


def resolved_plain(
    delta: PlainDelta, slots: Ids
) -> tuple[ResolvedEdges | None, tuple[Tensor, Tensor] | None]:
    """Changes of edges, and ids and rows of features; `slots` are those of the edges that leave."""
    edges = None
    if delta.added.shape[1] or slots.size:
        edges = ResolvedEdges(slots, delta.added, {}, _NONE, {})
    return edges, None if delta.rows is None else (torch.from_numpy(delta.ids), delta.rows)


def _edges(value: Any) -> Ids | None:
    """Edges as int64 `[2, k]`, or None if they come in any other form."""
    if value is None:
        return _NO_EDGES
    if (
        type(value) is not Tensor
        or value.dtype is not _LONG
        or value.dim() != 2
        or value.shape[0] != 2
        or not value.is_cpu
        or value.layout is not _STRIDED
    ):
        return None
    edges: Ids = value.numpy()
    return edges if edges.flags.c_contiguous else np.ascontiguousarray(edges)
