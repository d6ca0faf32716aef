"""A change of every node, the package's own full pass, and full passes of PyG, in turns.

`update_of_own` says what an update of everything costs in units of `refresh()`, and `own_of_best`
what that costs in units of the fastest pass of PyG. Every figure is the median of ratios of times
that were taken in the same turn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks import compare, machine, report
from benchmarks.models import MODELS
from benchmarks.peers import full_pass
from benchmarks.peers.protocol import Skipped
from benchmarks.ranks import inputs
from benchmarks.report import Row
from benchmarks.workload import Workload
from pyg_incremental import to_incremental
from pyg_incremental.kernels import warm_up

QUICK = {"scale": 0.002, "hidden": 16, "turns": 2}
PASSES = {
    "coo": full_pass.coo,
    "edge_index": full_pass.sorted_edge_index,
    "sparse_tensor": full_pass.sparse_tensor,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: four models on the drawn graph of ogbn-arxiv's size, one thread."""
    add = parser.add_argument
    inputs.add_workload(parser)
    parser.set_defaults(batch=[1])  # no other change is measured
    add("--model", nargs="+", choices=MODELS, default=["sage", "sage-max", "gcn", "gat"])
    add("--layers", type=int, default=2)
    add("--hidden", type=int, default=128)
    add("--turns", type=int, default=8, help="counted turns; one more comes before them")
    add("--quick", action="store_true", help="a tiny graph, some seconds: only shows that it runs")
    add("--out", type=Path, default=Path("benchmarks/results/all-nodes"), help="folder")


def run(args: argparse.Namespace) -> None:
    """Measure, print and write."""
    if args.quick:
        vars(args).update(QUICK)
    machine.use_threads(1)
    about = machine.describe()
    print(" ".join(f"{key}={value}" for key, value in about.items()))
    work = inputs.load(args)
    warm_up()
    rows = [_turns(name, work, args) for name in args.model]
    report.print_table(rows)
    result: Row = {"options": inputs.told(args), "machine": about, "results": rows}
    report.write_json(args.out / "all-nodes.json", result)
    print(f"\nwritten to {args.out}: all-nodes.json")


@torch.no_grad()
def _turns(name: str, work: Workload, args: argparse.Namespace) -> Row:
    model = compare.model_for(name, args.layers, args.hidden, work)
    inc = to_incremental(model)
    inc(work.x, work.edge_index)
    ids = torch.arange(len(work.x))
    generator = torch.Generator().manual_seed(0)
    new: list[Any] = [None]
    ways: dict[str, Callable[[], Any]] = {
        "update": lambda: inc.apply_delta(x_changes=(ids, new[0])),
        "own": inc.refresh,
    }
    for form, make in PASSES.items():
        try:
            peer = make(model)
            peer.bootstrap(work.x, work.edge_index)
        except Skipped as reason:
            print(f"{name}, {form}: {reason}")
            continue
        ways[form] = lambda graph=peer.graph, x=peer.edges.x: model(x, graph)
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(args.turns + 1):
        new[0] = torch.randn(work.x.shape, generator=generator)
        for way, work_of in ways.items():
            began = time.perf_counter()
            work_of()
            took[way].append(1e3 * (time.perf_counter() - began))
    counted = {way: times[1:] for way, times in took.items()}
    best = [min(turn) for turn in zip(*(counted[p] for p in PASSES if p in counted), strict=True)]
    return {
        "model": name,
        **{f"{way}_ms": median(times) for way, times in counted.items()},
        "update_of_own": _ratio(counted["update"], counted["own"]),
        "own_of_best": _ratio(counted["own"], best),
        "max_diff": inc.verify(),
    }


def _ratio(a: list[float], b: list[float]) -> float:
    return median(x / y for x, y in zip(a, b, strict=True))
