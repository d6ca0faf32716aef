"""Several ranks against one process, in turns: the same deltas, the same machine, the same run.

Ranks are processes that talk through gloo or MPI (`--engine`), one thread each. In each turn they
take some deltas one after the other, as in a stream, and the first of them takes the same ones
twice more alone, with models of its own on the whole graph, while the others wait: one is
`IncrementalModel`, which knows of no ranks, and the other the partitioned mode on one rank. Who is
first changes. The first delta of each is not counted: it finds the caches full of what others left.
`speedup` is the median over the turns of the time of the one process over that of the ranks,
medians of a turn both, and `scaling` that of the one rank. A rank's time is split into what it
computes, the small collectives that begin every round (mostly waiting for slower ranks) and moving
bytes; a mean over the ranks is given of each.

The delta is handed in by one rank, so that it first has to travel to the owners, or by every rank
an equal share.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import machine, report
from benchmarks.models import MODELS
from benchmarks.ranks import inputs, launch
from benchmarks.report import Row

QUICK = {
    "scale": 0.002,
    "hidden": 16,
    "batch": [10],
    "turns": 3,
    "in_a_row": 2,
    "handed_in": ["every"],
}
PARTS = ("computing", "waiting", "sending")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: the drawn graph of ogbn-arxiv's size, 2 ranks."""
    add = parser.add_argument
    inputs.add_options(parser)
    add("--ranks", type=int, nargs="+", default=[2])
    add("--model", nargs="+", choices=MODELS, default=["sage"])
    add("--layers", type=int, default=2)
    add("--hidden", type=int, default=128)
    add("--batch", type=int, nargs="+", default=[1000, 10_000])
    add("--handed-in", nargs="+", choices=("one", "every"), default=["one", "every"],
        help="by one rank, or by every rank a share")  # fmt: skip
    add("--engine", choices=("torch", "mpi"), default="torch", help="gloo, or Open MPI")
    add("--turns", type=int, default=10, help="counted turns of each size")
    add("--in-a-row", type=int, default=4, metavar="N", help="counted deltas of a turn")
    add("--threads", type=int, default=1, help="of each process")
    add("--quick", action="store_true", help="a tiny graph, some seconds: only shows that it runs")
    add("--out", type=Path, default=Path("benchmarks/results/ranks"), help="folder of the result")


def run(args: argparse.Namespace) -> None:
    """Measure, print and write."""
    if args.quick:
        vars(args).update(QUICK)
    machine.use_threads(args.threads)
    about = machine.describe()
    print(" ".join(f"{key}={value}" for key, value in about.items()))
    work = inputs.load(args)
    names = ("model", "layers", "hidden", "batch", "handed_in", "turns", "in_a_row")
    job = {name: getattr(args, name) for name in names}
    rows: list[Row] = []
    cuts: dict[int, str] = {}
    for ranks in args.ranks:
        parts = inputs.cut(work, ranks, args.method, args.seed)
        cuts[ranks] = str(parts)
        print(parts, flush=True)
        reports = launch.run("speed", ranks, work, parts.owner, job, args.threads, args.engine)
        rows += [_row(ranks, cells) for cells in zip(*reports, strict=True)]
    report.print_table([{k: v for k, v in row.items() if k != "turns"} for row in rows])
    result: Row = {
        "options": inputs.told(args),
        "machine": about, "partitions": cuts, "results": rows,
    }  # fmt: skip
    report.write_json(args.out / "ranks.json", result)
    print(f"\nwritten to {args.out}: ranks.json")


def _row(ranks: int, cells: tuple[dict[str, Any], ...]) -> Row:
    """One model and batch size: what each rank has noted of it, put together."""
    # Each delta of each turn, as it was on every rank.
    turns = [
        list(zip(*turn, strict=True)) for turn in zip(*(c["turns"] for c in cells), strict=True)
    ]
    every = [delta for turn in turns for delta in turn]
    row: Row = {name: cells[0][name] for name in ("model", "batch", "handed_in")}
    row |= {
        "ranks": ranks,
        "updates": len(every),
        "one_ms": 1e3 * median(_took(every, "one")),
        "one_rank_ms": 1e3 * median(_took(every, "one_rank")),
        "ranks_ms": 1e3 * median(_took(every, "ranks")),
        "speedup": _times_as_fast(turns, "one"),
        "scaling": _times_as_fast(turns, "one_rank"),
    }
    for part in PARTS:
        row[f"{part}_ms"] = 1e3 * median(sum(rank[part] for rank in d) / ranks for d in every)
    row["slowest_computing_ms"] = 1e3 * median(_took(every, "computing"))
    row["bytes_sent"] = round(sum(rank["bytes"] for d in every for rank in d) / len(every))
    row["off_by"] = max(cell["off_by"] for cell in cells)
    return row | {"turns": turns}


def _took(deltas: list[Any], what: str) -> list[float]:
    """Seconds of each delta, on the slowest of the ranks that took it."""
    return [max(rank.get(what, 0.0) for rank in delta) for delta in deltas]


def _times_as_fast(turns: list[Any], other: str) -> float:
    """The time of another one over that of the ranks; median over the turns."""
    return median(median(_took(turn, other)) / median(_took(turn, "ranks")) for turn in turns)
