"""One small change for every conv class that is followed by its messages, and arrivals.

For each class that the table of supported layers calls incremental or constrained: one edge comes
or goes, in turns, on a drawn graph; the median in microseconds, how many times that of `GATConv` it
is (the two take five turns; the median of these), and the rows that were computed and the edges
that were read for it. `leaves` says which step compiled code leaves to its executor first, where
anything happens that this one follows, and why.

A second table has the other kinds of change for three models of two layers beside one edge: a node
that arrives with three edges, one that leaves, an edge in both directions, one that may be missing,
and features. One thread, unless `--threads` says another number; 0 is that of PyTorch. `--busy`
starts so many processes that do nothing but compute, beside the updates, and so shows what waiting
for threads costs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch_geometric.nn import GAT, GCN, GraphSAGE

from benchmarks import graphs, machine, report
from benchmarks.conv_models import ATTR, ATTRIBUTES, SAMPLES, TYPE, TYPES, Sample
from pyg_incremental import IncrementalModel, supported_layers, to_incremental
from pyg_incremental.kernels import warm_up

WARM_UP = 12  # updates that are not counted: the plan is compiled after eight
TURNS = 5  # of a class, and of the first one
FIRST = "GATConv"
MODELS: dict[str, Callable[..., nn.Module]] = {"sage": GraphSAGE, "gcn": GCN, "gat": GAT}
Delta = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: a tenth of ogbn-arxiv's size."""
    add = parser.add_argument
    add("--scale", type=float, default=0.1, help="part of the size of ogbn-arxiv")
    add("--channels", type=int, default=32, help="of rows, in and out")
    add("--conv", nargs="+", choices=[*SAMPLES], help="only these, beside GATConv")
    add("--changes", nargs="*", choices=[*MODELS], help="kinds of change of these models only")
    add("--batch", type=int, default=1, help="edges that come or go at once")
    add("--updates", type=int, default=60, help="updates for each figure")
    add("--threads", type=int, default=1, help="threads of torch; 0: its default")
    add("--busy", type=int, default=0, help="processes that keep cores busy meanwhile")
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("benchmarks/results/convs"), help="folder of the result")


def run(args: argparse.Namespace) -> None:
    """Measure, print and write what came out."""
    if args.threads:
        machine.use_threads(args.threads)
    warm_up("float32")
    chosen = [layer for layer in supported_layers() if layer.name in SAMPLES]
    chosen.sort(key=lambda layer: layer.name != FIRST)
    first, rows = _Case(FIRST, args), list[report.Row]()
    for layer in chosen:
        if not args.conv or layer.name in (FIRST, *args.conv):
            rows.append(_conv(layer.name, layer.scheme, first, args))
    models = args.changes if args.changes is not None else [] if args.conv else MODELS
    changes = [row for name in models for row in _changes(name, args)]
    report.print_table([{k: v for k, v in row.items() if k != "leaves"} for row in rows])
    report.print_table(changes)
    for row in rows:
        if row["leaves"]:
            print(f"{row['conv']} leaves {row['leaves']}")
    about = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    report.write_json(
        args.out / "convs.json",
        {"options": about, "machine": machine.describe(), "convs": rows, "changes": changes},
    )


# Convs --------------------------------------------------------------------------------------------


class _Case:
    """One class on the drawn graph, and an edge that comes and goes, again and again."""

    def __init__(self, name: str, args: Any) -> None:
        sample, generator = SAMPLES[name], torch.Generator().manual_seed(args.seed)
        torch.manual_seed(args.seed)
        model = sample.make(args.channels).eval()
        size = graphs.SIZES["arxiv"].scaled(args.scale)
        work = graphs.draw(size, 60, args.seed)
        x = work.x[:, : args.channels].contiguous()
        self.inc = to_incremental(model)
        data = {d: drawn(d, work.edge_index.shape[1], generator) for d in sample.data}
        none = [torch.empty(2, 0, dtype=torch.int64)] * (name == "SignedConv")
        self.inc(x, work.edge_index, *none, *data.values())
        pairs = torch.randint(len(x), (args.updates, 2, args.batch), generator=generator)
        self._deltas = [d for pair in pairs for d in there_and_back(pair, sample, generator)]
        self._args = args

    def timed(self) -> tuple[float, dict[str, float]]:
        """What `_timed` returns."""
        return _timed(self.inc, self._deltas, self._args)


def _conv(name: str, scheme: str, first: _Case, args: Any) -> report.Row:
    """One class beside the first one."""
    case, took, beside = _Case(name, args), list[float](), list[float]()
    for _ in range(TURNS):
        beside.append(first.timed()[0])
        one, steps = case.timed()
        took.append(one)
    ratio = median(ours / its for ours, its in zip(took, beside, strict=True))
    return {
        "conv": name, "scheme": scheme, "p50_us": median(took), f"x {FIRST}": ratio,
        "rows": steps["rows"], "edges": steps["edges"],
        "relative_diff": case.inc.verify() / max(1e-30, float(case.inc.out.abs().max())),
        "leaves": _leaves(case.inc),
    }  # fmt: skip


def _leaves(inc: IncrementalModel) -> str:
    """What compiled code leaves to an executor first, and why; empty if it does everything."""
    return inc._require().engine.stops_at


def drawn(name: str, count: int, generator: torch.Generator) -> torch.Tensor:
    """Edge data of a name."""
    if name == TYPE:
        return torch.randint(TYPES, (count,), generator=generator)
    return torch.rand((count, ATTRIBUTES) if name == ATTR else (count,), generator=generator)


def there_and_back(
    pair: torch.Tensor, sample: Sample, generator: torch.Generator
) -> Iterator[Delta]:
    """A delta that adds edges `[2, k]`, and one that takes them away."""

    def named(value: torch.Tensor) -> Any:
        return {sample.key: value} if sample.key else value

    more = {d: drawn(d, pair.shape[1], generator) for d in sample.data}
    yield {"edge_index_add": named(pair), **({"edge_data_add": more} if more else {})}
    yield {"edge_index_del": named(pair)}


def _timed(inc: IncrementalModel, deltas: list[Delta], args: Any) -> tuple[float, dict[str, float]]:
    """The median microseconds of an update, and the mean of rows and edges."""
    took, stats = [], []
    with _busy(args.busy):
        for delta in deltas:
            began = time.perf_counter()
            update = inc.apply_delta(**delta)
            took.append(1e6 * (time.perf_counter() - began))
            stats.append(update.stats)
    counted = stats[WARM_UP:]
    work = {
        "rows": sum(one.rows for one in counted) / len(counted),
        "edges": sum(one.edges for one in counted) / len(counted),
    }
    return median(took[WARM_UP:]), work


# Kinds of change ----------------------------------------------------------------------------------


def _changes(name: str, args: Any) -> list[report.Row]:
    """Every kind of change for one model of two layers."""
    size, rows, one = graphs.SIZES["arxiv"].scaled(args.scale), [], 0.0
    work = graphs.draw(size, 60, args.seed)
    x = work.x[:, : args.channels].contiguous()
    for kind, make in KINDS.items():
        torch.manual_seed(args.seed)
        model = MODELS[name](args.channels, args.channels, 2, args.channels).eval()
        inc, generator = to_incremental(model), torch.Generator().manual_seed(args.seed)
        inc(x, work.edge_index)
        took, steps = _timed(inc, [*make(x, args.updates, generator)], args)
        one = one or took
        rows.append(
            {"model": name, "change": kind, "p50_us": took, "x one edge": took / one, **steps}
        )
    return rows


def _edge(x: torch.Tensor, updates: int, generator: torch.Generator) -> Iterator[Delta]:
    for pair in torch.randint(len(x), (updates, 2, 1), generator=generator):
        yield {"edge_index_add": pair}
        yield {"edge_index_del": pair}


def _features(x: torch.Tensor, updates: int, generator: torch.Generator) -> Iterator[Delta]:
    for node in torch.randint(len(x), (updates, 1), generator=generator):
        yield {"x_changes": (node, torch.randn(1, x.shape[1], generator=generator))}


def _arrivals(x: torch.Tensor, updates: int, generator: torch.Generator) -> Iterator[Delta]:
    """Nodes that arrive with three edges, as an article does with what it cites."""
    for new in range(len(x), len(x) + updates):
        there = torch.randint(new, (3,), generator=generator)
        edges = torch.stack([torch.full((3,), new), there])
        yield {"x_add": torch.randn(1, x.shape[1], generator=generator), "edge_index_add": edges}


def _leaving(x: torch.Tensor, updates: int, generator: torch.Generator) -> Iterator[Delta]:
    for node in torch.randperm(len(x), generator=generator)[:updates]:
        yield {"nodes_del": node.view(1)}


def _undirected(x: torch.Tensor, updates: int, generator: torch.Generator) -> Iterator[Delta]:
    for delta in _edge(x, updates, generator):
        yield {**delta, "undirected": True}


def _ignored(x: torch.Tensor, updates: int, generator: torch.Generator) -> Iterator[Delta]:
    """Every second edge is not there."""
    for at, delta in enumerate(_edge(x, updates, generator)):
        yield {**delta, "missing": "ignore"}
        if at % 2:
            yield {**delta, "missing": "ignore"}


KINDS = {
    "one edge": _edge,
    "features of a node": _features,
    "a node with three edges": _arrivals,
    "a node leaves": _leaving,
    "an edge in both directions": _undirected,
    "an edge that may be missing": _ignored,
}
_BUSY = "while True: sum(range(10 ** 6))"


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many processes that compute meanwhile, at the priority of this one."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    beside = [subprocess.Popen([sys.executable, "-c", _BUSY], env=env) for _ in range(count)]
    try:
        yield
    finally:
        for process in beside:
            process.kill()
            process.wait()
