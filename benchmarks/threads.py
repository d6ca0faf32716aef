"""Several threads against one, in turns; and what as many processes could do that share nothing.

Two copies of a model take the same deltas in one process, one on one thread, the other on
`--threads`. Who is first changes, and so does which copy has more threads, for one may lie better
in memory than the other. `speedup` is the geometric mean, over both ways to share out the threads,
of the median ratio of both times.

How much there is to be gained depends on the machine, whose cores share one memory. So as many
processes then update models of their own on one thread each, first one alone, then all at once:
`bound` is how many times as much they get done together as one does alone. No threads that do the
same work could do better.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch

from benchmarks import compare, machine, report
from benchmarks.compare import WARM_UP
from benchmarks.models import MODELS
from benchmarks.ranks import inputs
from benchmarks.ranks.launch import PATIENCE
from benchmarks.report import Row
from benchmarks.stream import Stream
from benchmarks.workload import Workload
from pyg_incremental import to_incremental
from pyg_incremental.kernels import warm_up

QUICK = {"scale": 0.002, "hidden": 16, "batch": [10], "updates": 3}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: two threads on the drawn graph of ogbn-arxiv's size."""
    add = parser.add_argument
    inputs.add_workload(parser)
    add("--model", nargs="+", choices=MODELS, default=["sage"])
    add("--layers", type=int, default=2)
    add("--hidden", type=int, default=128)
    add("--batch", type=int, nargs="+", default=[1, 1000, 10_000])
    add("--threads", type=int, default=2)
    add("--updates", type=int, default=40, help="counted turns of each size")
    add("--quick", action="store_true", help="a tiny graph, some seconds: only shows that it runs")
    add("--out", type=Path, default=Path("benchmarks/results/threads"), help="folder of the result")


def run(args: argparse.Namespace) -> None:
    """Measure, print and write."""
    if args.quick:
        vars(args).update(QUICK)
    about = machine.describe()
    print(" ".join(f"{key}={value}" for key, value in about.items()))
    work = inputs.load(args)
    warm_up()
    rows = [row for name in args.model for row in _turns(name, work, args)]
    print("the same in processes that share nothing", flush=True)
    for row in rows:
        row["bound"] = _bound(row["model"], row["batch"], work, args)
    report.print_table(rows)
    result: Row = {"options": inputs.told(args), "machine": about, "results": rows}
    report.write_json(args.out / "threads.json", result)
    print(f"\nwritten to {args.out}: threads.json")


@torch.no_grad()
def _turns(name: str, work: Workload, args: argparse.Namespace) -> list[Row]:
    """One row for each batch size."""
    model = compare.model_for(name, args.layers, args.hidden, work)
    copies = [to_incremental(model, compile_after=1) for _ in range(2)]
    for inc in copies:
        inc(work.x, work.edge_index)
    stream, rows = Stream(work), []
    for size in args.batch:
        took: dict[int, list[float]] = {1: [], args.threads: []}
        for turn in range(args.updates + WARM_UP):
            torch.set_num_threads(1)  # PyTorch's own would go on turning while ours want to run
            delta = stream.take(size)
            shared_out = list(zip(copies, took if turn // 2 % 2 else reversed(took), strict=True))
            for inc, count in shared_out if turn % 2 else reversed(shared_out):
                torch.set_num_threads(count)
                began = time.perf_counter()
                inc.apply_delta(delta)
                took[count].append(time.perf_counter() - began)
        one, several = took[1][WARM_UP:], took[args.threads][WARM_UP:]
        ratios: list[list[float]] = [[], []]
        for turn, (a, b) in enumerate(zip(one, several, strict=True), WARM_UP):
            ratios[turn // 2 % 2].append(a / b)
        rows.append(
            {
                "model": name, "batch": size, "threads": args.threads, "updates": len(one),
                "one_ms": 1e3 * median(one), "several_ms": 1e3 * median(several),
                "speedup": geometric_mean(map(median, filter(None, ratios))),
            }
        )  # fmt: skip
    torch.set_num_threads(1)
    return rows


def _bound(name: str, size: int, work: Workload, args: argparse.Namespace) -> float:
    """How many times as much processes get done together as one does alone."""
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    together, alone = context.Barrier(args.threads), context.Barrier(args.threads)
    given = (name, size, work, args.layers, args.hidden, args.updates)
    processes = [
        context.Process(target=_process, args=(number, *given, together, alone, answers))
        for number in range(args.threads)
    ]
    for process in processes:
        process.start()
    told = dict(answers.get(timeout=PATIENCE) for _ in processes)
    for process in processes:
        process.join()
    at_once = sum(1 / took for took, _ in told.values())
    return at_once * float(told[0][1])


@torch.no_grad()
def _process(
    number: int, name: str, size: int, work: Workload, layers: int, hidden: int, updates: int,
    together: Any, alone: Any, answers: Any,
) -> None:  # fmt: skip
    """Update a model, with all others and then, if this is the first process, alone."""
    machine.use_threads(1)
    warm_up()
    inc = to_incremental(compare.model_for(name, layers, hidden, work), compile_after=1)
    inc(work.x, work.edge_index)
    stream = Stream(work)

    def seconds() -> float:
        took = []
        for _ in range(updates):
            delta = stream.take(size)
            began = time.perf_counter()
            inc.apply_delta(delta)
            took.append(time.perf_counter() - began)
        return median(took)

    for _ in range(WARM_UP):
        inc.apply_delta(stream.take(size))
    together.wait()
    with_others = seconds()
    alone.wait()
    answers.put((number, (with_others, seconds() if number == 0 else 0.0)))
