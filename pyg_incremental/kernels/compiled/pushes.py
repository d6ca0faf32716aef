"""Pushing what changed in messages along edges, to rows of sums.

Where few rows are reached, edge by edge; where many are, one row after the other; and by threads,
each of which has rows of its own.
"""

import numpy as np

from pyg_incremental.kernels.compiled.along import add_along, differences, list_edges
from pyg_incremental.kernels.compiled.compared import differing, remember
from pyg_incremental.kernels.compiled.grouped import BLOCKS, add_by_row, by_block, shift_of
from pyg_incremental.kernels.compiled.rows import ALL, DENSE, marked
from pyg_incremental.kernels.compiled.sums import sum_rows, sum_settle
from pyg_incremental.kernels.jit import inner, njit

_ZERO, _BLOCKS, _YES, _NO = np.int64(0), np.int64(BLOCKS), np.bool_(True), np.bool_(False)
"""Values that Numba does not compile a function once more for, as it does for a literal."""
FEW = 4096
"""Edges that are written down at a time before something is added along them."""
FEW_ROWS = 256
"""Differences that are computed at a time; they stay in the cache."""
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
def _settled(state, drift, limit, scale, own, inn, touched, count, stamp, epoch, sorts):  # type: ignore[no-untyped-def]
    """Settle the rows touched, and return those to be summed afresh.

    Many are brought into ascending order: whoever reads them finds neighbours in memory.
    """
    if sorts and count * DENSE > stamp.size:
        marked(stamp, epoch, _ZERO, stamp.size, touched)
    again = np.empty(count, np.int64)
    return again[: sum_settle(state, drift, limit, scale, own, inn, touched, count, again)]


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
def _is_wide(state, ids, out, rows, in_so_many):  # type: ignore[no-untyped-def]
    """Whether so much is pushed that waits for memory are saved row by row.

    All rows are looked at then, so there has to be an edge in `in_so_many` of them.
    """
    if ids.size < FEW_ROWS or rows * state.strides[0] < LARGE:
        return False
    return _until(ids, out, _ZERO, ids.size, ALL)[1] * in_so_many > rows


@inner()
def sum_spread(  # type: ignore[no-untyped-def]
    message, ids, old, first, last, out, drop, scale, difference, moved, base, edges, begin, shift,
    begins,
):  # fmt: skip
    """`sum_push` along many edges, begun: what the sources from `first` to before `last` will push.

    From row `base` on, `difference` takes `message - old` of these sources, and `moved` its
    magnitude. The edges along which it goes stand in `edges` from `begin` on, by blocks of rows;
    see `grouped.by_block`. Returns how many edges were pushed.
    """
    _, size = _until(ids, out, first, last, ALL)
    listed = np.empty((size, edges.shape[1]), np.int32)
    differences(message, ids, old, first, last, scale, difference[base:], moved[base:])
    _, _, end, pushed = list_edges(ids, first, _ZERO, last, out, drop, moved, base, listed, _ZERO)
    by_block(listed[:end], shift, edges, begin, begins)
    return pushed


@inner()
def _push_by_row(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop, touched,
    stamp, epoch, at_once, compares, early, where, first_new,
):  # fmt: skip
    """`sum_push` along many edges, so many of them at once; if it `compares`, see `push_compared`.

    Returns:
        (rows touched, how many differ, edges pushed, rows that were, or have to be, summed afresh,
        edges read)
    """
    again, shift = np.empty(stamp.size, np.int64), shift_of(stamp.size)
    first = pushed = rows = fresh = differ = read = _ZERO
    while first < ids.size:
        last, size = _until(ids, out, first, ids.size, at_once)
        difference = np.empty((last - first, state.shape[1]), state.dtype)
        moved = np.empty(last - first, state.dtype)
        edges = np.empty((size, 3 if weight.size else 2), np.int32)
        begins = np.empty((2 * size // PART + 1, BLOCKS + 1), np.int64)
        begin, parts, i = _ZERO, 0, first
        while i < last:
            until, _ = _until(ids, out, i, last, PART)
            pushed += sum_spread(
                message, ids, old, i, until, out, drop, scale, difference, moved, i - first, edges,
                begin, shift, begins[parts],
            )  # fmt: skip
            begin, parts, i = begins[parts, BLOCKS], parts + 1, until
        first = last
        rows, fresh, differ, read = add_by_row(
            state, drift, limit, scale, message, weight, own, factor, inn, drop, difference, moved,
            edges, begins[:parts], _ZERO, _BLOCKS, shift, touched, stamp, epoch, again,
            last == ids.size, compares, early, where, first_new,
        )  # fmt: skip
    return rows, differ, pushed, again[:fresh], read


@inner()
def push_compared(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop, touched,
    count, stamp, epoch, early, where, first_new, num_edges,
):  # fmt: skip
    """`sum_push`, and which rows differ from what they were; these stand in `touched` then.

    `early` holds copies of the `count` rows that stand in `touched` already, `[count, channels]`,
    and `where` says at which place each of these stands there. Rows from `first_new` on are new.
    `num_edges` lead out of `ids`; as many are held at once.

    Returns:
        (rows touched, how many differ, edges pushed, rows summed afresh, edges read for these)
    """
    if num_edges <= MANY_AT_ONCE and _is_wide(state, ids, out, stamp.size, COMPARED):
        count, differ, pushed, those, read = _push_by_row(
            state, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop,
            touched, stamp, epoch, MANY_AT_ONCE, _YES, early, where, first_new,
        )  # fmt: skip
        return count, differ, pushed, those.size, read
    before = np.empty((min(stamp.size, count + num_edges), state.shape[1]), state.dtype)
    before[:count] = early
    count, pushed, those = _push_in_order(
        state, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop, touched,
        count, stamp, epoch, before, _YES,
    )  # fmt: skip
    read = sum_rows(those, state, drift, message, weight, own, factor, inn, drop)
    differ = differing(state, touched, count, before, first_new)
    return count, differ, pushed, those.size, read


@njit(cache=True)
def sum_push(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop, touched,
    count, stamp, epoch,
):  # fmt: skip
    """Push `message - old` of the rows `ids` along their out-edges.

    Then settle every row touched (see `sum_settle`), while it is in the cache where they are many.
    Else each part of that is a loop of its own, which can ask far ahead for what it will read.

    Returns:
        (rows touched, edges pushed, rows to be summed afresh)
    """
    if _is_wide(state, ids, out, stamp.size, 1):
        count, _, pushed, again, _ = _push_by_row(
            state, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop,
            touched, stamp, epoch, AT_ONCE, _NO, state, touched, _ZERO,
        )  # fmt: skip
        return count, pushed, again
    return push_few(
        state, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop, touched,
        count, stamp, epoch,
    )  # fmt: skip


@inner()
def push_few(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop, touched,
    count, stamp, epoch,
):  # fmt: skip
    """`sum_push` along edges in the order in which they come."""
    return _push_in_order(
        state, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop, touched,
        count, stamp, epoch, state, _NO,
    )  # fmt: skip


@inner()
def _push_in_order(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, own, factor, ids, old, out, inn, drop, touched,
    count, stamp, epoch, before, compares,
):  # fmt: skip
    """The same; if it `compares`, `before` takes copies of the rows touched, in their order."""
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
            if compares:
                count = remember(edges, end, state, before, touched, count, stamp, epoch)
            count = add_along(
                edges, end, difference, moved, weight, factor, state, drift, touched, count, stamp,
                epoch,
            )  # fmt: skip
    again = _settled(
        state, drift, limit, scale, own, inn, touched, count, stamp, epoch, not compares
    )
    return count, pushed, again


@inner()
def sum_collect(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, own, factor, difference, moved, edges, begins,
    first, last, shift, inn, drop, touched, stamp, epoch, compares, early, where, first_new,
):  # fmt: skip
    """`sum_push` for threads, finished: add what `sum_spread` wrote down.

    Only to the rows of the blocks from `first` to before `last`. `begins` has a line for each part
    of the sources, and the edges of each row stand in the order of these. If it `compares`, see
    `push_compared`.

    Returns:
        (rows touched, how many differ, rows summed afresh, edges read for that)
    """
    again = np.empty((last - first) << shift, np.int64)
    count, fresh, differ, read = add_by_row(
        state, drift, limit, scale, message, weight, own, factor, inn, drop, difference, moved,
        edges, begins, first, last, shift, touched, stamp, epoch, again, _YES, compares, early,
        where, first_new,
    )  # fmt: skip
    if not compares:
        read = sum_rows(again[:fresh], state, drift, message, weight, own, factor, inn, drop)
    return count, differ, fresh, read
