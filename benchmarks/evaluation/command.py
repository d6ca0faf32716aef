"""The figures of layer-wise evaluation.

    python -m benchmarks evaluation order
    python -m benchmarks evaluation models --scale 0.05

`order`: rows that blocks read, in several orders of the nodes, on real graphs (left out where the
folder that PYG_INCREMENTAL_DATA names has them not) and on drawn ones.

On a drawn graph of ogbn-products' size, or `--scale` of it, that lies on a disk, in processes that
the system limits to `--limit` bytes of data:

`models`: three models, in blocks and node-wise, and with `--compare` the rows of some targets
against those of PyG's model on all that they see; `layers`: one to four of them; `sampled`: all
edges against ten of each node; `partial`: some of the nodes; `bootstrap`: the first pass of an
incremental store, in memory and in memory maps, and updates of one edge after it. Node-wise
evaluation runs PyG's model on what a batch of nodes sees; its batch is the best of those that fit,
and its time that of a few batches times all.

`mag`: RGCN and HGT in blocks on a graph of ogbn-mag's size, likewise.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import graphs, machine, report
from benchmarks.evaluation import hetero, ordering, plot, size, worker
from benchmarks.evaluation.real import GRAPHS
from benchmarks.report import Row
from pyg_incremental.kernels import warm_up

FIGURES: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    "order": ordering.measure,
    "models": size.models,
    "layers": size.layers,
    "sampled": size.sampled,
    "partial": size.partial,
    "bootstrap": size.bootstrap,
    "mag": size.several_kinds,
}
PLOTS: dict[str, Callable[[list[Row], Path], Path]] = {
    "order": plot.draw_orders,
    "partial": plot.draw_partial,
}
QUICK = {
    "scale": 0.01, "hidden": 8, "graph": ["drawn", "drawn-in-groups"], "model": ["gcn"],
    "size": "arxiv", "batch": [1, 4], "sample": 4, "compare": 3, "part": 0.9,
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: full size."""
    add = parser.add_argument
    add("figure", choices=FIGURES)
    add("--scale", type=float, default=1.0, help="of the numbers of nodes and edges drawn")
    add("--layers", type=int, default=3)
    add("--hidden", type=int, default=128)
    add("--classes", type=int, help="how wide the last layer is; by default as the graph has it")
    add("--threads", type=int, default=1)
    add("--graph", nargs="+", choices=GRAPHS, default=list(GRAPHS), help="for order")
    add("--order", nargs="+", choices=ordering.ALL, default=list(ordering.ALL), help="for order")
    add("--share", type=float, default=0.2, help="for order: what a block may take, of the rows")
    add("--size", choices=graphs.SIZES, default="products", help="of the graph on a disk")
    add("--model", nargs="+", choices=worker.MODELS, default=list(worker.MODELS))
    add("--load", action="store_true", help="the graph into memory; rows stay in files")
    add("--kinds", nargs="+", choices=hetero.MODELS, default=list(hetero.MODELS), help="for mag")
    add("--limit", default="4GB", help="of the system, for the whole size")
    add("--part", type=float, default=0.3, help="of the limit that evaluate is given as memory")
    add("--batch", type=int, nargs="*", default=[1, 4, 16, 64], help="node-wise: tried in turn")
    add("--compare", type=int, default=0, help="targets held against the original model")
    add("--sample", type=int, default=8, help="node-wise: targets that are timed, at least a batch")
    add("--seconds", type=float, default=30, help="node-wise: limit of time for one batch size")
    add("--updates", type=int, default=60, help="bootstrap: edges that come, one by one")
    add("--where", nargs="+", choices=worker.WHERE, default=list(worker.WHERE), help="bootstrap")
    add("--folder", type=size.folder_of, help="where the graph is put meanwhile")
    add("--quick", action="store_true", help="tiny graphs, some seconds: only shows that it runs")
    add("--out", type=Path, default=Path("benchmarks/results/evaluation"), help="folder")


@torch.no_grad()
def run(args: argparse.Namespace) -> None:
    """Measure, print, write and draw."""
    if args.quick:
        vars(args).update(QUICK)
    machine.use_threads(args.threads)
    about = machine.describe()
    print(" ".join(f"{key}={value}" for key, value in about.items()))
    warm_up()
    rows = FIGURES[args.figure](args)
    report.print_table(rows)
    options = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    result = {"options": options, "machine": about, "results": rows}
    report.write_json(args.out / f"{args.figure}.json", result)
    written = [f"{args.figure}.json"]
    if args.figure in PLOTS and rows:
        written.append(PLOTS[args.figure](rows, args.out).name)
    print(f"\nwritten to {args.out}: {', '.join(written)}")
