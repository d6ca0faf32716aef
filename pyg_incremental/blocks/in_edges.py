"""The in-edges of each node, one list behind the other (CSC), and those of a block of nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.kernels import adjacency as kernel
from pyg_incremental.typing import MAX_EDGES, MAX_NODES, Array

Ids = NDArray[np.int64]
FEW = 64
"""So many times more nodes than edges, and looking at each node is slower than sorting."""


@dataclass(frozen=True)
class InEdges:
    """The in-edges of the nodes of one kind.

    Attributes:
        first: Where the list of each node begins, and where the last one ends, int64
            `[num_nodes + 1]`: the prefix sums of the in-degrees.
        neighbor: The node at the other end of each edge, int32 `[num_edges]`.
        edge: The place of each edge among those handed in, int32 `[num_edges]`; in each list they
            ascend.
    """

    first: Ids
    neighbor: Array
    edge: Array

    def of(self, ids: Ids | range) -> tuple[Ids, Array, Array]:
        """The lists of some nodes, int64 `[k]`, one behind the other.

        Returns:
            In-degrees, int64 `[k]`, and the neighbours and places of all of their edges, int32.
        """
        if isinstance(ids, range):
            at = slice(int(self.first[ids.start]), int(self.first[ids.stop]))
            degree = np.diff(self.first[ids.start : ids.stop + 1])
            return degree, np.asarray(self.neighbor[at]), np.asarray(self.edge[at])
        begin = np.asarray(self.first[ids])
        degree = self.first[ids + 1] - begin
        ends = np.cumsum(degree)
        at_all = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(
            begin - (ends - degree), degree
        )
        return degree, self.neighbor[at_all], self.edge[at_all]

    def ends_of(self, ids: Ids | None) -> Ids:
        """How many in-edges the first `i` of some nodes have together, int64 `[k + 1]`."""
        if ids is None:
            return self.first
        degree = self.first[ids + 1] - self.first[ids]
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(degree)])


def in_edges(key: Array, other: Array, num_nodes: int) -> InEdges:
    """The lists of the nodes `key` of some edges, whose other ends are `other`; both `[num_edges]`.

    Raises:
        ValueError: If there are 2^31 nodes or edges, or more.
    """
    if num_nodes > MAX_NODES or len(key) > MAX_EDGES:
        raise ValueError(
            f"a graph holds at most {MAX_NODES} nodes and as many edges (got {num_nodes} nodes and "
            f"{len(key)} edges)"
        )
    count = len(key)
    degree, first = np.zeros(num_nodes, np.int32), np.zeros(num_nodes + 1, np.int64)
    neighbor, edge = (np.empty(count, np.int32) for _ in range(2))
    near, far = key.astype(np.int32), other.astype(np.int32)
    at = near  # where an edge stands in its list is written when its end has been read
    first[num_nodes] = kernel.group(near, far, degree, first[:num_nodes], neighbor, edge, at, 0)
    return InEdges(first, neighbor, edge)


@dataclass(frozen=True)
class BlockEdges:
    """The in-edges of a block of nodes, with numbers of its own for the nodes at both ends.

    The nodes of the block come first, in order; then come the other neighbours, in ascending order,
    so that their rows are read from front to back. A self-loop has the same number at both ends,
    as it has to for whoever looks for self-loops.

    Attributes:
        degree: In-degrees, int32 `[num_rows]`.
        neighbor: The number of the other end of each edge, int32 `[num_edges]`.
        edge: The place of each edge among those handed in, int32 `[num_edges]`.
        nodes: The node of each number, int64 `[num_numbers]`. In a block of all nodes these are all
            that there are at the other ends, in order, and every node has its own number.
    """

    degree: Array
    neighbor: Array
    edge: Array
    nodes: Ids | range

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        nodes = 0 if isinstance(self.nodes, range) else self.nodes.nbytes
        return int(self.degree.nbytes + self.neighbor.nbytes + self.edge.nbytes + nodes)


def block_edges(edges: InEdges, ids: Ids | range, num_sources: int, place: Array) -> BlockEdges:
    """The in-edges of some nodes.

    Args:
        edges: The in-edges of all of them.
        ids: The nodes, int64 `[num_rows]`, in ascending order.
        num_sources: The number of nodes at the other ends.
        place: Room for a number of each of these, int32 `[num_sources]`; whatever it holds.
    """
    degree, neighbor, edge = edges.of(ids)
    degree = degree.astype(np.int32)
    if isinstance(ids, range) and ids == range(len(edges.first) - 1):
        # Kernels are compiled for arrays that can be written to.
        neighbor = np.require(neighbor, requirements="W")
        return BlockEdges(degree, neighbor, edge, range(num_sources))
    own: Ids = np.arange(ids.start, ids.stop) if isinstance(ids, range) else ids
    if len(neighbor) * FEW < num_sources:
        others = np.setdiff1d(neighbor, own).astype(np.int64)
    else:
        seen = np.zeros(num_sources, np.bool_)
        seen[neighbor] = True
        seen[own[own < num_sources]] = False
        others = np.flatnonzero(seen)
    nodes = np.concatenate([own, others])
    there = own < num_sources  # of another kind there may be fewer
    place[own[there]] = np.flatnonzero(there)
    place[others] = np.arange(len(own), len(nodes))
    return BlockEdges(degree, place[neighbor], edge, np.minimum(nodes, num_sources - 1))
