"""Which rows of a sum came out as they were, where somebody is told which changed.

Rows are copied before anything is added to them, and held against that at the end.
"""

import numpy as np

from pyg_incremental.kernels.jit import inner


@inner(counted=False)
def copied(state, ids, count, before):  # type: ignore[no-untyped-def]
    """Copy the first `count` of the rows `ids` to the front of `before`."""
    for k in range(count):
        row, kept = state[np.uint64(ids[k])], before[k]
        for f in range(row.size):
            kept[f] = row[f]


@inner(counted=False)
def differs(now, v, before, k):  # type: ignore[no-untyped-def]
    """Whether row `v` has another value than row `k` of `before`; NaN equals NaN.

    Most differ at once.
    """
    for f in range(now.shape[1]):
        a, b = now[v, f], before[k, f]
        if a != b and (a == a or b == b):
            return True
    return False
