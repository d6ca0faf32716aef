"""A set of nodes in the order in which they were found, emptied at no cost."""

from __future__ import annotations

import numpy as np
from numba import njit

from benchmarks.peers.adjacency import Neighbours
from benchmarks.peers.changes import Ids


class Touched:
    """Nodes below `num_nodes`; one is in if its stamp is the present epoch.

    Attributes:
        found: The nodes, in its first `count` places.
        at: The place of each node that is in.
    """

    def __init__(self, num_nodes: int) -> None:
        self.stamp = np.zeros(num_nodes, np.int64)
        self.found = np.empty(num_nodes, np.int64)
        self.at = np.empty(num_nodes, np.int64)
        self.epoch, self.count = 0, 0

    def clear(self) -> None:
        self.epoch += 1
        self.count = 0

    def add(self, ids: Ids) -> None:
        if ids.size:
            self.count = mark(ids, self.stamp, self.epoch, self.found, self.at, self.count)

    def add_targets(self, ids: Ids, out: Neighbours) -> None:
        """Everything that an edge from one of these nodes leads to."""
        if ids.size:
            self.count = mark_targets(
                ids, out.start, out.degree, out.pool,
                self.stamp, self.epoch, self.found, self.at, self.count,
            )  # fmt: skip

    def ids(self) -> Ids:
        """The nodes, as a copy."""
        return self.found[: self.count].copy()


@njit(cache=True)
def mark(ids, stamp, epoch, found, at, count):
    for i in range(ids.size):
        v = ids[i]
        if stamp[v] != epoch:
            stamp[v] = epoch
            found[count], at[v] = v, count
            count += 1
    return count


@njit(cache=True)
def mark_targets(ids, start, degree, pool, stamp, epoch, found, at, count):
    for i in range(ids.size):
        u = ids[i]
        for k in range(start[u], start[u] + degree[u]):
            v = pool[k]
            if stamp[v] != epoch:
                stamp[v] = epoch
                found[count], at[v] = v, count
                count += 1
    return count
