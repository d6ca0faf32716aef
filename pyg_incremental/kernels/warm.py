"""One call of every compiled kernel with every type of argument that the engine uses."""

import time
from types import SimpleNamespace

import numpy as np

from pyg_incremental.kernels import adjacency, compiled, graph_at, pairs
from pyg_incremental.kernels.compiled import layout, machine, row_ops
from pyg_incremental.kernels.compiled.rows import take_rows
from pyg_incremental.kernels.samples import mixed


def warm_up() -> float:
    """Load or compile every kernel for float32 and float64, so that no update pays for it.

    Compiled code is cached on disk beside the package (or in the directory that `NUMBA_CACHE_DIR`
    names), so only the first process on a machine compiles.

    Returns:
        Seconds spent.
    """
    began = time.perf_counter()
    _run_each_once()
    return time.perf_counter() - began


def _run_each_once() -> None:
    """Compile or load all kernels, on a graph of two nodes and one edge."""
    ids = np.zeros(1, np.int64)
    one = np.ones(1, np.int32)
    edges = (ids.astype(np.int32), one.copy())
    slots = adjacency.Slots(
        src=edges[0],
        dst=edges[1],
        out_at=np.zeros(1, np.int32),
        in_at=np.zeros(1, np.int32),
        older=np.zeros(1, np.int32),
        order=np.zeros(1, np.int32),
    )
    lists = []
    for key, other, at in ((edges[0], edges[1], slots.out_at), (edges[1], edges[0], slots.in_at)):
        room = SimpleNamespace(start=np.zeros(2, np.int64), degree=np.zeros(2, np.int32))
        neighbor, edge = np.zeros(8, np.int32), np.zeros(8, np.int32)
        adjacency.group(key, other, room.degree, room.start, neighbor, edge, at, 0)
        lists.append(
            adjacency.Adjacency(room.start, room.degree, np.full(2, 4, np.int32), neighbor, edge)
        )
    out, inn = lists
    table, found = np.full(16, pairs.EMPTY, np.int32), np.zeros(4, np.int64)
    u, v = ids, ids + 1
    tops = np.full(2, 4, np.int64)
    places = graph_at.places_of(out, inn, slots, table, tops)
    pairs.enter(ids, table, slots)
    pairs.find(u, v, table, slots, found)
    pairs.claim(u, v, table, slots, found)
    pairs.unclaim(found[:1], table, slots)
    graph_at.leaving(u, v, ids, ids, out, inn, table, slots, found[:1], found[1:])
    pairs.find_without(ids[:0], u, v, table, slots, found)
    pair, both, none = np.zeros((2, 0), np.int64), np.zeros((2, 1), np.int64), ids[:0]
    graph_at.change_pairs(places, pair, ids, none, 0)
    for side in range(2):
        graph_at.change_list(places, side, pair, ids, none)
    adjacency.fits(u, out, tops[0])
    adjacency.needed(u, out)
    graph_at.change_pairs(places, np.stack([u, v]), none, ids, 0)
    for side in range(2):
        graph_at.change_list(places, side, np.stack([u, v]), none, ids)
    adjacency.compact(out, np.zeros(8, np.int32), np.zeros(8, np.int32), 4)
    adjacency.out_of_range(ids, 1)
    mixed(ids[:0])
    graph_at.accept(places, pair, pair, ids, 1, found[:0])
    graph_at.accept_now(places, pair, pair, ids, 1, none, 0, 0, both)
    graph_at.has_changed(none, 0, both, 0, 0)
    stamp, touched, at = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(1, np.int64)
    compiled.unite(ids, touched, 0, stamp, 1)
    compiled.unite_ends(u, v, False, touched, 0, stamp, 2)
    compiled.reach(ids, out, False, touched, 0, stamp, 3)
    compiled.expand(ids, out, 0, *(np.zeros(8, np.int64) for _ in range(3)))
    for dtype in (np.float32, np.float64):
        bits = np.int32 if dtype is np.float32 else np.int64
        for kind in (dtype, bits):
            rows = np.zeros((2, 3), kind)
            compiled.commit(rows, ids, rows[:1], rows[:1].copy(), 2, touched, at)
        take_rows(np.zeros((2, 3), dtype), ids, np.zeros((1, 3), dtype))
        message, target = np.zeros((2, 3), dtype), np.zeros((2, 1), dtype)
        scale = np.ones(3, dtype)
        for weight in (np.zeros(0, dtype), np.ones(1, dtype)):
            total, drift = np.zeros((2, 3), dtype), np.zeros(2, dtype)
            compiled.sum_rows(v, total, drift, message, weight, inn, False)
            compiled.sum_edges(total, drift, scale, message, u, v, weight, 1, False)
            compiled.sum_push(
                total,
                drift,
                1.0,
                scale,
                message,
                weight,
                u,
                message[:1].copy(),
                out,
                inn,
                False,
                touched,
                0,
                stamp,
                4,
            )
        state, owner, none = np.zeros((2, 3), dtype), np.full((2, 3), -2, np.int32), ids[:0]
        given = state, owner, message, ids, np.zeros(0, dtype)
        compiled.extremum_fill(*given, v, none, none, True, stamp, 1, True)
        compiled.extremum_insert(*given, v, ids, True)
        compiled.extremum_retract(owner, v, ids, stamp, 1)
        compiled.extremum_exposed(owner, v, stamp, 1, touched)
        for rows in (state, state.view(bits)):
            compiled.extremum_settle(rows, rows[:1].copy(), v, 2, stamp, 1, 2, touched)
        compiled.sum_settle(total, drift, 1.0, scale, inn, touched, 0, touched)
        state, drift = np.zeros((2, 4), dtype), np.zeros((2, 2), dtype)
        none = np.zeros((0, 1), dtype)
        compiled.softmax_rows(v, state, drift, message, target, none, none, 0.2, inn, False)
        compiled.softmax_edges(state, drift, scale, message, target, u, v, none, 0.2, 1, False)
        compiled.softmax_settle(state, drift, 1.0, scale, 1, inn, False, touched, 0, touched)
        compiled.softmax_push(
            state, drift, 1.0, scale, message, target, none, none, 0.2, u, message[:1].copy(), out,
            inn, False, touched, 0, 0, stamp, 5,
        )  # fmt: skip
        bit = bits(0)
        none = ids[:0]
        row_ops.run_rows(
            np.zeros(1, dtype), np.zeros((0, row_ops.COLUMNS), np.int64), 0, 0, none, 1
        )
        plan, rows = np.zeros(layout.PLAN_SIZE, np.int64), np.zeros((0, 1), dtype)
        zero, ends = dtype(0), (none,) * 6
        machine.run(plan, places, -1, 0, 2, ends, -1, none, rows, zero, bit, 0)
        machine.begin_part(plan, places, 2, ends, 0, 0, zero, bit)
        machine.update(
            plan, places, pair, pair, none, 0, 0, 0, np.zeros((2, 1), np.int64), 0, 2, -1, none,
            rows, zero, bit, 0,
        )  # fmt: skip
