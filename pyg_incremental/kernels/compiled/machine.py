"""A whole update in one call, as long as every step is a few rows or a cheap one.

`run` goes through the steps of a plan (see `layout`) as the executors do, with the same kernels,
but without leaving compiled code. It stops at a step for which there is no room, and at a map with
a matrix product of many rows, which BLAS computes faster; with these rows it is called again.
"""

import numpy as np
from numba import njit

from pyg_incremental.kernels.address import rows_at
from pyg_incremental.kernels.compiled.layout import (
    BY_VALUE,
    CELL,
    COUNT,
    EXTREMUM,
    FIRST_INPUT,
    FIRST_OP,
    FRESH,
    KIND,
    LAST_INPUT,
    LAST_OP,
    MAP,
    OUT,
    PRODUCT,
    REGISTER,
    RESULT,
    ROOM,
    SOFTMAX,
    TOTAL,
    WIDTH,
    changed_ids,
    id_room,
    machine_of,
    old_rows,
    stored,
)
from pyg_incremental.kernels.compiled.machine_steps import edges_changed, extremum, softmax, total
from pyg_incremental.kernels.compiled.row_ops import BLOCK, COLUMNS, run_rows
from pyg_incremental.kernels.compiled.rows import commit, unite

FEW = 32
"""Rows from which on a matrix product is left to BLAS."""
SPARE = 4
"""Marks that each step may use."""


@njit(cache=True)
def _copy(to, rows):  # type: ignore[no-untyped-def]
    """Copy some rows."""
    for i in range(rows.shape[0]):
        for f in range(rows.shape[1]):
            to[i, f] = rows[i, f]


@njit(cache=True)
def _gather(to, rows, ids):  # type: ignore[no-untyped-def]
    """Copy the rows `ids`."""
    for i in range(ids.size):
        v = np.uint64(ids[i])  # no index from the end
        for f in range(rows.shape[1]):
            to[i, f] = rows[v, f]


@njit(cache=True)
def _put(m, cell, ids, new, done):  # type: ignore[no-untyped-def]
    """Commit new rows behind the `done` rows that have changed already; returns how many did."""
    if cell[FRESH]:
        _copy(rows_at(cell[FRESH], cell[ROOM], cell[WIDTH], m.zero)[done:], new)
        id_room(cell)[done : done + ids.size] = ids
        return ids.size
    changed = id_room(cell)[done:]
    if cell[BY_VALUE]:
        return commit(
            stored(cell, m.zero), ids, new, old_rows(cell, m.zero)[done:], m.num_nodes, changed,
            m.where,
        )  # fmt: skip
    store = stored(cell, m.bits)
    return commit(
        store, ids, new.view(store.dtype), old_rows(cell, m.bits)[done:], m.num_nodes, changed,
        m.where,
    )  # fmt: skip


@njit(cache=True)
def _dirty(m, step, epoch):  # type: ignore[no-untyped-def]
    """The rows where an input of a map changed."""
    dirty, chosen, shared = 0, -1, -1
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        c = m.inputs[k, CELL]
        if m.cells[c, COUNT]:
            dirty, chosen = dirty + 1, c
            if m.cells[c, FRESH]:
                shared = c  # it was computed at all rows that are dirty here
    if not dirty:
        return m.touched[:0]
    if shared >= 0 or dirty == 1:
        return changed_ids(m.cells[shared if shared >= 0 else chosen])
    count = 0
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        cell = m.cells[m.inputs[k, CELL]]
        if cell[COUNT]:
            count = unite(changed_ids(cell), m.touched, count, m.stamp, epoch)
    return m.touched[:count]


@njit(cache=True)
def _load(m, step, ids, begin, rows):  # type: ignore[no-untyped-def]
    """Put a block of rows of the inputs of a map into their registers."""
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        cell, at = m.cells[m.inputs[k, CELL]], m.inputs[k, REGISTER]
        wide = cell[WIDTH]
        register = m.space[at : at + rows * wide].reshape(rows, wide)
        if cell[FRESH]:
            _copy(register, rows_at(cell[FRESH], cell[ROOM], wide, m.zero)[begin : begin + rows])
        else:
            _gather(register, stored(cell, m.zero), ids[begin : begin + rows])


@njit(cache=True)
def _map(m, s, epoch):  # type: ignore[no-untyped-def]
    """Compute the rows where an input changed.

    Returns whether that was done, and else how many rows there are, which stand in `touched`.
    """
    step = m.steps[s]
    ids = _dirty(m, step, epoch)
    if not ids.size:
        return True, 0
    out = m.cells[step[OUT]]
    if ids.size > out[ROOM] or (step[PRODUCT] and ids.size > FEW):
        for i in range(ids.size):
            m.touched[i] = ids[i]
        return False, ids.size
    width, done = out[WIDTH], 0
    for begin in range(0, ids.size, BLOCK):
        rows = min(BLOCK, ids.size - begin)
        _load(m, step, ids, begin, rows)
        run_rows(m.space, m.ops, step[FIRST_OP], step[LAST_OP], m.index, rows)
        result = m.space[step[RESULT] : step[RESULT] + rows * width].reshape(rows, width)
        done += _put(m, out, ids[begin : begin + rows], result, done)
    out[COUNT] = done
    m.stats[s, 0], m.stats[s, 1] = ids.size, done
    return True, 0


@njit(cache=True)
def run(  # type: ignore[no-untyped-def]
    plan, places, first, epoch, num_nodes, events, given, ids, rows, zero, bits
):
    """Go through the steps from `first` on.

    Args:
        plan: Where everything is.
        places: Where the graph is, see `graph_at`.
        first: The step to begin with; zero begins an update.
        epoch: Marks from here on are fresh, `SPARE` for each step.
        num_nodes: The number of nodes.
        events: Sources, targets and slots of the edges that left, and of those that came.
        given: The step whose new rows are given, or -1: an input, or a map computed elsewhere.
        ids: Their ids, `[k]`.
        rows: The rows, `[k, width]`.
        zero: A zero of the dtype of rows.
        bits: An integer zero as wide.

    Returns:
        (the first step that was not done, the number of its rows if these stand in `touched`)
    """
    m = machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS)
    if first == 0:
        m.cells[:, COUNT] = 0
        m.stats[:] = 0
        if events[0].size or events[3].size:
            for s in range(m.steps.shape[0]):
                if m.steps[s, KIND] == TOTAL or m.steps[s, KIND] == SOFTMAX:
                    edges_changed(m, s)
    for s in range(first, m.steps.shape[0]):
        kind = m.steps[s, KIND]
        epoch += SPARE
        if s == given:
            cell = m.cells[m.steps[s, OUT]]
            cell[COUNT] = _put(m, cell, ids, rows, 0)
            m.stats[s, 0], m.stats[s, 1] = ids.size, cell[COUNT]
        elif kind == MAP:
            done, count = _map(m, s, epoch)
            if not done:
                return s, count
        elif kind == TOTAL:
            if not total(m, s, epoch):
                return s + 1, 0
        elif kind == SOFTMAX:
            if not softmax(m, s, epoch):
                return s + 1, 0
        elif kind == EXTREMUM and not extremum(m, s, epoch):
            return s, 0
    return m.steps.shape[0], 0
