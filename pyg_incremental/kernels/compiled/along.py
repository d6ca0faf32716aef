"""By how much messages have changed, and the edges along which that goes."""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.compiled.rows import rows_ahead, size_of
from pyg_incremental.kernels.jit import inner

STAGE = 12
"""How many sources lie between one look ahead at their lists and the next."""


@inner(counted=False)
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
        moved[at] = size_of(diff, scale)
        if moved[at] == 0:
            differs = False
            for f in range(diff.size):
                differs |= diff[f] != 0
            if not differs:
                moved[at] = -1


@inner(counted=False)
def list_edges(ids, first, last, out, drop, own_at, moved, base, edges, end):  # type: ignore[no-untyped-def]
    """Write down the edges along which differences go, behind the `end` that stand in `edges`.

    Those of the sources `ids[first:last]`, the first of which has the difference `base`. Columns:
    the difference, the target, and the slot if there is a third one. In a sum with loops each has
    an edge to itself, of which `own_at` is added to the difference; zero if there are none.

    Returns:
        (how many edges stand in `edges`; edges pushed)
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
        if own_at:
            edges[end, 0], edges[end, 1] = own_at + at, u
            end += 1
        begin = out.start[u]
        behind = begin + out.degree[u]
        for k in range(begin, behind):
            v = out.neighbor[k]
            edges[end, 0], edges[end, 1] = at, v
            if edges.shape[1] > 2:
                edges[end, 2] = out.edge[k]
            end += not (drop and v == u)
        pushed += behind - begin
    return end, pushed
