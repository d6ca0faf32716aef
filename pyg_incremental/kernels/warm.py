"""One call of every compiled kernel with every type of argument that the engine uses, by kinds.

A model needs the kernels for the kinds of steps that it has: of each kind first what a small update
calls (`SMALL`), and then what larger ones do.
"""

import contextlib
import gc
import pickle
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from io import RawIOBase
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
from numba import config, typeof

from pyg_incremental.kernels import adjacency, compiled, graph_at, kept, pairs
from pyg_incremental.kernels.compiled import machine, row_ops
from pyg_incremental.kernels.compiled.kinds import KERNELS
from pyg_incremental.kernels.compiled.rows import take_rows
from pyg_incremental.kernels.loading import compile_all
from pyg_incremental.kernels.samples import KEYS, mixed


def warm_up(dtype: str, of: Iterable[str] = kept.KINDS) -> None:
    """Load or compile all kernels of some kinds for rows of a dtype."""
    for kind in of:
        with kept.alone(dtype):
            _MAKERS[kind](np.dtype(dtype).type)
            kept.is_now_complete(dtype, kind)


def serve(asked: BinaryIO, told: RawIOBase) -> None:
    """What a process does that compiles for another one, until that closes `asked`.

    Args:
        asked: Lines with a dtype and a kind; or `jobs`, and some pickled jobs in hexadecimal.
        told: Each line again once that is there, with the seconds of processor that went by; not
            buffered.
    """
    gc.disable()  # what a compiler makes mostly stays: to look it through takes a tenth of the time
    for line in asked:
        first, second = line.decode().split()
        if first == "jobs":
            compile_all(pickle.loads(bytes.fromhex(second)))
        else:
            warm_up(first, [second])
        with contextlib.suppress(OSError):  # who asked has ended; the next one finds it
            told.write(b"%s %.1f\n" % (line.strip(), time.process_time()))


def _graph(_: Any) -> None:
    """The kernels of the graph, on one of two nodes and one edge."""
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
    pairs.move(table, np.full(16, pairs.EMPTY, np.int32), slots)
    pairs.find(u, v, table, slots, found)
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
    mixed(ids[:0], np.zeros((0, 2), np.int64), 0, 0, 0, KEYS)
    graph_at.accept(places, pair, pair, ids, 1, found[:0])
    graph_at.accept_now(places, pair, pair, ids, 1, none, 0, 0, both)
    graph_at.has_changed(none, 0, both, 0, 0)
    stamp, touched, at = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(1, np.int64)
    compiled.unite(ids, touched, 0, stamp, 1)
    compiled.unite_ends(u, v, False, touched, 0, stamp, 2)
    compiled.reach(ids, out, False, touched, 0, stamp, 3)
    compiled.expand(ids, out, 0, *(np.zeros(8, np.int64) for _ in range(3)))


def _lists() -> Any:
    """The neighbour lists of two nodes without edges."""
    none, zeros = np.zeros(0, np.int32), np.zeros(2, np.int32)
    return adjacency.Adjacency(np.zeros(2, np.int64), zeros, zeros, none, none)


def _bits(dtype: Any) -> Any:
    """The integers as wide as some floats."""
    return np.int32 if dtype is np.float32 else np.int64


def _room() -> tuple[Any, ...]:
    """Two ids, `[1]` each, and marks and room for them."""
    return np.zeros(1, np.int64), np.ones(1, np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64)


def _rows(dtype: Any) -> None:
    ids, _, _, touched = _room()
    for kind in (dtype, _bits(dtype)):
        rows = np.zeros((2, 3), kind)
        compiled.commit(rows, ids, rows[:1], rows[:1].copy(), 2, touched, np.zeros(1, np.int64))
    take_rows(np.zeros((2, 3), dtype), ids, np.zeros((1, 3), dtype))


def _sums(dtype: Any) -> None:
    ids, v, stamp, touched = _room()
    u, out = ids, _lists()
    inn = out
    message, scale = np.zeros((2, 3), dtype), np.ones(3, dtype)
    own, factor = np.zeros((2, 3), dtype), np.ones(2, dtype)
    for weight in (np.zeros(0, dtype), np.ones(1, dtype)):
        total, drift = np.zeros((2, 3), dtype), np.zeros(2, dtype)
        low = np.zeros_like(total)
        compiled.sum_rows(v, total, low, drift, message, weight, own, factor, inn, False, factor)
        for rows in (message, message.astype(np.float64)):  # these are differences
            compiled.sum_edges(total, low, drift, scale, rows, u, v, weight, factor, 1, False, 1.0)
        compiled.sum_push(
            total, low, drift, 1.0, scale, message, weight, own, factor, u, message[:1].copy(), out,
            inn, False, factor, touched, 0, stamp, 4,
        )  # fmt: skip
    compiled.sum_settle(total, low, drift, 1.0, scale, inn, touched, 0, touched)
    compiled.sum_renew(
        total, low, drift, scale, own, ids, own[:1].copy(), factor, ids, np.ones((1, 1), dtype), 2,
        2, 0, 2,
    )  # fmt: skip


def _extrema(dtype: Any) -> None:
    ids, v, stamp, touched = _room()
    message = np.zeros((2, 3), dtype)
    state, owner, none = np.zeros((2, 3), dtype), np.full((2, 3), -2, np.int32), ids[:0]
    given = state, owner, message, ids, np.zeros(0, dtype)
    compiled.extremum_fill(*given, v, none, none, True, stamp, 1, True)
    compiled.extremum_insert(*given, v, ids, True)
    compiled.extremum_retract(owner, v, ids, stamp, 1)
    compiled.extremum_exposed(owner, v, stamp, 1, touched)
    for rows in (state, state.view(_bits(dtype))):
        compiled.extremum_settle(rows, rows[:1].copy(), v, 2, stamp, 1, 2, touched)


def _softmaxes(dtype: Any) -> None:
    u, v, stamp, touched = _room()
    out = inn = _lists()
    scale, message, target = np.ones(3, dtype), np.zeros((2, 3), dtype), np.zeros((2, 1), dtype)
    state, drift = np.zeros((2, 4), dtype), np.zeros((2, 2), dtype)
    none, low = np.zeros((0, 1), dtype), np.zeros_like(state)
    compiled.softmax_rows(v, state, low, drift, message, target, none, none, 0.2, inn, False)
    compiled.softmax_edges(
        state, low, drift, scale, message, target, u, v, none, 0.2, 1, False, 1.0
    )
    compiled.softmax_settle(state, low, drift, 1.0, scale, 1, inn, False, touched, 0, touched)
    compiled.softmax_push(
        state, low, drift, scale, message, target, none, 0.2, u, message[:1].copy(), out, False,
        touched, 0, stamp, 5,
    )  # fmt: skip


def _loop(dtype: Any) -> None:
    """The loop of a small update, and the steps that every model has."""
    none, pair, rows = np.zeros(0, np.int64), np.zeros((2, 0), np.int64), np.zeros((0, 1), dtype)
    _compile(
        machine.update, none, none, pair, pair, none, 0, 0, 0, pair, 0, 2, -1, none, rows,
        dtype(0), _bits(dtype)(0), 0, machine.GRAPH,
    )  # fmt: skip
    _compile(machine.arrive, none, 0, none, rows, dtype(0), _bits(dtype)(0))
    _operations(dtype)
    _step("loop", dtype)


def _operations(dtype: Any) -> None:
    none = np.zeros(0, np.int64)
    row_ops.run_rows(np.zeros(1, dtype), np.zeros((0, row_ops.COLUMNS), np.int64), 0, 0, none, 1)


def _step(kind: str, dtype: Any) -> None:
    """What steps of a kind do in a small update."""
    _compile(KERNELS[kind], 0, 0, 0, 0, 0, dtype(0), _bits(dtype)(0))


def _wide_map(dtype: Any) -> None:
    _operations(np.float64)
    _step("wide_map", dtype)


def _threads(dtype: Any) -> None:
    """What threads call."""
    none, pair, zeros = (
        np.zeros(0, np.int64),
        np.zeros((2, 0), np.int64),
        (dtype(0), _bits(dtype)(0)),
    )
    rows = np.zeros((0, 1), dtype)
    room = np.zeros((1, 3)), np.zeros(1, dtype), np.zeros((1, 2), np.int32)
    _compile(machine.tell_parts, none, none, 2, (none,) * 6)
    _compile(machine.begin_part, none, 0, 0, *zeros)
    _compile(machine.shares_of_parts, none, 0, 1, *zeros)
    _compile(machine.chain_of_part, none, pair, none, rows, 0, 0, *zeros)
    _compile(machine.spread_of_part, none, 0, 0, 0, *room, 0, none, *zeros)
    _compile(machine.total_of_part, none, 0, 0, none, 0, 0, *room, pair, *zeros)


def _compile(kernel: Any, *like: Any) -> None:
    """Compile or load a kernel for arguments like these."""
    if not config.DISABLE_JIT:  # type: ignore[attr-defined]
        kernel.compile(tuple(map(typeof, like)))


_MAKERS: Mapping[str, Callable[[Any], None]] = {
    **{kind: partial(_step, kind) for kind in KERNELS},
    "loop": _loop,
    "wide_map": _wide_map,
    "graph": _graph,
    "rows": _rows,
    "sums": _sums,
    "softmaxes": _softmaxes,
    "extrema": _extrema,
    "threads": _threads,
}
