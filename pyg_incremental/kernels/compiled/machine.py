"""A whole update in one call, as long as every step is a few rows or a cheap one.

`update` goes through the steps of a plan (see `layout`) as the executors do, with the same kernels,
but without leaving compiled code. It stops at a step for which there is no room, at one for
threads, and at one that other processes have a part in; behind these two it is called again.
"""

import numpy as np

from pyg_incremental.kernels import graph_at
from pyg_incremental.kernels.address import fetch, rows_at
from pyg_incremental.kernels.compiled.layout import (
    BY_VALUE,
    CELL,
    COUNT,
    EXCHANGE,
    EXTREMUM,
    FIRST_INPUT,
    FIRST_OP,
    FRESH,
    KIND,
    LAST_INPUT,
    LAST_OP,
    MAP,
    OUT,
    REGISTER,
    RESULT,
    ROOM,
    SOFTMAX,
    SOURCE,
    TOTAL,
    WIDTH,
    changed_ids,
    id_room,
    machine_of,
    old_rows,
    stored,
)
from pyg_incremental.kernels.compiled.machine_steps import (
    collect,
    edges_changed,
    extremum,
    reach_of,
    shares_of,
    softmax,
    spread,
    total,
)
from pyg_incremental.kernels.compiled.row_ops import BLOCK, COLUMNS, run_rows
from pyg_incremental.kernels.compiled.rows import ALL, DENSE, commit, marked, unite
from pyg_incremental.kernels.jit import njit

EDGES, GRAPH = -1, -2
"""In place of the first step of an update; see `update`."""
_ZERO, _EVERYTHING = np.int64(0), np.int64(ALL)
"""Not literals, see `machine_steps`."""
MANY = 1024
"""Changed messages up to which a step is never left to its executor because most changed."""
SPARE = 4
"""Marks that each step may use."""
FOR_THREADS, FOR_RANKS = -1, -2
"""Why `update` stops at a sum, or at an exchange with other processes."""


@njit(cache=True)
def _copy(to, rows):  # type: ignore[no-untyped-def]
    """Copy some rows."""
    for i in range(rows.shape[0]):
        for f in range(rows.shape[1]):
            to[i, f] = rows[i, f]


@njit(cache=True)
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


@njit(cache=True)
def _put(cell, ids, new, done, where, num_nodes, zero, bits):  # type: ignore[no-untyped-def]
    """Commit new rows behind the `done` rows that have changed already; returns how many did.

    It is given what it needs of the machine: to hand over all of that costs as much as some rows.
    """
    if cell[FRESH]:
        _copy(rows_at(cell[FRESH], cell[ROOM], cell[WIDTH], zero)[done:], new)
        id_room(cell)[done : done + ids.size] = ids
        return ids.size
    changed = id_room(cell)[done:]
    if cell[BY_VALUE]:
        old = old_rows(cell, zero)[done:]
        return commit(stored(cell, zero), ids, new, old, num_nodes, changed, where[done:])
    store, old = stored(cell, bits), old_rows(cell, bits)[done:]
    return commit(store, ids, new.view(store.dtype), old, num_nodes, changed, where[done:])


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
    count, listed = 0, 0
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        listed += m.cells[m.inputs[k, CELL], COUNT]
    by_stamps = listed * DENSE > m.num_nodes
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        ids = changed_ids(m.cells[m.inputs[k, CELL]])
        if by_stamps:
            for i in range(ids.size):
                m.stamp[ids[i]] = epoch
        else:
            count = unite(ids, m.touched, count, m.stamp, epoch)
    if by_stamps:
        count = marked(m.stamp, epoch, 0, m.num_nodes, m.touched)
    return m.touched[:count]


@njit(cache=True)
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


@njit(cache=True)
def _compute(m, s, ids, first, last):  # type: ignore[no-untyped-def]
    """Compute and put the rows of a map from `first` to before `last`; returns how many changed.

    These stand from `first` on.
    """
    step, space, cells, zero, bits = m.steps[s], m.space, m.cells, m.zero, m.bits
    ops, index, where, num_nodes = m.ops, m.index, m.where, m.num_nodes
    inputs = m.inputs[step[FIRST_INPUT] : step[LAST_INPUT]]
    out = cells[step[OUT]]
    to, width, done = stored(out, zero), out[WIDTH], first
    for begin in range(first, last, BLOCK):
        rows = min(BLOCK, last - begin)
        _load(space, inputs, cells, to, ids, begin, rows, zero)
        run_rows(space, ops, step[FIRST_OP], step[LAST_OP], index, rows)
        result = space[step[RESULT] : step[RESULT] + rows * width].reshape(rows, width)
        done += _put(out, ids[begin : begin + rows], result, done, where, num_nodes, zero, bits)
    return done - first


@njit(cache=True)
def _map(m, s, epoch, many):  # type: ignore[no-untyped-def]
    """Compute the rows where an input changed.

    Returns whether that was done, and else how many rows there are, which stand in `touched`.
    """
    step = m.steps[s]
    ids = _dirty(m, step, epoch)
    if not ids.size:
        return True, 0
    out = m.cells[step[OUT]]
    if ids.size * out[WIDTH] > many or ids.size > out[ROOM]:
        for i in range(ids.size):
            m.touched[i] = ids[i]
        return False, ids.size
    out[COUNT] = _compute(m, s, ids, _ZERO, ids.size)
    m.stats[s, 0], m.stats[s, 1] = ids.size, out[COUNT]
    return True, 0


@njit(cache=True)
def _most(m, s):  # type: ignore[no-untyped-def]
    """Whether most messages of an aggregation changed; its executor then makes rows afresh."""
    count = m.cells[m.steps[s, SOURCE], COUNT]
    return count > MANY and 2 * count > m.num_nodes


@njit(cache=True)
def _begin(m, low, high):  # type: ignore[no-untyped-def]
    """Forget the update before, and retract and insert edges.

    Those into the rows from `low` to before `high`; what is not split so is done with the last.
    """
    if high == ALL:
        m.cells[:, COUNT] = 0
        m.stats[:] = 0
    if m.events[0].size or m.events[3].size:
        for s in range(m.steps.shape[0]):
            if m.steps[s, KIND] == TOTAL or (m.steps[s, KIND] == SOFTMAX and high == ALL):
                edges_changed(m, s, low, high)


@njit(cache=True, nogil=True)
def arrive(plan, places, s, num_nodes, events, ids, rows, zero, bits):  # type: ignore[no-untyped-def]
    """Put rows that other processes have sent behind those that changed here.

    Both values of an exchange have one memory, and one room for what changes.
    """
    m = machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS)
    out, done = m.cells[m.steps[s, OUT]], m.cells[m.steps[s, SOURCE], COUNT]
    out[COUNT] = done + _put(out, ids, rows, done, m.where, num_nodes, zero, bits)
    m.stats[s, 0], m.stats[s, 1] = done + ids.size, out[COUNT]


@njit(cache=True, nogil=True)
def begin_part(plan, places, num_nodes, events, low, high, zero, bits):  # type: ignore[no-untyped-def]
    """What `update` does first, for the edges into the rows from `low` to before `high`."""
    _begin(machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS), low, high)


@njit(cache=True, nogil=True)
def shares_of_parts(plan, places, s, num_nodes, events, parts, zero, bits):  # type: ignore[no-untyped-def]
    """Which changed messages of a sum belong to which part; see `machine_steps.shares_of`."""
    return shares_of(machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS), s, parts)


@njit(cache=True, nogil=True)
def spread_of_part(  # type: ignore[no-untyped-def]
    plan, places, s, num_nodes, events, first, last, difference, moved, edges, begin, zero, bits
):
    """What some changed messages of a sum will push; see `sums.sum_spread`."""
    m = machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS)
    return spread(m, s, first, last, difference, moved, edges, begin)


@njit(cache=True, nogil=True)
def total_of_part(  # type: ignore[no-untyped-def]
    plan, places, s, epoch, num_nodes, events, touched, low, high, difference, moved, edges,
    begins, ends, zero, bits,
):  # fmt: skip
    """The sum of step `s` for some of the rows; see `machine_steps.collect`."""
    m = machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS)
    return collect(m, s, touched, epoch, low, high, difference, moved, edges, begins, ends)


@njit(cache=True, nogil=True)
def chain_of_part(  # type: ignore[no-untyped-def]
    plan, places, chain, num_nodes, events, ids, rows, first, last, zero, bits
):
    """Compute the rows from `first` to before `last` of some maps, one after the other.

    Args:
        plan: As for `update`, like `places`, `num_nodes`, `zero` and `bits`.
        places: See there.
        chain: Of each map, `[k, 2]`: the step, and the place in the chain of that at whose changed
            rows it is computed; -1 for `ids`.
        num_nodes: See `update`.
        events: No edges.
        ids: The rows of the first map.
        rows: The new rows of the first step, if these are given.
        first: The first of `ids` that is meant.
        last: The one behind the last.
        zero: See `update`.
        bits: See `update`.

    Returns:
        How many rows changed in each; these stand from `first` on.
    """
    m = machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS)
    changed = np.zeros(chain.shape[0], np.int64)
    for at in range(chain.shape[0]):
        s, source = chain[at]
        cell = m.cells[m.steps[s, OUT]]
        if at == 0 and rows.shape[0]:
            some = ids[first:last]
            changed[0] = _put(cell, some, rows, first, m.where, num_nodes, zero, bits)
        elif source < 0:
            changed[at] = _compute(m, s, ids, first, last)
        else:
            found = id_room(m.cells[m.steps[chain[source, 0], OUT]])
            changed[at] = _compute(m, s, found, first, first + changed[source])
    return changed


@njit(cache=True, nogil=True)
def update(  # type: ignore[no-untyped-def]
    plan, places, added, gone, free, num_free, end, order, slots, epoch, num_nodes, given, ids,
    rows, zero, bits, many, first
):  # fmt: skip
    """An update, or what is left of one: hold it against the graph, change that, go through steps.

    All of that in one function, because each one that has the steps in it takes long to compile.

    Args:
        plan: Where everything is.
        places: Where the graph is, see `graph_at`.
        added: See `graph_at.accept_now`, like `gone`, `free`, `num_free`, `end` and `slots`.
        gone: See there.
        free: See there.
        num_free: See there.
        end: See there.
        order: The age of the first edge that comes.
        slots: See `graph_at.accept_now`.
        epoch: Marks from here on are fresh, `SPARE` for each step.
        num_nodes: The number of nodes.
        given: The step whose new rows are given, or -1: an input, or a map computed elsewhere.
        ids: Their ids, `[k]`; distinct, or the delta is not valid.
        rows: The rows, `[k, width]`.
        zero: A zero of the dtype of rows.
        bits: An integer zero as wide.
        many: Elements to compute or to push, from more of which on a map or a sum is left to
            threads.
        first: The step to begin with; `GRAPH` begins with the graph, and `EDGES` with the edges
            that have come and gone, which stand in `slots` already.

    Returns:
        (the first step that was not done; the number of its rows if these stand in `touched`, or
        `FOR_THREADS` or `FOR_RANKS`; how many places of the hash table were used). The first is -1,
        and nothing was done, if the delta is not valid or something has to grow.
    """
    used = 0
    left, taken = slots[0, 1 : 1 + gone.shape[1]], slots[1, 1 : 1 + added.shape[1]]
    if first == GRAPH:
        if not graph_at.accept_now(places, added, gone, ids, num_nodes, free, num_free, end, slots):
            return -1, 0, 0
        used = graph_at.change_pairs(places, added, left, taken, order)
        for side in range(2):
            graph_at.change_list(places, side, added, left, taken)
        graph_at.has_changed(free, num_free, slots, taken.size, left.size)
    events = gone[0], gone[1], left, added[0], added[1], taken
    m = machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS)
    if first < 0:
        _begin(m, _ZERO, _EVERYTHING)
        first = 0
    for s in range(first, m.steps.shape[0]):
        kind = m.steps[s, KIND]
        epoch += SPARE
        if s == given:
            cell = m.cells[m.steps[s, OUT]]
            cell[COUNT] = _put(cell, ids, rows, _ZERO, m.where, num_nodes, zero, bits)
            m.stats[s, 0], m.stats[s, 1] = ids.size, cell[COUNT]
        elif kind == MAP:
            done, count = _map(m, s, epoch, many)
            if not done:
                return s, count, used
        elif kind in (TOTAL, SOFTMAX, EXTREMUM) and _most(m, s):
            return s, 0, used
        elif kind == TOTAL:
            if reach_of(m, s) * m.cells[m.steps[s, OUT], WIDTH] > many:
                return s, FOR_THREADS, used
            if not total(m, s, epoch):
                return s + 1, 0, used
        elif kind == SOFTMAX:
            if not softmax(m, s, epoch):
                return s + 1, 0, used
        elif kind == EXTREMUM and not extremum(m, s, epoch):
            return s, 0, used
        elif kind == EXCHANGE:
            return s, FOR_RANKS, used
    return m.steps.shape[0], 0, used


ENTRIES = (
    "update", "arrive", "begin_part", "shares_of_parts", "spread_of_part", "total_of_part",
    "chain_of_part",
)  # fmt: skip
"""What is called from Python."""
