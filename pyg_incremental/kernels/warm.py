"""One call of every compiled kernel with every type of argument that the engine uses."""

import contextlib
import os
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import config, typeof

from pyg_incremental.kernels import adjacency, compiled, graph_at, kept, pairs
from pyg_incremental.kernels.compiled import machine, row_ops
from pyg_incremental.kernels.compiled.rows import take_rows
from pyg_incremental.kernels.loading import compile_all
from pyg_incremental.kernels.samples import KEYS, mixed

_GIVES_WAY = 5
"""By how much a second process that compiles is nicer than the first."""


def warm_up(*dtypes: str) -> float:
    """Load or compile every kernel, so that no update pays for it, and none waits for it.

    Compiled code is cached on disk beside the package (or in the directory that `NUMBA_CACHE_DIR`
    names), so only the first process on a machine compiles.

    Args:
        *dtypes: For rows of which dtypes: `'float32'`, `'float64'`; both by default.

    Returns:
        Seconds spent.
    """
    began = time.perf_counter()
    graph = _graph_kernels()
    for dtype in dtypes or kept.DTYPES:  # processes that are given one each share the work
        with kept.alone(dtype):
            _row_kernels(np.dtype(dtype).type, *graph)
            _machine(np.dtype(dtype).type)
            kept.is_now_complete(dtype)
    return time.perf_counter() - began


def fill(dtypes: Sequence[str], jobs: bytes) -> None:
    """What the process does that compiles for another one."""
    compile_all(pickle.loads(jobs))
    for dtype in dtypes:
        of = np.dtype(dtype).type
        with kept.alone(dtype), _beside(partial(_all_but_machine, of)):
            _machine(of)
        warm_up(dtype)  # loads all of that, and compiles what has not come about


@contextlib.contextmanager
def _beside(work: Callable[[], None]) -> Iterator[None]:
    """Have some work done by a process of its own meanwhile, if there is a core for it.

    It gives way to whoever serves updates. What becomes of it has to be looked at afterwards.
    """
    if not hasattr(os, "fork") or (os.cpu_count() or 1) < 2:
        yield
        return
    process = os.fork()  # of one that has no other threads of Python
    if not process:
        try:
            os.nice(_GIVES_WAY)
            work()
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.waitpid(process, 0)


def _graph_kernels() -> tuple[Any, Any]:
    """Compile or load the kernels of the graph, on one of two nodes and one edge.

    One process at a time: whoever waits for another one finds them there.

    Returns:
        Its neighbour lists.
    """
    with kept.alone("graph"):
        return _run_graph_kernels()


def _run_graph_kernels() -> tuple[Any, Any]:
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
    return out, inn


def _row_kernels(dtype: Any, out: Any, inn: Any) -> None:
    """The same for the kernels of rows of one dtype, but for those of `_machine`."""
    _sums(dtype, out, inn)
    _extrema(dtype)
    _softmaxes(dtype, out, inn)


def _all_but_machine(dtype: Any) -> None:
    """The same for those of the graph as well."""
    _row_kernels(dtype, *_graph_kernels())


def _bits(dtype: Any) -> Any:
    """The integers as wide as some floats."""
    return np.int32 if dtype is np.float32 else np.int64


def _room() -> tuple[Any, ...]:
    """Two ids, `[1]` each, and marks and room for them."""
    return np.zeros(1, np.int64), np.ones(1, np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64)


def _sums(dtype: Any, out: Any, inn: Any) -> None:
    ids, v, stamp, touched = _room()
    u, at = ids, np.zeros(1, np.int64)
    for kind in (dtype, _bits(dtype)):
        rows = np.zeros((2, 3), kind)
        compiled.commit(rows, ids, rows[:1], rows[:1].copy(), 2, touched, at)
    take_rows(np.zeros((2, 3), dtype), ids, np.zeros((1, 3), dtype))
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


def _softmaxes(dtype: Any, out: Any, inn: Any) -> None:
    u, v, stamp, touched = _room()
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


def _machine(dtype: Any) -> None:
    """The same for the machine and its parts, which have nothing to do without a plan of steps."""
    none, pair = np.zeros(0, np.int64), np.zeros((2, 0), np.int64)
    ends = (none,) * 6
    zero, bit = dtype(0), _bits(dtype)(0)
    for kind in {dtype, np.float64}:  # some maps are in float64, whatever rows are
        row_ops.run_rows(np.zeros(1, kind), np.zeros((0, row_ops.COLUMNS), np.int64), 0, 0, none, 1)
    plan, places, rows = none, none, np.zeros((0, 1), dtype)
    _compile(
        machine.update, plan, places, pair, pair, none, 0, 0, 0, pair, 0, 2, -1, none, rows, zero,
        bit, 0, machine.GRAPH,
    )  # fmt: skip
    _compile(machine.begin_part, plan, places, 2, ends, 0, 0, zero, bit)
    _compile(machine.arrive, plan, places, 0, 2, ends, none, rows, zero, bit)
    _compile(machine.shares_of_parts, plan, places, 0, 2, ends, 1, zero, bit)
    _compile(machine.chain_of_part, plan, places, pair, 2, ends, none, rows, 0, 0, zero, bit)
    room = np.zeros((1, 3)), np.zeros(1, dtype), np.zeros((1, 2), np.int32)
    _compile(machine.spread_of_part, plan, places, 0, 2, ends, 0, 0, *room, 0, none, zero, bit)
    _compile(machine.total_of_part, plan, places, 0, 0, 2, ends, none, 0, 0, *room, pair, zero, bit)


def _compile(kernel: Any, *like: Any) -> None:
    """Compile or load a kernel for arguments like these."""
    if not config.DISABLE_JIT:  # type: ignore[attr-defined]
        kernel.compile(tuple(map(typeof, like)))
