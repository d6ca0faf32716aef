"""Rows on demand: what a question costs while many changes wait (NeutronRT, Figure 12d).

A lazy model takes `--updates` changes, and then nodes are drawn and asked for: first one at a time,
then ten, and so on. A read keeps what it computes, so later ones find a part done, as they would
where a service asks. `all` is `settle()` of a model of which nothing was read. `apart_ms` is what
the same output rows cost when their whole cone is recomputed from the features (`evaluate(nodes)`),
and `of_all` and `faster` compare medians. Times are of the processor, in milliseconds, so that
other programs count less.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks import graphs, machine, models, report
from pyg_incremental import to_incremental
from pyg_incremental.kernels import warm_up


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: 100,000 changes on a graph of the size of ogbn-arxiv."""
    add = parser.add_argument
    add("--models", nargs="+", default=["gcn", "sage"], choices=list(models.MODELS))
    add("--scale", type=float, default=1.0)
    add("--hidden", type=int, default=128)
    add("--updates", type=int, default=100_000)
    add("--batch", type=int, default=1000)
    add("--asked", nargs="+", type=int, default=[1, 10, 100, 1000])
    add("--times", type=int, default=100, help="questions for one node; fewer for more nodes")
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("benchmarks/results/on_demand"), help="folder of results")


def run(args: argparse.Namespace) -> None:
    """Measure, print, draw and write what came out."""
    machine.use_threads(1)
    warm_up()
    work = graphs.draw(graphs.SIZES["arxiv"].scaled(args.scale), args.updates, args.seed)
    deltas = [*work.batches(args.batch)]
    rows = [row for name in args.models for row in _rows(args, name, work, deltas)]
    report.print_table(rows)
    args.out.mkdir(parents=True, exist_ok=True)
    if importlib.util.find_spec("matplotlib"):
        _draw(rows, args.out / "on_demand.png")
    options = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    report.write_json(
        args.out / "on_demand.json",
        {"options": options, "machine": machine.describe(), "results": rows},
    )


def _rows(args: argparse.Namespace, name: str, work: object, deltas: list[object]) -> list:
    """One row for each number of nodes, and one for all."""
    rng = np.random.default_rng(args.seed)
    x, edges = work.x, work.edge_index
    net = models.build(name, x.shape[1], args.hidden, work.classes, 2, args.seed)
    lazy = to_incremental(net, lazy=True, check=False)
    lazy(x, edges)
    marked = sum(_took(lambda d=d: lazy.apply_delta(d)) for d in deltas) / len(deltas)
    found: dict[str, list[float]] = {}
    apart: dict[str, float] = {}
    for count in args.asked:
        times = max(1, min(args.times, 200 // count if count > 1 else args.times))
        for _ in range(times):
            nodes = torch.from_numpy(rng.choice(len(x), min(count, len(x)), replace=False))
            found.setdefault(str(count), []).append(_took(lambda n=nodes: lazy.read(n)))
        apart[str(count)] = _took(lambda n=nodes: lazy.evaluate(nodes=n))
    # What was read before makes this cheaper, so a model of which nothing was read is settled.
    again = to_incremental(net, lazy=True, check=False)
    again(x, edges)
    for delta in deltas:
        again.apply_delta(delta)
    every = _took(again.settle)
    apart["all"] = _took(again.evaluate)
    found["all"] = [every]
    return [
        {
            "model": name, "asked": asked, "p50_ms": float(np.median(took)),
            "p99_ms": float(np.quantile(took, 0.99)), "of_all": float(np.median(took)) / every,
            "apart_ms": apart[asked], "faster": apart[asked] / float(np.median(took)),
            "mark_us": 1e3 * marked / args.batch,
        }
        for asked, took in found.items()
    ]  # fmt: skip


def _draw(rows: list, path: Path) -> None:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    figure, panel = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for name in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == name]
        asked = [row["asked"] for row in mine]
        (line,) = panel.plot(asked, [row["p50_ms"] for row in mine], marker="o", label=name)
        panel.plot(
            asked, [row["apart_ms"] for row in mine], "--", color=line.get_color(),
            label=f"{name}, cone recomputed",
        )  # fmt: skip
    panel.set_yscale("log")
    panel.set_xlabel("nodes asked for")
    panel.set_ylabel("milliseconds")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _took(work: Callable[[], object]) -> float:
    """Milliseconds of the processor."""
    began = time.process_time()
    work()
    return 1e3 * (time.process_time() - began)
