"""By how much messages have changed, and adding that along edges."""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.compiled.rows import magnitude, rows_ahead
from pyg_incremental.kernels.jit import inner

FAR = 32
"""How many edges ahead of its use a single number is asked for."""
STAGE = 12
"""How many sources lie between one look ahead at their lists and the next."""
NEAR = 1 << 18
"""Bytes of differences that are in the cache when they are added."""


@inner()
def differences(message, ids, old, first, last, scale, difference, moved):  # type: ignore[no-untyped-def]
    """`message - old` of the rows `ids[first:last]`, and the magnitude of that.

    They go to the same places of `difference` and `moved`, less `first`; -1 says that nothing
    differs.
    """
    ahead = rows_ahead(message)
    for i in range(first, last):
        if i + ahead < last:
            fetch(message, ids[i + ahead])
        at = np.uint64(i - first)
        now, before, diff = message[np.uint64(ids[i])], old[np.uint64(i)], difference[at]
        for f in range(diff.size):
            diff[f] = diff.dtype.type(now[f]) - diff.dtype.type(before[f])
        moved[at] = magnitude(diff, scale)
        if moved[at] == 0:
            differs = False
            for f in range(diff.size):
                differs |= diff[f] != 0
            if not differs:
                moved[at] = -1


@inner()
def list_edges(ids, first, position, last, out, drop, moved, base, edges, end):  # type: ignore[no-untyped-def]
    """Write down the edges along which differences go, behind the `end` that stand in `edges`.

    Those of the sources `ids[first:last]`, the first of which has the difference `base`; of that
    one, only the edges from `position` on. Columns: the difference, the target, and the slot if
    there is a third one.

    Returns:
        (the source for which there was no more room, or `last`; the position in its list; how many
        edges stand in `edges`; edges pushed)
    """
    pushed = 0
    for i in range(first, last):
        if i + 2 * STAGE < last:
            fetch(out.start, ids[i + 2 * STAGE])
            fetch(out.degree, ids[i + 2 * STAGE])
        if i + STAGE < last:
            fetch(out.neighbor, out.start[ids[i + STAGE]])
        at = base + i - first
        if moved[at] == -1:
            continue
        u = np.uint64(ids[i])
        begin = out.start[u] + position
        behind = min(out.start[u] + out.degree[u], begin + edges.shape[0] - end)
        for k in range(begin, behind):
            v = out.neighbor[k]
            edges[end, 0], edges[end, 1] = at, v
            if edges.shape[1] > 2:
                edges[end, 2] = out.edge[k]
            end += not (drop and v == u)
        pushed += behind - begin
        position += behind - begin
        if position < out.degree[u]:
            return i, position, end, pushed
        position = 0
    return last, position, end, pushed


@inner()
def add_along(  # type: ignore[no-untyped-def]
    edges, count, difference, moved, weight, factor, state, drift, touched, n, stamp, epoch
):
    """Add differences along the first `count` of `edges`, times their weight and target's factor.

    Collects the rows touched behind the `n` in `touched`; returns how many there are then.
    """
    ahead = rows_ahead(state)
    is_far = difference.size * difference.itemsize > NEAR
    if weight.size or factor.size:
        for e in range(count):
            if e + ahead < count:
                fetch(state, edges[e + ahead, 1])
                if is_far:
                    fetch(difference, edges[e + ahead, 0])
                if weight.size:
                    fetch(weight, edges[e + ahead, 2])
                if factor.size:
                    fetch(factor, edges[e + ahead, 1])
            v = np.uint64(edges[e, 1])
            row, diff, w = state[v], difference[np.uint64(edges[e, 0])], state.dtype.type(1)
            if weight.size:
                w = weight[np.uint64(edges[e, 2])]
            if factor.size:
                w *= factor[v]
            for f in range(row.size):
                row[f] += w * diff[f]
    else:
        for e in range(count):
            if e + ahead < count:
                fetch(state, edges[e + ahead, 1])
                if is_far:
                    fetch(difference, edges[e + ahead, 0])
            row, diff = state[np.uint64(edges[e, 1])], difference[np.uint64(edges[e, 0])]
            for f in range(row.size):
                row[f] += diff[f]
    for e in range(count):  # another loop: so it waits for other memory than the first
        if e + FAR < count:
            fetch(drift, edges[e + FAR, 1])
            fetch(stamp, edges[e + FAR, 1])
        v = np.uint64(edges[e, 1])  # no index from the end
        size = moved[np.uint64(edges[e, 0])]
        if weight.size:
            size *= abs(weight[np.uint64(edges[e, 2])])
        if factor.size:
            size *= abs(factor[v])
        drift[v] += size
        if stamp[v] != epoch:
            stamp[v] = epoch
            touched[n] = v
            n += 1
    return n
