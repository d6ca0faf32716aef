"""One update against one full pass of the plain PyG model, for each of the five convs."""

from __future__ import annotations

import time
from statistics import median

import torch
from torch import nn
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

from benchmarks import measure, workload
from benchmarks.models import GraphConvNet
from pyg_incremental import to_incremental
from pyg_incremental.kernels import warm_up

MODELS = {"gcn": GCN, "sage": GraphSAGE, "gin": GIN, "gat": GAT, "graph": GraphConvNet}


def run(
    nodes: int, edges: int, batches: list[int], seconds: float, threads: int, layers: int = 2
) -> dict[str, list[dict[str, object]]]:
    """Measure every model on one drawn graph; one row per model and batch size."""
    torch.set_num_threads(threads)
    work = workload.draw(nodes, edges, channels=128, updates=60_000)
    warm_up()
    rows: list[dict[str, object]] = []
    for name, build in MODELS.items():
        torch.manual_seed(0)
        model = build(128, 128, num_layers=layers, out_channels=40).eval()
        full_ms = _full_pass(model, work)
        for size in batches:
            inc = to_incremental(model)
            inc(work.x, work.edge_index)
            row = measure.stream(inc, work.batches(size), size, seconds)
            rows.append(
                {
                    "model": name,
                    "batch": size,
                    **row,
                    "full_pass_ms": full_ms,
                    "speedup": full_ms / row["p50_ms"],
                    # sums over hubs are large numbers, so the difference is told relative to them
                    "relative_diff": inc.verify() / float(inc.out.abs().max()),
                    "mode": inc.mode,
                }
            )
    return {"times": rows}


def _full_pass(model: nn.Module, work: workload.Workload, times: int = 5) -> float:
    """Median milliseconds of a full pass under no_grad; the first one is not counted."""
    took = []
    with torch.no_grad():
        for _ in range(times + 1):
            began = time.perf_counter()
            model(work.x, work.edge_index)
            took.append(1e3 * (time.perf_counter() - began))
    return median(took[1:])
