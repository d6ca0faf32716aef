"""The place of an edge among all edges, without a look at all of them."""

from __future__ import annotations

import numpy as np

from pyg_incremental.graph.edge_store import EdgeStore, Ids

MOST_GONE = 1 << 16
"""Ages of edges that left are remembered up to this number, half a megabyte, or that of the edges
that are there: a look at all of these, which begins anew, is paid for by as many that left."""


class EdgeOrder:
    """Where edges stand among all edges of a graph, in order of insertion.

    The age of an edge is the number of edges that came before it, so its place is its age without
    those of them that have left since. These are kept sorted.

    Args:
        graph: The graph. It counts ages anew before too many are gone.
    """

    def __init__(self, graph: EdgeStore) -> None:
        self._graph = graph
        graph.most_gone = MOST_GONE
        self._look()

    def _look(self) -> None:
        graph = self._graph
        is_gone = np.ones(graph.next_order, np.bool_)
        is_gone[graph.slots.order[graph.slots_in_order()]] = False
        self._gone: Ids = np.flatnonzero(is_gone)
        self._counted = graph.times_counted

    def removed(self, slots: Ids) -> None:
        """Take notice of edges that left; nobody has their slots, int64 `[m]`, yet.

        It does not matter if the same ones are named twice.
        """
        if self._counted != self._graph.times_counted:
            self._look()
        if slots.size:
            self._gone = np.union1d(self._gone, self._graph.slots.order[slots])

    def places(self, slots: Ids) -> tuple[Ids, Ids]:
        """Places of some edges among all, ascending, and their slots in that order, int64 `[k]`.

        Args:
            slots: Distinct slots that hold edges, int64 `[k]`.
        """
        graph = self._graph
        if self._counted != graph.times_counted or (
            self._gone.size != graph.next_order - graph.num_edges  # not all were told
        ):
            self._look()
        slots = graph.by_age(slots)
        ages = graph.slots.order[slots].astype(np.int64)
        gone = self._gone
        if gone.size < ages.size:  # the same, looked up from the smaller side
            younger = np.bincount(np.searchsorted(ages, gone), minlength=ages.size + 1)
            return ages - np.cumsum(younger[:-1]), slots
        return ages - np.searchsorted(gone, ages), slots
