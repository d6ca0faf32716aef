"""The steps of the machine that compute rows: maps of node rows, of edges, and ones."""

import numpy as np

from pyg_incremental.kernels.address import fetch, line_at, rows_at
from pyg_incremental.kernels.compiled.layout import (
    BY_VALUE,
    CELL,
    COUNT,
    FIRST_INPUT,
    FIRST_NEW,
    FRESH,
    GIVEN_IDS,
    GIVEN_ROWS,
    LAST_INPUT,
    MANY_AT,
    NODES,
    NUM_GIVEN,
    NUM_NODES,
    OUT,
    REGISTER,
    RESULT,
    ROOM,
    SOURCE,
    WIDE,
    WIDTH,
    cells_of,
    changed_ids,
    events_of,
    id_room,
    inputs_of,
    old_rows,
    run,
    run_wide,
    space_of,
    stamp_of,
    stats_of,
    steps_of,
    stored,
    touched_of,
    where_of,
    wide_space_of,
)
from pyg_incremental.kernels.compiled.row_ops import BLOCK
from pyg_incremental.kernels.compiled.rows import DENSE, commit, marked, unite
from pyg_incremental.kernels.jit import inner

_ZERO = np.int64(0)
"""No literal, see `machine_steps`."""


@inner(counted=False)
def _copy(to, rows):  # type: ignore[no-untyped-def]
    """Copy some rows."""
    for i in range(rows.shape[0]):
        for f in range(rows.shape[1]):
            to[i, f] = rows[i, f]


@inner(counted=False)
def _gather(to, rows, ids, begin, out):  # type: ignore[no-untyped-def]
    """Copy the rows `ids` from `begin` on, and ask for those of the next block.

    The same rows of `out`, if it has any, are asked for too: the results go there.
    """
    count = to.shape[0]
    for i in range(begin, begin + count):
        if i + count < ids.size:
            fetch(rows, ids[i + count])
        v = np.uint64(ids[i])  # no index from the end
        if out.shape[0]:
            fetch(out, ids[i])
        for f in range(rows.shape[1]):
            to[i - begin, f] = rows[v, f]


@inner(counted=False)
def put(cell, ids, new, done, where, zero, bits):  # type: ignore[no-untyped-def]
    """Commit new rows behind the `done` rows that have changed already; returns how many did.

    It is given what it needs of the machine: to hand over all of that costs as much as some rows.
    """
    if cell[FRESH]:
        _copy(rows_at(cell[FRESH], cell[ROOM], cell[WIDTH], zero)[done:], new)
        room = id_room(cell)
        for i in range(ids.size):
            room[done + i] = ids[i]
        return ids.size
    changed = id_room(cell)[done:]
    if cell[BY_VALUE]:
        old = old_rows(cell, zero)[done:]
        return commit(stored(cell, zero), ids, new, old, cell[FIRST_NEW], changed, where[done:])
    store, old = stored(cell, bits), old_rows(cell, bits)[done:]
    bitwise = new.view(store.dtype)
    return commit(store, ids, bitwise, old, cell[FIRST_NEW], changed, where[done:])


@inner()
def _dirty(m, step, epoch):  # type: ignore[no-untyped-def]
    """The rows where an input of a map changed."""
    dirty, chosen, shared, cells, inputs = 0, -1, -1, cells_of(m), inputs_of(m)
    touched, stamp = touched_of(m), stamp_of(m)
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        c = inputs[k, CELL]
        if cells[c, COUNT]:
            dirty, chosen = dirty + 1, c
            if cells[c, FRESH]:
                shared = c  # it was computed at all rows that are dirty here
    if not dirty:
        return touched[:0]
    if shared >= 0 or dirty == 1:
        return changed_ids(cells[shared if shared >= 0 else chosen])
    count, listed = 0, 0
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        listed += cells[inputs[k, CELL], COUNT]
    by_stamps = listed * DENSE > m.plan[NUM_NODES]
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        ids = changed_ids(cells[inputs[k, CELL]])
        if by_stamps:
            for i in range(ids.size):
                stamp[ids[i]] = epoch
        else:
            count = unite(ids, touched, count, stamp, epoch)
    if by_stamps:
        count = marked(stamp, epoch, 0, m.plan[NUM_NODES], touched)
    return touched[:count]


@inner(counted=False)
def _load(space, inputs, cells, out, ids, begin, rows, zero):  # type: ignore[no-untyped-def]
    """Put a block of rows of the inputs of a map into their registers."""
    for k in range(inputs.shape[0]):
        cell, at = cells[inputs[k, CELL]], inputs[k, REGISTER]
        wide = cell[WIDTH]
        register = space[at : at + rows * wide].reshape(rows, wide)
        if cell[FRESH]:
            _copy(register, rows_at(cell[FRESH], cell[ROOM], wide, zero)[begin : begin + rows])
        else:
            _gather(register, stored(cell, zero), ids, begin, out)
            out = out[:0]


@inner(counted=False)
def compute(m, s, ids, first, last):  # type: ignore[no-untyped-def]
    """Compute and put the rows of a map from `first` to before `last`; returns how many changed.

    These stand from `first` on.
    """
    step, space, cells, zero, bits = steps_of(m)[s], space_of(m), cells_of(m), m.zero, m.bits
    where, inputs = where_of(m), inputs_of(m)[step[FIRST_INPUT] : step[LAST_INPUT]]
    out = cells[step[OUT]]
    to, width, done = stored(out, zero), out[WIDTH], first
    for begin in range(first, last, BLOCK):
        rows = min(BLOCK, last - begin)
        _load(space, inputs, cells, to, ids, begin, rows, zero)
        run(m, step, rows)
        result = space[step[RESULT] : step[RESULT] + rows * width].reshape(rows, width)
        done += put(out, ids[begin : begin + rows], result, done, where, zero, bits)
    return done - first


@inner()
def put_given(m, s):  # type: ignore[no-untyped-def]
    """Put rows that are given: those of an input, or what other processes send of an exchange.

    The latter come behind the rows that changed here, whose memory is the same.
    """
    step, plan, cells = steps_of(m)[s], m.plan, cells_of(m)
    cell, count, done = cells[step[OUT]], plan[NUM_GIVEN], _ZERO
    if step[SOURCE] >= 0:
        done = cells[step[SOURCE], COUNT]
    ids = line_at(plan[GIVEN_IDS], count, _ZERO)
    rows = rows_at(plan[GIVEN_ROWS], count, cell[WIDTH], m.zero)
    cell[COUNT] = done + put(cell, ids, rows, done, where_of(m), m.zero, m.bits)
    stats = stats_of(m)[s]
    stats[0], stats[1] = done + count, cell[COUNT]


@inner()
def row_map(m, s, epoch):  # type: ignore[no-untyped-def]
    """Compute the rows where an input changed.

    Returns how many there are if that was not done, and these stand in `touched`; else zero.
    """
    step = steps_of(m)[s]
    ids = _dirty(m, step, epoch)
    if not ids.size:
        return _ZERO
    out = cells_of(m)[step[OUT]]
    if ids.size * out[WIDTH] > m.plan[MANY_AT] or ids.size > out[ROOM]:
        touched = touched_of(m)
        for i in range(ids.size):
            touched[i] = ids[i]
        return ids.size
    out[COUNT] = compute(m, s, ids, _ZERO, ids.size)
    stats = stats_of(m)[s]
    stats[0], stats[1] = ids.size, out[COUNT]
    return _ZERO


@inner(counted=False)
def _load_wide(register, cell, ids, begin, like):  # type: ignore[no-untyped-def]
    """Put a block of rows of a cell, of the type of `like`, into a register of float64."""
    if cell[FRESH]:
        fresh = rows_at(cell[FRESH], cell[ROOM], cell[WIDTH], like)
        _copy(register, fresh[begin : begin + register.shape[0]])
    else:
        rows = stored(cell, like)
        _gather(register, rows, ids, begin, rows[:0])


@inner()
def wide_map(m, s, epoch):  # type: ignore[no-untyped-def]
    """Compute rows where an input changed in float64; returns whether there is room for them."""
    step, space, cells, where = steps_of(m)[s], wide_space_of(m), cells_of(m), where_of(m)
    inputs = inputs_of(m)
    ids = _dirty(m, step, epoch)
    out, done = cells[step[OUT]], _ZERO
    width = out[WIDTH]
    if ids.size > out[ROOM]:
        return False
    rounded = np.empty((min(ids.size, BLOCK), width), space_of(m).dtype)
    for begin in range(0, ids.size, BLOCK):
        rows = min(BLOCK, ids.size - begin)
        for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
            cell, at = cells[inputs[k, CELL]], inputs[k, REGISTER]
            register = space[at : at + rows * cell[WIDTH]].reshape(rows, cell[WIDTH])
            if cell[WIDE]:
                _load_wide(register, cell, ids, begin, np.float64(0))
            else:
                _load_wide(register, cell, ids, begin, m.zero)
        run_wide(m, step, rows)
        result = space[step[RESULT] : step[RESULT] + rows * width].reshape(rows, width)
        some = ids[begin : begin + rows]
        if out[WIDE]:
            done += put(out, some, result, done, where, np.float64(0), np.int64(0))
        else:
            _copy(rounded, result)
            done += put(out, some, rounded[:rows], done, where, m.zero, m.bits)
    out[COUNT] = done
    stats_of(m)[s, 0], stats_of(m)[s, 1] = ids.size, done
    return True


@inner()
def ones_map(m, s):  # type: ignore[no-untyped-def]
    """Give new nodes their one."""
    cell = cells_of(m)[steps_of(m)[s, OUT]]
    ids = np.empty(cell[NODES] - cell[FIRST_NEW], np.int64)
    if ids.size:
        ones = np.empty((ids.size, 1), space_of(m).dtype)
        for i in range(ids.size):
            ids[i], ones[i, 0] = cell[FIRST_NEW] + i, 1
        cell[COUNT] = put(cell, ids, ones, _ZERO, where_of(m), m.zero, m.bits)


@inner(counted=False)
def edge_map(m, s):  # type: ignore[no-untyped-def]
    """Compute the rows of the edges that came."""
    step, slots = steps_of(m)[s], events_of(m)[5]
    inputs, cell = inputs_of(m)[step[FIRST_INPUT] : step[LAST_INPUT]], cells_of(m)[step[OUT]]
    out, width, space = stored(cell, m.zero), cell[WIDTH], space_of(m)
    for begin in range(0, slots.size, BLOCK):
        rows = min(BLOCK, slots.size - begin)
        _load(space, inputs, cells_of(m), out[:0], slots, begin, rows, m.zero)
        run(m, step, rows)
        result = space[step[RESULT] : step[RESULT] + rows * width].reshape(rows, width)
        for i in range(rows):
            for f in range(width):
                out[slots[begin + i], f] = result[i, f]
    stats_of(m)[s, 0], stats_of(m)[s, 1] = slots.size, slots.size
