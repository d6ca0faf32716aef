"""Pushing what changed in messages along edges, to rows of sums.

One row after the other, so that each is read and written once. The edges are sorted by row: where
they are few, one by one, and where they are many, by blocks of rows, which threads share.
"""

import numpy as np

from pyg_incremental.kernels.compiled.along import differences, list_edges
from pyg_incremental.kernels.compiled.grouped import (
    BLOCKS,
    add_by_row,
    add_to_rows,
    by_block,
    rows_of,
    shift_of,
    sorted_by_row,
)
from pyg_incremental.kernels.compiled.rows import ALL
from pyg_incremental.kernels.compiled.sums import sum_rows
from pyg_incremental.kernels.jit import inner, njit

_ZERO, _BLOCKS, _YES, _NO = np.int64(0), np.int64(BLOCKS), np.bool_(True), np.bool_(False)
"""Values that Numba does not compile a function once more for, as it does for a literal."""
FEW_SOURCES = 256
"""Of fewer, blocks are not worth their while."""
LARGE = 1 << 24
"""Bytes of sums that no cache holds beside the rest."""
COMPARED = 4
"""Of rows that are compared with what they were, that pays from one edge in so many rows on."""
AT_ONCE = np.int64(1 << 22)
"""Edges grouped by row at a time, which bounds the memory for them."""
PART = np.int64(1 << 18)
"""Edges that are written down by blocks at a time, so that the places where they go are near."""
MANY_AT_ONCE = np.int64(1 << 24)
"""The same where rows are compared with what they were: all of their edges are needed at once."""


@inner()
def _until(ids, out, first, last, most):  # type: ignore[no-untyped-def]
    """The sources from `first` on, one at least, whose edges are not more than `most`.

    Returns:
        (the one behind them; their edges)
    """
    size = np.int64(0)
    for i in range(first, last):
        if i > first and size + out.degree[ids[i]] > most:
            return i, size
        size += out.degree[ids[i]]
    return last, size


@inner()
def is_by_block(state, ids, num_edges, rows, compares):  # type: ignore[no-untyped-def]
    """Whether so much is pushed that waits for memory are saved block by block, see `push`.

    All `rows` of the blocks are looked at then, so there have to be edges into many of them.
    """
    if num_edges > (MANY_AT_ONCE if compares else AT_ONCE):
        return not compares
    if ids.size < FEW_SOURCES or rows * state.strides[0] < LARGE:
        return False
    return num_edges * (COMPARED if compares else 1) > rows


@inner()
def sum_spread(  # type: ignore[no-untyped-def]
    message, ids, old, first, last, out, drop, loop, scale, difference, moved, base, edges, begin,
    shift, begins,
):  # fmt: skip
    """`push` along many edges, begun: what the sources from `first` to before `last` will push.

    From row `base` on, `difference` takes `message - old` of these sources, and `moved` its
    magnitude. The edges along which it goes stand in `edges` from `begin` on, by blocks of rows;
    see `grouped.by_block`. Returns how many edges were pushed.
    """
    _, size = _until(ids, out, first, last, ALL)
    listed = np.empty((size + (last - first) * loop.size, edges.shape[1]), np.int32)
    differences(message, ids, old, first, last, scale, difference[base:], moved[base:])
    own_at = difference.shape[0] if loop.size else _ZERO
    end, pushed = list_edges(ids, first, last, out, drop, own_at, moved, base, listed, _ZERO)
    by_block(listed[:end], shift, edges, begin, begins)
    return pushed


@inner()
def push_by_block(  # type: ignore[no-untyped-def]
    state, low, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop, loop,
    touched, count, stamp, epoch, num_edges, compares, early, where, first_new,
):  # fmt: skip
    """`push` along many edges, so many of them at once."""
    at_once = MANY_AT_ONCE if compares else AT_ONCE
    again, shift = np.empty(stamp.size, np.int64), shift_of(stamp.size)
    first = pushed = rows = fresh = differ = read = _ZERO
    while first < ids.size:
        last, size = _until(ids, out, first, ids.size, at_once)
        difference = np.empty((last - first, state.shape[1]), np.float64)
        moved = np.empty(last - first, state.dtype)
        edges = np.empty((size + (last - first) * loop.size, 3 if weight.size else 2), np.int32)
        begins = np.empty((2 * size // PART + 1, BLOCKS + 1), np.int64)
        begin, parts, i = _ZERO, 0, first
        while i < last:
            until, _ = _until(ids, out, i, last, PART)
            pushed += sum_spread(
                message, ids, old, i, until, out, drop, loop, scale, difference, moved, i - first,
                edges, begin, shift, begins[parts],
            )  # fmt: skip
            begin, parts, i = begins[parts, BLOCKS], parts + 1, until
        first = last
        rows, fresh, differ, read = add_by_row(
            state, low, drift, limit, scale, message, weight, own, factor, inn, drop, loop,
            difference, moved, edges, begins[:parts], _ZERO, _BLOCKS, shift, touched, stamp, epoch,
            again, last == ids.size, compares, early, where, first_new,
        )  # fmt: skip
    return rows, differ, pushed, again[:fresh], read


@inner()
def push_sorted(  # type: ignore[no-untyped-def]
    state, low, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop, loop,
    touched, count, stamp, epoch, num_edges, compares, early, where, first_new,
):  # fmt: skip
    """`push` along few edges, sorted by row."""
    difference = np.empty((ids.size, state.shape[1]), np.float64)
    moved, most = np.empty(ids.size, state.dtype), count + num_edges + ids.size * loop.size
    listed = np.empty((most, 3 if weight.size else 2), np.int32)
    for k in range(count):
        listed[k, 0], listed[k, 1] = -1 - k, touched[k]
    differences(message, ids, old, _ZERO, ids.size, scale, difference, moved)
    own_at = ids.size if loop.size else _ZERO
    end, pushed = list_edges(ids, _ZERO, ids.size, out, drop, own_at, moved, _ZERO, listed, count)
    room, again = np.empty((2, end), np.int32), np.empty(end, np.int64)
    listed = sorted_by_row(listed[:end], stamp.size)
    rows, end = rows_of(listed, touched, room[0], room[1])
    fresh, differ, read = add_to_rows(
        state, low, drift, limit, scale, message, weight, own, factor, inn, drop, loop, difference,
        moved, listed[:end], touched[:rows], room[0], room[1], touched, stamp, epoch, again, _YES,
        compares, early, first_new,
    )  # fmt: skip
    return rows, differ, pushed, again[:fresh], read


@inner()
def push(  # type: ignore[no-untyped-def]
    state, low, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop, loop,
    touched, count, stamp, epoch, num_edges, compares, early, where, first_new,
):  # fmt: skip
    """Push `message - old` of the rows `ids` along their out-edges, `num_edges` in all.

    Then settle every row touched (see `sum_settle`) while it is in the cache. They are taken in
    ascending order, and stand so in `touched` then: near ones are near in memory. `count` of them
    stand there already, and have the mark `epoch`.

    If it `compares`, rows are summed afresh at once, and only those that differ from what they were
    stand in `touched` in the end. `early` holds copies of the first `count`, `[count, channels]`,
    and `where` says at which place each of these stands there. Rows from `first_new` on are new.

    Returns:
        (rows touched; how many differ, all if it does not compare; edges pushed; rows that were, or
        have to be, summed afresh; edges read)
    """
    if is_by_block(state, ids, num_edges, stamp.size, compares):
        return push_by_block(
            state, low, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop,
            loop, touched, count, stamp, epoch, num_edges, compares, early, where, first_new,
        )  # fmt: skip
    return push_sorted(
        state, low, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop,
        loop, touched, count, stamp, epoch, num_edges, compares, early, where, first_new,
    )  # fmt: skip


@njit(cache=True)
def sum_push(  # type: ignore[no-untyped-def]
    state, low, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop, loop,
    touched, count, stamp, epoch,
):  # fmt: skip
    """`push` without comparing.

    Returns:
        (rows touched, edges pushed, rows to be summed afresh)
    """
    _, num_edges = _until(ids, out, _ZERO, ids.size, ALL)
    rows, _, pushed, again, _ = push(
        state, low, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop,
        loop, touched, count, stamp, epoch, num_edges, _NO, state, touched, _ZERO,
    )  # fmt: skip
    return rows, pushed, again


@inner()
def sum_collect(  # type: ignore[no-untyped-def]
    state, low, drift, limit, scale, message, weight, own, factor, difference, moved, edges, begins,
    first, last, shift, inn, drop, loop, touched, stamp, epoch, compares, early, where, first_new,
):  # fmt: skip
    """`push` for threads, finished: add what `sum_spread` wrote down.

    Only to the rows of the blocks from `first` to before `last`. `begins` has a line for each part
    of the sources, and the edges of each row stand in the order of these.

    Returns:
        (rows touched, how many differ, rows summed afresh, edges read for that)
    """
    again = np.empty((last - first) << shift, np.int64)
    count, fresh, differ, read = add_by_row(
        state, low, drift, limit, scale, message, weight, own, factor, inn, drop, loop, difference,
        moved, edges, begins, first, last, shift, touched, stamp, epoch, again, _YES, compares,
        early, where, first_new,
    )  # fmt: skip
    if not compares:
        read = sum_rows(
            again[:fresh], state, low, drift, message, weight, own, factor, inn, drop, loop
        )
    return count, differ, fresh, read
