"""Many deltas, each tried on the state as it is: noted, carried out, read and put back in turn."""

import numpy as np

from pyg_incremental.fused.kernels.noting import BYTES, ROWS, copy, note, put_back
from pyg_incremental.kernels.address import borrowed, borrowed_rows, line_at, rows_at
from pyg_incremental.kernels.adjacency import ascending
from pyg_incremental.kernels.by_address import call_at
from pyg_incremental.kernels.compiled.kinds import SPARE
from pyg_incremental.kernels.compiled.layout import (
    CELL_COLUMNS,
    CELLS,
    COUNT,
    NUM_CELLS,
    NUM_STEPS,
    STAT_COLUMNS,
    STATS,
    changed_ids,
    stored,
)
from pyg_incremental.kernels.compiled.machine import GRAPH
from pyg_incremental.kernels.jit import inner, njit

ADDED, COMES, GONE, LEAVES, IDS, NUM_IDS, NEW_ROWS, GIVEN, DATA = range(9)
"""Columns of a table of deltas: addresses and sizes of the edges that come and leave, and of the
nodes whose rows are given; the address of these rows, and the step that they are given to, or -1;
and from `DATA` on the addresses of what belongs to the edges that come."""
FIRST, NUMBER = range(2)
"""Columns of what is told: where in the room for rows a delta's stand, and how many; -1 if it has
to be looked at otherwise."""
_FIRST, _OTHERWISE = np.int64(GRAPH), -1


@inner()
def _write_data(of_data, delta, ready):  # type: ignore[no-untyped-def]
    """Write what belongs to the edges that come where they will be."""
    free, num_free, end, _ = ready
    reused = min(delta[COMES], num_free)
    for t in range(of_data.shape[0]):
        size = of_data[t, BYTES]
        for i in range(delta[COMES]):
            slot = free[num_free - reused + i] if i < reused else end + i - reused
            source = line_at(delta[DATA + t] + i * size, size, np.uint8(0))
            copy(source, line_at(of_data[t, ROWS] + slot * size, size, np.uint8(0)))


@inner()
def _read(rows, ids, target):  # type: ignore[no-untyped-def]
    for k in range(ids.size):
        for f in range(target.shape[1]):
            target[k, f] = rows[ids[k], f]


@njit(cache=True, nogil=True)
def try_all(  # type: ignore[no-untyped-def]
    address, plan, places, out, wide, of_nodes, of_edges, of_data, deltas, begin, used, free,
    num_free, end, order, slots, epoch, num_nodes, known, hops, both, most, marks, mark, log, kept,
    ids, new, old, told, work, zero, bits, many,
):  # fmt: skip
    """Try deltas from the one at `begin` on, as far as there is room.

    Args:
        address: Where the code of `machine.update` is.
        plan: See there, like `places`, `free`, `num_free`, `end`, `order`, `slots`, `epoch`,
            `num_nodes`, `zero`, `bits` and `many`.
        places: See there.
        out: The cell of the output.
        wide: Elements of the rows that are given.
        of_nodes: See `noting.note`, like `of_edges`, `hops`, `both`, `most`, `marks`, `log` and
            `kept`.
        of_edges: See there.
        of_data: A table of the data of edges, like `of_edges`.
        deltas: A table of the deltas.
        begin: The first one.
        used: How much of the room for rows is used.
        free: See `machine.update`.
        num_free: See there.
        end: See there.
        order: See there.
        slots: See there.
        epoch: See there.
        num_nodes: See there.
        known: The number of nodes without those that come.
        hops: See `noting.note`.
        both: See there.
        most: See there.
        marks: See there.
        mark: Marks from here on are fresh, three for each delta.
        log: See there.
        kept: See there.
        ids: Takes the rows of the output that change, `[room]`, ascending for each delta.
        new: Takes what they would be, `[room, width]`.
        old: Takes what they are; NaN for those of nodes that come.
        told: Takes what there is to tell of each delta, `[num_deltas, 2]`.
        work: Takes what each step did, `[num_deltas, steps, columns]`.
        zero: See `machine.update`.
        bits: See there.
        many: See there.

    Returns:
        (the first delta that was not tried for want of room; how much of the room for rows is used)
    """
    plan, places, slots = borrowed(plan), borrowed(places), borrowed_rows(slots)
    free, log, kept = borrowed(free), borrowed_rows(log), borrowed(kept)
    cells = rows_at(plan[CELLS], plan[NUM_CELLS], CELL_COLUMNS, np.int64(0))
    stats = rows_at(plan[STATS], plan[NUM_STEPS], STAT_COLUMNS, np.int64(0))
    ready = free, num_free, end, order
    for d in range(begin, deltas.shape[0]):
        delta = deltas[d]
        added = rows_at(delta[ADDED], 2, delta[COMES], np.int64(0))
        gone = rows_at(delta[GONE], 2, delta[LEAVES], np.int64(0))
        nodes = line_at(delta[IDS], delta[NUM_IDS], np.int64(0))
        given = delta[GIVEN]
        told[d, FIRST], told[d, NUMBER] = used, _OTHERWISE
        reached = note(
            places, of_nodes, of_edges, added, gone, nodes, num_nodes, free, num_free, end, hops,
            both, most, marks, mark, log, kept,
        )  # fmt: skip
        mark += 3
        if reached < 0:
            continue
        if log[0, 0] >= log.shape[0] or log[0, 1] > kept.size:
            return d, used
        _write_data(of_data, delta, ready)
        slots[0, 0] = 0
        rows = rows_at(delta[NEW_ROWS], delta[NUM_IDS], wide, zero)
        step, why, _ = call_at(  # type: ignore[no-untyped-call]
            address,
            (
                plan, places, added, gone, free, num_free, end, order, slots, epoch, num_nodes,
                given, nodes, rows, zero, bits, many, _FIRST,
            ),
            (_FIRST, _FIRST, _FIRST),
        )  # fmt: skip
        epoch += SPARE * (plan[NUM_STEPS] + 1)
        count = cells[out, COUNT]
        whole = step == plan[NUM_STEPS] and why == 0 and count >= 0
        fits = not whole or used + count <= ids.size
        if whole and fits:
            found = changed_ids(cells[out])
            sequence = ascending(found)
            for k in range(count):
                ids[used + k] = found[sequence[k]]
            _read(stored(cells[out], zero), ids[used : used + count], new[used : used + count])
            work[d] = stats
        put_back(log, kept)
        if not fits:
            return d, used
        if whole:
            told[d, NUMBER] = count
            _read(stored(cells[out], zero), ids[used : used + count], old[used : used + count])
            for k in range(used, used + count):
                if ids[k] >= known:
                    old[k] = np.nan
            used += count
    return deltas.shape[0], used
