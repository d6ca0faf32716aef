"""Sums over in-edges: from the start, edge by edge, and by pushing what changed."""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.compiled.rows import AHEAD, ALL, DENSE, magnitude, marked, rows_ahead
from pyg_incremental.kernels.jit import inner, njit

FEW = 4096
"""Edges that are written down at a time before something is added along them."""
FEW_ROWS = 256
"""Differences that are computed at a time; they stay in the cache."""
FAR = 32
"""How many edges ahead of its use a single number is asked for."""
STAGE = 12
"""How many sources lie between one look ahead at their lists and the next."""
NEAR = 8
"""How many rows lie between asking for the messages of one and summing it."""
FIRST = 16
"""How many messages of a row are asked for then; the others follow while it is summed."""


@njit(cache=True)
def sum_rows(ids, state, drift, message, weight, inn, drop):  # type: ignore[no-untyped-def]
    """Sum the rows `ids` afresh. Returns the number of edges read."""
    edges = 0
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
        edges += inn.degree[v]
    return edges


@njit(cache=True)
def sum_edges(  # type: ignore[no-untyped-def]
    state, drift, scale, message, src, dst, factor, sign, drop
):
    """Add `sign * factor * message` of each listed edge to its target; no `factor` means one."""
    sum_edges_within(state, drift, scale, message, src, dst, factor, sign, drop, 0, ALL)


@inner()
def sum_edges_within(  # type: ignore[no-untyped-def]
    state, drift, scale, message, src, dst, factor, sign, drop, low, high
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
            if not (drift[v] / limit <= size and size < np.inf):
                again[n] = v
                n += 1
    return n


@inner()
def sum_mend(state, drift, limit, scale, message, weight, inn, drop, touched, count):  # type: ignore[no-untyped-def]
    """Settle the rows touched, and sum afresh those that have lost too many bits.

    Returns (rows summed afresh, edges read for that).
    """
    again = np.empty(count, np.int64)
    fresh = sum_settle(state, drift, limit, scale, inn, touched, count, again)
    return fresh, sum_rows(again[:fresh], state, drift, message, weight, inn, drop)


@inner()
def _in_order(touched, count, stamp, epoch, low, high):  # type: ignore[no-untyped-def]
    """Bring touched rows into ascending order if they are many.

    They are those from `low` to before `high` that are marked. Whoever reads them then finds
    neighbours in memory.
    """
    if count * DENSE > high - low:
        marked(stamp, epoch, low, high, touched)


@inner()
def _differences(message, ids, old, first, last, scale, difference, moved):  # type: ignore[no-untyped-def]
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
def _list_edges(ids, first, position, last, out, drop, moved, base, edges, end):  # type: ignore[no-untyped-def]
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
    return last, 0, end, pushed


@inner()
def _add_along(  # type: ignore[no-untyped-def]
    edges, count, difference, moved, weight, state, drift, touched, n, stamp, epoch
):
    """Add differences along the first `count` of `edges`.

    Collects the rows touched behind the `n` in `touched`; returns how many there are then.
    """
    ahead = rows_ahead(state)
    for e in range(count):
        if e + ahead < count:
            fetch(state, edges[e + ahead, 1])
        row, diff = state[np.uint64(edges[e, 1])], difference[np.uint64(edges[e, 0])]
        if weight.size:
            w = weight[np.uint64(edges[e, 2])]
            for f in range(row.size):
                row[f] += w * diff[f]
        else:
            for f in range(row.size):
                row[f] += diff[f]
    for e in range(count):  # another loop: so it waits for other memory than the first
        if e + FAR < count:
            fetch(drift, edges[e + FAR, 1])
            fetch(stamp, edges[e + FAR, 1])
        v = np.uint64(edges[e, 1])  # no index from the end
        size = moved[np.uint64(edges[e, 0])]
        drift[v] += abs(weight[np.uint64(edges[e, 2])]) * size if weight.size else size
        if stamp[v] != epoch:
            stamp[v] = epoch
            touched[n] = v
            n += 1
    return n


@njit(cache=True)
def sum_push(  # type: ignore[no-untyped-def]
    state, drift, scale, message, weight, ids, old, out, drop, touched, count, stamp, epoch
):
    """Push `message - old` of the rows `ids` along their out-edges.

    Each part of that is a loop of its own, which can ask far ahead for what it will read.

    Returns:
        (rows touched, edges pushed)
    """
    size = min(ids.size, FEW_ROWS)
    difference, moved = np.empty((size, state.shape[1]), state.dtype), np.empty(size, state.dtype)
    edges, pushed = np.empty((FEW if size else 0, 3 if weight.size else 2), np.int32), 0
    for begin in range(0, ids.size, FEW_ROWS):
        last = min(begin + FEW_ROWS, ids.size)
        _differences(message, ids, old, begin, last, scale, difference, moved)
        source, position = begin, 0
        while source < last:
            source, position, end, more = _list_edges(
                ids, source, position, last, out, drop, moved, source - begin, edges, 0
            )  # fmt: skip
            pushed += more
            count = _add_along(
                edges, end, difference, moved, weight, state, drift, touched, count, stamp, epoch
            )  # fmt: skip
    _in_order(touched, count, stamp, epoch, 0, stamp.size)
    return count, pushed


@inner()
def sum_spread(  # type: ignore[no-untyped-def]
    message, ids, old, first, last, out, drop, scale, difference, moved, edges, begin
):
    """`sum_push` for threads, begun: what the sources from `first` to before `last` will push.

    Row `i` of `difference` takes `message - old` of source `i`, and `moved[i]` its magnitude. The
    edges along which it goes stand in `edges` from `begin` on; see `_list_edges`.

    Returns:
        (behind the last of these edges, edges pushed)
    """
    _differences(message, ids, old, first, last, scale, difference[first:], moved[first:])
    _, _, end, pushed = _list_edges(
        ids, first, np.int64(0), last, out, drop, moved, first, edges, begin
    )
    return end, pushed


@inner()
def sum_collect(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, difference, moved, edges, begins, ends, inn, drop,
    touched, count, stamp, epoch, low, high,
):  # fmt: skip
    """`sum_push` for threads, finished: add what `sum_spread` wrote down.

    Only to the rows from `low` to before `high`. The edges stand in `edges` from each of `begins`
    to before the same of `ends`, in the order in which one thread would push along them.

    Returns:
        (rows touched, rows summed afresh, edges read for that)
    """
    mine = np.empty((FEW, edges.shape[1]), np.int32)
    for p in range(begins.size):
        for begin in range(begins[p], ends[p], FEW):
            n = 0
            for e in range(begin, min(begin + FEW, ends[p])):
                for k in range(edges.shape[1]):
                    mine[n, k] = edges[e, k]
                n += low <= edges[e, 1] < high
            count = _add_along(
                mine, n, difference, moved, weight, state, drift, touched, count, stamp, epoch
            )  # fmt: skip
    _in_order(touched, count, stamp, epoch, low, min(high, stamp.size))
    fresh, read = sum_mend(state, drift, limit, scale, message, weight, inn, drop, touched, count)
    return count, fresh, read
