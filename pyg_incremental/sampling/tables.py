"""What a cache holds: the samples of some nodes for one hop, and the features of some nodes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.sampling.kernels import expand as kernel
from pyg_incremental.sampling.kernels.rows import HELD, PLACE, START
from pyg_incremental.sampling.query import NO_LISTS, HopEdges, node_of
from pyg_incremental.sampling.reservoirs import Reservoirs
from pyg_incremental.sampling.slot_map import Overflow, PlacedRows

Ids = NDArray[np.int64]
_NO_IDS = np.empty(0, np.int64)
_NO_EDGES = np.empty((0, 3), np.int64)


class SampleTable:
    """The samples of some nodes for one hop: copies, since who keeps them may be elsewhere.

    Args:
        num_nodes: Number of nodes.
        fanout: How many in-edges a sample has at most.
        overflow: Where samples go that are too many for memory.

    Attributes:
        store: Where the samples are.
    """

    def __init__(self, num_nodes: int, fanout: int, overflow: Overflow | None = None) -> None:
        self.fanout = fanout
        like = torch.empty((0, fanout, 3), dtype=torch.int64)
        self.store = PlacedRows(num_nodes, like, overflow)
        self._heads = np.zeros((num_nodes, 4), np.int64)

    @property
    def num_bytes(self) -> int:
        """Bytes of the samples in memory, and of where they are."""
        return self._heads.nbytes + self.store.num_bytes

    @property
    def _pool(self) -> Ids:
        pool: Ids = self.store.rows.view(-1, 3).numpy()
        return pool

    def grow(self, num_nodes: int) -> None:
        """Make room for so many nodes."""
        self.store.grow(num_nodes)
        more = self.store.places.of.size - self._heads.shape[0]
        if more:  # a round of a service grows every table, and most rounds bring no node
            self._heads = np.concatenate([self._heads, np.zeros((more, 4), np.int64)])

    def sources(self, nodes: Ids) -> Ids:
        """The sources of all sampled edges of nodes, with repetition, int64 `[e]`."""
        return self.read(nodes)[1][:, PLACE]

    def read(self, nodes: Ids) -> tuple[Ids, Ids]:
        """How many edges the samples of nodes have, int64 `[k]`, and the edges, `[e, 3]`."""
        found = [_NO_EDGES]
        for some in self.store.parts(nodes):
            self._bring(some)
            at, sampled = self._entries(some)
            found.append(self._pool[at[sampled]])
        return self._heads[nodes, HELD], np.concatenate(found)

    def drop(self, nodes: Ids) -> None:
        """Forget the samples of distinct nodes, int64 `[k]`."""
        self._heads[nodes] = 0
        self.store.drop(nodes)

    def copy(self, nodes: Ids, rows: Reservoirs) -> None:
        """Copy the samples of distinct nodes, int64 `[k]`; those with none here get a place."""
        for some in self.store.parts(nodes):
            held = np.minimum(rows.heads[some, HELD], self.fanout)
            step = np.arange(self.fanout)
            sampled = step < held[:, None]
            found = rows.pool[(rows.heads[some, START][:, None] + step)[sampled]]
            found[:, PLACE] &= 2**32 - 1  # the slot of an edge means nothing here
            self._put(some, held, found)

    def put(self, nodes: Ids, held: Ids, edges: Ids) -> None:
        """Store samples of distinct nodes; see `read`."""
        ends, first = held.cumsum(), 0
        for some in self.store.parts(nodes):
            last = first + some.size
            begin, end = (int(ends[at - 1]) if at else 0 for at in (first, last))
            self._put(some, held[first:last], edges[begin:end])
            first = last

    def _put(self, nodes: Ids, held: Ids, edges: Ids) -> None:
        self._heads[nodes, START] = self.store.place(nodes) * self.fanout
        self._heads[nodes, HELD] = held
        at, sampled = self._entries(nodes)
        self._pool[at[sampled]] = edges

    def hop(self, hop: int, frontier: Ids, offset: int, known: Ids) -> HopEdges:
        """The sampled in-edges of some nodes, int64 `[m]`; see `query.HopSource`."""
        self._bring(frontier)
        return HopEdges(
            *kernel.hop(
                frontier, offset, self.fanout, self._heads, self._pool, NO_LISTS, _NO_IDS, known
            )
        )

    def _bring(self, nodes: Ids) -> None:
        """See that the samples of nodes are in memory, all of them at the same time."""
        if self.store.may_be_away:
            nodes = node_of(nodes)
            self._heads[nodes, START] = self.store.bring(nodes) * self.fanout

    def _entries(self, nodes: Ids) -> tuple[Ids, NDArray[np.bool_]]:
        """Where the edges of samples are in the pool, `[k, fanout]`, and which there are."""
        step = np.arange(self.fanout)
        return self._heads[nodes, START][:, None] + step, step < self._heads[nodes, HELD][:, None]


class FeatureTable:
    """The features of some nodes.

    Args:
        num_nodes: Number of nodes.
        like: Rows of their kind, `[*, num_features]`.
        overflow: Where rows go that are too many for memory.

    Attributes:
        store: Where the rows are.
    """

    def __init__(self, num_nodes: int, like: Tensor, overflow: Overflow | None = None) -> None:
        self.store = PlacedRows(num_nodes, like, overflow)

    @property
    def num_bytes(self) -> int:
        """Bytes of the rows in memory, and of where they are."""
        return self.store.num_bytes

    def grow(self, num_nodes: int) -> None:
        """Make room for so many nodes."""
        self.store.grow(num_nodes)

    def put(self, nodes: Ids, rows: Tensor) -> None:
        """Store the rows of distinct nodes, int64 `[k]`: `[k, num_features]`."""
        first = 0
        for some in self.store.parts(nodes):
            at = torch.from_numpy(self.store.place(some))
            self.store.rows[at] = rows[first : first + some.size]
            first += some.size

    def drop(self, nodes: Ids) -> None:
        """Forget the rows of distinct nodes, int64 `[k]`."""
        self.store.drop(nodes)

    def rows(self, nodes: Ids) -> Tensor:
        """A copy of the rows of nodes, int64 `[k]`: `[k, num_features]`."""
        found = [
            self.store.rows.index_select(0, torch.from_numpy(self.store.bring(some)))
            for some in self.store.parts(nodes)
        ]
        if len(found) == 1:
            return found[0]
        return torch.cat([self.store.rows[:0], *found])


class HopTables:
    """The tables of all hops, as one source of samples."""

    def __init__(self, tables: list[SampleTable]) -> None:
        self._tables = tables

    def hop(self, hop: int, frontier: Ids, offset: int, known: Ids) -> HopEdges:
        """As in `SampleTable.hop`, by the table of the hop."""
        return self._tables[hop].hop(hop, frontier, offset, known)
