"""Sums over in-edges: from the start, edge by edge, and by pushing what changed."""

import numpy as np
from numba import njit

from pyg_incremental.kernels.compiled.rows import magnitude


@njit(cache=True)
def _sum_row(v, state, drift, message, weight, inn, drop):  # type: ignore[no-untyped-def]
    """Sum one row afresh over its in-edges."""
    row = state[v]
    row[:] = 0
    drift[v] = 0
    for k in range(inn.start[v], inn.start[v] + inn.degree[v]):
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


@njit(cache=True)
def sum_rows(ids, state, drift, message, weight, inn, drop):  # type: ignore[no-untyped-def]
    """Sum the rows `ids` afresh. Returns the number of edges read."""
    edges = 0
    for i in range(ids.size):
        _sum_row(ids[i], state, drift, message, weight, inn, drop)
        edges += inn.degree[ids[i]]
    return edges


@njit(cache=True)
def sum_edges(state, drift, scale, message, src, dst, factor, sign, drop):  # type: ignore[no-untyped-def]
    """Add `sign * factor * message` of each listed edge to its target; no `factor` means one."""
    width = state.shape[1]
    for i in range(src.size):
        u, v = src[i], dst[i]
        if drop and u == v:
            continue
        w = state.dtype.type(sign * factor[i] if factor.size else sign)
        for f in range(width):
            state[v, f] += w * message[u, f]
        drift[v] += abs(w) * magnitude(message[u], scale)


@njit(cache=True)
def sum_settle(state, drift, limit, scale, inn, touched, count, again):  # type: ignore[no-untyped-def]
    """Look at the first `count` rows of `touched` after additions.

    A row without in-edges becomes zero. A row in which the magnitude that has moved through it
    exceeds `limit` times its own has lost that many units in the last place: it is written to
    `again`, to be summed afresh. `scale` holds, for each channel, one over the typical size of its
    messages, so that a large channel does not hide what happens in a small one. NaN and infinities
    fail the comparison too, and so does an empty row that is not exactly zero: one rule mends
    drift, cancellation and non-finite messages that leave.

    Returns the number of rows in `again`.
    """
    n = 0
    for i in range(count):
        v = touched[i]
        if inn.degree[v] == 0:
            state[v] = 0
            drift[v] = 0
        elif drift[v] != 0:
            size = magnitude(state[v], scale)
            drift[v] += size
            if not (drift[v] / limit <= size and size < np.inf):
                again[n] = v
                n += 1
    return n


@njit(cache=True)
def sum_push(  # type: ignore[no-untyped-def]
    state,
    drift,
    limit,
    scale,
    message,
    weight,
    ids,
    old,
    out,
    inn,
    drop,
    touched,
    count,
    stamp,
    epoch,
):
    """Push `message - old` of the rows `ids` along their out-edges.

    Then settle every row touched (see `sum_settle`).

    Returns:
        (rows touched, edges pushed, rows summed afresh, edges read for that)
    """
    width = state.shape[1]
    diff = np.empty(width, state.dtype)
    edges = 0
    for i in range(ids.size):
        u = ids[i]
        differs = False
        for f in range(width):
            diff[f] = state.dtype.type(message[u, f]) - state.dtype.type(old[i, f])
            differs |= diff[f] != 0
        if not differs:
            continue
        moved = magnitude(diff, scale)
        edges += out.degree[u]
        for k in range(out.start[u], out.start[u] + out.degree[u]):
            v = out.neighbor[k]
            if drop and v == u:
                continue
            if weight.size:
                w = weight[out.edge[k]]
                for f in range(width):
                    state[v, f] += w * diff[f]
                drift[v] += abs(w) * moved
            else:
                for f in range(width):
                    state[v, f] += diff[f]
                drift[v] += moved
            if stamp[v] != epoch:
                stamp[v] = epoch
                touched[count] = v
                count += 1
    again = np.empty(count, np.int64)
    fresh = sum_settle(state, drift, limit, scale, inn, touched, count, again)
    return count, edges, fresh, sum_rows(again[:fresh], state, drift, message, weight, inn, drop)
