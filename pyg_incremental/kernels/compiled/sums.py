"""Sums over in-edges: from the start, and edge by edge; and rows after messages came and went.

A row is `own + factor * sum`; where there is no `own` and no `factor`, it is the sum. There is one
`own` for each row, or one for all. If there is a `loop`, each row has that weight in its own sum.

All is added in float64. Of a row in float32 `low` keeps what is left when it is rounded, so that
nothing is lost between two updates but what is below 2^-48 of the row; of others `low` is empty.
"""

import numpy as np

from pyg_incremental.kernels.address import fetch, fill
from pyg_incremental.kernels.compiled.rows import AHEAD, ALL, magnitude, rows_ahead
from pyg_incremental.kernels.jit import inner, njit, shared

_ZERO, _EVERYTHING = np.int64(0), np.int64(ALL)
"""Values that Numba does not compile a function once more for, as it does for a literal."""
_ONE = np.float64(1)
INEXACT = 2.0**16
"""How often a message counts that is computed once more when it is taken back.

It may then be another one in its last place, 2^-24 of it, while additions round to 2^-48 of the
row. So of such messages 64 times the size of a row may move through it (see `typing.DRIFT_LIMIT`).
"""
NEAR = 8
"""How many rows lie between asking for the messages of one and summing it."""
FIRST = 16
"""How many messages of a row are asked for then; the others follow while it is summed."""
GROWS = 16
"""How much larger the factor of a row may become without that the row is summed afresh."""


@inner(counted=False)
def rest_of(total, high):  # type: ignore[no-untyped-def]
    """What a number in float64 loses when it is rounded to `high`; nothing if that is infinite."""
    rest = total - np.float64(high)
    return rest if abs(rest) < np.inf else 0.0


@inner(counted=False)
def joined(state, low, v, row):  # type: ignore[no-untyped-def]
    """Read row `v` of a sum into `row`, float64."""
    if low.size:
        for f in range(row.size):
            row[f] = np.float64(state[v, f]) + np.float64(low[v, f])
    else:
        for f in range(row.size):
            row[f] = state[v, f]


@inner(counted=False)
def split(row, state, low, v):  # type: ignore[no-untyped-def]
    """Write `row`, float64, to row `v` of a sum, and what that loses to `low`."""
    if low.size:
        for f in range(row.size):
            high = state.dtype.type(row[f])
            state[v, f] = high
            low[v, f] = rest_of(row[f], high)
    else:
        for f in range(row.size):
            state[v, f] = row[f]


@inner(counted=False)
def add_scaled(state, low, v, w, messages, u):  # type: ignore[no-untyped-def]
    """Add `w` times row `u` of some messages, `w` in float64, to row `v` of a sum."""
    message = messages[u]
    if low.size:
        for f in range(message.size):
            total = np.float64(state[v, f]) + np.float64(low[v, f]) + w * np.float64(message[f])
            high = state.dtype.type(total)
            state[v, f] = high
            low[v, f] = rest_of(total, high)
    else:
        for f in range(message.size):
            state[v, f] += w * message[f]


@shared()
def sum_rows(  # type: ignore[no-untyped-def]
    ids, state, low, drift, message, weight, own, factor, inn, drop, loop
):
    """Sum the rows `ids` afresh: `own + factor * sum`. Returns the number of edges read."""
    edges, each, row = 0, own.shape[0] > 1, np.empty(state.shape[1], np.float64)
    for i in range(ids.size):  # calls would take as long here as the sum of a narrow row
        if i + NEAR < ids.size:
            v = ids[i + NEAR]
            for k in range(inn.start[v], inn.start[v] + min(inn.degree[v], FIRST)):
                fetch(message, inn.neighbor[k])
        v = ids[i]
        fill(row, 0.0)
        drift[v] = 0
        end = inn.start[v] + inn.degree[v]
        for k in range(inn.start[v], end):
            if k + FIRST < end:
                fetch(message, inn.neighbor[k + FIRST])
            u = inn.neighbor[k]
            if drop and u == v:
                continue
            if weight.size:
                w = np.float64(weight[inn.edge[k]])
                for f in range(row.size):
                    row[f] += np.float64(message[u, f]) * w
            else:
                for f in range(row.size):
                    row[f] += message[u, f]
        if loop.size:
            for f in range(row.size):
                row[f] += np.float64(message[v, f]) * loop[0]
        if factor.size:
            for f in range(row.size):
                row[f] *= factor[v]
        if own.size:
            for f in range(row.size):
                row[f] += own[v if each else 0, f]
        split(row, state, low, v)
        edges += inn.degree[v]
    return edges


@njit(counted=False)
def sum_edges(  # type: ignore[no-untyped-def]
    state, low, drift, scale, message, src, dst, weights, factor, sign, drop, unit
):
    """Add `sign * weight * factor * message` of each listed edge to its target.

    `weights` are those of the edges, `factor` has one for each row; none means one. In the drift of
    a row each message counts `unit` times, see `INEXACT`.
    """
    sum_edges_within(
        state, low, drift, scale, message, src, dst, weights, factor, sign, drop, unit, _ZERO,
        _EVERYTHING,
    )  # fmt: skip


@inner(counted=False)
def sum_edges_within(  # type: ignore[no-untyped-def]
    state, low, drift, scale, message, src, dst, weights, factor, sign, drop, unit, first, last
):
    """The same, where the target is one of the rows from `first` to before `last`."""
    for i in range(src.size):
        if i + AHEAD < src.size and first <= dst[i + AHEAD] < last:
            fetch(message, src[i + AHEAD])
            fetch(state, dst[i + AHEAD])
            fetch(drift, dst[i + AHEAD])
            if low.size:
                fetch(low, dst[i + AHEAD])
        u, v = np.uint64(src[i]), np.uint64(dst[i])  # no index from the end
        if (drop and u == v) or not first <= dst[i] < last:
            continue
        w = np.float64(sign * weights[i] if weights.size else sign)
        if factor.size:
            w *= factor[v]
        add_scaled(state, low, v, w, message, u)
        moved = unit * abs(w) * magnitude(message, u, scale)
        if low.size:  # each of these additions rounds what the row has become
            moved += magnitude(state, v, scale)
        drift[v] += moved


@shared()
def sum_renew(  # type: ignore[no-untyped-def]
    state, low, drift, scale, own, own_ids, own_old, factor, factor_ids, factor_old, first_new,
    num_nodes, first, last,
):  # fmt: skip
    """Take rows from the `own` and `factor` that they had to those that they have.

    Of the rows from `first` to before `last`, those whose own row or factor changed; `own_old` and
    `factor_old` hold what these were. From `first_new` on rows are new, and to be summed afresh;
    so are those whose factor became much larger, because what they have lost did so with them.
    """
    behind, each = min(last, first_new), own.shape[0] > 1
    moves, row = np.empty((1, state.shape[1]), np.float64), np.empty(state.shape[1], np.float64)
    for i in range(own_ids.size):
        if i + AHEAD < own_ids.size:
            fetch(state, own_ids[i + AHEAD])
            fetch(own, own_ids[i + AHEAD])
            fetch(drift, own_ids[i + AHEAD])
            if low.size:
                fetch(low, own_ids[i + AHEAD])
        v = own_ids[i]
        if first <= v < behind:
            for f in range(moves.size):
                moves[0, f] = np.float64(own[v, f]) - np.float64(own_old[i, f])
            add_scaled(state, low, v, _ONE, moves, _ZERO)
            drift[v] += magnitude(moves, _ZERO, scale)
    for i in range(factor_ids.size):
        if i + AHEAD < factor_ids.size:
            fetch(state, factor_ids[i + AHEAD])
            if low.size:
                fetch(low, factor_ids[i + AHEAD])
            if each:
                fetch(own, factor_ids[i + AHEAD])
        v = factor_ids[i]
        if not first <= v < behind:
            continue
        before = np.float64(factor_old[i, 0])
        by = np.float64(factor[v]) / before if before != 0 else np.inf
        if not abs(by) <= GROWS:
            drift[v] = np.inf
            continue
        size, at = magnitude(state, v, scale), v if each else _ZERO
        if own.size:
            size += magnitude(own, at, scale)
        drift[v] = (drift[v] + size) * max(abs(by), 1)
        joined(state, low, v, row)
        for f in range(row.size):
            term = np.float64(own[at, f]) if own.size else 0.0
            row[f] = (row[f] - term) * by + term
        split(row, state, low, v)
    for v in range(max(first, first_new), min(last, num_nodes)):
        drift[v] = np.inf


@inner(counted=False)
def is_settled(drift, limit, size):  # type: ignore[no-untyped-def]
    """Whether a row of that size is as good as one summed afresh; see `sum_settle`."""
    return drift <= limit * size and size < np.inf


@shared(counted=False)
def sum_settle(  # type: ignore[no-untyped-def]
    state, low, drift, limit, scale, inn, touched, count, again
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
            if low.size:
                low[v] = 0
            drift[v] = 0
        elif drift[v] != 0:
            size = magnitude(state, v, scale)
            drift[v] += size
            if not is_settled(drift[v], limit, size):
                again[n] = v
                n += 1
    return n
