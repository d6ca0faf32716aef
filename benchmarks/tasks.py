"""One small change for a model of each task: nodes, pairs, edges and graphs.

All have the same two layers of `GCNConv` on a drawn graph of ogbn-arxiv's size. `nodes` returns
their rows; `pairs` the products of the rows of 100,000 watched pairs; `edges` a classifier of all
edges by the rows at both ends; `graphs` the means of 5,000 graphs (communities: edges lead from one
to another). One edge comes or goes, in turns; beside the median is how many times that of `nodes`
on the same edges it is, the rows and edges computed, the changed output rows, and one full pass of
PyG. A task computes rows that a node model has not, the pairs and edges that an update reaches:
`rows_us` is what PyTorch needs for the rows of these alone, if they and the rows of the nodes are
at hand, and `x without` the factor once that is taken off.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCN, global_mean_pool

from benchmarks import graphs, machine, report
from pyg_incremental import IncrementalModel, to_incremental
from pyg_incremental.kernels import warm_up

WARM_UP = 12  # updates that are not counted: the plan is compiled after eight


class Nodes(nn.Module):
    """Rows of nodes: what all others start from."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gnn = GCN(channels, channels, 2)
        self.head = nn.Identity()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.gnn(x, edge_index)


class Pairs(Nodes):
    """Scores of watched pairs, by the product of their rows."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        return self.rows(self.gnn(x, edge_index), edge_label_index)

    def rows(self, h: Tensor, ends: Tensor) -> Tensor:
        return (h[ends[0]] * h[ends[1]]).sum(dim=-1)


class Edges(Nodes):
    """Classes of edges, by the rows at both ends."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.head = nn.Linear(2 * channels, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.rows(self.gnn(x, edge_index), edge_index)

    def rows(self, h: Tensor, ends: Tensor) -> Tensor:
        return self.head(torch.cat([h[ends[0]], h[ends[1]]], dim=-1))


class Graphs(Nodes):
    """Values of graphs, by the mean of their rows."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.head = nn.Linear(channels, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_mean_pool(self.gnn(x, edge_index), batch))


TASKS: dict[str, Callable[[int], nn.Module]] = {
    "nodes": Nodes, "pairs": Pairs, "edges": Edges, "graphs": Graphs,
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: the drawn graph of ogbn-arxiv's size."""
    add = parser.add_argument
    add("--scale", type=float, default=1.0, help="part of the size of ogbn-arxiv")
    add("--channels", type=int, default=32, help="of rows, in and out")
    add("--pairs", type=int, default=100_000, help="watched pairs")
    add("--graphs", type=int, default=5_000, help="graphs that are read out")
    add("--task", nargs="+", choices=[*TASKS], help="only these, beside nodes")
    add("--updates", type=int, default=200, help="updates for each figure")
    add("--batch", type=int, default=1, help="edges that come or go at once")
    add("--threads", type=int, default=1, help="threads of torch; 0: its default")
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("benchmarks/results/tasks"), help="folder of the result")


def run(args: argparse.Namespace) -> None:
    """Measure, print and write what came out."""
    if args.threads:
        machine.use_threads(args.threads)
    warm_up("float32")
    work = graphs.draw(graphs.SIZES["arxiv"].scaled(args.scale), 60, args.seed)
    x = work.x[:, : args.channels].contiguous()
    rows = []
    for name in TASKS:
        if name != "nodes" and name in (args.task or TASKS):
            rows += _beside_nodes(name, x, work.edge_index, args)
    report.print_table(rows)
    about = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    about_machine = machine.describe()
    report.write_json(
        args.out / "tasks.json", {"options": about, "machine": about_machine, "tasks": rows}
    )


def _beside_nodes(
    name: str, x: Tensor, edge_index: Tensor, args: argparse.Namespace
) -> list[report.Row]:
    """A task, and the node model on the same graph and edges, update by update in turns."""
    generator = torch.Generator().manual_seed(args.seed)
    more: list[Tensor] = []
    if name == "pairs":
        more = [torch.randint(len(x), (2, args.pairs), generator=generator)]
    if name == "graphs":
        more = [torch.randint(args.graphs, (len(x),), generator=generator)]
    runs, took = {}, {}
    for task, inputs in (("nodes", []), (name, more)):
        torch.manual_seed(args.seed)
        inc, full = _started(TASKS[task](args.channels).eval(), x, edge_index, *inputs)
        runs[task], took[task] = (
            inc,
            {"full_ms": full, "us": [], "bare": [], "stats": [], "changed": []},
        )
    for _ in range((args.updates + WARM_UP) // 2):
        ends = torch.randint(len(x), (2, args.batch), generator=generator)
        for field in ("edge_index_add", "edge_index_del"):
            for task, inc in runs.items():
                began = time.perf_counter()
                update = inc.apply_delta(**{field: ends})
                took[task]["us"].append(1e6 * (time.perf_counter() - began))
                took[task]["bare"].append(_bare(inc, runs["nodes"], update.changed_edges))
                took[task]["stats"].append(update.stats)
                took[task]["changed"].append(len(update.changed))
    first = median(took["nodes"]["us"][WARM_UP:])
    return [_row(task, runs[task], took[task], first) for task in runs]


def _bare(inc: IncrementalModel, nodes: IncrementalModel, ends: Tensor | None) -> float:
    """Microseconds for the rows of some pairs or edges, `[2, k]`, with PyTorch alone."""
    if ends is None:
        return 0.0
    h, model = nodes.out, inc.model
    began = time.perf_counter()
    with torch.no_grad():
        model.rows(h, ends)
    return 1e6 * (time.perf_counter() - began)


def _started(
    model: nn.Module, x: Tensor, edge_index: Tensor, *more: Tensor
) -> tuple[IncrementalModel, float]:
    """A model that has seen the graph, and the milliseconds of its own full pass."""
    with torch.no_grad():
        model(x, edge_index, *more)
        began = time.perf_counter()
        model(x, edge_index, *more)
        full = 1e3 * (time.perf_counter() - began)
    inc = to_incremental(model)
    inc(x, edge_index, *more)
    return inc, full


def _row(task: str, inc: IncrementalModel, took: dict[str, Any], first: float) -> report.Row:
    stats, us = took["stats"][WARM_UP:], median(took["us"][WARM_UP:])
    count, bare = len(stats), median(took["bare"][WARM_UP:])
    return {
        "task": task, "mode": inc.mode, "p50_us": us, "x nodes": us / first,
        "rows_us": bare, "x without": (us - bare) / first,
        "rows": sum(s.rows for s in stats) / count, "edges": sum(s.edges for s in stats) / count,
        "changed": sum(took["changed"][WARM_UP:]) / count, "full_ms": took["full_ms"],
        "max_abs_diff": inc.verify(),
    }  # fmt: skip
