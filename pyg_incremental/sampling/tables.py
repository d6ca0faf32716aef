"""What a cache holds: the samples of some nodes for one hop, and the features of some nodes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.sampling.kernels import expand as kernel
from pyg_incremental.sampling.kernels.rows import HELD, PLACE, START
from pyg_incremental.sampling.query import HopEdges
from pyg_incremental.sampling.reservoirs import Reservoirs

Ids = NDArray[np.int64]
_NO_LISTS = Adjacency(
    start=np.empty(0, np.int64),
    degree=np.empty(0, np.int32),
    capacity=np.empty(0, np.int32),
    neighbor=np.empty(0, np.int32),
    edge=np.empty(0, np.int32),
)
_NO_IDS = np.empty(0, np.int64)


class Places:
    """Which row of a table belongs to which node; rows that were left are taken again.

    Attributes:
        of: The row of each node, int64 `[num_nodes]`, -1 for none.
        count: How many rows are taken.
        end: How many rows were ever taken at a time.
    """

    def __init__(self, num_nodes: int) -> None:
        self.of = np.full(num_nodes, -1, np.int64)
        self.count = self.end = 0
        self._free: list[Ids] = []

    def grow(self, num_nodes: int) -> None:
        """Make room for so many nodes."""
        if num_nodes > self.of.size:
            more = np.full(max(num_nodes, 3 * num_nodes // 2) - self.of.size, -1)
            self.of = np.concatenate([self.of, more])

    def take(self, nodes: Ids) -> None:
        """Give distinct nodes without a row one each."""
        rows, missing = [], nodes.size
        while missing and self._free:
            left = self._free.pop()
            rows.append(left[:missing])
            if left.size > missing:
                self._free.append(left[missing:])
            missing -= rows[-1].size
        rows.append(np.arange(self.end, self.end + missing))
        self.end += missing
        self.of[nodes] = np.concatenate(rows)
        self.count += nodes.size

    def give_back(self, nodes: Ids) -> None:
        """Take the rows of distinct nodes away."""
        if nodes.size:
            self._free.append(self.of[nodes])
            self.of[nodes] = -1
            self.count -= nodes.size


class SampleTable:
    """The samples of some nodes for one hop: copies, since who keeps them may be elsewhere.

    Args:
        num_nodes: Number of nodes.
        fanout: How many in-edges a sample has at most.

    Attributes:
        places: Which row belongs to which node.
    """

    def __init__(self, num_nodes: int, fanout: int) -> None:
        self.fanout = fanout
        self.places = Places(num_nodes)
        self._heads = np.zeros((num_nodes, 4), np.int64)
        self._pool = np.zeros((0, 3), np.int64)

    @property
    def num_bytes(self) -> int:
        """Bytes of the samples and of where they are."""
        return self._heads.nbytes + self._pool.nbytes + self.places.of.nbytes

    def grow(self, num_nodes: int) -> None:
        """Make room for so many nodes."""
        self.places.grow(num_nodes)
        more = np.zeros((self.places.of.size - self._heads.shape[0], 4), np.int64)
        self._heads = np.concatenate([self._heads, more])

    def sources(self, nodes: Ids) -> Ids:
        """The sources of all sampled edges of nodes, with repetition, int64 `[e]`."""
        at = self._heads[nodes, START][:, None] + np.arange(self.fanout)
        sampled = np.arange(self.fanout) < self._heads[nodes, HELD][:, None]
        found: Ids = self._pool[at[sampled], PLACE]
        return found

    def drop(self, nodes: Ids) -> None:
        """Forget the samples of distinct nodes."""
        self._heads[nodes] = 0
        self.places.give_back(nodes)

    def copy(self, nodes: Ids, rows: Reservoirs) -> None:
        """Copy the samples of distinct nodes; those that have none here get a place."""
        self.places.take(nodes[self.places.of[nodes] < 0])
        needed = self.places.end * self.fanout
        if needed > self._pool.shape[0]:
            grown = np.zeros((max(needed, 2 * self._pool.shape[0]), 3), np.int64)
            grown[: self._pool.shape[0]] = self._pool
            self._pool = grown
        start = self.places.of[nodes] * self.fanout
        held = np.minimum(rows.heads[nodes, HELD], self.fanout)
        self._heads[nodes, START], self._heads[nodes, HELD] = start, held
        step = np.arange(self.fanout)
        sampled = step < held[:, None]
        found = rows.pool[(rows.heads[nodes, START][:, None] + step)[sampled]]
        found[:, PLACE] &= 2**32 - 1  # the slot of an edge means nothing here
        self._pool[(start[:, None] + step)[sampled]] = found

    def hop(
        self, hop: int, frontier: tuple[Ids, Ids], offset: int, known: tuple[Ids, Ids]
    ) -> HopEdges:
        """The sampled in-edges of some nodes; see `query.HopSource`."""
        return HopEdges(
            *kernel.hop(
                *frontier, offset, self.fanout, self._heads, self._pool, _NO_LISTS, _NO_IDS, *known
            )
        )


class FeatureTable:
    """The features of some nodes.

    Args:
        num_nodes: Number of nodes.
        like: Rows of their kind, `[*, num_features]`.

    Attributes:
        places: Which row belongs to which node.
    """

    def __init__(self, num_nodes: int, like: Tensor) -> None:
        self.places = Places(num_nodes)
        self._rows = like.new_zeros((0, *like.shape[1:]))

    @property
    def num_bytes(self) -> int:
        """Bytes of the rows and of where they are."""
        return self._rows.nbytes + self.places.of.nbytes

    def put(self, nodes: Ids, rows: Tensor) -> None:
        """Store the rows of distinct nodes, `[k, num_features]`."""
        self.places.take(nodes[self.places.of[nodes] < 0])
        if self.places.end > self._rows.shape[0]:
            room = max(self.places.end, 2 * self._rows.shape[0])
            grown = self._rows.new_zeros((room, *self._rows.shape[1:]))
            grown[: self._rows.shape[0]] = self._rows
            self._rows = grown
        self._rows[torch.from_numpy(self.places.of[nodes])] = rows

    def drop(self, nodes: Ids) -> None:
        """Forget the rows of distinct nodes."""
        self.places.give_back(nodes)

    def rows(self, nodes: Ids) -> Tensor:
        """A copy of the rows of nodes, `[k, num_features]`."""
        return self._rows.index_select(0, torch.from_numpy(self.places.of[nodes]))
