"""What the steps on the same nodes and edges share while an update runs."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import EdgeEvents, Edges
from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.rows.backend import NO_IDS, Backend, Ids
from pyg_incremental.rows.nodes import NodeSet
from pyg_incremental.telemetry.work import Work

_NONE = np.empty(0, np.int64)
AT_ONCE = 1 << 14
"""Rows or edges, about, that PyTorch computes at a time: they stay in a cache from one operation to
the next, and beginning each costs little beside them. With eight times as many, GATv2 took 1.7
times as long where all rows changed, and a median 1.5 times."""
NO_EDGES = Edges(_NONE, _NONE, _NONE)
NO_EVENTS = EdgeEvents(NO_EDGES, NO_EDGES, NO_EDGES, {})
T = TypeVar("T", Adjacency, Edges)


class Context:
    """What the steps on one kind of nodes, and those over one graph into them, share.

    Attributes:
        graph: The edges that lead to these nodes; None where a step has to do with none.
        events: What the running delta did to the edges, as kernels take it.
        num_events: Number of edges among them.
        lists: Neighbour lists along out-edges and along in-edges.
        stats: The work done so far, by all steps of the model.
        others: What `NodeSet` says of the nodes, read anew with every update.
    """

    def __init__(self, nodes: NodeSet, graph: DynamicGraph | None, backend: Backend) -> None:
        self.nodes = nodes
        self._graph = graph
        self.backend = backend
        self.kernels = backend.kernels
        self.scratch = nodes.scratch
        self._united: dict[tuple[int, ...], tuple[list[Ids], Ids]] = {}
        self.begin(NO_EVENTS, [])

    def begin(self, events: EdgeEvents, stats: Work) -> None:
        """Start an update; the graph and the nodes have been changed already."""
        nodes, graph = self.nodes, self._graph
        self._united.clear()
        self.stats = stats
        self.first_new = nodes.first_new
        self.renew_ids = nodes.renew_ids
        self.events = events
        self.num_events = 0
        if graph is None:
            return
        if events.removed.slots.size:
            graph.note_removed(events.removed.slots)
        self.lists = (graph.out, graph.inn)
        self.num_events = (
            len(events.removed.slots) + len(events.added.slots) + len(events.changed.slots)
        )
        if not self.backend.is_compiled:
            self.lists = (_as_tensors(graph.out), _as_tensors(graph.inn))
            self.events = EdgeEvents(
                removed=_as_tensors(events.removed),
                added=_as_tensors(events.added),
                changed=_as_tensors(events.changed),
                overwritten=events.overwritten,
            )

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, also where compiled code alone has added the last ones."""
        return self.nodes.num_nodes

    @property
    def graph(self) -> DynamicGraph:
        """The graph, which has to be there."""
        if self._graph is None:
            raise RuntimeError("a step over nodes alone asks for edges")
        return self._graph

    @property
    def settle(self) -> Ids:
        """Rows that every aggregation settles, whatever changed; see `NodeSet`."""
        return self.nodes.settle

    @property
    def all_nodes(self) -> Ids:
        """`arange(num_nodes)`."""
        return self.nodes.all_nodes

    @property
    def capacity(self) -> int:
        """How many rows node values have room for."""
        return self.scratch.size

    @property
    def renew(self) -> Tensor:
        """The rows to be made afresh, int64 `[k]`."""
        return NO_IDS if self.renew_ids is None else self.renew_ids.tensor

    def unite(self, sets: list[Ids]) -> Ids:
        """The distinct ids of some sets, int64 `[k]`; one alone, or of all nodes, is returned.

        The same sets give the same object again: rows that are not stored are known by it.
        """
        if len(sets) == 1:
            return sets[0]
        if self.nodes.all_nodes in sets:
            return self.nodes.all_nodes
        key = tuple(sorted(map(id, sets)))
        if key in self._united:
            return self._united[key][1]
        scratch, unite = self.scratch, self.kernels.unite
        epoch, count = scratch.next(), 0
        for ids in sets:
            count = unite(ids.array, scratch.touched, count, scratch.stamp, epoch)
        found = scratch.taken(count)
        self._united[key] = list(sets), found  # the sets are held, so that no id is given away
        return found


def _as_tensors(arrays: T) -> T:
    return type(arrays)(*map(torch.from_numpy, arrays))
