"""A whole update of few rows in one call.

What a plan needs is laid out in tables of integers (see `fast_path.tables`): a *cell* for every
value, with the address of its rows and room for what changes in it, and a *step* for everything the
plan does. `run` goes through the steps as the executors do, with the same kernels, but calls them
without leaving compiled code. It stops in front of a step that has more rows than there is room
for, or whose rows are worth a call of BLAS; the executors go on from there.
"""

import ctypes

import numpy as np
from numba import carray, config, njit, types
from numba.extending import intrinsic

from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.kernels.compiled.extremum import (
    EXPOSED,
    extremum_exposed,
    extremum_fill,
    extremum_insert,
    extremum_retract,
    extremum_settle,
)
from pyg_incremental.kernels.compiled.row_ops import BLOCK, run_rows
from pyg_incremental.kernels.compiled.rows import commit, expand, unite, unite_ends
from pyg_incremental.kernels.compiled.softmax import softmax_edges, softmax_push
from pyg_incremental.kernels.compiled.sums import sum_edges, sum_push

ROOM = 1024
"""Rows of a value that may change in a run."""
FEW = 48
"""Rows from which on a matrix product is left to BLAS."""

# Columns of `cells`. Addresses are zero where there is nothing.
ROWS, CAPACITY, WIDTH, IDS, OLD, FRESH, COUNT, BY_VALUE = range(8)
# Columns of `steps`, and kinds of step.
KIND, OUT, SOURCE, DROP, REVERSE, WEIGHT, SLOTS, DRIFT, SCALE = range(9)
TARGET, LOOP, OWNER, LARGEST, FIRST_INPUT, LAST_INPUT, FIRST_OP, LAST_OP, RESULT, PRODUCT = range(
    9, 19
)
STEP_COLUMNS = 19
NOTHING, INPUT, MAP, TOTAL, SOFTMAX, EXTREMUM = range(6)
# Columns of `numbers`, which go with the steps; of `inputs` of maps; and of `graph`, twice.
LIMIT, SLOPE = range(2)
CELL, REGISTER = range(2)
START, DEGREE, ROOMS, NEIGHBOR, EDGE, NUM_NODES, POOL = range(7)
STATS = 9
SPILLED = -1
"""Sign of a count whose rows stand in `touched`, because a cell has no room for them."""

if config.DISABLE_JIT:

    def _pointer(address, like):  # type: ignore[no-untyped-def]
        kind = np.ctypeslib.as_ctypes_type(like.dtype)
        return ctypes.cast(int(address), ctypes.POINTER(kind))

else:

    @intrinsic
    def _pointer(typing_context, address, like):  # type: ignore[no-untyped-def]
        """An address, as a pointer to elements of the dtype of the array `like`."""
        pointer = types.CPointer(like.dtype)

        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            return builder.inttoptr(arguments[0], context.get_value_type(pointer))

        return pointer(address, like), codegen


@njit(cache=True)
def _rows(address, count, width, like):  # type: ignore[no-untyped-def]
    """The array `[count, width]` at an address; none at all at address zero."""
    if address == 0:
        return carray(_pointer(like.ctypes.data, like), (0, width))
    return carray(_pointer(address, like), (count, width))


@njit(cache=True)
def _line(address, count, like):  # type: ignore[no-untyped-def]
    """The array `[count]` at an address; none at all at address zero."""
    if address == 0:
        return carray(_pointer(like.ctypes.data, like), (0,))
    return carray(_pointer(address, like), (count,))


@njit(cache=True)
def _lists(graph, like_long, like_int):  # type: ignore[no-untyped-def]
    """The neighbour lists that a row of `graph` describes."""
    nodes = graph[NUM_NODES]
    return Adjacency(
        _line(graph[START], nodes, like_long),
        _line(graph[DEGREE], nodes, like_int),
        _line(graph[ROOMS], nodes, like_int),
        _line(graph[NEIGHBOR], graph[POOL], like_int),
        _line(graph[EDGE], graph[POOL], like_int),
    )


@njit(cache=True)
def _chosen(values, slots):  # type: ignore[no-untyped-def]
    """`values[slots]`, or nothing of nothing."""
    found = np.empty((slots.size if values.shape[0] else 0, values.shape[1]), values.dtype)
    for i in range(found.shape[0]):
        for f in range(found.shape[1]):
            found[i, f] = values[slots[i], f]
    return found


@njit(cache=True)
def _ids(cell, like_long):  # type: ignore[no-untyped-def]
    """The rows of a cell that changed."""
    return _line(cell[IDS], cell[COUNT], like_long)


@njit(cache=True)
def _keep(cells, out, touched, count, like_long):  # type: ignore[no-untyped-def]
    """The first `count` of `touched` are the rows of a cell that changed; whether there is room."""
    if count > ROOM:
        cells[out, COUNT] = SPILLED * count
        return False
    ids = _line(cells[out, IDS], count, like_long)
    ids[:] = touched[:count]
    cells[out, COUNT] = count
    return True


@njit(cache=True)
def _put(cell, ids, new, bits, first_new, done, where, like_long):  # type: ignore[no-untyped-def]
    """Commit a block of new rows behind the `done` rows that have changed already."""
    width = cell[WIDTH]
    changed = _line(cell[IDS], ROOM, like_long)[done:]
    if cell[BY_VALUE]:
        store, old = _rows(cell[ROWS], cell[CAPACITY], width, new), _rows(cell[OLD], ROOM, width, new)
        return commit(store, ids, new, old[done:], first_new, changed, where)
    store = _rows(cell[ROWS], cell[CAPACITY], width, bits)
    old = _rows(cell[OLD], ROOM, width, bits)
    return commit(store, ids, new.view(bits.dtype), old[done:], first_new, changed, where)


@njit(cache=True)
def _map(  # type: ignore[no-untyped-def]
    step, cells, inputs, space, ops, index, bits, touched, stamp, epoch, first_new, where, stats,
    like_long,
):  # fmt: skip
    """Compute the rows where an input changed. Returns whether that was done."""
    dirty, only, shared = 0, -1, -1
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        c = inputs[k, CELL]
        if cells[c, COUNT]:
            dirty, only = dirty + 1, c
            if cells[c, FRESH]:
                shared = c
    if not dirty:
        return True
    if shared >= 0 or dirty == 1:
        ids = _ids(cells[shared if shared >= 0 else only], like_long)
    else:
        count = 0
        for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
            cell = cells[inputs[k, CELL]]
            if cell[COUNT]:
                count = unite(_ids(cell, like_long), touched, count, stamp, epoch)
        ids = touched[:count]
    if ids.size > (FEW if step[PRODUCT] else ROOM):
        return False
    out = cells[step[OUT]]
    width, done = out[WIDTH], 0
    for begin in range(0, ids.size, BLOCK):
        rows = min(BLOCK, ids.size - begin)
        for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
            cell, at = cells[inputs[k, CELL]], inputs[k, REGISTER]
            wide = cell[WIDTH]
            if cell[FRESH]:
                source = _rows(cell[FRESH], ROOM, wide, space)
                for i in range(rows):
                    for f in range(wide):
                        space[at + i * wide + f] = source[begin + i, f]
            else:
                source = _rows(cell[ROWS], cell[CAPACITY], wide, space)
                for i in range(rows):
                    v = ids[begin + i]
                    for f in range(wide):
                        space[at + i * wide + f] = source[v, f]
        run_rows(space, ops, step[FIRST_OP], step[LAST_OP], index, rows)
        result = space[step[RESULT] : step[RESULT] + rows * width].reshape(rows, width)
        block = ids[begin : begin + rows]
        if out[FRESH]:
            fresh, taken = _rows(out[FRESH], ROOM, width, space), _line(out[IDS], ROOM, like_long)
            for i in range(rows):
                taken[begin + i] = block[i]
                for f in range(width):
                    fresh[begin + i, f] = result[i, f]
            done += rows
        else:
            done += _put(out, block, result, bits, first_new, done, where, like_long)
    out[COUNT] = done
    stats[0], stats[1] = ids.size, done
    return True


@njit(cache=True)
def _total(  # type: ignore[no-untyped-def]
    step, numbers, cells, space, out_lists, in_lists, events, touched, stamp, epoch, stats,
    like_long,
):  # fmt: skip
    """Push what changed in the messages of a sum. Returns whether there was room."""
    drop = step[DROP] != 0
    count = _reached(events, step, drop, touched, 0, stamp, epoch)
    source = cells[step[SOURCE]]
    if not source[COUNT] and not count:
        return True
    out, width = cells[step[OUT]], cells[step[OUT], WIDTH]
    count, edges, reread, read = sum_push(
        _rows(out[ROWS], out[CAPACITY], width, space),
        _line(step[DRIFT], out[CAPACITY], space),
        numbers[LIMIT],
        _line(step[SCALE], width, space),
        _rows(source[ROWS], source[CAPACITY], width, space),
        _line(step[WEIGHT], step[SLOTS], space),
        _ids(source, like_long),
        _rows(source[OLD], ROOM, width, space),
        in_lists if step[REVERSE] else out_lists,
        out_lists if step[REVERSE] else in_lists,
        drop,
        touched,
        count,
        stamp,
        epoch,
    )
    stats[0], stats[1], stats[2], stats[3] = count, count, edges + read + _size(events), reread
    return _keep(cells, step[OUT], touched, count, like_long)


@njit(cache=True)
def _softmax(  # type: ignore[no-untyped-def]
    step, numbers, cells, space, out_lists, in_lists, events, touched, stamp, epoch, stats,
    like_long,
):  # fmt: skip
    """The same for a softmax; rows whose own part changed are made afresh."""
    drop = step[DROP] != 0
    source, target = cells[step[SOURCE]], cells[step[TARGET]]
    heads, renewed = target[WIDTH], 0
    renewed = unite(_ids(target, like_long), touched, renewed, stamp, epoch)
    loop_at, loop_room = 0, 0
    if step[LOOP] >= 0:
        loop = cells[step[LOOP]]
        loop_at, loop_room = loop[ROWS], loop[CAPACITY]
        renewed = unite(_ids(loop, like_long), touched, renewed, stamp, epoch)
        renewed = unite(_ids(source, like_long), touched, renewed, stamp, epoch)
    count = _reached(events, step, drop, touched, renewed, stamp, epoch)
    if not source[COUNT] and not count:
        return True
    out, wide = cells[step[OUT]], source[WIDTH]
    count, edges, reread, read = softmax_push(
        _rows(out[ROWS], out[CAPACITY], out[WIDTH], space),
        _rows(step[DRIFT], out[CAPACITY], 2, space),
        numbers[LIMIT],
        _line(step[SCALE], wide - heads, space),
        _rows(source[ROWS], source[CAPACITY], wide, space),
        _rows(target[ROWS], target[CAPACITY], heads, space),
        _rows(step[WEIGHT], step[SLOTS], heads, space),
        _rows(loop_at, loop_room, heads, space),
        numbers[SLOPE],
        _ids(source, like_long),
        _rows(source[OLD], ROOM, wide, space),
        in_lists if step[REVERSE] else out_lists,
        out_lists if step[REVERSE] else in_lists,
        drop,
        touched,
        count,
        renewed,
        stamp,
        epoch,
    )
    stats[0], stats[1], stats[2], stats[3] = count, count, edges + read + _size(events), reread
    return _keep(cells, step[OUT], touched, count, like_long)


@njit(cache=True)
def _size(events):  # type: ignore[no-untyped-def]
    return events[0].size + events[3].size


@njit(cache=True)
def _reached(events, step, drop, touched, count, stamp, epoch):  # type: ignore[no-untyped-def]
    """Collect the targets of the edges that left or came."""
    removed_src, removed_dst, _, added_src, added_dst, _ = events
    if step[REVERSE]:
        count = unite_ends(removed_dst, removed_src, drop, touched, count, stamp, epoch)
        return unite_ends(added_dst, added_src, drop, touched, count, stamp, epoch)
    count = unite_ends(removed_src, removed_dst, drop, touched, count, stamp, epoch)
    return unite_ends(added_src, added_dst, drop, touched, count, stamp, epoch)


@njit(cache=True)
def _counting(src, dst, slots, drop):  # type: ignore[no-untyped-def]
    """Edges without self-loops, if these do not count."""
    if not drop:
        return src, dst, slots
    kept = src != dst
    return src[kept], dst[kept], slots[kept]


@njit(cache=True)
def _extremum(  # type: ignore[no-untyped-def]
    step, cells, space, bits, out_lists, in_lists, events, touched, stamp, epoch, first_new, stats,
    like_long, like_int,
):  # fmt: skip
    """Retract, insert, and read again what is left exposed. Returns whether that was done."""
    drop = step[DROP] != 0
    pushed, lists = out_lists, in_lists
    removed_src, removed_dst, removed_slots, added_src, added_dst, added_slots = events
    if step[REVERSE]:
        pushed, lists = in_lists, out_lists
        removed_src, removed_dst, added_src, added_dst = (
            removed_dst, removed_src, added_dst, added_src,
        )  # fmt: skip
    _, gone, gone_slots = _counting(removed_src, removed_dst, removed_slots, drop)
    new_src, new, new_slots = _counting(added_src, added_dst, added_slots, drop)
    source, out = cells[step[SOURCE]], cells[step[OUT]]
    ids = _ids(source, like_long)
    size = 0
    for i in range(ids.size):
        size += pushed.degree[ids[i]]
    at, again, again_slots = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    size = expand(ids, pushed, 1 if drop else 0, at, again, again_slots)
    at, again, again_slots = at[:size], again[:size], again_slots[:size]
    for i in range(size):
        at[i] = ids[at[i]]
    count = unite(gone, touched, 0, stamp, epoch)
    count = unite(new, touched, count, stamp, epoch)
    count = unite(again, touched, count, stamp, epoch)
    if count > ROOM:
        return False
    if not count:
        return True
    lost, read = epoch + 1, epoch + 2
    width = out[WIDTH]
    rows = _line(out[IDS], ROOM, like_long)
    rows[:count] = touched[:count]
    rows = rows[:count].copy()
    state = _rows(out[ROWS], out[CAPACITY], width, space)
    owner = _rows(step[OWNER], out[CAPACITY], width, like_int)
    message = _rows(source[ROWS], source[CAPACITY], width, space)
    weight = _line(step[WEIGHT], step[SLOTS], space)
    largest = step[LARGEST] != 0
    before = np.empty((count, width), space.dtype)
    for i in range(count):
        before[i] = state[rows[i]]
    extremum_retract(owner, gone, gone_slots, stamp, lost)
    extremum_retract(owner, again, again_slots, stamp, lost)
    extremum_insert(state, owner, message, new_src, weight, new, new_slots, largest)
    extremum_insert(state, owner, message, at, weight, again, again_slots, largest)
    edges = gone.size + new.size + size
    exposed, channels = 0, 0
    found = np.empty(count, np.int64)
    left = extremum_exposed(owner, rows, stamp, lost, found)
    if left:
        size = 0
        for i in range(left):
            size += lists.degree[found[i]]
        position, src, slots = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
        size = expand(found[:left], lists, 1 if drop else 0, position, src, slots)
        exposed, channels = extremum_fill(
            state, owner, message, src[:size], weight, found[:left], position[:size], slots[:size],
            largest, stamp, read,
        )  # fmt: skip
        edges += size
    changed = _line(out[IDS], ROOM, like_long)
    if out[BY_VALUE]:
        n, resilient, no_reset, covered = extremum_settle(
            state, before, rows, first_new, stamp, lost, read, changed
        )
    else:
        n, resilient, no_reset, covered = extremum_settle(
            _rows(out[ROWS], out[CAPACITY], width, bits), before.view(bits.dtype), rows, first_new,
            stamp, lost, read, changed,
        )  # fmt: skip
    if out[OLD]:
        old = _rows(out[OLD], ROOM, width, space)
        for i in range(n):
            old[i] = before[i]
    out[COUNT] = n
    stats[0], stats[1], stats[2], stats[3], stats[4] = count, n, edges, exposed, channels
    stats[5], stats[6], stats[7], stats[8] = resilient, no_reset, covered, exposed
    return True


@njit(cache=True)
def _edges_changed(step, numbers, cells, space, events):  # type: ignore[no-untyped-def]
    """Retract and insert the messages of edges that left and came, all OLD."""
    drop = step[DROP] != 0
    source, out = cells[step[SOURCE]], cells[step[OUT]]
    wide = source[WIDTH]
    removed_src, removed_dst, removed_slots, added_src, added_dst, added_slots = events
    for src, dst, slots, sign in (
        (removed_src, removed_dst, removed_slots, -1),
        (added_src, added_dst, added_slots, 1),
    ):
        if not slots.size:
            continue
        if step[REVERSE]:
            src, dst = dst, src
        state = _rows(out[ROWS], out[CAPACITY], out[WIDTH], space)
        message = _rows(source[ROWS], source[CAPACITY], wide, space)
        if step[KIND] == TOTAL:
            weight = _chosen(_rows(step[WEIGHT], step[SLOTS], 1, space), slots)
            sum_edges(
                state, _line(step[DRIFT], out[CAPACITY], space), _line(step[SCALE], wide, space),
                message, src, dst, weight.ravel(), sign, drop,
            )  # fmt: skip
        else:
            target = cells[step[TARGET]]
            heads = target[WIDTH]
            softmax_edges(
                state, _rows(step[DRIFT], out[CAPACITY], 2, space),
                _line(step[SCALE], wide - heads, space), message,
                _rows(target[ROWS], target[CAPACITY], heads, space), src, dst,
                _chosen(_rows(step[WEIGHT], step[SLOTS], heads, space), slots), numbers[SLOPE],
                sign, drop,
            )  # fmt: skip


@njit(cache=True)
def run(  # type: ignore[no-untyped-def]
    space, bits, ops, index, cells, steps, numbers, inputs, graph, stamp, touched, epoch, first_new,
    events, given_cell, given_ids, given_rows, where, stats, like_int,
):  # fmt: skip
    """Go through the steps.

    Args:
        space: Registers and constants of the maps.
        bits: An integer array whose elements are as wide as those of `space`.
        ops: What the maps do, see `row_ops`.
        index: Positions that `ops` refers to.
        cells: int64 `[num_cells, 8]`.
        steps: int64 `[num_steps, STEP_COLUMNS]`.
        numbers: float64 `[num_steps, 2]`.
        inputs: int64 `[k, 2]`.
        graph: int64 `[2, 7]`: the lists along out-edges and those along in-edges.
        stamp: Marks for rows; `epoch` is fresh, and so are the three behind it for every step.
        touched: Room for rows.
        epoch: The first mark to use.
        first_new: The number of nodes.
        events: Sources, targets and slots of the edges that left, and of those that came.
        given_cell: The input that was given rows, or -1.
        given_ids: Their ids.
        given_rows: The rows.
        where: Room for the positions of `BLOCK` rows, or of those that are given.
        stats: int64 `[num_steps, STATS]`, zero: what was done.
        like_int: An int32 array.

    Returns:
        The first step that was not done.
    """
    out_lists, in_lists = _lists(graph[0], touched, like_int), _lists(graph[1], touched, like_int)
    num_steps = steps.shape[0]
    cells[:, COUNT] = 0
    if _size(events):
        for s in range(num_steps):
            if steps[s, KIND] == TOTAL or steps[s, KIND] == SOFTMAX:
                _edges_changed(steps[s], numbers[s], cells, space, events)
    for s in range(num_steps):
        kind, step = steps[s, KIND], steps[s]
        epoch += 4
        if kind == INPUT:
            if step[OUT] == given_cell:
                cell = cells[given_cell]
                cell[COUNT] = _put(
                    cell, given_ids, given_rows, bits, first_new, 0, where, touched
                )
                stats[s, 0], stats[s, 1] = given_ids.size, cell[COUNT]
        elif kind == MAP:
            if not _map(
                step, cells, inputs, space, ops, index, bits, touched, stamp, epoch, first_new,
                where, stats[s], touched,
            ):  # fmt: skip
                return s
        elif kind == TOTAL:
            if not _total(
                step, numbers[s], cells, space, out_lists, in_lists, events, touched, stamp, epoch,
                stats[s], touched,
            ):  # fmt: skip
                return s + 1
        elif kind == SOFTMAX:
            if not _softmax(
                step, numbers[s], cells, space, out_lists, in_lists, events, touched, stamp, epoch,
                stats[s], touched,
            ):  # fmt: skip
                return s + 1
        elif kind == EXTREMUM:
            if not _extremum(
                step, cells, space, bits, out_lists, in_lists, events, touched, stamp, epoch,
                first_new, stats[s], touched, like_int,
            ):  # fmt: skip
                return s
    return num_steps
