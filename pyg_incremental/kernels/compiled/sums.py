"""Sums over in-edges: from the start, edge by edge, and by pushing what changed."""

import numpy as np
from numba import njit

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.compiled.rows import AHEAD, is_in, magnitude

STAGE = 3
"""How many sources lie between one look ahead and the next."""
FEW = 4096
"""Edges that are looked through at a time; their positions stay in the cache."""


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
def _settled(state, drift, limit, scale, message, weight, inn, drop, touched, count):  # type: ignore[no-untyped-def]
    """Settle the rows touched. Returns (rows summed afresh, edges read for that)."""
    again = np.empty(count, np.int64)
    fresh = sum_settle(state, drift, limit, scale, inn, touched, count, again)
    return fresh, sum_rows(again[:fresh], state, drift, message, weight, inn, drop)


@njit(cache=True)
def _ask_for_lists(i, ids, message, out):  # type: ignore[no-untyped-def]
    """Ask for the rows of sources behind the `i`-th, where their lists begin, and the lists."""
    if i + 3 * STAGE < ids.size:
        u = ids[i + 3 * STAGE]
        fetch(message, u)
        fetch(out.start, u)
        fetch(out.degree, u)
    if i + 2 * STAGE < ids.size:
        fetch(out.neighbor, out.start[ids[i + 2 * STAGE]])


@njit(cache=True)
def _ask_for_row(v, state, drift, stamp):  # type: ignore[no-untyped-def]
    fetch(state, v)
    fetch(drift, v)
    fetch(stamp, v)


@njit(cache=True)
def sum_push(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, ids, old, out, inn, drop, touched, count, stamp,
    epoch,
):  # fmt: skip
    """Push `message - old` of the rows `ids` along their out-edges.

    Then settle every row touched (see `sum_settle`).

    Returns:
        (rows touched, edges pushed, rows summed afresh, edges read for that)
    """
    width = state.shape[1]
    diff = np.empty(width, state.dtype)
    edges = 0
    for i in range(ids.size):
        _ask_for_lists(i, ids, message, out)
        if i + STAGE < ids.size:
            u = ids[i + STAGE]
            for k in range(out.start[u], out.start[u] + min(out.degree[u], AHEAD)):
                _ask_for_row(out.neighbor[k], state, drift, stamp)
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
            if k + AHEAD < last:
                _ask_for_row(out.neighbor[k + AHEAD], state, drift, stamp)
            v = np.uint64(out.neighbor[k])  # no index from the end
            if drop and v == u:
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
    fresh, read = _settled(
        state, drift, limit, scale, message, weight, inn, drop, touched, count
    )  # fmt: skip
    return count, edges, fresh, read


@njit(cache=True)
def sum_spread(  # type: ignore[no-untyped-def]
    message, ids, old, first, last, out, drop, scale, difference, moved, edges, begin
):
    """`sum_push` for threads, begun: what the sources from `first` to before `last` will push.

    Row `i` of `difference` takes `message - old` of source `i`, and `moved[i]` its magnitude. The
    edges along which it goes stand in `edges` from `begin` on: the position of the source, the
    target, and the slot if there is a third column.

    Returns:
        (behind the last of these edges, edges pushed)
    """
    width, end, pushed = difference.shape[1], begin, 0
    for i in range(first, last):
        _ask_for_lists(i, ids, message, out)
        u = np.uint64(ids[i])
        now, before, diff = message[u], old[np.uint64(i)], difference[np.uint64(i)]
        differs = False
        for f in range(width):
            diff[f] = now[f] - before[f]
            differs |= diff[f] != 0
        if not differs:
            continue
        moved[i] = magnitude(diff, scale)
        pushed += out.degree[u]
        for k in range(out.start[u], out.start[u] + out.degree[u]):
            if drop and out.neighbor[k] == u:
                continue
            edges[end, 0], edges[end, 1] = i, out.neighbor[k]
            if edges.shape[1] > 2:
                edges[end, 2] = out.edge[k]
            end += 1
    return end, pushed


@njit(cache=True)
def sum_collect(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, difference, moved, edges, begins, ends, inn, drop,
    touched, count, stamp, epoch, part, mask,
):  # fmt: skip
    """`sum_push` for threads, finished: add what `sum_spread` wrote down to one part of the rows.

    See `is_in` for the part. The edges stand in `edges` from each of `begins` to before the same of
    `ends`, in the order in which one thread would push along them.

    Returns:
        (rows touched, rows summed afresh, edges read for that)
    """
    width = state.shape[1]
    mine = np.empty(FEW, np.int64)  # found first, so that the next ones can be asked for
    for p in range(begins.size):
        for begin in range(begins[p], ends[p], FEW):
            n = 0
            for e in range(begin, min(begin + FEW, ends[p])):
                mine[n] = e
                n += is_in(edges[e, 1], part, mask)
            for k in range(n):
                if k + AHEAD < n:
                    _ask_for_row(edges[mine[k + AHEAD], 1], state, drift, stamp)
                e = mine[k]
                i, v = np.uint64(edges[e, 0]), np.uint64(edges[e, 1])
                row, diff = state[v], difference[i]
                if weight.size:
                    w = weight[np.uint64(edges[e, 2])]
                    for f in range(width):
                        row[f] += w * diff[f]
                    drift[v] += abs(w) * moved[i]
                else:
                    for f in range(width):
                        row[f] += diff[f]
                    drift[v] += moved[i]
                if stamp[v] != epoch:
                    stamp[v] = epoch
                    touched[count] = v
                    count += 1
    fresh, read = _settled(
        state, drift, limit, scale, message, weight, inn, drop, touched, count
    )  # fmt: skip
    return count, fresh, read
