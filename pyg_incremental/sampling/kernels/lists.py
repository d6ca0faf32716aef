"""Lists of in-edges that take new ones: what a list leaves when it moves, another one moves into.

A list that is full moves to a block of twice the size, a power of two. Blocks that were left are
chained, those of a size each, and taken again before the pool is made longer. So the pool is never
packed, which would read and write all of it at once.
"""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.jit import inner, njit

STAGE = 8
"""How many edges lie between one look ahead and the next, see `address.fetch`."""
SIZES = 48
"""Chains of blocks that were left, by the exponent of their size."""
_LEAST = 2
"""The exponent of the smallest block that a list moves to, and that is taken again."""
_LOW = 2**31 - 1
_NONE = 2**62 - 1
"""What stands for no block where a block says which one is next: all bits of both entries."""


@inner()
def _exponent(count):  # type: ignore[no-untyped-def]
    """Of the largest power of two that is no larger than `count`, which is positive."""
    found = 0
    while count > 1:
        count >>= 1
        found += 1
    return found


@inner(counted=False)
def _leave(start, size, adj, left):  # type: ignore[no-untyped-def]
    """Chain a block; where the next one of its size is stands in its first entries."""
    kind = _exponent(size) if size else 0
    if kind >= _LEAST:
        after = left[kind] if left[kind] >= 0 else _NONE
        adj.neighbor[start], adj.edge[start] = after & _LOW, after >> 31
        left[kind] = start


@inner(counted=False)
def _taken(kind, adj, left, top):  # type: ignore[no-untyped-def]
    """Where a block of a size begins; -1 if the pool has none."""
    start = left[kind]
    if start >= 0:
        after = (np.int64(adj.edge[start]) << 31) | np.int64(adj.neighbor[start])
        left[kind] = -1 if after == _NONE else after
        return start
    start = top[0]
    if start + (1 << kind) > adj.neighbor.size:
        return -1
    top[0] = start + (1 << kind)
    return start


@njit(counted=False)
def put(first, key, other, taken, positions, adj, top, left):  # type: ignore[no-untyped-def]
    """Append edges, from the `first` on, in the slots `taken`, to the lists of `key`.

    Args:
        first: Where to begin.
        key: The ends of the edges on the side of the lists, int64 `[k]`.
        other: Their other ends, int64 `[k]`.
        taken: Their slots, int64 `[k]`.
        positions: Takes where in its list each slot stands.
        adj: The lists, see `kernels.adjacency`.
        top: Where the pool ends, `[1]`.
        left: Where the chains of blocks begin, int64 `[SIZES]`; -1 for none.

    Returns:
        How many edges are in; fewer than there are if the pool is full.
    """
    for i in range(first, key.size):
        if i + 2 * STAGE < key.size:
            fetch(adj.start, key[i + 2 * STAGE])
            fetch(adj.degree, key[i + 2 * STAGE])
            fetch(adj.capacity, key[i + 2 * STAGE])
        if i + STAGE < key.size:
            ahead = adj.start[key[i + STAGE]] + adj.degree[key[i + STAGE]]
            fetch(adj.neighbor, ahead)
            fetch(adj.edge, ahead)
        v = key[i]
        n = adj.degree[v]
        if n == adj.capacity[v]:
            kind = max(_LEAST, _exponent(max(n, 1)) + 1)
            new, old = _taken(kind, adj, left, top), adj.start[v]
            if new < 0:
                return i
            for k in range(n):
                adj.neighbor[new + k] = adj.neighbor[old + k]
                adj.edge[new + k] = adj.edge[old + k]
            _leave(old, n, adj, left)
            adj.start[v], adj.capacity[v] = new, 1 << kind
        at = adj.start[v] + n
        adj.neighbor[at] = other[i]
        adj.edge[at] = taken[i]
        adj.degree[v] = n + 1
        positions[taken[i]] = n
    return key.size
