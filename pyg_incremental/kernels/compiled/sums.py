"""Sums over in-edges: from the start, edge by edge, and by pushing what changed."""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.compiled.along import add_along, differences, list_edges
from pyg_incremental.kernels.compiled.rows import AHEAD, ALL, DENSE, magnitude, marked, rows_ahead
from pyg_incremental.kernels.jit import inner, njit

_ZERO, _EVERYTHING, _YES = np.int64(0), np.int64(ALL), np.bool_(True)
"""Values that Numba does not compile a function once more for, as it does for a literal."""
FEW = 4096
"""Edges that are written down at a time before something is added along them."""
FEW_ROWS = 256
"""Differences that are computed at a time; they stay in the cache."""
NEAR = 8
"""How many rows lie between asking for the messages of one and summing it."""
FIRST = 16
"""How many messages of a row are asked for then; the others follow while it is summed."""
LARGE = 1 << 24
"""Bytes of sums that no cache holds beside the rest."""
BLOCK = 1 << 18
"""Bytes of sums that one does; and there are no more blocks of so many than `BLOCKS`."""
BLOCKS = 1 << 12
AT_ONCE = 1 << 22
"""Edges in the order of blocks at a time, which bounds the memory for them."""


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
    sum_edges_within(state, drift, scale, message, src, dst, factor, sign, drop, _ZERO, _EVERYTHING)


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
def _settled(state, drift, limit, scale, inn, touched, count, stamp, epoch):  # type: ignore[no-untyped-def]
    """Settle the rows touched, and return those to be summed afresh.

    Many are brought into ascending order: whoever reads them finds neighbours in memory.
    """
    if count * DENSE > stamp.size:
        marked(stamp, epoch, _ZERO, stamp.size, touched)
    again = np.empty(count, np.int64)
    return again[: sum_settle(state, drift, limit, scale, inn, touched, count, again)]


@inner()
def _by_blocks(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, weight, inn, difference, moved, edges, begins, ends, touched, stamp,
    epoch, low, high, again, settles
):  # fmt: skip
    """Add differences along edges, one block of rows after the other; settle each if it `settles`.

    Only to the rows from `low` to before `high`. The edges stand in `edges` from each of `begins`
    to before the same of `ends`; those into one row keep their order. The rows of a block are in
    the cache from its first edge until they are settled.

    Returns:
        (rows touched, which stand in `touched` in ascending order; how many of these stand in
        `again`, to be summed afresh)
    """
    shift = 0
    while max(state.strides[0], 1) << shift < BLOCK or high - low > BLOCKS << shift:
        shift += 1
    blocks = ((high - low) >> shift) + 1
    place = np.zeros(blocks + 1, np.int64)
    for p in range(begins.size):
        for e in range(begins[p], ends[p]):
            v = edges[e, 1]
            if low <= v < high:
                place[((v - low) >> shift) + 1] += 1
    for b in range(blocks):
        place[b + 1] += place[b]
    mine = np.empty((place[blocks], edges.shape[1]), np.int32)
    for p in range(begins.size):
        for e in range(begins[p], ends[p]):
            v = edges[e, 1]
            if low <= v < high:
                b = (v - low) >> shift
                for k in range(edges.shape[1]):
                    mine[place[b], k] = edges[e, k]
                place[b] += 1
    count = fresh = begin = 0
    for b in range(blocks):  # where the next one began is now where this one ends
        end, first = place[b], low + (b << shift)
        add_along(
            mine[begin:end], end - begin, difference, moved, weight, state, drift, touched[count:],
            _ZERO, stamp, epoch,
        )  # fmt: skip
        begin = end
        if settles:
            some = touched[count:]
            found = marked(stamp, epoch, first, min(first + (1 << shift), high), some)
            fresh += sum_settle(state, drift, limit, scale, inn, some, found, again[fresh:])
            count += found
    return count, fresh


@inner()
def _is_wide(state, ids, out, rows):  # type: ignore[no-untyped-def]
    """Whether so much is pushed that most waits for memory are saved block by block."""
    if ids.size < FEW_ROWS or rows * state.strides[0] < LARGE:
        return False
    edges = 0
    for i in range(ids.size):
        edges += out.degree[ids[i]]
    return edges * DENSE > rows


@inner()
def _push_by_blocks(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, ids, old, out, inn, drop, touched, stamp, epoch
):
    """`sum_push` along many edges."""
    again, begins, ends = (
        np.empty(stamp.size, np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
    )
    first = pushed = count = fresh = _ZERO
    while first < ids.size:
        last, size = first, 0
        while last < ids.size and (not size or size + out.degree[ids[last]] <= AT_ONCE):
            size += out.degree[ids[last]]
            last += 1
        difference = np.empty((last - first, state.shape[1]), state.dtype)
        moved = np.empty(last - first, state.dtype)
        edges = np.empty((size, 3 if weight.size else 2), np.int32)
        differences(message, ids, old, first, last, scale, difference, moved)
        _, _, end, more = list_edges(ids, first, _ZERO, last, out, drop, moved, _ZERO, edges, _ZERO)
        ends[0], first, pushed = end, last, pushed + more
        count, fresh = _by_blocks(
            state, drift, limit, scale, weight, inn, difference, moved, edges, begins, ends,
            touched, stamp, epoch, _ZERO, stamp.size, again, last == ids.size,
        )  # fmt: skip
    return count, pushed, again[:fresh]


@njit(cache=True)
def sum_push(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, ids, old, out, inn, drop, touched, count, stamp,
    epoch,
):  # fmt: skip
    """Push `message - old` of the rows `ids` along their out-edges.

    Then settle every row touched (see `sum_settle`), while it is in the cache where they are many.
    Else each part of that is a loop of its own, which can ask far ahead for what it will read.

    Returns:
        (rows touched, edges pushed, rows to be summed afresh)
    """
    if _is_wide(state, ids, out, stamp.size):
        return _push_by_blocks(
            state, drift, limit, scale, message, weight, ids, old, out, inn, drop, touched, stamp,
            epoch,
        )  # fmt: skip
    return push_few(
        state, drift, limit, scale, message, weight, ids, old, out, inn, drop, touched, count,
        stamp, epoch,
    )  # fmt: skip


@inner()
def push_few(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, ids, old, out, inn, drop, touched, count, stamp,
    epoch,
):  # fmt: skip
    """`sum_push` along edges in the order in which they come."""
    size = min(ids.size, FEW_ROWS)
    difference, moved = np.empty((size, state.shape[1]), state.dtype), np.empty(size, state.dtype)
    edges, pushed = np.empty((FEW if size else 0, 3 if weight.size else 2), np.int32), 0
    for begin in range(0, ids.size, FEW_ROWS):
        last = min(begin + FEW_ROWS, ids.size)
        differences(message, ids, old, begin, last, scale, difference, moved)
        source, position = np.int64(begin), _ZERO
        while source < last:
            source, position, end, more = list_edges(
                ids, source, position, last, out, drop, moved, source - begin, edges, _ZERO
            )  # fmt: skip
            pushed += more
            count = add_along(
                edges, end, difference, moved, weight, state, drift, touched, count, stamp, epoch
            )  # fmt: skip
    again = _settled(state, drift, limit, scale, inn, touched, count, stamp, epoch)
    return count, pushed, again


@inner()
def sum_spread(  # type: ignore[no-untyped-def]
    message, ids, old, first, last, out, drop, scale, difference, moved, edges, begin
):
    """`sum_push` for threads, begun: what the sources from `first` to before `last` will push.

    Row `i` of `difference` takes `message - old` of source `i`, and `moved[i]` its magnitude. The
    edges along which it goes stand in `edges` from `begin` on; see `along.list_edges`.

    Returns:
        (behind the last of these edges, edges pushed)
    """
    differences(message, ids, old, first, last, scale, difference[first:], moved[first:])
    _, _, end, pushed = list_edges(ids, first, _ZERO, last, out, drop, moved, first, edges, begin)
    return end, pushed


@inner()
def sum_collect(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, difference, moved, edges, begins, ends, inn, drop,
    touched, stamp, epoch, low, high,
):  # fmt: skip
    """`sum_push` for threads, finished: add what `sum_spread` wrote down.

    Only to the rows from `low` to before `high`. The edges stand in `edges` from each of `begins`
    to before the same of `ends`, in the order in which one thread would push along them.

    Returns:
        (rows touched, rows summed afresh, edges read for that)
    """
    high = min(high, stamp.size)
    again = np.empty(max(0, high - low), np.int64)
    count, fresh = _by_blocks(
        state, drift, limit, scale, weight, inn, difference, moved, edges, begins, ends, touched,
        stamp, epoch, low, high, again, _YES,
    )  # fmt: skip
    return count, fresh, sum_rows(again[:fresh], state, drift, message, weight, inn, drop)
