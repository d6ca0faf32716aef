"""Figures on a drawn graph of ogbn-products' size that lies on a disk, under a limit of the system.

Every run is a process of its own with `--limit` bytes (RLIMIT_DATA), which is given for the size
that OGB publishes: on a `--scale` of it the rows and edges get that part, beside what Python,
PyTorch and the compiled kernels take. Times are those of the processor; `wall_s` is how long it
took, with whatever else ran on the machine.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import graphs
from benchmarks.evaluation import hetero, worker
from benchmarks.report import Row
from pyg_incremental.blocks.given import bytes_of
from pyg_incremental.blocks.in_edges import in_edges


@contextmanager
def on_disk(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Draws the graph into a folder; yields what all tasks have in common."""
    size = graphs.SIZES[args.size].scaled(args.scale)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        rng = np.random.default_rng(0)
        count = size.edges // (1 + size.undirected)
        pairs = graphs.draw_pairs(size.nodes, count, size.skew, rng)
        edges = np.lib.format.open_memmap(
            f"{folder}/edge_index.npy", "w+", np.int64, (2, count * (1 + size.undirected))
        )
        edges[:, :count] = pairs
        if size.undirected:
            edges[:, count:] = pairs[::-1]
        del pairs
        x = np.lib.format.open_memmap(
            f"{folder}/x.npy", "w+", np.float32, (size.nodes, size.channels)
        )
        for first in range(0, size.nodes, 1 << 16):
            part = x[first : first + (1 << 16)]
            part[:] = rng.standard_normal(part.shape, np.float32)
        x.flush()
        edges.flush()
        lists = in_edges(edges[1], edges[0], size.nodes)
        np.save(f"{folder}/in-first.npy", lists.first)
        np.save(f"{folder}/in-neighbor.npy", lists.neighbor)
        del lists, x, edges
        limit = bytes_of(args.limit)
        yield {
            "folder": folder, "classes": args.classes or size.classes, "hidden": args.hidden,
            "way": "evaluate",
            "layers": args.layers, "nodes": None, "num_neighbors": None, "order": None,
            "scale": args.scale, "limit": int(args.scale * limit), "batch": args.batch,
            "memory": int(args.part * args.scale * limit), "seconds": args.seconds,
            "load": args.load, "sample": args.sample, "num_nodes": size.nodes, "full_limit": limit,
            "compare": args.compare, "channels": size.channels,
            "num_edges": count * (1 + size.undirected),
        }  # fmt: skip


def models(args: argparse.Namespace) -> list[Row]:
    """Each model in blocks, and node-wise.

    Node-wise evaluation may take the whole `--limit` at any scale, because what a node sees does
    not shrink with the graph.
    """
    rows: list[Row] = []
    with on_disk(args) as task:
        for name in args.model:
            task["model"] = name
            ours = worker.run(task)
            row: Row = {
                "model": name, "nodes": task["num_nodes"], "layers": args.layers,
                "evaluate_s": ours["seconds"], "wall_s": ours["wall"],
                "limit_GB": ours["limit"] / 1e9, "of_it_code_GB": ours["base"] / 1e9,
            }  # fmt: skip
            row |= _node_wise(task, ours["seconds"]) if args.batch else {}
            rows.append(row | (_compared(task) if args.compare else {}))
            print(rows[-1], flush=True)
    return rows


def _node_wise(task: dict[str, Any], ours: float) -> Row:
    """Node-wise evaluation in its best batch, extrapolated."""
    every = {"way": "node-wise", "scale": 0, "limit": task["full_limit"]}
    other = worker.run(task | every)
    failed = [t["batch"] for t in other["tried"] if "failed" in t]
    seconds = other["price"] * task["num_nodes"]
    return {
        "node_wise_s": seconds, "ratio": seconds / ours, "batch": other["batch"],
        "too_large": failed[0] if failed else None,
        "targets": max((t.get("targets", 0) for t in other["tried"]), default=0),
    }  # fmt: skip


def _compared(task: dict[str, Any]) -> Row:
    """Rows of some targets against the original model, in a process without a limit."""
    found = worker.run(task | {"way": "compare"})
    return {
        "compared": found["targets"], "largest difference": found["off"],
        "largest value": found["largest"], "most edges seen": found["most_edges"],
    }  # fmt: skip


def layers(args: argparse.Namespace) -> list[Row]:
    """GCN of one to four layers."""
    rows: list[Row] = []
    with on_disk(args) as task:
        for count in range(1, 5):
            took = worker.run(task | {"model": "gcn", "layers": count})["seconds"]
            first = rows[0]["evaluate_s"] if rows else took
            least = _gcn_work(task | {"layers": count}, task["num_edges"])
            for what in [*least]:
                least[f"{what.split('_')[0]}_of_1"] = least[what] / rows[0][what] if rows else 1.0
            rows.append({
                "model": "gcn", "layers": count, "evaluate_s": took, "of_1": took / first, **least,
            })  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def sampled(args: argparse.Namespace) -> list[Row]:
    """All edges against ten of each node, for all layers and for each."""
    rows: list[Row] = []
    with on_disk(args) as task:
        degrees = np.diff(np.load(f"{task['folder']}/in-first.npy"))
        kept = int(np.minimum(degrees, 10).sum())
        for name in args.model:
            full = worker.run(task | {"model": name})["seconds"]
            for most in (10, [10] * args.layers):
                took = worker.run(task | {"model": name, "num_neighbors": most})["seconds"]
                least = _gcn_work(task, kept) if name == "gcn" else {}
                rows.append({
                    "model": name, "edges of each": str(most), "full_s": full, "sampled_s": took,
                    "full_of_sampled": full / took, "edges_of_sampled": task["num_edges"] / kept,
                    **least,
                })  # fmt: skip
                print(rows[-1], flush=True)
    return rows


def _gcn_work(task: dict[str, Any], edges: int) -> Row:
    """What GCN cannot do without: bytes of its messages, each read once, and products.

    Its products come before its sums, so that a message is as wide as the layer's output.
    """
    widths = [task["channels"], *[task["hidden"]] * (task["layers"] - 1), task["classes"]]
    products = sum(a * b for a, b in itertools.pairwise(widths))
    return {
        "messages_GB": 4 * edges * sum(widths[1:]) / 1e9,
        "products_GFLOP": 2 * task["num_nodes"] * products / 1e9,
    }


def partial(args: argparse.Namespace) -> list[Row]:
    """Some of the nodes, in blocks and node-wise."""
    rows: list[Row] = []
    with on_disk(args) as task:
        for name in args.model:
            task["model"] = name
            other = worker.run(task | {"way": "node-wise", "scale": 0, "limit": task["full_limit"]})
            for part in (0.001, 0.01, 0.1, 1.0):
                count = max(1, round(part * task["num_nodes"]))
                took = worker.run(task | {"nodes": count})["seconds"]
                alone = other["price"] * count
                rows.append({
                    "model": name, "part": part, "targets": count, "evaluate_s": took,
                    "node_wise_s": alone, "ratio": alone / took, "batch": other["batch"],
                })  # fmt: skip
                print(rows[-1], flush=True)
    return rows


def bootstrap(args: argparse.Namespace) -> list[Row]:
    """The first pass of a store, in memory and in memory maps, and updates of one edge after it.

    Only the store in memory maps is limited.
    """
    rows: list[Row] = []
    with on_disk(args) as task:
        task |= {"way": "bootstrap", "updates": args.updates}
        for name in args.model:
            for where in args.where:
                found = worker.run(task | {"model": name, "where": where})
                rows.append({"model": name, "nodes": task["num_nodes"], "where": where, **found})
                print(rows[-1], flush=True)
    return rows


def several_kinds(args: argparse.Namespace) -> list[Row]:
    """A graph of ogbn-mag's size in blocks, RGCN and HGT."""
    rows: list[Row] = []
    limit = bytes_of(args.limit)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        nodes, edges = hetero.draw(Path(folder), args.scale)
        for name in args.kinds:
            found = worker.run({
                "way": "hetero", "folder": folder, "model": name, "hidden": args.hidden,
                "layers": args.layers, "scale": args.scale, "limit": int(args.scale * limit),
                "memory": int(args.part * args.scale * limit),
            })  # fmt: skip
            rows.append({
                "model": name, "nodes": nodes, "edges": edges, "layers": args.layers,
                "evaluate_s": found["seconds"], "wall_s": found["wall"],
                "limit_GB": found["limit"] / 1e9, "of_it_code_GB": found["base"] / 1e9,
            })  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def folder_of(text: str) -> Path:
    """A folder that is there."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder '{text}'")
    return path
