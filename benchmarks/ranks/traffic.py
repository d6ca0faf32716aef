"""What ranks send for an update, counted, against recomputing with remote pulls.

Ranks are processes, a graph cut by METIS, and a GraphSAGE; the first rank hands in the deltas. In
bytes for each change of a delta, of all ranks together:

    sent          everything: the delta on its way to the owners, rows, and what rounds begin with
    rows          of it the rows of changed messages, each with an id of 4 bytes
    counted       the same from graph and owners alone, as `weak-scaling` counts it
    mails         rows if each rank summed what it has for each remote target, as RIPPLE does
    pulls         rows that RC fetches if it runs on ranks: every row that a delta can reach is
                  recomputed from those of all its in-neighbours in the layer in front; remote ones
                  are fetched, each once for every rank and layer, 4 bytes a channel and 4 of id
    pulls, edges  the same if they are fetched for each edge

`x fewer` is how many times more bytes the pulls are than the rows, or than everything.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks import machine, report
from benchmarks.ranks import inputs, launch
from benchmarks.ranks.count import Count, Owner
from benchmarks.report import Row
from benchmarks.stream import Stream
from benchmarks.workload import Workload

QUICK = {"scale": 0.002, "hidden": 16, "batch": [10, 30], "updates": 3, "ranks": 2}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: the drawn graph of ogbn-arxiv's size, 4 parts."""
    add = parser.add_argument
    inputs.add_options(parser)
    add("--ranks", type=int, default=4)
    add("--layers", type=int, default=2)
    add("--hidden", type=int, default=128)
    add("--batch", type=int, nargs="+", default=[100, 1000, 10_000])
    add("--updates", type=int, default=6, help="deltas of each size")
    add("--quick", action="store_true", help="a tiny graph, some seconds: only shows that it runs")
    add("--out", type=Path, default=Path("benchmarks/results/traffic"), help="folder of the result")


def run(args: argparse.Namespace) -> None:
    """Count, print and write."""
    if args.quick:
        vars(args).update(QUICK)
    machine.use_threads(1)
    about = machine.describe()
    work = inputs.load(args)
    parts = inputs.cut(work, args.ranks, args.method, args.seed)
    print(parts)
    job = {name: getattr(args, name) for name in ("batch", "updates", "layers", "hidden")}
    reports = launch.run("traffic", args.ranks, work, parts.owner, job)
    rows = _table(work, parts.owner.numpy(), reports, args)
    report.print_table(rows)
    off_by = max(one["off_by"] for one in reports)
    print(f"largest relative difference to a full pass of PyG: {off_by:.1e}")
    result: Row = {
        "options": inputs.told(args),
        "machine": about, "partition": str(parts), "edge_cut": parts.edge_cut,
        "ghosts": [one["ghosts"] for one in reports], "off_by": off_by, "results": rows,
    }  # fmt: skip
    report.write_json(args.out / "traffic.json", result)
    print(f"\nwritten to {args.out}: traffic.json")


def _table(work: Workload, owner: Owner, reports: list[Any], args: argparse.Namespace) -> list[Row]:
    """Means over the deltas of each size, for each change."""
    count, stream = Count(work.edge_index, len(work.x)), Stream(work)
    width = [work.x.shape[1]] + [args.hidden] * (args.layers - 1)  # of the rows in front of a layer
    sent = zip(*(one["sent"] for one in reports), strict=True)
    rows: list[Row] = []
    for batch in args.batch:
        bytes_of = dict.fromkeys(("sent", "rows", "counted", "mails", "pulls", "pulls, edges"), 0)
        for _ in range(args.updates):
            reached = count.apply(stream.take(batch), args.layers)
            every = next(sent)
            bytes_of["sent"] += sum(one["bytes"] for one in every)
            for layer in range(args.layers):
                here = [one["exchanges"][layer] for one in every]
                bytes_of["rows"] += sum(moved for moved, _ in here)
                at = reached, layer, owner, args.ranks
                row = here[0][1]
                bytes_of["counted"] += row * int(count.pushed(*at).sent.sum())
                bytes_of["mails"] += row * count.mails(*at)
                once, edges = count.pulls(*at)
                bytes_of["pulls"] += (4 * width[layer] + 4) * once
                bytes_of["pulls, edges"] += (4 * width[layer] + 4) * edges
        per = {name: total / (batch * args.updates) for name, total in bytes_of.items()}
        rows.append({
            "batch": batch, "updates": args.updates, **per,
            "x fewer rows": per["pulls"] / per["rows"], "x fewer sent": per["pulls"] / per["sent"],
            "mails / rows": per["mails"] / per["rows"],
        })  # fmt: skip
    return rows
