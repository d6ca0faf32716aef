"""Simulated: work and bytes of each rank while the number of ranks grows.

A GraphSAGE on a graph of the size of ogbn-products (2,449,029 nodes, 123,718,280 directed edges;
--scale makes it smaller), cut into 2 to 64 parts. The graph stays what it is, and the deltas

    grow   --batch-per-rank changes for every rank, so twice as many on twice the ranks
    stay   --batch changes, on however many ranks

Nothing is run on ranks: which rows change, which rank computes them, along which edges they arrive
and which ranks they are sent to is counted from the graph, the owners and the deltas. From that,
and an assumed machine (the last options), follow times, of which only the ratios mean anything:

    computing  --memory-gb reads a message and reads and writes a sum at every edge, --gflops does
               the products of changed rows; of each layer the slowest rank counts
    network    a round of messages takes --latency-us once for the rows and log2(ranks) times for
               the integers before them, and the most that a rank sends or receives at --gbit
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks import graphs, machine, models, report
from benchmarks.ranks import inputs
from benchmarks.ranks.count import Count, Reached
from benchmarks.report import Row
from benchmarks.stream import Stream
from pyg_incremental.distributed import DistributedIncrementalModel, Partition

METIS_UP_TO = 20_000_000  # edges that METIS cuts in minutes; above, 'auto' takes LDG
QUICK = {
    "scale": 0.0005, "hidden": 16, "batch": 20, "batch_per_rank": 5, "parts": [2, 4], "updates": 2,
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: a tenth of the graph, some minutes; all of it takes a quarter of an hour."""
    add = parser.add_argument
    add("--graph", choices=graphs.SIZES, default="products", help="whose published size")
    add("--scale", type=float, default=0.1, help="part of that size (default: 0.1)")
    add("--parts", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    add("--method", choices=("auto", *inputs.METHODS), default="auto",
        help=f"how it is cut; auto: METIS up to {METIS_UP_TO:,} edges, then LDG")  # fmt: skip
    add("--layers", type=int, default=2)
    add("--hidden", type=int, default=128)
    add("--batch", type=int, default=1000, help="changes in one delta, where it stays")
    add("--batch-per-rank", type=int, default=100, help="where it grows")
    add("--updates", type=int, default=3, help="deltas of each size; means are given")
    add("--seed", type=int, default=0)
    add("--gbit", type=float, default=10, help="assumed: Gbit/s of each rank, both directions")
    add("--latency-us", type=float, default=50, help="assumed: of a message")
    add("--memory-gb", type=float, default=10, help="assumed: GB/s of rows, of each rank")
    add("--gflops", type=float, default=50, help="assumed: of each rank")
    add("--quick", action="store_true", help="a tiny graph, some seconds: only shows that it runs")
    add("--out", type=Path, default=Path("benchmarks/results/weak_scaling"), help="of the results")


@dataclass(frozen=True)
class Layer:
    """What one layer moves and computes.

    Attributes:
        message: Bytes of a message.
        row: Bytes of it as it is sent, with its id.
        flops: Of a changed row.
    """

    message: int
    row: int
    flops: int


def run(args: argparse.Namespace) -> None:
    """Count, print, write and draw."""
    if args.quick:
        vars(args).update(QUICK)
    size = graphs.SIZES[args.graph]
    layers, rounds = layers_of(size, args)
    batches = {
        "stay": {1: args.batch} | dict.fromkeys(args.parts, args.batch),
        "grow": {1: args.batch_per_rank} | {p: p * args.batch_per_rank for p in args.parts},
    }
    largest = max(batch for sizes in batches.values() for batch in sizes.values())
    # features are never read, so the nodes have none
    work = graphs.draw(replace(size.scaled(args.scale), channels=0), 2 * largest, args.seed)
    if largest > len(work.kind):
        raise SystemExit(f"the graph is too small for {largest:,} changes in one delta.")
    num_edges = work.edge_index.shape[1]
    print(f"{args.graph}, scale {args.scale:g}: {len(work.x):,} nodes, {num_edges:,} edges")
    method = args.method
    if method == "auto":
        method = "metis" if num_edges <= METIS_UP_TO else "ldg"
    # where edges have two directions, one of them tells a partitioner all
    halved = replace(work, edge_index=work.edge_index[:, : num_edges // (1 + work.undirected)])
    parts: dict[int, Partition] = {}
    for count in tqdm([1, *args.parts], desc=f"cut by {method}", disable=None):
        parts[count] = inputs.cut(halved, count, method, args.seed)
    count_of = Count(work.edge_index, len(work.x))
    work = replace(work, edge_index=torch.empty(2, 0, dtype=torch.int64))
    del halved
    gc.collect()

    rows = _simulate(count_of, Stream(work), batches, parts, layers, rounds, args)
    report.print_table(rows)
    options = inputs.told(args)
    result: Row = {
        "options": options, "machine": machine.describe(), "method": method, "rounds": rounds,
        "nodes": len(work.x), "edges": num_edges, "layers": [vars(layer) for layer in layers],
        "results": rows,
    }  # fmt: skip
    report.write_json(args.out / "weak_scaling.json", result)
    print(f"\nwritten to {args.out}: weak_scaling.json", end="")
    if importlib.util.find_spec("matplotlib"):
        from benchmarks.ranks import plot

        print(",", plot.draw(result, args.out).name, end="")
    print()


def _simulate(
    count: Count,
    stream: Stream,
    batches: dict[str, dict[int, int]],
    parts: dict[int, Partition],
    layers: list[Layer],
    rounds: int,
    args: argparse.Namespace,
) -> list[Row]:
    """One row for each kind of batches and number of ranks; `batches` has their sizes."""
    channels = graphs.SIZES[args.graph].channels
    rows: list[Row] = []
    for kind, sizes in batches.items():
        for batch in dict.fromkeys(sizes.values()):
            who = [ranks for ranks, size in sizes.items() if size == batch]
            found: dict[int, list[Row]] = {ranks: [] for ranks in (1, *who)}
            for _ in range(args.updates):
                reached = count.apply(stream.take(batch), args.layers)
                for ranks, some in found.items():
                    one = _counted(count, reached, layers, parts[ranks], channels)
                    some.append({**one, **_times(one, layers, rounds, ranks, args)})
            alone = _mean(found[1])
            for ranks in who:
                rows.append({
                    "batches": kind, "ranks": ranks, "batch": batch,
                    "edge cut": parts[ranks].edge_cut,
                    **_summary(_mean(found[ranks]), alone, batch, ranks),
                })  # fmt: skip
    return rows


def layers_of(size: graphs.Size, args: argparse.Namespace) -> tuple[list[Layer], int]:
    """What the package makes of the model, asked on a tiny graph; and its rounds for an update."""
    model = models.build("sage", size.channels, args.hidden, size.classes, args.layers)
    inc = DistributedIncrementalModel(model)
    x, edge = torch.zeros(2, size.channels), torch.tensor([[0], [1]])
    with torch.no_grad():
        inc(x, edge, partition_by=torch.zeros(2, dtype=torch.int64))
    stats = inc.apply_delta(x_changes=(torch.tensor([0]), torch.ones(1, size.channels))).stats
    width = [size.channels, *[args.hidden] * (args.layers - 1), size.classes]
    found = []
    for at, traffic in enumerate(stats.exchanges):
        # two products, one for the neighbours and one for the node itself
        flops = 2 * 2 * width[at] * width[at + 1]
        found.append(Layer(traffic.row_bytes - 4, traffic.row_bytes, flops))
    return found, stats.rounds


def _counted(
    count: Count, reached: Reached, layers: list[Layer], parts: Partition, channels: int
) -> dict[str, Any]:
    """What every rank does for one delta: arrays `[layers, ranks]`."""
    owner, ranks = parts.owner.numpy(), parts.num_parts
    pushed = [count.pushed(reached, at, owner, ranks) for at in range(len(layers))]
    # the delta: each rank hands in as much, and all of it goes to the owners
    handed_in = len(reached.changed[0]) * (4 * channels + 8)
    handed_in += 16 * (reached.added.shape[1] + reached.deleted.shape[1])
    weight = np.array([[layer.row] for layer in layers])
    return {
        "edges": np.stack([p.edges for p in pushed]),
        "rows": np.stack([p.rows for p in pushed]),
        "sent": weight * np.stack([p.sent for p in pushed]),
        "received": weight * np.stack([p.received for p in pushed]),
        "delta": handed_in / ranks * (ranks - 1) / ranks,
    }


def _times(
    one: dict[str, Any], layers: list[Layer], rounds: int, ranks: int, args: argparse.Namespace
) -> dict[str, float]:
    """Seconds that the assumed machine takes for what was counted."""
    computing = network = 0.0
    for at, layer in enumerate(layers):
        moved = 3 * layer.message / (1e9 * args.memory_gb)
        products = layer.flops / (1e9 * args.gflops)
        computing += float((moved * one["edges"][at] + products * one["rows"][at]).max())
        network += float(np.maximum(one["sent"][at], one["received"][at]).max())
    if ranks > 1:
        network = (network + one["delta"]) / (1e9 / 8 * args.gbit)
        network += rounds * 1e-6 * args.latency_us * (1 + math.ceil(math.log2(ranks)))
    return {"computing": computing, "network": network}


def _mean(some: list[Row]) -> dict[str, Any]:
    return {name: np.mean([one[name] for one in some], 0) for name in some[0]}


def _summary(one: dict[str, Any], alone: dict[str, Any], batch: int, ranks: int) -> Row:
    """The rows of the table, per rank; `alone` is one process with the same deltas."""
    row: Row = {}
    for name in ("edges", "rows"):
        every = one[name].sum(0)
        row |= {f"{name}, mean": round(every.mean()), f"{name}, most": round(every.max())}
    every = np.maximum(one["sent"].sum(0), one["received"].sum(0))
    row |= {"MB sent, mean": float(one["sent"].sum(0).mean()) / 1e6}
    row |= {"MB sent or received, most": float(every.max()) / 1e6}
    row |= {"MB of delta": float(one["delta"]) / 1e6}
    took = float(one["computing"] + one["network"])
    row |= {
        "computing ms": 1e3 * float(one["computing"]),
        "network ms": 1e3 * float(one["network"]),
    }
    speedup = float(alone["computing"] + alone["network"]) / took
    return row | {"changes/s": batch / took, "speedup": speedup, "efficiency": speedup / ranks}
