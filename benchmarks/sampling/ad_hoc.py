"""A strong sampler that draws when it is asked, compiled, to compare with.

It keeps the list of in-edges of every node and nothing else, so an edge that arrives costs an
append; there are no ids, no deletions and no checks of what arrives. A query draws its sample
afresh: uniform ones with Floyd's algorithm, for all nodes of a hop before the first edge is read,
so that the memory is asked for all of them at once; by time or weight by one look at every in-edge,
with the best `k` in order. It removes duplicates as ours does, in one compiled call for all hops.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import node_sample

from pyg_incremental.kernels.address import fetch

Ids = NDArray[np.int64]


@njit
def _append(start, degree, room, pool, top, src, dst, value):  # type: ignore[no-untyped-def]
    """Edges to the ends of their lists; returns how many fitted into the pool."""
    for i in range(src.size):
        v = dst[i]
        n = degree[v]
        if n == room[v]:
            more = max(4, 2 * n)
            if top[0] + more > pool.shape[0]:
                return i
            for j in range(n):
                pool[top[0] + j] = pool[start[v] + j]
            start[v], room[v] = top[0], more
            top[0] += more
        pool[start[v] + n, 0] = src[i]
        pool[start[v] + n, 1] = value[i]
        degree[v] = n + 1
    return src.size


@njit
def _draw(state, below):  # type: ignore[no-untyped-def]
    """A number below another one (SplitMix; a product in place of a division, as Lemire 2019)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    word = state[0]
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(((word >> np.uint64(33)) * np.uint64(below)) >> np.uint64(31))


@njit
def _uniform(start, degree, pool, v, k, places, state):  # type: ignore[no-untyped-def]
    """Floyd's algorithm: `k` distinct places among `degree`, and ask for what is there."""
    n = degree[v]
    if n <= k:
        for i in range(n):
            places[i] = start[v] + i
            if i % 4 == 0:
                fetch(pool, places[i])
        return n
    for i in range(k):
        j = n - k + i
        t = start[v] + _draw(state, j + 1)
        for m in range(i):
            if places[m] == t:
                t = start[v] + j
                break
        places[i] = t
        fetch(pool, t)
    return k


@njit
def _best(start, degree, pool, v, k, chosen, best, by_weight):  # type: ignore[no-untyped-def]
    """The `k` in-edges with the largest values, or with the largest keys drawn by weight."""
    held = 0
    for i in range(start[v], start[v] + degree[v]):
        key = np.float64(pool[i, 1])
        if by_weight:
            key = np.log(np.random.random()) / key  # noqa: NPY002
        if held == k and key <= best[k - 1]:
            continue
        at = min(held, k - 1)
        while at > 0 and best[at - 1] < key:
            best[at], chosen[at] = best[at - 1], chosen[at - 1]
            at -= 1
        best[at], chosen[at] = key, pool[i, 0]
        held = min(k, held + 1)
    return held


@njit
def _query(start, degree, pool, seed, fanouts, how, state, counts):  # type: ignore[no-untyped-def]
    """Nodes in the order in which they are found, and the ends of the edges; `counts` by hop."""
    most, last = 1, 1
    for k in fanouts:
        last *= k
        most += last
    size = 16
    while size < 2 * most:
        size *= 2
    table = np.full(size, np.int32(-1))
    nodes, ends = np.empty(most, np.int64), np.empty((2, most), np.int64)
    widest = max(fanouts)
    chosen, best = np.empty(widest, np.int64), np.empty(widest, np.float64)
    places, held = np.empty((most, widest), np.int64), np.empty(most, np.int64)
    nodes[0] = seed
    table[(seed * 0x9E3779B1) & (size - 1)] = 0
    counts[0, 0] = found = 1
    edges, first = 0, 0
    for h in range(fanouts.size):
        k, end, before = fanouts[h], found, edges
        if how == 0:
            for i in range(first, end):
                held[i] = _uniform(start, degree, pool, nodes[i], k, places[i], state)
        for i in range(first, end):
            if how == 0:
                for j in range(held[i]):
                    chosen[j] = pool[places[i, j], 0]
            else:
                held[i] = _best(start, degree, pool, nodes[i], k, chosen, best, how == 2)
            for j in range(held[i]):
                u = chosen[j]
                at = (u * 0x9E3779B1) & (size - 1)
                while table[at] >= 0 and nodes[table[at]] != u:
                    at = (at + 1) & (size - 1)
                if table[at] < 0:
                    table[at] = found
                    nodes[found] = u
                    found += 1
                    fetch(start, u)
                    fetch(degree, u)
                ends[0, edges], ends[1, edges] = table[at], i
                edges += 1
        first, counts[0, h + 1], counts[1, h + 1] = end, found - end, edges - before
    return nodes[:found], ends[:, :edges]


class AdHocSampler:
    """In-edges of every node, and samples drawn when asked for.

    Args:
        edges: Sources and targets, int64 `[2, num_edges]`.
        value: Times or weights, int64 `[num_edges]`.
        num_nodes: Number of nodes.
        fanouts: How many in-edges of a node are sampled in each hop.
        strategy: `'random'`, `'topk'` or `'weight'`.
    """

    def __init__(
        self, edges: Ids, value: Ids, num_nodes: int, fanouts: list[int], strategy: str
    ) -> None:
        self._start, self._degree = np.zeros(num_nodes, np.int64), np.zeros(num_nodes, np.int64)
        self._room, self._top = np.zeros(num_nodes, np.int64), np.zeros(1, np.int64)
        self._pool = np.empty((4 * edges.shape[1] + 4 * num_nodes, 2), np.int64)
        self._fanouts = np.array(fanouts)
        self._how = ("random", "topk", "weight").index(strategy)
        self._state = np.ones(1, np.uint64)
        self.counts = np.zeros((2, len(fanouts) + 1), np.int64)
        self.add(edges, value)

    def add(self, edges: Ids, value: Ids) -> None:
        """Append edges."""
        done = 0
        while True:
            done += _append(
                self._start, self._degree, self._room, self._pool, self._top, edges[0, done:],
                edges[1, done:], value[done:],
            )  # fmt: skip
            if done == edges.shape[1]:
                return
            grown = np.empty((2 * self._pool.shape[0] + 64, 2), np.int64)
            grown[: self._top[0]] = self._pool[: self._top[0]]
            self._pool = grown

    def query(self, seed: int) -> tuple[Ids, Ids]:
        """Nodes, and the ends of the sampled edges among them, `[2, e]`."""
        nodes, ends = _query(
            self._start, self._degree, self._pool, seed, self._fanouts, self._how, self._state,
            self.counts,
        )  # fmt: skip
        return nodes, ends


class AdHocNeighborSampler(BaseSampler):
    """The same behind the interface that PyG's loaders call, for one seed at a time."""

    def __init__(self, sampler: AdHocSampler) -> None:
        self._sampler = sampler

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: object) -> SamplerOutput:
        """The subgraph around a node."""
        found: SamplerOutput = node_sample(index, self._sample)
        return found

    def sample_from_edges(self, *args: object, **kwargs: object) -> SamplerOutput:
        """Nobody asks for links here."""
        raise NotImplementedError

    def _sample(self, seed: Tensor, seed_time: Tensor | None = None) -> SamplerOutput:
        nodes, ends = self._sampler.query(int(seed[0]))
        num_nodes, num_edges = self._sampler.counts.tolist()
        return SamplerOutput(
            node=torch.from_numpy(nodes),
            row=torch.from_numpy(ends[0]),
            col=torch.from_numpy(ends[1]),
            edge=None,
            num_sampled_nodes=num_nodes,
            num_sampled_edges=num_edges[1:],
        )
