"""2-layer models against programs that have every loop of one of them fused by hand, in turns.

The other programs are methods of a class in a Python file, `--floor FILE`, which is imported:

    class Sage:                                  # a mean GraphSAGE of 2 layers and nothing else
        def __init__(self, arrays, hidden, out)  # the arrays of the workload file; a first pass
        def step_NAME(self, added, deleted, nodes, rows)  # one update; arrays [2, k], [2, k], [c],
        ...                                               # [c, channels]; of each program one
        def error(self)                          # largest difference to a pass made afresh

This package and one program take turns: each delta goes to both, each at its own state, and who is
first changes; the first turns are not counted. A program named rc recomputes rows, the others are
incremental. Other models than GraphSAGE are held against the incremental ones, which then have less
to do; so there is also the ratio for an edge touched: along which this package pushed or read, and
along which a change arrives in a GraphSAGE.

    times_its_p50       ratio of the medians of all turns
    times_it_in_a_turn  median of the ratios of the turns
    of_its_throughput   ratio of changes per second, median of five stretches of turns
    times_its_edge      ratio of the times for an edge touched
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from benchmarks import machine, workload
from benchmarks.models import MODELS, build
from benchmarks.peers.changes import changes_of
from benchmarks.ranks.count import Count
from benchmarks.report import Row
from benchmarks.stream import Stream
from benchmarks.workload import Workload
from pyg_incremental import GraphDelta, to_incremental
from pyg_incremental.kernels import warm_up

HIDDEN, LAYERS = 128, 2
BATCHES = {"sage": [1, 10, 100, 1000]}  # of all other models: 1
WARM_UP = 20  # turns that are not counted
LEAST, MOST = 40, 5000  # turns that are
STRETCHES = 5
RECOMPUTES = "rc"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The two files are needed."""
    add = parser.add_argument
    add("--workload", type=Path, required=True, help="see benchmarks/workload.py")
    add("--floor", type=Path, required=True, help="the file with the programs to compare with")
    add("--model", nargs="+", choices=MODELS, default=list(MODELS))
    add("--batch", type=int, nargs="+", help="default: 1, 10, 100 and 1,000 for sage, 1 for others")
    add("--seconds", type=float, default=5, help="per program, model and batch size")
    add("--json", type=Path, help="also write the results to this file")


@torch.no_grad()
def run(args: argparse.Namespace) -> dict[str, list[Row]]:
    """Measure every model and batch size against each program."""
    machine.use_threads(1)
    module = load(args.floor)
    with np.load(args.workload, allow_pickle=False) as file:
        arrays = dict(file)
    work = workload.read(args.workload)
    warm_up()
    rows = []
    for name in args.model:
        for batch in args.batch or BATCHES.get(name, [1]):
            if batch > len(work.kind):
                continue
            for program in programs(module):
                if name == "sage" or program != RECOMPUTES:
                    rows.append(_pair(name, batch, program, work, arrays, module, args.seconds))
    return {"ratios": rows}


def load(path: Path) -> ModuleType:
    """Import a file, which may import others of its folder."""
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # Numba's cache of compiled functions asks for it by name
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    if not programs(module):
        raise SystemExit(f"{path} has no class Sage with methods step_NAME; see --help.")
    return module


def programs(module: ModuleType) -> list[str]:
    """Names of the programs in a file."""
    steps = vars(getattr(module, "Sage", object))
    return [name.removeprefix("step_") for name in steps if name.startswith("step_")]


def _pair(
    name: str,
    batch: int,
    program: str,
    work: Workload,
    arrays: Row,
    module: ModuleType,
    seconds: float,
) -> Row:
    """One model and batch size against one program."""
    inc = to_incremental(build(name, work.x.shape[1], HIDDEN, work.classes, LAYERS))
    inc(work.x, work.edge_index)
    other = module.Sage(arrays, HIDDEN, work.classes)
    step, stream = getattr(other, f"step_{program}"), Stream(work)
    our, their, stats = [], [], []

    def we(delta: GraphDelta) -> None:
        parts = delta.edge_index_add, delta.edge_index_del, delta.x_changes
        began = time.perf_counter()
        update = inc.apply_delta(*parts)
        our.append(time.perf_counter() - began)
        stats.append(update.stats)  # they are looked at later, not between turns

    def they(delta: GraphDelta) -> None:
        changes = changes_of(delta, work.x[:0])
        given = changes.added, changes.deleted, changes.nodes, changes.rows.numpy()
        began = time.perf_counter()
        step(*given)
        their.append(time.perf_counter() - began)

    while not _is_enough(our, their, seconds):
        delta = stream.take(batch)
        for turn in (we, they) if len(our) % 2 else (they, we):
            turn(delta)
    edges = sum(one.edges for one in stats[WARM_UP:])
    its_edges = _arriving(work, batch, len(our))
    ours, theirs = np.array(our[WARM_UP:]), np.array(their[WARM_UP:])
    stretches = zip(*(np.array_split(took, STRETCHES) for took in (ours, theirs)), strict=True)
    per_edge = (ours.sum() / max(1, edges)) / (theirs.sum() / max(1, its_edges))
    return {
        "model": name, "batch": batch, "compared_with": program, "turns": len(ours),
        "p50_ms": 1e3 * float(np.median(ours)), "its_p50_ms": 1e3 * float(np.median(theirs)),
        "times_its_p50": float(np.median(ours) / np.median(theirs)),
        "times_it_in_a_turn": float(np.median(ours / theirs)),
        "of_its_throughput": float(np.median([t.sum() / o.sum() for o, t in stretches])),
        "edges": edges / len(ours), "its_edges": its_edges / len(ours),
        "times_its_edge": None if program == RECOMPUTES else float(per_edge),
        "off_by": inc.verify() / float(inc.out.abs().max()), "it_is_off_by": other.error(),
    }  # fmt: skip


def _is_enough(our: list[float], their: list[float], seconds: float) -> bool:
    turns = len(our) - WARM_UP
    return turns >= MOST or (turns >= LEAST and sum(our) + sum(their) > 2 * seconds)


def _arriving(work: Workload, batch: int, turns: int) -> int:
    """Edges along which changes arrived in a GraphSAGE in the counted turns, counted afresh."""
    count, stream = Count(work.edge_index, len(work.x)), Stream(work)
    every = [count.edges(count.apply(stream.take(batch), LAYERS)) for _ in range(turns)]
    return sum(every[WARM_UP:])
