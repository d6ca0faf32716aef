"""Rows on demand: what a question costs while many changes wait (NeutronRT, Figure 12d).

For each number of nodes a lazy model takes `--updates` changes, and then nodes are drawn and asked
for, again and again. A read keeps what it computes, so later ones find a part done, as they would
where a service asks. Each answer is held against a model that took the same changes at once.

* `settle_ms`: `settle()` of a lazy model of which nothing was read, and `of_all` the share of it;
* `all`: `read` of all nodes of such a model, beside it;
* `khop_ms`: PyG's `k_hop_subgraph` of the nodes and the model on it, as many hops as layers; one
  more for GCN, which reads degrees;
* `cone_ms`: `evaluate(nodes=)` of the model that is current, which makes their whole cone from the
  features. `faster` compares the lower of the two with the median.

Times are of the processor, in milliseconds, so that other programs count less.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import k_hop_subgraph

from benchmarks import graphs, machine, models, report
from benchmarks.workload import Workload
from pyg_incremental import GraphDelta, IncrementalModel, to_incremental
from pyg_incremental.kernels import warm_up

LAYERS, TURNS = 2, 5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: 100,000 changes on a graph of the size of ogbn-arxiv."""
    add = parser.add_argument
    add("--models", nargs="+", default=["gcn", "sage"], choices=list(models.MODELS))
    add("--scale", type=float, default=1.0)
    add("--hidden", type=int, default=128)
    add("--updates", type=int, default=100_000)
    add("--batch", type=int, default=1000)
    add("--asked", nargs="+", type=int, default=[1, 10, 100, 1000])
    add(
        "--times",
        type=int,
        default=100,
        help="questions for one node; fewer, but 10, for more nodes",
    )
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


def _rows(args: argparse.Namespace, name: str, work: Workload, deltas: list[GraphDelta]) -> list:
    """One row for each number of nodes, and one for all."""
    rng = np.random.default_rng(args.seed)
    net = models.build(name, work.x.shape[1], args.hidden, work.classes, LAYERS, args.seed)
    eager = to_incremental(net, check=False)
    eager(work.x, work.edge_index)
    for delta in deltas:
        eager.apply_delta(delta)
    edges, every = eager.graph.to_edge_index(), torch.arange(eager.num_nodes)
    # In turns: of lazy models of which nothing was read one is settled, another one read whole.
    took_settling, took_reading = [], []
    for _ in range(TURNS):
        took_settling.append(_took(_waiting(net, work, deltas)[0].settle))
        lazy, _ = _waiting(net, work, deltas)
        took_reading.append(_took(lambda of=lazy: of.read()))
    settled = float(np.median(took_settling))
    rows = []
    for count in [*args.asked, len(every)]:
        lazy, mark = _waiting(net, work, deltas)
        is_all = count == len(every)
        times = 1 if is_all else max(10, args.times // count ** (1 / 3))
        found, off = [], 0.0
        for _ in range(int(times)):
            nodes = torch.from_numpy(rng.choice(len(every), count, replace=False))
            nodes = every if is_all else nodes
            found.append(_took(lambda of=lazy, n=nodes: of.read(n)))
            off = max(off, float((lazy.read(nodes).out - eager.read(nodes).out).abs().max()))
        found = took_reading if is_all else found
        khop = _median(lambda n=nodes: _by_pyg(net, LAYERS + (name == "gcn"), eager.x, edges, n))
        cone = _median(lambda n=nodes: eager.evaluate(nodes=n))
        p50 = float(np.median(found))
        rows.append({
            "model": name, "asked": "all" if is_all else str(count), "p50_ms": p50,
            "p99_ms": float(np.quantile(found, 0.99)), "settle_ms": settled,
            "of_all": p50 / settled, "khop_ms": khop, "cone_ms": cone,
            "faster": min(khop, cone) / p50, "off": off, "mark_us": 1e3 * mark,
        })  # fmt: skip
    return rows


def _waiting(
    net: torch.nn.Module, work: Workload, deltas: list[GraphDelta]
) -> tuple[IncrementalModel, float]:
    """A lazy model in which the deltas wait, and milliseconds to take one change."""
    lazy = to_incremental(net, lazy=True, check=False)
    lazy(work.x, work.edge_index)
    took = sum(_took(lambda d=d: lazy.apply_delta(d)) for d in deltas)
    return lazy, took / len(work.kind)


def _by_pyg(net: torch.nn.Module, hops: int, x: Tensor, edges: Tensor, nodes: Tensor) -> Tensor:
    """The rows of some nodes, from the part of the graph that they see."""
    with torch.no_grad():
        seen, sub, at, _ = k_hop_subgraph(nodes, hops, edges, True, len(x))
        return net(x[seen], sub)[at]


def _median(work: Callable[[], object]) -> float:
    return float(np.median([_took(work) for _ in range(3)]))


def _draw(rows: list, path: Path) -> None:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    figure, panel = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for name in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == name]
        asked = [row["asked"] for row in mine]
        (line,) = panel.plot(asked, [row["p50_ms"] for row in mine], marker="o", label=name)
        cone = [min(row["khop_ms"], row["cone_ms"]) for row in mine]
        panel.plot(asked, cone, "--", color=line.get_color(), label=f"{name}, cone recomputed")
        panel.axhline(
            mine[0]["settle_ms"], color=line.get_color(), lw=0.8, ls=":",
            label=f"{name}, all rows settled",
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
