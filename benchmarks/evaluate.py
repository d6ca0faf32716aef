"""`evaluate` against PyG's own full pass and against node-wise evaluation, on a drawn graph.

Times are the best of some turns; full passes take turns with `evaluate`, after one that is not
counted. Node-wise evaluation runs the model on what a batch of nodes sees within as many hops as
there are layers; its batch is the best of several, and its time that of a sample of the nodes times
all, as in DGI (Yin et al., KDD 2023). (GCN is off in that way, for want of its neighbours' degrees;
what is right takes a hop more.) `MB` is what `evaluate` held at once, counted, of `memory_MB`. A
sparse matrix, for which PyG multiplies, is torch's own, or one of torch_sparse where that is
installed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
from torch_geometric.utils import to_torch_csr_tensor

from benchmarks import graphs, machine, report
from benchmarks.models import MODELS, build
from benchmarks.report import Row
from pyg_incremental import evaluate
from pyg_incremental.blocks.evaluate import evaluator_of
from pyg_incremental.blocks.given import call_of
from pyg_incremental.blocks.in_edges import InEdges, in_edges
from pyg_incremental.blocks.layer_store import LayerStore
from pyg_incremental.call.roles import classify
from pyg_incremental.kernels import warm_up
from pyg_incremental.session.prepare import prepare
from pyg_incremental.session.settings import Settings

QUICK = {"scale": 0.02, "hidden": 8, "turns": 1, "sample": 32, "batch": [16], "part": [0.1]}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: three models of three layers on a graph of ogbn-arxiv's size."""
    add = parser.add_argument
    add("--graph", choices=graphs.SIZES, default="arxiv")
    add("--scale", type=float, default=1.0, help="of the numbers of nodes and edges")
    add("--model", nargs="+", choices=MODELS, default=["gcn", "sage", "gat"])
    add("--layers", type=int, default=3)
    add("--hidden", type=int, default=128)
    add("--threads", type=int, default=1)
    add("--turns", type=int, default=3)
    add("--tight", type=float, default=0.8, help="also in this part of the memory it took")
    add("--sample", type=int, default=128, help="nodes of which node-wise evaluation is timed")
    add("--batch", type=int, nargs="+", default=[16, 64], help="batches that are tried for it")
    add("--part", type=float, nargs="*", default=[0.001, 0.01, 0.1], help="nodes asked for")
    add("--quick", action="store_true", help="a tiny graph, some seconds: only shows that it runs")
    add("--out", type=Path, default=Path("benchmarks/results/evaluate"), help="folder")


@torch.no_grad()
def run(args: argparse.Namespace) -> None:
    """Measure, print and write."""
    if args.quick:
        vars(args).update(QUICK)
    machine.use_threads(args.threads)
    about = machine.describe()
    print(" ".join(f"{key}={value}" for key, value in about.items()))
    size = graphs.SIZES[args.graph].scaled(args.scale)
    work = graphs.draw(size, 3)
    warm_up()
    rows: list[Row] = []
    for name in args.model:
        model = build(name, size.channels, args.hidden, size.classes, args.layers)
        rows += _of_model(name, model, work.x, work.edge_index, args)
    columns = dict.fromkeys(key for row in rows for key in row)
    report.print_table([{key: row.get(key, "") for key in columns} for row in rows])
    told = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items() if k != "out"}
    result = {"options": told, "machine": about, "results": rows}
    report.write_json(args.out / "evaluate.json", result)
    print(f"\nwritten to {args.out}: evaluate.json")


def _of_model(
    name: str, model: nn.Module, x: Tensor, edge_index: Tensor, args: argparse.Namespace
) -> list[Row]:
    data = {"x": x, "edge_index": edge_index}
    plenty = 1 << 40
    ways: dict[str, Callable[[], Tensor]] = {
        "full pass of PyG": lambda: model(x, edge_index),
        **{way: partial(model, x, a) for way, a in _sparse(edge_index, len(x)).items()},
        "evaluate": lambda: evaluate(model, data, memory=plenty),
    }
    for call in ways.values():
        call()
    took = _in_turns(ways, args.turns)
    want, full = model(x, edge_index), took["full pass of PyG"]
    scale = float(want.abs().max())
    rows: list[Row] = []

    def add(way: str, seconds: float, out: Tensor, wanted: Tensor, **more: object) -> None:
        off = float((out - wanted).abs().max()) / scale if out.numel() else 0.0
        ratio = seconds / full
        rows.append(
            {"model": name, "way": way, "seconds": seconds, "of_full": ratio, "off_by": off} | more
        )

    peak = 0
    for way, call in ways.items():
        others = {f"of_{w.split(', ')[1]}": took[way] / took[w] for w in took if ", " in w}
        if way == "evaluate":
            peak, blocks = counted(model, data, plenty)
            others |= {"MB": peak / 1e6, "memory_MB": plenty / 1e6, "blocks": blocks}
        add(way, took[way], call(), want, **others)
    tight = int(args.tight * peak)
    seconds = _best(partial(evaluate, model, data, memory=tight), args.turns)
    took_bytes, blocks = counted(model, data, tight)
    more = {"MB": took_bytes / 1e6, "memory_MB": tight / 1e6, "blocks": blocks}
    add("evaluate, tight", seconds, evaluate(model, data, memory=tight), want, **more)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        out = evaluate(model, data, memory=tight, directory=folder)
        add("evaluate, directory", time.perf_counter() - began, out, want)
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randperm(len(x), generator=generator)
    price = _node_wise(model, x, edge_index, nodes[: args.sample], args)
    add("node-wise (extrapolated)", price * len(x), want[:0], want[:0])
    for part in args.part:
        some = nodes[: max(1, round(part * len(x)))]
        seconds = _best(partial(evaluate, model, data, nodes=some), args.turns)
        out = evaluate(model, data, nodes=some)
        add(f"evaluate, {part:.1%} of nodes", seconds, out, want[some])
        add(f"node-wise, {part:.1%} of nodes", price * len(some), want[:0], want[:0])
    return rows


def _sparse(edge_index: Tensor, count: int) -> dict[str, Any]:
    """The graph as the sparse matrices for which PyG multiplies, made off the clock."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse")  # new, beta, unchecked: torch says it once
        found: dict[str, Any] = {
            "full pass of PyG, torch's CSR": to_torch_csr_tensor(
                edge_index.flip(0), size=(count, count)
            )
        }
    if WITH_TORCH_SPARSE:
        found["full pass of PyG, SparseTensor"] = SparseTensor.from_edge_index(
            edge_index, sparse_sizes=(count, count)
        ).t()
    return found


def counted(model: nn.Module, data: dict[str, Tensor], memory: int) -> tuple[int, int]:
    """Bytes that are held at once within a budget, and the number of blocks."""
    site = call_of(model, data)
    roles = classify(site)
    evaluator = evaluator_of(prepare(site, roles, Settings()), roles, memory, LayerStore())
    evaluator.run(lambda rows: None)
    return evaluator.peak, evaluator.blocks


def _best(work: Callable[[], object], turns: int) -> float:
    return _in_turns({"": work}, turns)[""]


def _in_turns(ways: Mapping[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """The best seconds of each way; all of them run once before any runs again."""
    took = dict.fromkeys(ways, float("inf"))
    for _ in range(turns):
        for way, work in ways.items():
            began = time.perf_counter()
            work()
            took[way] = min(took[way], time.perf_counter() - began)
    return took


def _node_wise(
    model: nn.Module, x: Tensor, edge_index: Tensor, nodes: Tensor, args: argparse.Namespace
) -> float:
    """Seconds for each node, in the best of several batches."""
    src, dst = edge_index.numpy()
    lists = in_edges(dst, src, len(x))
    prices = []
    for size in args.batch:
        began = time.perf_counter()
        for some in nodes.split(size):
            _on_what_they_see(model, x, lists, some.numpy(), args.layers)
        prices.append((time.perf_counter() - began) / len(nodes))
    return min(prices)


def _on_what_they_see(
    model: nn.Module, x: Tensor, lists: InEdges, nodes: np.ndarray, hops: int
) -> Tensor:
    seen = np.unique(nodes)
    for _ in range(hops):
        inner, seen = seen, np.union1d(seen, lists.of(seen)[1])
    degree, neighbor, _ = lists.of(inner)
    place = np.zeros(len(x), np.int64)
    place[seen] = np.arange(len(seen))
    edges = np.stack([place[neighbor], np.repeat(place[inner], degree)])
    out: Tensor = model(x[torch.from_numpy(seen)], torch.from_numpy(edges))
    return out[torch.from_numpy(place[nodes])]
