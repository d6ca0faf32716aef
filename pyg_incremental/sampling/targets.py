"""The edges of a graph by target, which is how samples are drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import SLACK, Ids
from pyg_incremental.kernels import graph_at
from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.sampling.arrays import GrowingStorage
from pyg_incremental.sampling.kernels import lists as kernel

_NONE = np.empty(0, np.int64)


class EdgesByTarget(DynamicGraph):
    """Edges with the list of in-edges of every node; that of out-edges is made when it is needed.

    That is when a node is removed, with all edges that start there: the first time every edge is
    looked at, and from then on these lists follow like the others. Lists of in-edges move to blocks
    that others have left, and arrays grow where they are, so that no edge that arrives has all
    others copied.

    Args:
        edge_index: Sources and targets, int64 `[2, num_edges]`.
        num_nodes: Number of nodes, below 2^31.
        edge_data: Per-edge tensors `[num_edges]` by name.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, edge_data: dict[str, Tensor]) -> None:
        self._has_out = False
        self._left = np.full(kernel.SIZES, -1, np.int64)
        super().__init__(edge_index, num_nodes, edge_data, storage=GrowingStorage())

    def resolve_removal(self, src: Ids, dst: Ids, sources: Ids, targets: Ids) -> tuple[Ids, Ids]:
        """See `EdgeStore`; edges are int64 `[k]` and nodes int64 `[n]`."""
        if sources.size and not self._has_out:
            self._list_out()
        return super().resolve_removal(src, dst, sources, targets)

    def _list_out(self) -> None:
        """Make the lists of out-edges."""
        slots = self.slots_in_order()
        ends = self.ends_of(slots)
        degree = np.bincount(ends[0], minlength=self.out.start.size)
        capacity = (degree + SLACK).astype(np.int32)
        until = np.cumsum(capacity, dtype=np.int64)
        pool = int(until[-1]) + 1024
        neighbor, edge = (self.storage.zeros(np.int32, pool) for _ in range(2))
        self.out = Adjacency(
            until - capacity, np.zeros_like(capacity), capacity, neighbor=neighbor, edge=edge
        )
        self._tops[0] = until[-1]
        graph_at.change_list(self.places(), 0, ends, _NONE, slots)
        self._has_out = True

    def _group(
        self, key: NDArray[np.int32], other: NDArray[np.int32], at: NDArray[np.int32]
    ) -> Adjacency:
        if at is self.slots.in_at:
            return super()._group(key, other, at)
        # Places in lists of out-edges are zero until there are such: not negative, as those of
        # edges that are there have to be.
        none = (np.zeros(self.num_nodes, np.int32) for _ in range(2))
        pools = (np.zeros(0, np.int32) for _ in range(2))
        return Adjacency(np.zeros(self.num_nodes, np.int64), *none, *pools)

    def _make_room(self, side: int, key: Ids) -> None:
        if not side and self._has_out:
            super()._make_room(side, key)

    def _change(self, ends: Ids, left: Ids, taken: Ids) -> None:
        places = self.places()
        self._used += graph_at.change_pairs(places, ends, left, taken, self.next_order)
        if self._has_out:
            graph_at.change_list(places, 0, ends, left, taken)
        if left.size:
            graph_at.change_list(places, 1, ends[:, :0], left, _NONE)
        done = 0
        while taken.size:
            done = kernel.put(
                done, ends[1], ends[0], taken, self.slots.in_at, self.inn, self._tops[1:],
                self._left,
            )  # fmt: skip
            if done == taken.size:
                return
            self._longer_pool()

    def _longer_pool(self) -> None:
        """Half as much again, at least for the longest list to move."""
        size = self.inn.edge.size
        size += max(size // 2, 4 * int(self.inn.degree.max(initial=0)), 1024)
        longer = self.storage.longer
        neighbor, edge = longer(self.inn.neighbor, size), longer(self.inn.edge, size)
        self.inn = self.inn._replace(neighbor=neighbor, edge=edge)

    def write(self, slots: Ids, data: Mapping[str, Tensor]) -> None:
        """See `EdgeStore`: rows `[k, ...]` to slots, int64 `[k]`.

        Slots in a row, as new ones are, are written as one part.
        """
        if not slots.size or (np.diff(slots) != 1).any():
            super().write(slots, data)
            return
        for name, rows in data.items():
            self.edge_data[name][int(slots[0]) : int(slots[-1]) + 1] = rows
