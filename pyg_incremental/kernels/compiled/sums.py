"""Sums over in-edges: from the start, edge by edge, and by pushing what changed."""

import numpy as np
from numba import njit

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.compiled.rows import AHEAD, is_in, magnitude

STAGE = 3
"""How many sources lie between one look ahead and the next."""


@njit(cache=True)
def _sum_row(v, state, drift, message, weight, inn, drop):  # type: ignore[no-untyped-def]
    """Sum one row afresh over its in-edges."""
    row = state[v]
    row[:] = 0
    drift[v] = 0
    for k in range(inn.start[v], inn.start[v] + inn.degree[v]):
        if k + AHEAD < inn.start[v] + inn.degree[v]:
            fetch(message, inn.neighbor[k + AHEAD])
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
def sum_edges(  # type: ignore[no-untyped-def]
    state, drift, scale, message, src, dst, factor, sign, drop, part=0, mask=0
):
    """Add `sign * factor * message` of each listed edge to its target; no `factor` means one.

    Only where the target is in the part (see `is_in`).
    """
    width = state.shape[1]
    for i in range(src.size):
        if i + AHEAD < src.size and is_in(dst[i + AHEAD], part, mask):
            fetch(message, src[i + AHEAD])
            fetch(state, dst[i + AHEAD])
        u, v = src[i], dst[i]
        if (drop and u == v) or not is_in(v, part, mask):
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
        if i + AHEAD < count:
            fetch(state, touched[i + AHEAD])
        v = np.uint64(touched[i])
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
def _ask_ahead(i, ids, state, drift, stamp, message, out, part, mask):  # type: ignore[no-untyped-def]
    """Ask for what sources behind the `i`-th need: where their lists begin, the lists, targets.

    Only targets in the part (see `is_in`).
    """
    if i + 3 * STAGE < ids.size:
        u = ids[i + 3 * STAGE]
        fetch(message, u)
        fetch(out.start, u)
        fetch(out.degree, u)
    if i + 2 * STAGE < ids.size:
        fetch(out.neighbor, out.start[ids[i + 2 * STAGE]])
    if i + STAGE < ids.size:
        u = ids[i + STAGE]
        for k in range(out.start[u], out.start[u] + min(out.degree[u], AHEAD)):
            v = out.neighbor[k]
            if is_in(v, part, mask):
                fetch(state, v)
                fetch(drift, v)
                fetch(stamp, v)


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
    part=0,
    mask=0,
):
    """Push `message - old` of the rows `ids` along their out-edges.

    Then settle every row touched (see `sum_settle`). Only targets in the part count (see `is_in`).

    Returns:
        (rows touched, edges pushed, rows summed afresh, edges read for that)
    """
    width = state.shape[1]
    diff = np.empty(width, state.dtype)
    edges = 0
    for i in range(ids.size):
        _ask_ahead(i, ids, state, drift, stamp, message, out, part, mask)
        u = np.uint64(ids[i])
        now, before = message[u], old[np.uint64(i)]
        differs = False
        for f in range(width):
            diff[f] = state.dtype.type(now[f]) - state.dtype.type(before[f])
            differs |= diff[f] != 0
        if not differs:
            continue
        moved = magnitude(diff, scale)
        first, last = out.start[u], out.start[u] + out.degree[u]
        edges += out.degree[u]
        for k in range(first, last):
            if k + AHEAD < last and is_in(out.neighbor[k + AHEAD], part, mask):
                fetch(state, out.neighbor[k + AHEAD])
                fetch(drift, out.neighbor[k + AHEAD])
                fetch(stamp, out.neighbor[k + AHEAD])
            v = np.uint64(out.neighbor[k])  # no index from the end
            if (drop and v == u) or not is_in(v, part, mask):
                continue
            row = state[v]
            if weight.size:
                w = weight[np.uint64(out.edge[k])]
                for f in range(width):
                    row[f] += w * diff[f]
                drift[v] += abs(w) * moved
            else:
                for f in range(width):
                    row[f] += diff[f]
                drift[v] += moved
            if stamp[v] != epoch:
                stamp[v] = epoch
                touched[count] = v
                count += 1
    again = np.empty(count, np.int64)
    fresh = sum_settle(state, drift, limit, scale, inn, touched, count, again)
    return count, edges, fresh, sum_rows(again[:fresh], state, drift, message, weight, inn, drop)
