"""The steps of the machine that follow edges: sums and softmaxes; and what all such steps share.

Each does what `rows_changed` of its executor does, see `aggregate`, and returns whether there was
room for the result. If not, its rows stand in `touched`, and the cell has their negative number.
"""

from typing import Any

import numpy as np

from pyg_incremental.kernels.address import line_at, rows_at
from pyg_incremental.kernels.compiled.grouped import shift_of
from pyg_incremental.kernels.compiled.layout import (
    BEFORE,
    CAPACITY,
    COUNT,
    DRIFT,
    DROP,
    FIRST_NEW,
    LIMIT,
    LOOP,
    NODES,
    NUM_CAME,
    NUM_GONE,
    OUT,
    REVERSE,
    ROOM,
    SCALE,
    SLOPE,
    SLOTS,
    SOURCE,
    TARGET,
    WEIGHT,
    WIDTH,
    cells_of,
    changed_ids,
    events_of,
    id_room,
    numbers_of,
    old_rows,
    pushed_of,
    read_of,
    stamp_of,
    stats_of,
    steps_of,
    stored,
    touched_of,
    where_of,
)
from pyg_incremental.kernels.compiled.machine_terms import (
    early,
    factor_of,
    loop_of,
    low_of,
    note,
    own_of,
    renew,
    unite_terms,
)
from pyg_incremental.kernels.compiled.pushes import (
    push_by_block,
    push_sorted,
    sum_collect,
    sum_spread,
)
from pyg_incremental.kernels.compiled.rows import ALL, expand, unite, unite_ends_within
from pyg_incremental.kernels.compiled.softmax import (
    softmax_edges,
    softmax_push,
    softmax_rows,
    softmax_settle,
)
from pyg_incremental.kernels.compiled.sums import sum_edges_within, sum_rows
from pyg_incremental.kernels.jit import inner

_ZERO, _EVERYTHING, _NO, _ONE = np.int64(0), np.int64(ALL), np.bool_(False), np.float64(1)
"""Numbers that Numba does not compile a function once more for, as it does for a literal."""


@inner()
def counting(src, dst, slots, drop):  # type: ignore[no-untyped-def]
    """Edges without self-loops, if these do not count."""
    if not drop:
        return src, dst, slots
    kept = src != dst
    return src[kept], dst[kept], slots[kept]


@inner()
def expanded(ids, lists, drop):  # type: ignore[no-untyped-def]
    """Position in `ids`, neighbour and slot of every entry of their lists that counts."""
    size = 0
    for i in range(ids.size):
        size += lists.degree[ids[i]]
    at, neighbor, slots = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    size = expand(ids, lists, 1 if drop else 0, at, neighbor, slots)
    return at[:size], neighbor[:size], slots[:size]


@inner()
def _chosen(values, slots):  # type: ignore[no-untyped-def]
    """`values[slots]`, or nothing of nothing."""
    found = np.empty((slots.size if values.shape[0] else 0, values.shape[1]), values.dtype)
    for i in range(found.shape[0]):
        for f in range(found.shape[1]):
            found[i, f] = values[slots[i], f]
    return found


@inner()
def edges_of_sum(m, s, low, high, zero):  # type: ignore[no-untyped-def]
    """Retract and insert the messages of edges that left and came, all OLD.

    Only those into the rows from `low` to before `high`; `zero` is one of the dtype of the sum.
    """
    step = steps_of(m)[s]
    source, out = cells_of(m)[step[SOURCE]], cells_of(m)[step[OUT]]
    weights = rows_at(step[WEIGHT], step[SLOTS], 1, zero)
    if step[BEFORE]:
        note(m, step, low, high, zero)
    removed_src, removed_dst, removed_slots, added_src, added_dst, added_slots = events_of(m)
    for src, dst, slots, sign in (
        (removed_src, removed_dst, removed_slots, -1),
        (added_src, added_dst, added_slots, 1),
    ):
        if not slots.size:
            continue
        if step[REVERSE]:
            src, dst = dst, src
        sum_edges_within(
            stored(out, zero), low_of(m, step, zero), line_at(step[DRIFT], out[CAPACITY], zero),
            line_at(step[SCALE], source[WIDTH], zero), stored(source, zero), src, dst,
            _chosen(weights, slots).ravel(), factor_of(m, step, zero), sign, step[DROP] != 0, _ONE,
            low, high,
        )  # fmt: skip


@inner()
def edges_of_softmax(m, s):  # type: ignore[no-untyped-def]
    """The same for a softmax."""
    step = steps_of(m)[s]
    source, target, out = (
        cells_of(m)[step[SOURCE]],
        cells_of(m)[step[TARGET]],
        cells_of(m)[step[OUT]],
    )
    heads = target[WIDTH]
    removed_src, removed_dst, removed_slots, added_src, added_dst, added_slots = events_of(m)
    for src, dst, slots, sign in (
        (removed_src, removed_dst, removed_slots, -1),
        (added_src, added_dst, added_slots, 1),
    ):
        if not slots.size:
            continue
        if step[REVERSE]:
            src, dst = dst, src
        softmax_edges(
            stored(out, m.zero), low_of(m, step, m.zero),
            rows_at(step[DRIFT], out[CAPACITY], 2, m.zero),
            line_at(step[SCALE], source[WIDTH] - heads, m.zero), stored(source, m.zero),
            stored(target, m.zero), src, dst,
            _chosen(rows_at(step[WEIGHT], step[SLOTS], heads, m.zero), slots),
            numbers_of(m)[s, SLOPE], sign, step[DROP] != 0, _ONE,
        )  # fmt: skip


@inner()
def reached(m, step, touched, count, epoch, low, high):  # type: ignore[no-untyped-def]
    """Collect new nodes, and the targets of the edges that left or came.

    They go behind `count` rows of `touched`; only those from `low` to before `high`.
    """
    drop, stamp, out = step[DROP] != 0, stamp_of(m), cells_of(m)[step[OUT]]
    for v in range(max(low, out[FIRST_NEW]), min(high, out[NODES])):
        if stamp[v] != epoch:
            stamp[v] = epoch
            touched[count] = v
            count += 1
    removed_src, removed_dst, _, added_src, added_dst, _ = events_of(m)
    if step[REVERSE]:
        removed_src, removed_dst = removed_dst, removed_src
        added_src, added_dst = added_dst, added_src
    count = unite_ends_within(
        removed_src, removed_dst, drop, touched, count, stamp, epoch, low, high
    )
    return unite_ends_within(added_src, added_dst, drop, touched, count, stamp, epoch, low, high)


@inner()
def done(m, s, rows, count, edges, reread, read):  # type: ignore[no-untyped-def]
    """The first `count` of `touched` are the rows that changed; whether there is room for them.

    Of the `rows` that were touched; see `pyg_incremental.update.StepStats` for the others.
    """
    cell, touched, stats = cells_of(m)[steps_of(m)[s, OUT]], touched_of(m), stats_of(m)[s]
    stats[0], stats[1], stats[3] = rows, count, reread
    stats[2] = edges + read + m.plan[NUM_GONE] + m.plan[NUM_CAME]
    if count > cell[ROOM]:
        cell[COUNT] = -count
        return False
    room = id_room(cell)
    for i in range(count):
        room[i] = touched[i]
    cell[COUNT] = count
    return True


@inner()
def _summed(m, step, zero):  # type: ignore[no-untyped-def]
    """What a sum is kept in and made of, of the dtype of `zero`.

    Returns:
        (sum, low, drift, scale, messages)
    """
    source, out = cells_of(m)[step[SOURCE]], cells_of(m)[step[OUT]]
    drift, scale = line_at(step[DRIFT], out[CAPACITY], zero), line_at(step[SCALE], out[WIDTH], zero)
    return stored(out, zero), low_of(m, step, zero), drift, scale, stored(source, zero)


def _total_by(pushes: Any) -> Any:
    """What a sum does, and a way to push that it contains."""

    @inner()
    def total(m, s, epoch):  # type: ignore[no-untyped-def]
        """Push what changed in the messages of a sum."""
        step = steps_of(m)[s]
        count = reached(m, step, touched_of(m), _ZERO, epoch, _ZERO, _EVERYTHING)
        count = unite_terms(m, step, touched_of(m), count, epoch, _ZERO, _EVERYTHING)
        source = cells_of(m)[step[SOURCE]]
        if not source[COUNT] and not count:
            return True
        pushed, read_over = pushed_of(m, step), read_of(m, step)
        state, low, drift, scale, message = _summed(m, step, m.zero)
        weight, drop = line_at(step[WEIGHT], step[SLOTS], m.zero), step[DROP] != 0
        own, factor, loop = own_of(m, step, m.zero), factor_of(m, step, m.zero), loop_of(m, step)
        compares, copies = step[BEFORE] != 0, state[:0]
        if compares and count:
            copies = early(m, step, touched_of(m), count)
        renew(m, step, _ZERO, _EVERYTHING)
        rows, count, edges, again, read = pushes(
            state, low, drift, numbers_of(m)[s, LIMIT], scale, message, weight, own, factor,
            changed_ids(source), old_rows(source, m.zero), pushed, read_over, drop, loop,
            touched_of(m), count, stamp_of(m), epoch, reach_of(m, s), compares, copies,
            where_of(m), cells_of(m)[step[OUT], FIRST_NEW],
        )  # fmt: skip
        if not compares:
            read = sum_rows(
                again, state, low, drift, message, weight, own, factor, read_over, drop, loop
            )
        return done(m, s, rows, count, edges, again.size, read)

    return total


total = _total_by(push_sorted)
"""A sum that pushes along few edges, and along many, see `pushes.is_by_block`."""
large_total = _total_by(push_by_block)


@inner()
def wide_total(m, s, epoch):  # type: ignore[no-untyped-def]
    """The same of a sum in float64, without weights."""
    step, zero = steps_of(m)[s], np.float64(0)
    count = reached(m, step, touched_of(m), _ZERO, epoch, _ZERO, _EVERYTHING)
    source = cells_of(m)[step[SOURCE]]
    if not source[COUNT] and not count:
        return True
    pushed, read_over = pushed_of(m, step), read_of(m, step)
    state, low, drift, scale, message = _summed(m, step, zero)
    weight, own, drop = line_at(0, 0, zero), rows_at(0, 0, 1, zero), step[DROP] != 0
    count, _, edges, again, _ = push_sorted(
        state, low, drift, numbers_of(m)[s, LIMIT], scale, message, weight, own, weight,
        changed_ids(source), old_rows(source, zero), pushed, read_over, drop, weight, touched_of(m),
        count, stamp_of(m), epoch, reach_of(m, s), _NO, own, where_of(m), _ZERO,
    )  # fmt: skip
    read = sum_rows(again, state, low, drift, message, weight, own, weight, read_over, drop, weight)
    return done(m, s, count, count, edges, again.size, read)


@inner()
def spread(m, s, first, last, difference, moved, edges, begin, begins):  # type: ignore[no-untyped-def]
    """What some of the changed messages of a sum will push; see `pushes.sum_spread`."""
    step = steps_of(m)[s]
    source, out = cells_of(m)[step[SOURCE]], cells_of(m)[step[OUT]]
    return sum_spread(
        stored(source, m.zero), changed_ids(source), old_rows(source, m.zero), first, last,
        pushed_of(m, step), step[DROP] != 0, loop_of(m, step),
        line_at(step[SCALE], out[WIDTH], m.zero), difference, moved, first, edges, begin,
        shift_of(stamp_of(m).size), begins,
    )  # fmt: skip


@inner()
def collect(m, s, touched, epoch, first, last, difference, moved, edges, begins):  # type: ignore[no-untyped-def]
    """Add that to the rows of the blocks from `first` to before `last`.

    Returns what `pushes.sum_collect` does, and from where on they stand in `touched` then.
    """
    step, shift = steps_of(m)[s], shift_of(stamp_of(m).size)
    low, high = min(first << shift, stamp_of(m).size), min(last << shift, stamp_of(m).size)
    mine = touched[low:high]
    count = reached(m, step, mine, _ZERO, epoch, low, high)
    count = unite_terms(m, step, mine, count, epoch, low, high)
    compares = step[BEFORE] != 0
    copies = early(m, step, mine, count if compares else _ZERO)
    renew(m, step, low, high)
    source, out = cells_of(m)[step[SOURCE]], cells_of(m)[step[OUT]]
    rows, differ, fresh, read = sum_collect(
        stored(out, m.zero), low_of(m, step, m.zero),
        line_at(step[DRIFT], out[CAPACITY], m.zero), numbers_of(m)[s, LIMIT],
        line_at(step[SCALE], out[WIDTH], m.zero), stored(source, m.zero),
        line_at(step[WEIGHT], step[SLOTS], m.zero), own_of(m, step, m.zero),
        factor_of(m, step, m.zero), difference, moved, edges, begins, first, last, shift,
        read_of(m, step), step[DROP] != 0, loop_of(m, step), mine, stamp_of(m), epoch, compares,
        copies, where_of(m), out[FIRST_NEW],
    )  # fmt: skip
    return rows, differ, fresh, read, low


@inner()
def reach_of(m, s):  # type: ignore[no-untyped-def]
    """How many edges lead out of the rows that changed in the messages of a sum, loops aside."""
    step, edges = steps_of(m)[s], 0
    lists = pushed_of(m, step)
    ids = changed_ids(cells_of(m)[step[SOURCE]])
    for i in range(ids.size):
        edges += lists.degree[ids[i]]
    return edges


@inner()
def shares_of(m, s, parts):  # type: ignore[no-untyped-def]
    """The changed messages of a sum in parts of about as many edges each.

    Returns:
        For each part and for the end, `[parts + 1, 2]`: the first message, and the edges before it.
    """
    step, edges, p = steps_of(m)[s], 0, 1
    lists, loops = pushed_of(m, step), loop_of(m, step).size
    ids = changed_ids(cells_of(m)[step[SOURCE]])
    whole = reach_of(m, s) + loops * ids.size
    shares = np.zeros((parts + 1, 2), np.int64)
    for i in range(ids.size):
        while p < parts and edges * parts >= whole * p:
            shares[p, 0], shares[p, 1] = i, edges
            p += 1
        edges += lists.degree[ids[i]] + loops
    for rest in range(p, parts + 1):
        shares[rest, 0], shares[rest, 1] = ids.size, edges
    return shares


@inner()
def softmax(m, s, epoch):  # type: ignore[no-untyped-def]
    """The same for a softmax; rows whose own part of the logits changed are made afresh."""
    step = steps_of(m)[s]
    source, target, out = (
        cells_of(m)[step[SOURCE]],
        cells_of(m)[step[TARGET]],
        cells_of(m)[step[OUT]],
    )
    heads, wide = target[WIDTH], source[WIDTH]
    renewed = unite(changed_ids(target), touched_of(m), _ZERO, stamp_of(m), epoch)
    loop = rows_at(0, 0, heads, m.zero)
    if step[LOOP] >= 0:
        own = cells_of(m)[step[LOOP]]
        loop = stored(own, m.zero)
        renewed = unite(changed_ids(own), touched_of(m), renewed, stamp_of(m), epoch)
        ids = changed_ids(source)
        if source[NODES] > out[NODES]:  # the others have no self-loop here
            ids = ids[ids < out[NODES]]
        renewed = unite(ids, touched_of(m), renewed, stamp_of(m), epoch)
    count = reached(m, step, touched_of(m), renewed, epoch, _ZERO, _EVERYTHING)
    if not source[COUNT] and not count:
        return True
    pushed, read_over = pushed_of(m, step), read_of(m, step)
    state, drift = stored(out, m.zero), rows_at(step[DRIFT], out[CAPACITY], 2, m.zero)
    low = low_of(m, step, m.zero)
    touched = touched_of(m)
    for i in range(renewed):
        drift[touched[i], 0] = np.inf
    scale, message = line_at(step[SCALE], wide - heads, m.zero), stored(source, m.zero)
    own, edge = stored(target, m.zero), rows_at(step[WEIGHT], step[SLOTS], heads, m.zero)
    slope, drop = numbers_of(m)[s, SLOPE], step[DROP] != 0
    count, edges = softmax_push(
        state, low, drift, scale, message, own, edge, slope, changed_ids(source),
        old_rows(source, m.zero), pushed, drop, touched_of(m), count, stamp_of(m), epoch,
    )  # fmt: skip
    again = np.empty(count, np.int64)
    reread = softmax_settle(
        state, low, drift, numbers_of(m)[s, LIMIT], scale, heads, read_over, loop.size > 0,
        touched_of(m), count, again,
    )  # fmt: skip
    read = softmax_rows(
        again[:reread], state, low, drift, message, own, edge, loop, slope, read_over, drop
    )
    return done(m, s, count, count, edges, reread, read)
