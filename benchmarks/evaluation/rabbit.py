"""Rabbit order (Arai et al., IPDPS 2016), one thread, plain Python: only to be compared with.

Nodes, those with few edges first, join the neighbour that adds most to the modularity, with all
that joined them before. The order is that of a walk through the trees that come of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

Ids = NDArray[np.int64]


def rabbit(graph: csr_matrix) -> Ids:
    """All nodes in this order.

    Args:
        graph: The edges, both ways, `[num_nodes, num_nodes]`.
    """
    count = graph.shape[0]
    starts, neighbors = graph.indptr.tolist(), graph.indices.tolist()
    degree = np.diff(graph.indptr)
    strength = degree.astype(float).tolist()
    total = max(float(degree.sum()), 1.0)
    top = list(range(count))
    joined: list[list[int]] = [[] for _ in range(count)]
    edges: list[dict[int, float]] = [{} for _ in range(count)]

    def found(v: int) -> int:
        while top[v] != v:
            top[v] = top[top[v]]
            v = top[v]
        return v

    for v in np.argsort(degree, kind="stable").tolist():
        mine = edges[v]
        for u in neighbors[starts[v] : starts[v + 1]]:
            mine[u] = mine.get(u, 0.0) + 1.0
        for child in joined[v]:
            for u, weight in edges[child].items():
                mine[u] = mine.get(u, 0.0) + weight
            edges[child] = {}
        merged: dict[int, float] = {}
        for u, weight in mine.items():
            at = found(u)
            if at != v:
                merged[at] = merged.get(at, 0.0) + weight
        edges[v] = merged
        best, gain = v, 0.0
        for u, weight in merged.items():
            more = weight / total - strength[v] * strength[u] / total**2
            if more > gain:
                best, gain = u, more
        if best != v:
            top[v] = best
            strength[best] += strength[v]
            joined[best].append(v)
    return _walked([v for v in range(count) if top[v] == v], joined)


def _walked(roots: list[int], joined: list[list[int]]) -> Ids:
    order: list[int] = []
    for root in roots:
        stack = [root]
        while stack:
            v = stack.pop()
            order.append(v)
            stack += joined[v]
    return np.array(order, np.int64)
