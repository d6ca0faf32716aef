"""Neighbour lists that take insertions and deletions in place, for the peers written with Numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from benchmarks.peers.changes import Changes, Ids


class Neighbours:
    """For each node the other ends of its edges, in one array with room in every row.

    Row `v` is `pool[start[v] : start[v] + degree[v]]`. The first `kept[v]` of them were there
    before the additions of the delta that is being applied.
    """

    def __init__(self, node: Ids, other: Ids, num_nodes: int) -> None:
        self.degree = np.zeros(num_nodes, np.int32)
        self.start = np.zeros(num_nodes, np.int64)
        self.room = np.zeros(num_nodes, np.int32)
        count_rows(node, self.degree)
        used = lay_out(self.degree, self.start, self.room)
        self.pool = np.empty(used + used // 8 + 1024, np.int32)
        fill_rows(node, other, self.start, self.degree, self.pool)
        self.used = np.array([used])
        self.kept = self.degree.copy()

    def remove(self, node: Ids, other: Ids) -> None:
        """Take out one occurrence of each edge."""
        delete(node, other, self.start, self.degree, self.pool)
        self.kept[node] = self.degree[node]

    def add(self, node: Ids, other: Ids) -> None:
        """Append each edge to its row; `kept` stays as it is until `settle`."""
        rows = self.start, self.degree, self.room
        done = insert(0, node, other, *rows, self.pool, self.used)
        while done < len(node):
            self.pool = np.concatenate([self.pool, np.empty(len(self.pool) // 2, np.int32)])
            done = insert(done, node, other, *rows, self.pool, self.used)

    def settle(self, node: Ids) -> None:
        """The additions to these rows are no news any more."""
        self.kept[node] = self.degree[node]


class Adjacency:
    """The edges by their sources and by their targets."""

    def __init__(self, edge_index: Ids, num_nodes: int) -> None:
        source, target = edge_index
        self.out = Neighbours(source, target, num_nodes)
        self.inn = Neighbours(target, source, num_nodes)

    def apply(self, changes: Changes) -> None:
        """Take deletions, then additions."""
        if changes.deleted.shape[1]:
            source, target = changes.deleted
            self.out.remove(source, target)
            self.inn.remove(target, source)
        if changes.added.shape[1]:
            source, target = changes.added
            self.out.add(source, target)
            self.inn.add(target, source)

    def settle(self, changes: Changes) -> None:
        """The delta is done."""
        if changes.added.shape[1]:
            self.out.settle(changes.added[0])
            self.inn.settle(changes.added[1])


@njit(cache=True)
def count_rows(node, degree):
    for i in range(node.size):
        degree[node[i]] += 1


@njit(cache=True)
def lay_out(degree, start, room):
    used = 0
    for v in range(degree.size):
        start[v] = used
        room[v] = degree[v] + (degree[v] >> 3) + 1
        used += room[v]
    return used


@njit(cache=True)
def fill_rows(node, other, start, degree, pool):
    degree[:] = 0
    for i in range(node.size):
        v = node[i]
        pool[start[v] + degree[v]] = other[i]
        degree[v] += 1


@njit(cache=True)
def delete(node, other, start, degree, pool):
    for i in range(node.size):
        v, w = node[i], other[i]
        first, last = start[v], start[v] + degree[v] - 1
        for k in range(last, first - 1, -1):
            if pool[k] == w:
                pool[k] = pool[last]
                degree[v] -= 1
                break


@njit(cache=True)
def insert(begin, node, other, start, degree, room, pool, used):
    """Append from the edge `begin` on. Returns how far it came before the pool was full."""
    for i in range(begin, node.size):
        v = node[i]
        if degree[v] == room[v]:
            wider = max(4, 2 * room[v])
            if used[0] + wider > pool.size:
                return i
            for k in range(degree[v]):
                pool[used[0] + k] = pool[start[v] + k]
            start[v], room[v] = used[0], wider
            used[0] += wider
        pool[start[v] + degree[v]] = other[i]
        degree[v] += 1
    return node.size
