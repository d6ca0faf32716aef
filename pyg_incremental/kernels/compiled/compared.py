"""Which rows of a sum came out as they were, where somebody is told which changed.

Rows are copied before anything is added to them, and held against that at the end.
"""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.compiled.rows import rows_ahead
from pyg_incremental.kernels.jit import inner


@inner()
def copied(state, ids, count, before):  # type: ignore[no-untyped-def]
    """Copy the first `count` of the rows `ids` to the front of `before`."""
    for k in range(count):
        row, kept = state[np.uint64(ids[k])], before[k]
        for f in range(row.size):
            kept[f] = row[f]


@inner()
def remember(edges, count, state, before, touched, n, stamp, epoch):  # type: ignore[no-untyped-def]
    """Collect the rows to which the first `count` of `edges` lead, and copy those that are new.

    They go behind the `n` in `touched`, and to the same places of `before`; returns how many there
    are then.
    """
    ahead = rows_ahead(state)
    for e in range(count):
        if e + ahead < count:
            fetch(state, edges[e + ahead, 1])
            fetch(stamp, edges[e + ahead, 1])
        v = np.uint64(edges[e, 1])
        if stamp[v] != epoch:
            stamp[v] = epoch
            touched[n] = v
            row, kept = state[v], before[n]
            for f in range(row.size):
                kept[f] = row[f]
            n += 1
    return n


@inner()
def differs(now, before):  # type: ignore[no-untyped-def]
    """Whether a row has another value; NaN equals NaN. Most differ at once."""
    for f in range(now.size):
        a, b = now[f], before[f]
        if a != b and (a == a or b == b):
            return True
    return False


@inner()
def differing(state, touched, count, before, first_new):  # type: ignore[no-untyped-def]
    """Move the rows that differ to the front of `touched`; returns how many.

    Those from `first_new` on are new, and differ whatever they are.
    """
    kept = 0
    for k in range(count):
        v = touched[k]
        if v >= first_new or differs(state[np.uint64(v)], before[k]):
            touched[kept] = v
            kept += 1
    return kept
