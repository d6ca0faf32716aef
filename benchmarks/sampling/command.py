"""Samples kept by events: ingestion, queries, and accuracy beside the exact output; one thread.

Graphs are drawn, skewed at both ends. Ingestion is that of hop one of [25, 10], into a graph with
as many nodes and edges as Helios gives for Taobao; queries are of two hops and one seed, in a graph
with fewer nodes and larger degrees, up to 10^5. The peer draws samples when it is asked, compiled
by Numba (`benchmarks/sampling/ad_hoc.py`); both are asked for one seed in turn, once as PyG's
loaders ask and once by the compiled call alone; `p99_ratio` and `p50_ratio` are its times over
ours. Accuracy is measured on labelled real graphs, which are read from the folder that
PYG_INCREMENTAL_DATA names and left out where they are not there. The service runs in processes of
its own beside this one, one of each kind, on a stream of Taobao's shape.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks import machine, report
from benchmarks.peers.protocol import Skipped
from benchmarks.report import Row
from benchmarks.sampling import accuracy, killed, service, speed
from pyg_incremental.kernels import warm_up

QUICK = {
    "nodes": 2_000, "edges": 20_000, "query_nodes": 2_000, "query_edges": 40_000,
    "records": 6_000, "batch": [500, 1_000], "queries": 300,
    "subscribed": 50, "channels": 8, "graph": ["drawn"], "steps": 20, "delta": 100,
    "service_batch": 1_000, "seeds": 100, "share_nodes": 1_000, "share_edges": 5_000,
}  # fmt: skip
PARTS = ("samples", "three-hops", "accuracy", "service", "killed", "shares")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: Taobao's shape."""
    add = parser.add_argument
    add("--nodes", type=int, default=1_800_000)
    add("--edges", type=int, default=8_600_000)
    add("--records", type=int, default=2_000_000)
    add("--batch", type=int, nargs="+", default=[10_000, 100_000])
    add("--queries", type=int, default=5_000)
    add("--query-nodes", type=int, default=200_000, help="of the graph that is asked")
    add("--query-edges", type=int, default=10_000_000)
    add("--subscribed", type=int, default=1_000, help="seeds of the cache")
    add("--channels", type=int, default=128, help="features in the cache")
    add("--strategy", nargs="*", choices=("random", "topk", "weight"),
        default=["random", "topk", "weight"])  # fmt: skip
    add("--graph", nargs="*", choices=list(accuracy.GRAPHS),
        default=[name for name in accuracy.GRAPHS if name != "drawn"])  # fmt: skip
    add("--steps", type=int, default=60, help="steps of training")
    add("--delta", type=int, default=1_000, help="edges in a delta, where accuracy is measured")
    add("--service-batch", type=int, default=50_000, help="records in a step of the service")
    add("--seeds", type=int, default=10_000, help="that the service has ready")
    add("--share-nodes", type=int, default=200_000, help="where is measured what is cached")
    add("--share-edges", type=int, default=1_000_000)
    add("--only", nargs="*", choices=PARTS, default=PARTS, help="what to measure")
    add("--quick", action="store_true", help="tiny graphs, some seconds: only shows that it runs")
    add("--out", type=Path, default=Path("benchmarks/results/sampling"))


def run(args: argparse.Namespace) -> None:
    """Measure, print and write."""
    if args.quick:
        vars(args).update(QUICK)
    machine.use_threads(1)
    about = machine.describe()
    print(" ".join(f"{key}={value}" for key, value in about.items()))
    warm_up()
    measured: dict[str, list[Row]] = {name: [] for name in ("ingestion", "queries", "accuracy")}
    for strategy in args.strategy:
        for name, rows in _of_strategy(strategy, args).items():
            report.print_table(_same_columns(rows))
            measured[name] += rows
    if "accuracy" in args.only:
        measured["accuracy"] = _accuracy(args)
    of_services = (
        ("service", service.stream), ("killed", killed.measure), ("shares", service.shares),
    )  # fmt: skip
    for name, measure in of_services:
        if name in args.only:
            measured[name] = measure(args)
            report.print_table(measured[name])
    options = {k: v for k, v in vars(args).items() if k != "out"}
    result: Row = {"options": report.plain(options), "machine": about, **measured}
    report.write_json(args.out / "sampling.json", result)
    print(f"\nwritten to {args.out}: sampling.json")
    torch.set_num_threads(1)


def _of_strategy(strategy: str, args: argparse.Namespace) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    if "samples" in args.only:
        found["ingestion"], found["queries"] = speed.measure(strategy, args)
        for row in found["ingestion"]:
            row["strategy"] = strategy
    if "three-hops" in args.only:
        found["queries"] = [*found.get("queries", []), *speed.three_hops(strategy, args)]
    return found


def _accuracy(args: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for name in args.graph:
        try:
            found = accuracy.measure(name, args)
        except Skipped as why:
            print(f"\n{name}: skipped, {why}")
            continue
        report.print_table(found)
        rows += found
    return rows


def _same_columns(rows: list[Row]) -> list[Row]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]
