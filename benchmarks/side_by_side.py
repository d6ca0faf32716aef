"""This package and its peers on the same deltas: `python -m benchmarks peers --help`.

Peers: a full pass of PyG (COO, EdgeIndex, SparseTensor), the model on a k-hop subgraph,
NeighborLoader, layer-wise recompute, RIPPLE, InkStream, NeutronRT. The tables on the screen give
the median time of an update of this package, and of each peer how many times as long it takes; an
asterisk marks where the package loses.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import sys
import warnings
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks import compare, compile_time, machine, report, sources
from benchmarks.compare import ALL, Batch, Effort
from benchmarks.models import MODELS
from benchmarks.peers import PEERS, Skipped
from benchmarks.report import Row

DESCRIPTION = __doc__
BATCHES: list[Batch] = [1, 10, 100, 1000, 10_000, ALL]
UPDATES = 180_000
QUICK = {
    "scale": 0.002, "hidden": 16, "batch": [1, 10, ALL], "layers": [2], "seconds": 0.01, "most": 4,
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything may be narrowed down or widened."""
    add = parser.add_argument
    add("--workload", nargs="+", default=["arxiv"], metavar="NAME|FILE.npz",
        help=f"{', '.join(sources.NAMES)}, or files (default: arxiv)")  # fmt: skip
    add("--model", nargs="+", choices=MODELS, default=list(MODELS))
    add("--layers", type=int, nargs="+", default=[2])
    add("--batch", type=_batch, nargs="+", default=BATCHES,
        help="changes in one delta; 'all' gives every node new features")  # fmt: skip
    add("--peer", nargs="+", choices=PEERS, default=list(PEERS), help="which programs")
    add("--hidden", type=int, default=128, help="hidden channels")
    add("--scale", type=float, default=1.0, help="part of the published size of drawn graphs")
    add("--directed", dest="undirected", action="store_false", default=None)
    add("--undirected", action="store_true", default=None, help="drawn graphs: not as published")
    add("--root", default="data", help="folder of downloads of OGB")
    add("--seconds", type=float, default=0.6, help="per program and batch size")
    add("--least", type=int, default=2, help="counted updates of the slowest programs")
    add("--most", type=int, default=300, help="counted updates per program and batch size")
    add("--stretch", type=int, default=10, help="deltas that a program takes in a row, in its turn")
    add("--threads", type=int, default=1)
    add("--seed", type=int, default=0)
    add("--quick", action="store_true", help="a tiny graph, some seconds: only shows that it runs")
    add("--out", type=Path, default=Path("benchmarks/results/peers"), help="folder of the results")


@torch.no_grad()
def run(args: argparse.Namespace) -> None:
    """Compare, and write what came out."""
    # torch says so once, wherever PyG makes a sparse matrix out of an EdgeIndex
    warnings.filterwarnings("ignore", "Sparse (CS[RC] tensor support|invariant checks)")
    if args.quick:
        vars(args).update(QUICK)
    machine.use_threads(args.threads)
    about = machine.describe()
    print(" ".join(f"{key}={value}" for key, value in about.items()))
    compiling = compile_time.measure(args.model, args.layers, args.peer)
    report.print_table(compiling)
    rows: list[Row] = []
    skipped: list[Row] = []
    cells = len(args.workload) * len(args.model) * len(args.layers)
    with tqdm(total=cells * len(args.batch), unit="cell", disable=None) as bar:
        for name in args.workload:
            _one_workload(name, args, rows, skipped, bar)
    result: Row = {
        "options": report.plain({k: v for k, v in vars(args).items() if k != "out"}),
        "machine": about, "compiling": compiling, "results": rows, "skipped": skipped,
    }  # fmt: skip
    _write(args.out, result, rows, skipped)


def _one_workload(
    name: str, args: argparse.Namespace, rows: list[Row], skipped: list[Row], bar: tqdm
) -> None:
    label = Path(name).stem if name not in sources.NAMES else name
    try:
        work = sources.load(
            name, updates=UPDATES, scale=args.scale, undirected=args.undirected, root=args.root,
            seed=args.seed,
        )  # fmt: skip
    except Skipped as reason:
        skipped.append({"workload": label, "model": ALL, "program": ALL, "reason": str(reason)})
        bar.write(f"{label}: skipped, {reason}")
        return
    for model in args.model:
        for layers in args.layers:
            cell: Row = {"workload": label, "model": model, "layers": layers}
            size: Row = {"nodes": len(work.x), "start_edges": work.edge_index.shape[1]}
            net = compare.model_for(model, layers, args.hidden, work)
            why: dict[str, str] = {}
            ready = compare.start(net, work, args.peer, why)
            skipped += [{**cell, "program": p, "reason": reason} for p, reason in why.items()]
            here: list[Row] = []
            effort = Effort(args.seconds, args.least, args.most, args.stretch)
            for some in compare.compare(work, net, ready, args.batch, effort):
                if "off_by" in some[0]:
                    _note(here, some)
                    continue
                here += [{**cell, **size, **row} for row in some]
                bar.update()
            rows += here
            edges = "undirected" if work.undirected else "directed"
            bar.write(f"\n{label} ({len(work.x):,} nodes, {edges}), {model}, {layers} layers")
            bar.write("\n".join(report.pivot(here)))
            worst = max((row["off_by"] or 0.0 for row in here), default=0.0)
            bar.write(f"largest relative difference to a full pass of PyG: {worst:.1e}")
            sys.stdout.flush()
            del ready
            gc.collect()


def _note(rows: list[Row], differences: list[Row]) -> None:
    """Every row of a program says how far its output was off in the end."""
    by_name = {row["program"]: row["off_by"] for row in differences}
    for row in rows:
        row["off_by"] = by_name[row["program"]]


def _write(folder: Path, result: Row, rows: list[Row], skipped: list[Row]) -> None:
    report.write_json(folder / "peers.json", result)
    (folder / "peers.md").write_text(report.markdown(rows))
    print(f"\nwritten to {folder}: peers.json, peers.md", end="")
    if rows and importlib.util.find_spec("matplotlib"):
        from benchmarks import plots

        print("", *(path.name for path in plots.draw(rows, folder)), sep=", ", end="")
    print()
    reasons: dict[str, set[str]] = {}
    for row in skipped:
        what = row["workload"] if row["program"] == ALL else row["program"]
        reasons.setdefault(f"{what}: {row['reason']}", set()).add(str(row["model"]))
    for reason, models in reasons.items():
        print(f"left out: {reason} ({', '.join(sorted(models))})")


def _batch(text: str) -> Batch:
    return ALL if text == ALL else int(text)
