"""Accuracy and latency of samples beside the exact incremental output, on labelled real graphs.

A GraphSAGE model is trained on the whole graph (60 steps of Adam on six in ten nodes). Then one
edge in ten is held back, and arrives again in deltas; both the exact model and the sampled ones
follow.
Accuracy is that of the test nodes once all edges are in. The exact output is ready when a delta is
in; a sampled model computes when it is asked, so its latency is that of one seed.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GraphSAGE

from benchmarks.peers.protocol import Skipped
from benchmarks.report import Row
from benchmarks.temporal import folder
from pyg_incremental import to_incremental
from pyg_incremental.sampling import SampledModel, StreamingSampler

CHANNELS = 128
Graph = tuple[Tensor, Tensor, Tensor]


def npz(name: str) -> Callable[[], Graph]:
    """Reads features, edges in both directions and labels of a file."""

    def read() -> Graph:
        path = folder() / f"{name}.npz"
        if not path.is_file():
            raise Skipped(f"there is no {name}.npz in the folder that PYG_INCREMENTAL_DATA names")
        with np.load(path, allow_pickle=False) as file:
            edges, nodes = file["edge_index"].astype(np.int64), int(file["num_nodes"])
            y = torch.from_numpy(file["y"].astype(np.int64)).reshape(-1)
            if "x_data" in file:
                parts = file["x_data"], file["x_indices"], file["x_indptr"]
                x = csr_matrix(parts, shape=tuple(file["x_shape"].tolist()))
            else:
                x = csr_matrix((nodes, 0))
        return _narrow(x, nodes), _both_ways(torch.from_numpy(edges), nodes), y

    return read


def planetoid(name: str) -> Callable[[], Graph]:
    """Reads a data set of PyG from a copy of its raw files."""

    def read() -> Graph:
        raw = folder() / "planetoid" / name / "raw"
        if not raw.is_dir():
            raise Skipped(f"there is no planetoid/{name} in the folder PYG_INCREMENTAL_DATA names")
        with TemporaryDirectory() as copy:
            own = Path(copy) / name / "raw"
            own.mkdir(parents=True)
            for file in raw.iterdir():
                shutil.copyfile(file, own / file.name)
            data = Planetoid(copy, name)[0]
        return (
            _narrow(data.x.numpy(), data.num_nodes),
            _both_ways(data.edge_index, data.num_nodes),
            data.y,
        )

    return read


def drawn() -> Graph:
    """Two groups of nodes that link to their own kind more often: only shows that it runs."""
    torch.manual_seed(0)
    y = torch.randint(2, (400,))
    edges = torch.randint(400, (2, 8000))
    own = (y[edges[0]] == y[edges[1]]) | (torch.rand(8000) < 0.3)
    x = torch.randn(400, 16) + y[:, None]
    return x, _both_ways(edges[:, own], 400), y


GRAPHS: dict[str, Callable[[], Graph]] = {
    "cora": planetoid("Cora"),
    "citeseer": planetoid("CiteSeer"),
    "amazon_photo": npz("amazon_photo"),
    "coauthor_phy": npz("coauthor_phy"),
    "arxivai": npz("gnnet24_arxivai"),
    "drawn": drawn,
}


def _narrow(x: Any, nodes: int) -> Tensor:
    """Features projected at random onto no more than `CHANNELS`; drawn ones if there are none."""
    rng = np.random.default_rng(0)
    if not x.shape[1]:
        return torch.from_numpy(rng.standard_normal((nodes, 32), np.float32))
    projection = rng.standard_normal((x.shape[1], CHANNELS), np.float32) / x.shape[1] ** 0.5
    found = torch.from_numpy(np.asarray(x @ projection, np.float32))
    return found / found.std()


def _both_ways(edges: Tensor, nodes: int) -> Tensor:
    """Every edge once in both directions, no loops."""
    edges = edges[:, edges[0] != edges[1]]
    edges = torch.cat([edges, edges.flip(0)], 1)
    keys = torch.unique(edges[0] * nodes + edges[1])
    return torch.stack([keys // nodes, keys % nodes])


def measure(name: str, args: argparse.Namespace) -> list[Row]:
    """One row for the exact output and one for each fan-out."""
    x, edges, y = GRAPHS[name]()
    torch.manual_seed(0)
    order = torch.randperm(len(y))
    train, test = order[: 6 * len(y) // 10], order[8 * len(y) // 10 :]
    model = _trained(x, edges, y, train, args.steps)
    held = torch.rand(edges.shape[1]) < 0.1
    start, later = edges[:, ~held], edges[:, held]
    later = later[:, torch.randperm(later.shape[1])]
    deltas = later.split(args.delta, 1)
    inc = to_incremental(model)
    inc(x, start)
    took = _follow(inc, deltas)
    exact = inc.out
    rows: list[Row] = [_row(name, "exact, incremental", exact, exact, y, test, took, [0.0])]
    for fanout in (5, 10, 20, -1):
        sampled = SampledModel(model, StreamingSampler(start, len(y), [fanout] * 2), x)
        took = _follow(sampled, deltas)
        out = torch.zeros_like(exact)
        out[test] = sampled(test)
        single = _singles(sampled, test[: args.queries])
        label = "all" if fanout < 0 else f"{fanout}"
        rows.append(_row(name, f"fan-out {label}", out, exact, y, test, took, single))
        if fanout < 0 and rows[-1]["off_by"] > 1e-3:
            raise RuntimeError(f"all neighbours differ from the exact output: {rows[-1]}")
    return rows


def _trained(x: Tensor, edges: Tensor, y: Tensor, train: Tensor, steps: int) -> GraphSAGE:
    model = GraphSAGE(x.shape[1], 64, num_layers=2, out_channels=int(y.max()) + 1, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(model(x, edges)[train], y[train]).backward()
        optimizer.step()
    return model.eval()


def _follow(model: object, deltas: tuple[Tensor, ...]) -> list[float]:
    took = []
    for edges in deltas:
        began = time.thread_time()
        model.apply_delta(edge_index_add=edges)  # type: ignore[attr-defined]
        took.append(time.thread_time() - began)
    return took


def _singles(model: SampledModel, seeds: Tensor) -> list[float]:
    took = []
    for seed in seeds.split(1):
        began = time.thread_time()
        model(seed)
        took.append(time.thread_time() - began)
    return took[len(took) // 10 :]


def _row(
    name: str, label: str, out: Tensor, exact: Tensor, y: Tensor, test: Tensor,
    took: list[float], single: list[float],
) -> Row:  # fmt: skip
    best, of_exact = out[test].argmax(1), exact[test].argmax(1)
    return {
        "graph": name,
        "output": label,
        "accuracy": round(100 * float((best == y[test]).float().mean()), 2),
        "same_class_as_exact": round(100 * float((best == of_exact).float().mean()), 2),
        "off_by": float((out[test] - exact[test]).abs().max()),
        "delta_ms": 1e3 * float(np.median(took)),
        "query_p50_ms": 1e3 * float(np.percentile(single, 50)),
        "query_p99_ms": 1e3 * float(np.percentile(single, 99)),
    }
