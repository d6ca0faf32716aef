"""The best in-edges of every node, kept while edges come and go."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.kernels.address import zeros
from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.sampling.kernels import rows as kernel
from pyg_incremental.sampling.room import RowBuffer

Ids = NDArray[np.int64]
_NONE = np.empty(0, np.int64)


class Reservoirs:
    """One row for each node with its in-edges of the largest keys, in descending order.

    One row serves all hops: the sample of hop `h` is the first `num_neighbors[h]` edges of it. A
    query expands a node at one hop only, and the rows of two nodes have no edge in common, so the
    samples of a query are as independent as if each hop had drawn its own.

    A row holds up to half as many edges again as are asked for. So that many of them may leave
    before the list of all in-edges is read, even if someone keeps deleting the newest edge.

    Args:
        num_nodes: Number of nodes.
        width: How many edges of each node are asked for.

    Attributes:
        heads: Where the rows are, int64 `[room, 4]`, see `sampling.kernels.rows`.
    """

    def __init__(self, num_nodes: int, width: int) -> None:
        self.width = width
        self._limit = width + (width + 1) // 2
        self.heads = _empty_heads(num_nodes)
        self._room = RowBuffer()
        self._top = np.zeros(1, np.int64)
        self._read = np.zeros(1, np.int64)

    @property
    def pool(self) -> Ids:
        """What the rows hold, int64 `[room, 3]`; not to be kept."""
        return self._room.rows

    @property
    def edges_read(self) -> int:
        """How many in-edges have been read to fill rows."""
        return int(self._read[0])

    @property
    def num_bytes(self) -> int:
        """Bytes that the rows take."""
        return self.heads.nbytes + self.pool.nbytes

    def grow(self, num_nodes: int) -> None:
        """Make room for the rows of so many nodes; new ones are empty."""
        if num_nodes > self.heads.shape[0]:
            heads = _empty_heads(max(num_nodes, 3 * num_nodes // 2))
            heads[: self.heads.shape[0]] = self.heads
            self.heads = heads

    def enter(self, nodes: Ids, sources: Ids, slots: Ids, keys: Ids, edges: Ids) -> Ids:
        """Take in edges that are newer than all before, int64 `[k]` each, ids ascending.

        Returns:
            The targets whose samples changed; a node may be named more than once.
        """
        changed = np.empty(nodes.size, np.bool_)
        done = 0
        while True:
            done = kernel.enter(
                done, nodes, sources, slots, keys, edges, self.width, self._limit, self.heads,
                self.pool, self._top, changed,
            )  # fmt: skip
            if done == nodes.size:
                return nodes[changed]
            self._more_pool()

    def leave(self, nodes: Ids, slots: Ids, keys: Ids) -> Ids:
        """Let the in-edges of nodes go, in these slots and with these keys, int64 `[k]` each.

        Rows that hold too few edges then are to be filled up by `refill`.

        Returns:
            The targets whose samples changed; a node may be named more than once.
        """
        changed = np.empty(nodes.size, np.bool_)
        kernel.leave(nodes, slots, keys, self.width, self.heads, self.pool, changed)
        return nodes[changed]

    def refill(
        self, nodes: Ids, lists: Adjacency, keys: Ids, edges: Ids, anew: bool = False
    ) -> None:
        """Read the in-edges of nodes whose rows hold too few, or of all of the nodes `anew`.

        Args:
            nodes: Distinct or not, int64 `[k]`.
            lists: All in-edges.
            keys: The keys of all edges by slot, int64 `[slots]`.
            edges: Their ids by slot, int64 `[slots]`.
            anew: Whether to read those of every node.
        """
        done = 0
        while True:
            done = kernel.refill(
                done, nodes, anew, self.width, self._limit, self.heads, self.pool, self._top,
                lists, keys, edges, self._read,
            )  # fmt: skip
            if done == nodes.size:
                return
            self._more_pool()

    def fill(self, num_nodes: int, lists: Adjacency, keys: Ids, edges: Ids) -> None:
        """Make all rows afresh from the in-edges; see `refill`."""
        self.heads = _empty_heads(max(num_nodes, self.heads.shape[0]))
        # RowBuffer that is never used costs no memory: the system gives it page by page.
        degree = lists.degree[:num_nodes].astype(np.int64)
        needed = int(np.minimum(degree + degree // 4 + 1, self._limit).sum())
        self._room = RowBuffer(2 * needed + 64)
        self._top[0] = 0
        self.refill(np.arange(num_nodes), lists, keys, edges, anew=True)

    def of(self, node: int) -> Ids:
        """The ids of the edges that are asked for of a node, best first, int64 `[k]`."""
        start, held = self.heads[node, kernel.START], self.heads[node, kernel.HELD]
        found: Ids = self.pool[start : start + min(held, self.width), kernel.EDGE].copy()
        return found

    def clear(self) -> None:
        """Forget all edges."""
        self.heads = _empty_heads(self.heads.shape[0])
        self._top[0] = 0

    def _more_pool(self) -> None:
        """Half as much again; rows that have moved leave their old places, which nobody uses."""
        room = self.pool.shape[0]
        self._room.grow(room + max(1024, room // 2, 4 * self._limit))


def _empty_heads(count: int) -> Ids:
    heads: Ids = zeros(np.int64, count, 4)  # no row in two cache lines
    heads[:, kernel.FLOOR] = kernel.COMPLETE
    return heads
