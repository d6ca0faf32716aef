"""One evaluation in a process of its own, whose memory the system limits.

The limit is RLIMIT_DATA: everything that a process may write to and that is no file. Memory maps of
the graph, and of rows in files, do not count; the system takes their pages back when it needs them.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GraphSAGE

from benchmarks.evaluation import hetero
from pyg_incremental import evaluate, to_incremental
from pyg_incremental.blocks.in_edges import InEdges
from pyg_incremental.blocks.sources import data_at
from pyg_incremental.kernels import warm_up

MODELS = ("gcn", "gat", "jk-sage")
WHERE = ("memory", "files")
COMPARED = "compared.npy"
"""Rows of some targets, for the process that holds them against the original model."""
WARM = 20
"""Updates before those that are timed: the first ones compile their path."""


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Run a task in a new process; returns what it measured."""
    given = [sys.executable, "-m", "benchmarks.evaluation.worker", json.dumps(task)]
    ran = subprocess.run(given, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"the task {task} ended with {ran.returncode}:\n{ran.stderr}")
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def model_of(task: dict[str, Any], channels: int) -> nn.Module:
    """Two heads for GAT, and jumping knowledge that looks at all layers, as in DGI."""
    torch.manual_seed(0)
    sizes = {"num_layers": task["layers"], "out_channels": task["classes"]}
    hidden = task["hidden"]
    if task["model"] == "gcn":
        return GCN(channels, hidden, **sizes).eval()
    if task["model"] == "gat":
        return GAT(channels, hidden, heads=2, **sizes).eval()
    return GraphSAGE(channels, hidden, jk="cat", **sizes).eval()


def read(folder: Path, load: bool) -> Data:
    """The graph, in memory or in memory maps."""
    x, edges = (
        torch.from_numpy(np.load(folder / f"{name}.npy", mmap_mode=None if load else "r+"))
        for name in ("x", "edge_index")
    )
    return Data(x=x, edge_index=edges)


def used() -> int:
    """Bytes that count against the limit."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))


def given(task: dict[str, Any]) -> tuple[nn.Module, Any, Any]:
    """The model, the graph in memory maps, and a small graph like it."""
    folder = Path(task["folder"])
    if task["way"] == "hetero":
        with tempfile.TemporaryDirectory(dir=folder) as few:
            hetero.draw(Path(few), 0)
            small = data_at(Path(few)).clone()
        return hetero.make(task["model"], task["hidden"], task["layers"]), data_at(folder), small
    data = read(folder, task["load"])
    model = model_of(task, data.num_features)
    small = Data(x=torch.randn(50, data.num_features), edge_index=torch.randint(50, (2, 99)))
    return model, data, small


@torch.no_grad()
def main(task: dict[str, Any]) -> dict[str, Any]:
    """Measure one task; what is loaded and compiled once comes first and is not timed."""
    torch.set_num_threads(1)
    warm_up()
    model, data, small = given(task)
    evaluate(model, small, progress=False)
    base = used()
    limit = max(task["limit"], base) if task["scale"] == 1 else base + task["limit"]
    if task.get("where") != "memory" and task["way"] != "compare":
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    if task["way"] == "node-wise":
        return node_wise(model, data, task)
    if task["way"] == "compare":
        return compared(model, data, task)
    if task["way"] == "bootstrap":
        return bootstrapped(model, data, task) | {
            "limit_GB": limit / 1e9,
            "of_it_code_GB": base / 1e9,
        }
    nodes = None if task.get("nodes") is None else _some(data.num_nodes, task["nodes"])
    began, waited = time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory(dir=task["folder"]) as rows:
        out = evaluate(
            model, data, nodes=nodes, num_neighbors=task.get("num_neighbors"),
            memory=task["memory"], directory=rows, progress=False, order=task.get("order"),
        )  # fmt: skip
        seconds, wall = time.process_time() - began, time.perf_counter() - waited
        finite = bool(out[:1000].isfinite().all())
        if task.get("compare"):
            ids = _some(data.num_nodes, task["compare"])
            np.save(Path(task["folder"]) / COMPARED, out[ids].numpy())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "seconds": seconds, "wall": wall, "limit": limit, "base": base, "peak_rss": peak,
        "finite": finite,
    }  # fmt: skip


def bootstrapped(model: nn.Module, data: Data, task: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a first pass, and milliseconds of updates that add one edge."""
    inc = to_incremental(model)
    files = task["where"] == "files"
    began, waited = time.process_time(), time.perf_counter()
    if files:
        inc.bootstrap(data, memory=task["memory"], directory=task["folder"])
    else:
        inc.bootstrap(data, memory=1 << 50)
    first, wall = time.process_time() - began, time.perf_counter() - waited
    rng, took, changed, faults = np.random.default_rng(0), [], [], 0
    for i in range(WARM + task["updates"]):
        if i == WARM:
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        ends = torch.from_numpy(rng.integers(0, data.num_nodes, (2, 1)))
        started = time.perf_counter()
        update = inc.apply_delta(ends)
        took.append(time.perf_counter() - started)
        changed.append(len(update.changed))
    read = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults
    return {
        "first_s": first, "first_wall_s": wall, "stored_GB": inc.memory_report().total / 1e9,
        "data_GB": used() / 1e9, "update_ms": 1e3 * float(np.median(took[WARM:])),
        "update_p90_ms": 1e3 * float(np.quantile(took[WARM:], 0.9)),
        "changed_rows": float(np.median(changed[WARM:])), "pages_read": read / task["updates"],
    }  # fmt: skip


def _some(count: int, wanted: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:wanted]


def node_wise(model: nn.Module, data: Data, task: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the processor for each node in the best of several batches.

    The model runs on what a batch sees within as many hops as there are layers. Batches are tried
    until one fails for want of memory.
    """
    lists = _in_edges(Path(task["folder"]))
    best, batch, tried = float("inf"), 0, []
    for size in task["batch"]:
        nodes = _some(data.num_nodes, max(size, task["sample"])).numpy()
        count, began, seen = 0, time.process_time(), 0
        try:
            for first in range(0, len(nodes), size):
                some = nodes[first : first + size]
                edges = _on_what_they_see(model, data, lists, some, task["layers"])[1]
                seen = max(seen, edges)
                count += len(some)
                if time.process_time() - began > task["seconds"]:
                    break
        except (MemoryError, RuntimeError) as error:
            tried.append({"batch": size, "failed": type(error).__name__})
            break
        price = (time.process_time() - began) / count
        tried.append({"batch": size, "price": price, "targets": count, "edges": seen})
        if price < best:
            best, batch = price, size
    return {"price": best, "batch": batch, "tried": tried}


def compared(model: nn.Module, data: Data, task: dict[str, Any]) -> dict[str, Any]:
    """How far rows are from those of the original model, target by target.

    It runs on what a target sees within as many hops as there are layers and one more, so that all
    nodes whose rows count have their own degrees: no node is left out for which that is large.
    """
    folder = Path(task["folder"])
    ours, lists = torch.from_numpy(np.load(folder / COMPARED)), _in_edges(folder)
    nodes, began = _some(data.num_nodes, task["compare"]).numpy(), time.process_time()
    rows, most = [], 0
    for i in range(len(nodes)):
        row, edges = _on_what_they_see(model, data, lists, nodes[i : i + 1], task["layers"] + 1)
        rows.append(row)
        most = max(most, edges)
    theirs = torch.cat(rows)
    return {
        "targets": len(nodes), "off": float((ours - theirs).abs().max()),
        "largest": float(theirs.abs().max()), "most_edges": most,
        "seconds": time.process_time() - began,
    }  # fmt: skip


def _in_edges(folder: Path) -> InEdges:
    """The in-edges of all nodes, in memory maps."""
    parts = (np.load(folder / f"in-{name}.npy", mmap_mode="r") for name in ("first", "neighbor"))
    return InEdges(*parts, edge=np.empty(0, np.int32))


def _on_what_they_see(
    model: nn.Module, data: Data, lists: InEdges, nodes: np.ndarray, hops: int
) -> tuple[Tensor, int]:
    """Run the model there; returns the rows of the nodes, and the number of edges."""
    seen = np.unique(nodes)
    for _ in range(hops):
        inner, (degree, neighbor) = seen, _lists_of(lists, seen)
        seen = np.union1d(seen, neighbor)
    place = np.zeros(data.num_nodes, np.int32)
    place[seen] = np.arange(len(seen))
    edges = np.stack([place[neighbor], np.repeat(place[inner], degree)]).astype(np.int64)
    out = model(data.x[torch.from_numpy(seen)], torch.from_numpy(edges))
    return out[torch.from_numpy(place[nodes]).long()], edges.shape[1]


def _lists_of(lists: InEdges, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """In-degrees of some nodes, and all of their neighbours."""
    begin, end = np.asarray(lists.first[ids]), np.asarray(lists.first[ids + 1])
    degree = end - begin
    at = np.arange(degree.sum()) + np.repeat(begin - (np.cumsum(degree) - degree), degree)
    return degree, lists.neighbor[at]


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
