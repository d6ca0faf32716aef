"""The steps of the machine whose messages are functions of edges, `f(x_j, x_i, e)`.

The function is a list of operations (`row_ops`), run on a block of edges at a time. What is added,
retracted and made afresh, and when, is what `aggregate.edge_function` does.
"""

import math

import numpy as np

from pyg_incremental.kernels.address import fetch, fill, line_at, rows_at
from pyg_incremental.kernels.compiled.layout import (
    AT_SOURCE,
    AT_TARGET,
    CAPACITY,
    CELL,
    COUNT,
    DRIFT,
    DROP,
    END,
    FIRST_INPUT,
    FIRST_NEW,
    FUNCTION_TOTAL,
    HEADS,
    KIND,
    LAST_INPUT,
    LIMIT,
    LOOP,
    MESSAGE,
    NODES,
    OUT,
    OWN,
    REGISTER,
    RESULT,
    REVERSE,
    SCALE,
    SOURCE,
    WIDTH,
    cells_of,
    changed_ids,
    events_of,
    inputs_of,
    numbers_of,
    old_rows,
    pushed_of,
    read_of,
    run,
    space_of,
    stamp_of,
    steps_of,
    stored,
    touched_of,
)
from pyg_incremental.kernels.compiled.machine_steps import (
    counting,
    done,
    expanded,
    reached,
)
from pyg_incremental.kernels.compiled.machine_terms import low_of
from pyg_incremental.kernels.compiled.row_ops import BLOCK
from pyg_incremental.kernels.compiled.rows import ALL, columns, magnitude, size_of, unite
from pyg_incremental.kernels.compiled.softmax import (
    REACH,
    add_term,
    exchanged_by,
    logit,
    moved_by,
    shift_of,
    softmax_exchange,
    softmax_settle,
    softmax_term,
    write_sums,
)
from pyg_incremental.kernels.compiled.sums import INEXACT, add_scaled, sum_settle
from pyg_incremental.kernels.jit import inner

AHEAD = 4
"""How many edges ahead of their use rows are asked for."""
_ZERO, _EVERYTHING, _ONE = np.int64(0), np.int64(ALL), np.float64(1)
_YES, _NO = np.bool_(True), np.bool_(False)
"""Values that Numba does not compile a function once more for, as it does for a literal."""


# Messages -----------------------------------------------------------------------------------------


@inner(counted=False)
def _filled(register, rows, ids):  # type: ignore[no-untyped-def]
    """Put the rows `ids` into a register."""
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            fetch(rows, ids[i + AHEAD])
        v = np.uint64(ids[i])  # no index from the end
        for f in range(rows.shape[1]):
            register[i, f] = rows[v, f]


@inner()
def messages(m, s, src, dst, slots, real, old):  # type: ignore[no-untyped-def]
    """The messages of a block of edges, `[k, width]`; the next block comes to the same place.

    Args:
        m: The machine.
        s: The step.
        src: Where they come from; with `old`, places among the changed rows of the source.
        dst: Where they lead.
        slots: Their slots; those behind the first `real` are self-loops that have none.
        real: How many have slots.
        old: Whether the OLD rows of the source are read.
    """
    step, count, space = steps_of(m)[s], src.size, space_of(m)
    cells, inputs = cells_of(m), inputs_of(m)
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        cell, end, at = cells[inputs[k, CELL]], inputs[k, END], inputs[k, REGISTER]
        wide = cell[WIDTH]
        register = space[at : at + count * wide].reshape(count, wide)
        if end == AT_SOURCE:
            _filled(register, old_rows(cell, m.zero) if old else stored(cell, m.zero), src)
        elif end == AT_TARGET:
            _filled(register, stored(cell, m.zero), dst)
        else:
            _filled(register[:real], stored(cell, m.zero), slots[:real])
            if real < count:
                own = cells[inputs[k, OWN]]
                _filled(register[real:], stored(own, m.zero), dst[real:])
    run(m, step, count)
    at, width = step[RESULT], step[MESSAGE]
    return space[at : at + count * width].reshape(count, width)


@inner()
def _drift(m, step):  # type: ignore[no-untyped-def]
    """What has moved through each row: one number for a sum, two for a softmax."""
    columns = 1 if step[KIND] == FUNCTION_TOTAL else 2
    return rows_at(step[DRIFT], cells_of(m)[step[OUT], CAPACITY], columns, m.zero)


@inner(counted=False)
def _in_softmax(row, state, low, drift, scale, heads, sign, unit):  # type: ignore[no-untyped-def]
    """Add or retract one message `[values | logits]`; see `softmax.softmax_edges`."""
    width = row.size - heads
    channels = width // max(heads, 1)
    for h in range(heads):
        shift = shift_of(logit(row[width + h], row.dtype.type(1), state), state[-heads + h])
        if not shift <= REACH or (sign > 0 and state[width + h] == 0 and drift[0] == 0):
            drift[0] = np.inf
            return
        p = softmax_term(state, low, h, heads, channels, row, shift, sign)
        mass, size = moved_by(state, low, h, heads, channels, scale, p, row, unit)
        drift[0] += mass
        drift[1] += size


@inner(counted=False)
def _in_softmax_exchange(  # type: ignore[no-untyped-def]
    row, before, state, low, drift, scale, heads, unit, sizes
):
    """Replace the message `before` by `row`; see `softmax.softmax_push`."""
    width = row.size - heads
    channels = width // max(heads, 1)
    for h in range(heads):
        first, last = h * channels, (h + 1) * channels
        sizes[0, h] = size_of(row[first:last], scale[first:last])
        sizes[1, h] = size_of(before[first:last], scale[first:last])
    for h in range(heads):
        a = shift_of(logit(row[width + h], row.dtype.type(1), state), state[-heads + h])
        b = shift_of(logit(before[width + h], row.dtype.type(1), state), state[-heads + h])
        is_far = not (a <= REACH and b <= REACH)
        if is_far or (state[width + h] == 0 and drift[0] == 0):
            drift[0] = np.inf
            return
        p, q = math.exp(a), math.exp(b)
        softmax_exchange(state, low, h, heads, channels, row, p, before, q)
        mass, size = exchanged_by(
            state, low, h, heads, channels, scale, unit * p, sizes[0, h], unit * q, sizes[1, h]
        )
        drift[0] += mass
        drift[1] += size


@inner(counted=False)
def _ask_for(i, dst, state, low, drift):  # type: ignore[no-untyped-def]
    """Ask for the row to which edge `i` leads."""
    if i < dst.size:
        fetch(state, dst[i])
        fetch(drift, dst[i])
        if low.size:
            fetch(low, dst[i])


@inner(counted=False)
def _apply(m, s, rows, dst, sign):  # type: ignore[no-untyped-def]
    """Add (`sign` 1) or retract (-1) the messages of a block of edges."""
    step = steps_of(m)[s]
    out, drift, heads = cells_of(m)[step[OUT]], _drift(m, step), step[HEADS]
    state, low = stored(out, m.zero), low_of(m, step, m.zero)
    scale, w = line_at(step[SCALE], step[MESSAGE] - heads, m.zero), np.float64(sign)
    unit = INEXACT if low.size else 1.0
    for i in range(dst.size):
        _ask_for(i + AHEAD, dst, state, low, drift)
        row, v = rows[i], np.uint64(dst[i])
        if step[KIND] == FUNCTION_TOTAL:
            add_scaled(state, low, v, w, rows, i)
            drift[v, 0] += unit * size_of(row, scale)
            if low.size:
                drift[v, 0] += magnitude(state, v, scale)
        else:
            rest = low[v] if low.size else state[v, :0]
            _in_softmax(row, state[v], rest, drift[v], scale, heads, sign, unit)


@inner(counted=False)
def _exchange(m, s, rows, before, dst, moves, sizes):  # type: ignore[no-untyped-def]
    """Replace the messages `before` of a block of edges by `rows`, in one go for each.

    `moves`, `[1, width]`, and `sizes`, `[2, heads]`, are room for what is computed of each.
    """
    step = steps_of(m)[s]
    out, drift, heads = cells_of(m)[step[OUT]], _drift(m, step), step[HEADS]
    state, low = stored(out, m.zero), low_of(m, step, m.zero)
    scale = line_at(step[SCALE], step[MESSAGE] - heads, m.zero)
    unit = INEXACT if low.size else 1.0
    for i in range(dst.size):
        _ask_for(i + AHEAD, dst, state, low, drift)
        row, was, v = rows[i], before[i], np.uint64(dst[i])
        if step[KIND] == FUNCTION_TOTAL:
            for f in range(moves.size):
                moves[0, f] = np.float64(row[f]) - np.float64(was[f])
            add_scaled(state, low, v, _ONE, moves, _ZERO)
            drift[v, 0] += unit * (size_of(row, scale) + size_of(was, scale))
            if low.size:
                drift[v, 0] += magnitude(state, v, scale)
        else:
            rest = low[v] if low.size else state[v, :0]
            _in_softmax_exchange(row, was, state[v], rest, drift[v], scale, heads, unit, sizes)


# Edges that come and go ---------------------------------------------------------------------------


@inner()
def function_events(m, s):  # type: ignore[no-untyped-def]
    """Retract and insert the messages of edges that left and came, all OLD."""
    step = steps_of(m)[s]
    removed_src, removed_dst, removed_slots, added_src, added_dst, added_slots = events_of(m)
    for src, dst, slots, sign in (
        (removed_src, removed_dst, removed_slots, -1),
        (added_src, added_dst, added_slots, 1),
    ):
        if not slots.size:
            continue
        if step[REVERSE]:
            src, dst = dst, src
        src, dst, slots = counting(src, dst, slots, step[DROP] != 0)
        for begin in range(0, src.size, BLOCK):
            end = min(begin + BLOCK, src.size)
            to = dst[begin:end]
            rows = messages(m, s, src[begin:end], to, slots[begin:end], to.size, _NO)
            _apply(m, s, rows, to, sign)


# Changed sources ----------------------------------------------------------------------------------


@inner()
def own_changed(m, s, epoch):  # type: ignore[no-untyped-def]
    """Collect the rows whose own (target) part of the messages changed; returns how many."""
    step, cells, inputs, count = steps_of(m)[s], cells_of(m), inputs_of(m), 0
    touched, stamp = touched_of(m), stamp_of(m)
    has_loop, nodes = step[LOOP] >= 0, cells[step[OUT], NODES]
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        cell, end = cells[inputs[k, CELL]], inputs[k, END]
        if end == AT_TARGET:
            count = unite(changed_ids(cell), touched, count, stamp, epoch)
        elif end == AT_SOURCE and has_loop:
            ids = changed_ids(cell)
            if cell[NODES] > nodes:  # the others have no self-loop here
                ids = ids[ids < nodes]
            count = unite(ids, touched, count, stamp, epoch)
        elif has_loop:
            own = cells[inputs[k, OWN]]
            count = unite(changed_ids(own), touched, count, stamp, epoch)
    if has_loop:  # a new node has a loop, even if nothing is read at it
        for v in range(cells[step[OUT], FIRST_NEW], nodes):
            if stamp[v] != epoch:
                stamp[v] = epoch
                touched[count] = v
                count += 1
    return count


@inner()
def _pushed(m, s, count, epoch):  # type: ignore[no-untyped-def]
    """Along the out-edges of changed sources OLD messages leave and new ones come.

    Returns (rows touched, edges).
    """
    step = steps_of(m)[s]
    ids, drift = changed_ids(cells_of(m)[step[SOURCE]]), _drift(m, step)
    at, dst, slots = expanded(ids, pushed_of(m, step), step[DROP] != 0)
    count, edges, n = unite(dst, touched_of(m), count, stamp_of(m), epoch), dst.size, 0
    for e in range(edges):  # a row that is made afresh anyway need not take part
        at[n], dst[n], slots[n] = at[e], dst[e], slots[e]
        n += drift[dst[e], 0] < np.inf
    src, before = ids[at[:n]], np.empty((BLOCK, step[MESSAGE]), space_of(m).dtype)
    moves, sizes = (
        np.empty((1, step[MESSAGE]), np.float64),
        np.empty((2, step[HEADS]), before.dtype),
    )
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        to, on = dst[begin:end], slots[begin:end]
        rows = messages(m, s, at[begin:end], to, on, to.size, _YES)
        for i in range(to.size):  # the next messages come to the same place
            for f in range(rows.shape[1]):
                before[i, f] = rows[i, f]
        rows = messages(m, s, src[begin:end], to, on, to.size, _NO)
        _exchange(m, s, rows, before, to, moves, sizes)
    return count, edges


# Rows afresh --------------------------------------------------------------------------------------


@inner(counted=False)
def _in_edges(m, step, v, src, slots, n):  # type: ignore[no-untyped-def]
    """Write down the in-edges of a row that count behind `n` others; returns how many there are."""
    inn = read_of(m, step)
    for k in range(inn.start[v], inn.start[v] + inn.degree[v]):
        src[n], slots[n] = inn.neighbor[k], inn.edge[k]
        n += not (step[DROP] and src[n] == v)
    return n


@inner(counted=False)
def _find_tops(rows, heads, top):  # type: ignore[no-untyped-def]
    """Take the largest logits of some messages into `top`; NaN is larger than all."""
    first = rows.shape[1] - heads
    for i in range(rows.shape[0]):
        for h in range(heads):
            a = rows[i, first + h]
            if top[h] == top[h] and not a <= top[h]:
                top[h] = a


@inner(counted=False)
def _add_messages(sums, rows, heads, top):  # type: ignore[no-untyped-def]
    """Add some messages to a sum, or to a softmax whose references are `top`; both in float64.

    Where the reference is not finite, they all count alike: only whether they are finite matters.
    """
    width = rows.shape[1] - heads
    channels = width // max(heads, 1)
    for i in range(rows.shape[0]):
        row = rows[i]
        if not heads:
            for f in range(width):
                sums[f] += np.float64(row[f])
        for h in range(heads):
            shift = 0.0
            if abs(top[h]) < np.inf:
                shift = shift_of(row[width + h], top[h])
            add_term(sums, h, heads, channels, row, shift)


@inner(counted=False)
def _finish_softmax(row, heads, top, is_empty):  # type: ignore[no-untyped-def]
    """Write references; one that is not finite spoils its head.

    If it is minus infinity, the numerator is what it is for weights of zero.
    """
    width = row.size - 2 * heads
    channels = width // max(heads, 1)
    for h in range(heads):
        row[width + heads + h] = 0 if is_empty else top[h]
        if not is_empty and not abs(top[h]) < np.inf:
            row[width + h] = np.nan
            for c in range(*columns(h, channels)):
                row[c] = row[c] * 0 if top[h] == -np.inf else np.nan


@inner()
def _renew_long(m, s, v, src, dst, slots, real, n, sums, top):  # type: ignore[no-untyped-def]
    """Add up `n` messages into a row, more than a block, the first `real` along edges."""
    heads = steps_of(m)[s, HEADS]
    dst[:n] = v
    for turn in range(0 if heads else 1, 2):
        for begin in range(0, n, BLOCK):
            end = min(begin + BLOCK, n)
            count = min(max(real - begin, 0), end - begin)
            rows = messages(m, s, src[begin:end], dst[begin:end], slots[begin:end], count, _NO)
            if turn == 0:
                _find_tops(rows, heads, top)
            else:
                _add_messages(sums, rows, heads, top)


@inner()
def _renewed(m, s, ids):  # type: ignore[no-untyped-def]
    """Make rows afresh over their in-edges; returns how many edges were read.

    The messages of as many rows as one block holds are computed together: first those along edges,
    row by row, and then those of self-loops.
    """
    step = steps_of(m)[s]
    inn, state, drift = read_of(m, step), stored(cells_of(m)[step[OUT]], m.zero), _drift(m, step)
    low, heads, loops = low_of(m, step, m.zero), step[HEADS], 1 if step[LOOP] >= 0 else 0
    most, read, i = BLOCK, 0, 0
    for k in range(ids.size):
        most = max(most, inn.degree[ids[k]])
    room, ends = np.empty((3, most + 1), np.int64), np.empty(BLOCK + 1, np.int64)
    src, slots, dst, top = room[0], room[1], room[2], np.empty(heads, state.dtype)
    lowest = state.dtype.type(-np.inf)
    sums, rows = np.empty(step[MESSAGE], np.float64), rows_at(0, 0, step[MESSAGE], m.zero)
    while i < ids.size:
        j, real = i, 0
        while j < ids.size and j - i < BLOCK:
            if j > i and real + inn.degree[ids[j]] + loops * (j - i + 1) > BLOCK:
                break
            real = _in_edges(m, step, ids[j], src, slots, real)
            ends[j - i] = real
            j += 1
        n = real + loops * (j - i)
        read += n
        if n <= BLOCK:
            begin = 0
            for r in range(j - i):
                dst[begin : ends[r]] = ids[i + r]
                begin = ends[r]
                if loops:
                    src[real + r], dst[real + r] = ids[i + r], ids[i + r]
            rows = messages(m, s, src[:n], dst[:n], slots[:n], real, _NO)
        begin = 0
        for r in range(j - i):
            v, is_empty = ids[i + r], begin == ends[r] and not loops
            fill(sums, 0.0)
            fill(top, lowest)
            if n > BLOCK:  # a row of its own
                if loops:
                    src[real] = v
                _renew_long(m, s, v, src, dst, slots, real, n, sums, top)
            else:
                mine, own = rows[begin : ends[r]], rows[real + r * loops : real + (r + 1) * loops]
                _find_tops(mine, heads, top)
                _find_tops(own, heads, top)
                _add_messages(sums, mine, heads, top)
                _add_messages(sums, own, heads, top)
            begin = ends[r]
            write_sums(sums, state[v], low[v] if low.size else low.ravel())
            if heads:
                _finish_softmax(state[v], heads, top, is_empty)
            drift[v] = 0
        i = j
    return read


# The step -----------------------------------------------------------------------------------------


@inner()
def function(m, s, epoch):  # type: ignore[no-untyped-def]
    """A sum or a softmax of messages that are functions of edges."""
    step = steps_of(m)[s]
    drift, out = _drift(m, step), cells_of(m)[step[OUT]]
    renewed = own_changed(m, s, epoch)
    count = reached(m, step, touched_of(m), renewed, epoch, _ZERO, _EVERYTHING)
    pushes = step[SOURCE] >= 0 and cells_of(m)[step[SOURCE], COUNT] > 0
    if not pushes and not count:
        return True
    touched = touched_of(m)
    for i in range(renewed):
        drift[touched[i], 0] = np.inf
    edges = 0
    if pushes:
        count, edges = _pushed(m, s, count, epoch)
    state, inn, again = stored(out, m.zero), read_of(m, step), np.empty(count, np.int64)
    scale = line_at(step[SCALE], step[MESSAGE] - step[HEADS], m.zero)
    limit, low = numbers_of(m)[s, LIMIT], low_of(m, step, m.zero)
    if step[KIND] == FUNCTION_TOTAL:
        line = line_at(step[DRIFT], out[CAPACITY], m.zero)
        fresh = sum_settle(state, low, line, limit, scale, inn, touched_of(m), count, again)
    else:
        fresh = softmax_settle(
            state, low, drift, limit, scale, step[HEADS], inn, step[LOOP] >= 0,
            touched_of(m), count, again,
        )  # fmt: skip
    return done(m, s, count, count, edges, fresh, _renewed(m, s, again[:fresh]))
