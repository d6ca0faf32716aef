"""A graph of the size of ogbn-products on one machine: memory, first pass, updates per second.

2,449,029 nodes, 123,718,280 directed edges, 100 features, a 2-layer GraphSAGE of 128 channels. The
package runs first and alone, so that the peak of memory is its own (that of the graph handed in is
given beside it); then it makes room for the peers, which take the same deltas in the same process.
At the end the outputs of those that took as many deltas are held against that of the package.

    python -m benchmarks memory --scale 0.01
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from benchmarks import graphs, machine, report
from benchmarks.compare import WARM_UP
from benchmarks.models import MODELS, build
from benchmarks.peers import OURS, PEERS
from benchmarks.peers.incremental import Incremental
from benchmarks.report import Row
from benchmarks.stream import Stream
from benchmarks.workload import Workload
from pyg_incremental import to_incremental
from pyg_incremental.kernels import warm_up
from pyg_incremental.typing import StoreName

OTHERS = [name for name in PEERS if name != OURS]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults are the sizes above."""
    add = parser.add_argument
    add("--graph", choices=graphs.SIZES, default="products", help="whose published size")
    add("--scale", type=float, default=1.0, help="part of that size")
    add("--model", choices=MODELS, default="sage")
    add("--layers", type=int, default=2)
    add("--hidden", type=int, default=128)
    add("--store", choices=("fast", "minimal"), default="fast", help="what the package keeps")
    add("--batch", type=int, nargs="+", default=[1000])
    add("--updates", type=int, default=30, help="deltas per batch size that are counted")
    add("--seconds", type=float, default=60, help="time limit per program and batch size")
    add("--peer", nargs="*", choices=OTHERS, default=["rc"], help="compared with these, in turn")
    add("--threads", type=int, default=1)
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("benchmarks/results/memory"), help="folder of the results")


@torch.no_grad()
def run(args: argparse.Namespace) -> None:
    """Measure the package, then each peer; print and write what came out."""
    machine.use_threads(args.threads)
    about = machine.describe()
    print(" ".join(f"{key}={value}" for key, value in about.items()))
    size = graphs.SIZES[args.graph].scaled(args.scale)
    needed = 3 * sum(args.batch) * (args.updates + WARM_UP)
    began = time.perf_counter()
    work = graphs.draw(size, needed, args.seed)
    drawn = time.perf_counter() - began
    print(f"{len(work.x):,} nodes, {work.edge_index.shape[1]:,} edges, drawn in {drawn:.0f} s")
    model = build(args.model, size.channels, args.hidden, size.classes, args.layers)
    compiling = warm_up()
    given: Row = {"drawing_s": drawn, "compiling_s": compiling, "graph_peak_gib": _peak()}

    rows: list[Row] = []
    held: list[Row] = []
    right: tuple[int, Tensor] | None = None
    for name in [OURS, *args.peer]:
        right = _one_program(name, model, work, args, rows, held, right)
        gc.collect()
    _add_ratios(rows)
    report.print_table([given])
    report.print_table(rows)
    options = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    result: Row = {"options": options, "machine": about, "size": vars(size), "start": given,
              "results": rows, "memory": held}  # fmt: skip
    report.write_json(args.out / "memory.json", result)
    print(f"\nwritten to {args.out}: memory.json")


def _one_program(
    name: str,
    model: nn.Module,
    work: Workload,
    args: argparse.Namespace,
    rows: list[Row],
    held: list[Row],
    right: tuple[int, Tensor] | None,
) -> tuple[int, Tensor]:
    """First pass and updates of one program.

    Returns the number of deltas and the output after them, which the next are held against.
    """
    peer = _Stored(model, args.store) if name == OURS else PEERS[name](model)
    began = time.perf_counter()
    peer.bootstrap(work.x, work.edge_index)
    start_s, peak = time.perf_counter() - began, _peak()
    stream = Stream(work)
    mine: list[Row] = []
    taken = 0
    for batch in args.batch:
        took: list[float] = []
        edges = 0
        for _ in tqdm(range(args.updates + WARM_UP), desc=f"{name}, {batch}", disable=None):
            delta = stream.take(batch)
            began = time.perf_counter()
            peer.apply(delta)
            took.append(time.perf_counter() - began)
            if isinstance(peer, Incremental) and peer.stats is not None and len(took) > WARM_UP:
                edges += peer.stats.edges
            if sum(took) > args.seconds and len(took) > 2 * WARM_UP:
                break
        taken += len(took)
        counted = np.array(took[WARM_UP:])
        mine.append({
            "program": name, "batch": batch, "updates": len(counted), "start_s": start_s,
            "peak_gib_after_start": peak, "peak_gib": _peak(),
            "p50_ms": 1e3 * float(np.median(counted)),
            "p99_ms": 1e3 * float(np.percentile(counted, 99)),
            "changes_per_s": batch / float(counted.mean()),
            "edges_per_update": edges / len(counted) if edges else None,
        })  # fmt: skip
    rows += mine
    if isinstance(peer, Incremental):
        print(f"\n{peer.inc.memory_report()}")
        held += [part._asdict() for part in peer.inc.memory_report().parts]
    out = peer.output()
    for row in mine:
        comparable = right is not None and right[0] == taken
        row["off_by"] = _difference(out, right[1]) if right and comparable else None
    return (taken, out.clone()) if right is None else right


class _Stored(Incremental):
    """This package, storing what it is told to."""

    def __init__(self, model: nn.Module, store: StoreName) -> None:
        super().__init__(model)
        self.store = store

    def bootstrap(self, x: Tensor, edge_index: Tensor) -> None:
        self.inc = to_incremental(self.model, store=self.store, strict=True)
        self.inc(x, edge_index)


def _difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def _add_ratios(rows: list[Row]) -> None:
    """How many times as many changes per second this package takes in."""
    ours = {row["batch"]: row for row in rows if row["program"] == OURS}
    for row in rows:
        row["ours_is_faster_by"] = ours[row["batch"]]["changes_per_s"] / row["changes_per_s"]


def _peak() -> float:
    """Largest resident memory of this process so far, in GiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
