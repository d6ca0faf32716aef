"""Linear deterministic greedy (LDG) placement of nodes, one at a time.

A node goes to the part that holds most of its neighbours, discounted by how full that part is:
`|N(v) in P| * (1 - |P| / capacity)` (Stanton and Kliot, "Streaming Graph Partitioning for Large
Distributed Graphs", KDD 2012). It needs one look at the neighbours of each node in turn and no more
memory than the assignment, so it also serves graphs that METIS cannot hold, and new nodes.
"""

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.kernels.jit import njit

NOWHERE = -1
"""The part of a node that has not been placed."""


@njit(cache=True)
def place(
    nodes: NDArray[np.int64],
    start: NDArray[np.int64],
    neighbor: NDArray[np.int64],
    owner: NDArray[np.int16],
    sizes: NDArray[np.int64],
    capacity: float,
) -> None:
    """Place some nodes, in their order.

    Args:
        nodes: The nodes, int64 `[k]`. One that is placed already leaves its part first.
        start: Node `i` of these has the neighbours `neighbor[start[i] : start[i + 1]]`; int64
            `[k + 1]`.
        neighbor: Nodes, int64 `[num_neighbors]`; those that are not placed do not count.
        owner: The part of every node, or `NOWHERE`, int16 `[num_nodes]`; written.
        sizes: Nodes in each part, int64 `[num_parts]`; written.
        capacity: How many nodes a part holds.
    """
    parts = sizes.size
    near = np.zeros(parts, np.int64)
    for i in range(nodes.size):
        v = nodes[i]
        if owner[v] != NOWHERE:
            sizes[owner[v]] -= 1
        near[:] = 0
        for at in range(start[i], start[i + 1]):
            u = neighbor[at]
            if u != v and owner[u] != NOWHERE:
                near[owner[u]] += 1
        best, most = -1, -1.0
        for p in range(parts):
            if sizes[p] >= capacity:
                continue
            score = near[p] * (1.0 - sizes[p] / capacity)
            # Of equally good parts the one with fewer nodes.
            if score > most or (score == most and sizes[p] < sizes[best]):
                best, most = p, score
        if best < 0:  # all full: the smallest
            best = 0
            for p in range(1, parts):
                if sizes[p] < sizes[best]:
                    best = p
        owner[v] = best
        sizes[best] += 1


@njit(cache=True)
def both_ways(
    src: NDArray[np.int64], dst: NDArray[np.int64], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Neighbours along edges of both directions, as `(start [num_nodes + 1], neighbor [2 * E])`."""
    start = np.zeros(num_nodes + 1, np.int64)
    for e in range(src.size):
        start[src[e] + 1] += 1
        start[dst[e] + 1] += 1
    for v in range(num_nodes):
        start[v + 1] += start[v]
    fill = start[:-1].copy()
    neighbor = np.empty(2 * src.size, np.int64)
    for e in range(src.size):
        u, v = src[e], dst[e]
        neighbor[fill[u]] = v
        fill[u] += 1
        neighbor[fill[v]] = u
        fill[v] += 1
    return start, neighbor
