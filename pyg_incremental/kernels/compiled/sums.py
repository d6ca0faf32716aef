"""Sums over in-edges: from the start, and edge by edge; and rows after messages came and went.

A row is `own + factor * sum`; where there is no `own` and no `factor`, it is the sum. There is one
`own` for each row, or one for all. If there is a `loop`, each row has that weight in its own sum.
"""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.compiled.rows import AHEAD, ALL, magnitude, rows_ahead
from pyg_incremental.kernels.jit import inner, njit

_ZERO, _EVERYTHING = np.int64(0), np.int64(ALL)
"""Values that Numba does not compile a function once more for, as it does for a literal."""
NEAR = 8
"""How many rows lie between asking for the messages of one and summing it."""
FIRST = 16
"""How many messages of a row are asked for then; the others follow while it is summed."""
GROWS = 16
"""How much larger the factor of a row may become without that the row is summed afresh."""


@njit(cache=True)
def sum_rows(  # type: ignore[no-untyped-def]
    ids, state, drift, message, weight, own, factor, inn, drop, loop
):
    """Sum the rows `ids` afresh: `own + factor * sum`. Returns the number of edges read."""
    edges, each = 0, own.shape[0] > 1
    for i in range(ids.size):  # calls would take as long here as the sum of a narrow row
        if i + NEAR < ids.size:
            v = ids[i + NEAR]
            for k in range(inn.start[v], inn.start[v] + min(inn.degree[v], FIRST)):
                fetch(message, inn.neighbor[k])
        v = ids[i]
        row = state[v]
        row[:] = 0
        drift[v] = 0
        end = inn.start[v] + inn.degree[v]
        for k in range(inn.start[v], end):
            if k + FIRST < end:
                fetch(message, inn.neighbor[k + FIRST])
            u = inn.neighbor[k]
            if drop and u == v:
                continue
            if weight.size:
                w = weight[inn.edge[k]]
                for f in range(row.size):
                    row[f] += row.dtype.type(message[u, f]) * w
            else:
                for f in range(row.size):
                    row[f] += message[u, f]
        if loop.size:
            for f in range(row.size):
                row[f] += row.dtype.type(message[v, f]) * loop[0]
        if factor.size:
            for f in range(row.size):
                row[f] *= factor[v]
        if own.size:
            for f in range(row.size):
                row[f] += own[v if each else 0, f]
        edges += inn.degree[v]
    return edges


@njit(cache=True)
def sum_edges(  # type: ignore[no-untyped-def]
    state, drift, scale, message, src, dst, weights, factor, sign, drop
):
    """Add `sign * weight * factor * message` of each listed edge to its target.

    `weights` are those of the edges, `factor` has one for each row; none means one.
    """
    sum_edges_within(
        state, drift, scale, message, src, dst, weights, factor, sign, drop, _ZERO, _EVERYTHING
    )


@inner()
def sum_edges_within(  # type: ignore[no-untyped-def]
    state, drift, scale, message, src, dst, weights, factor, sign, drop, low, high
):
    """The same, where the target is one of the rows from `low` to before `high`."""
    width = state.shape[1]
    for i in range(src.size):
        if i + AHEAD < src.size and low <= dst[i + AHEAD] < high:
            fetch(message, src[i + AHEAD])
            fetch(state, dst[i + AHEAD])
        u, v = src[i], dst[i]
        if (drop and u == v) or not low <= v < high:
            continue
        w = state.dtype.type(sign * weights[i] if weights.size else sign)
        if factor.size:
            w *= factor[v]
        for f in range(width):
            state[v, f] += w * message[u, f]
        drift[v] += abs(w) * magnitude(message[u], scale)


@njit(cache=True)
def sum_renew(  # type: ignore[no-untyped-def]
    state, drift, scale, own, own_ids, own_old, factor, factor_ids, factor_old, first_new,
    num_nodes, low, high,
):  # fmt: skip
    """Take rows from the `own` and `factor` that they had to those that they have.

    Of the rows from `low` to before `high`, those whose own row or factor changed; `own_old` and
    `factor_old` hold what these were. From `first_new` on rows are new, and to be summed afresh;
    so are those whose factor became much larger, because what they have lost did so with them.
    """
    behind, each = min(high, first_new), own.shape[0] > 1
    moves = np.empty(state.shape[1], state.dtype)
    for i in range(own_ids.size):
        if i + AHEAD < own_ids.size:
            fetch(state, own_ids[i + AHEAD])
            fetch(own, own_ids[i + AHEAD])
            fetch(drift, own_ids[i + AHEAD])
        v = own_ids[i]
        if low <= v < behind:
            for f in range(moves.size):
                moves[f] = moves.dtype.type(own[v, f]) - moves.dtype.type(own_old[i, f])
                state[v, f] += moves[f]
            drift[v] += magnitude(moves, scale)
    for i in range(factor_ids.size):
        if i + AHEAD < factor_ids.size:
            fetch(state, factor_ids[i + AHEAD])
            if each:
                fetch(own, factor_ids[i + AHEAD])
        v = factor_ids[i]
        if not low <= v < behind:
            continue
        by = factor[v] / factor_old[i, 0] if factor_old[i, 0] != 0 else factor.dtype.type(np.inf)
        if not abs(by) <= GROWS:
            drift[v] = np.inf
            continue
        size, at = magnitude(state[v], scale), v if each else 0
        if own.size:
            size += magnitude(own[at], scale)
        drift[v] = (drift[v] + size) * max(abs(by), 1)
        for f in range(state.shape[1]):
            term = own[at, f] if own.size else own.dtype.type(0)
            state[v, f] = (state[v, f] - term) * by + term
    for v in range(max(low, first_new), min(high, num_nodes)):
        drift[v] = np.inf


@inner()
def is_settled(drift, limit, size):  # type: ignore[no-untyped-def]
    """Whether a row of that size is as good as one summed afresh; see `sum_settle`."""
    return drift / limit <= size and size < np.inf


@njit(cache=True)
def sum_settle(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, inn, touched, count, again
):
    """Look at the first `count` rows of `touched` after additions.

    A row without in-edges becomes zero. A row in which the magnitude that has moved through it
    exceeds `limit` times its size has lost that many units in the last place: it is written to
    `again`, to be summed afresh. `scale` holds, for each channel, one over the typical size of its
    messages, so that a large channel does not hide what happens in a small one. NaN and
    infinities fail the comparison too, and so does an empty row that is not exactly zero: one rule
    mends drift, cancellation and non-finite messages that leave.

    Returns the number of rows in `again`.
    """
    n, ahead = 0, rows_ahead(state)
    for i in range(count):
        if i + ahead < count:
            fetch(state, touched[i + ahead])
            fetch(drift, touched[i + ahead])
            fetch(inn.degree, touched[i + ahead])
        v = np.uint64(touched[i])
        if inn.degree[v] == 0:
            state[v] = 0
            drift[v] = 0
        elif drift[v] != 0:
            size = magnitude(state[v], scale)
            drift[v] += size
            if not is_settled(drift[v], limit, size):
                again[n] = v
                n += 1
    return n
