"""Records that samples take in, and queries that they answer; beside it a sampler on demand.

Times are those that the thread computes (`time.thread_time`), and the longest also those that pass,
because other programs may run on the same core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.sampler import BaseSampler, NodeSamplerInput

from benchmarks.report import Row
from benchmarks.sampling.ad_hoc import AdHocNeighborSampler, AdHocSampler
from pyg_incremental.sampling import SampleCache, StreamingSampler
from pyg_incremental.sampling.kernels.expand import walk

Ids = NDArray[np.int64]
Ask = Callable[[int], int]
FANOUTS = [25, 10]
WARM_UP = 200


def draw(nodes: int, edges: int, seed: int) -> Ids:
    """Skewed edges `[2, edges]` under random names: both ends are far more often some few nodes."""
    rng = np.random.default_rng(seed)
    name = np.random.default_rng(0).permutation(nodes)
    source = (nodes * rng.random(edges) ** 1.5).astype(np.int64)
    target = (nodes * rng.random(edges) ** 2.6).astype(np.int64)
    return np.stack([name[source], name[target]])


class _Values:
    """Times or weights of edges, in order of arrival."""

    def __init__(self, strategy: str, seed: int = 0) -> None:
        self._strategy, self._rng, self._next = strategy, np.random.default_rng(seed), 0

    def __call__(self, count: int) -> Ids:
        if self._strategy == "topk":
            self._next += count
            return np.arange(self._next - count, self._next)
        return self._rng.integers(1, 100, count)


def measure(strategy: str, args: argparse.Namespace) -> tuple[list[Row], list[Row]]:
    """Rows of ingestion and rows of queries."""
    base, values = draw(args.nodes, args.edges, 1), _Values(strategy)
    value, records = values(args.edges), draw(args.nodes, args.records, 2)
    ingested = _ingestion(strategy, base, value, records, args)
    peer = AdHocSampler(base, value, args.nodes, FANOUTS, strategy)
    peer.add(records[:, :10], values(10))
    ingested.append(_ingest("(peer: appends)", peer.add, records, values, args.batch[-1]))
    return ingested, _queries(strategy, args)


def _queries(strategy: str, args: argparse.Namespace) -> list[Row]:
    """Both samplers, and the cache, on a graph of large degrees."""
    nodes, values = args.query_nodes, _Values(strategy)
    base, value = draw(nodes, args.query_edges, 1), values(args.query_edges)
    records = draw(nodes, args.query_edges // 10, 2)
    print(f"largest degree: {np.bincount(base[1]).max():,}", flush=True)
    sampler = _ours(base, value, nodes, FANOUTS, strategy)
    peer = AdHocSampler(base, value, nodes, FANOUTS, strategy)
    seeds = np.random.default_rng(3).integers(0, nodes, args.queries)

    def add(edges: Ids, value: Ids) -> None:
        _apply(sampler, edges, value, strategy)

    behind = AdHocNeighborSampler(peer)
    queries = [
        *_beside(
            ("sampler", partial(_sampled, sampler)),
            ("drawn when asked", partial(_sampled, behind)),
            seeds,
        ),
        *_beside(
            ("sampler, compiled call", _compiled(sampler, nodes)),
            ("drawn when asked, compiled call", lambda seed: peer.query(seed)[1].shape[1]),
            seeds,
        ),
        _ask("sampler, records arriving", partial(_sampled, sampler), seeds, add, records, values),
        _cached(sampler, seeds, args),
    ]
    for row in queries:
        row["strategy"] = strategy
    return queries


def _beside(ours: tuple[str, Ask], peer: tuple[str, Ask], seeds: Ids) -> list[Row]:
    """Both are asked for one seed after the other in turn, and all that three times.

    So whatever else the machine does, it does to both; the lowest of three percentiles counts.
    """
    rounds: list[list[Row]] = []
    for _ in range(3):
        took: list[list[float]] = [[], []]
        edges = [0, 0]
        for at, seed in enumerate([*seeds[:WARM_UP].tolist(), *seeds.tolist()]):
            for which, (_, ask) in enumerate((ours, peer)):
                began = time.thread_time()
                found = ask(seed)
                if at >= WARM_UP:
                    took[which].append(time.thread_time() - began)
                    edges[which] += found
        both = zip((ours, peer), took, edges, strict=True)
        rounds.append([_spread(name, times, count) for (name, _), times, count in both])
    rows = [{**min(some, key=lambda row: row["p99_ms"])} for some in zip(*rounds, strict=True)]
    for name in ("p50", "p99"):
        rows[0][f"{name}_ratio"] = rows[1][f"{name}_ms"] / rows[0][f"{name}_ms"]
    return rows


def _ingestion(
    strategy: str, base: Ids, value: Ids, records: Ids, args: argparse.Namespace
) -> list[Row]:
    """Hop one alone: all records, in batches of each size, and out again."""
    values = _Values(strategy, 1)
    values(args.edges)
    one = _ours(base, value, args.nodes, FANOUTS[:1], strategy)

    def add(edges: Ids, value: Ids) -> None:
        _apply(one, edges, value, strategy)

    rows = [_from_none(strategy, base, args)]
    rows += [
        _ingest(f"{strategy}, batches of {size:,}", add, records, values, size)
        for size in args.batch
    ]
    return [*rows, _delete(f"{strategy}, deletions", one, records, args.batch[-1])]


def _from_none(strategy: str, base: Ids, args: argparse.Namespace) -> Row:
    """All edges into a graph without any: in the mean, all growth is paid for."""
    values = _Values(strategy)
    sampler = _ours(base[:, :0], values(0), args.nodes, FANOUTS[:1], strategy)

    def add(edges: Ids, value: Ids) -> None:
        _apply(sampler, edges, value, strategy)

    return _ingest(f"{strategy}, all edges from none", add, base, values, args.batch[-1])


def three_hops(strategy: str, args: argparse.Namespace) -> list[Row]:
    """Queries of three hops in the graph of large degrees, ready and drawn when asked."""
    nodes, values = args.query_nodes, _Values(strategy)
    base, value = draw(nodes, args.query_edges, 1), values(args.query_edges)
    seeds = np.random.default_rng(3).integers(0, nodes, args.queries)
    fanouts = [*FANOUTS, 5]
    sampler = _ours(base, value, nodes, fanouts, strategy)
    peer = AdHocNeighborSampler(AdHocSampler(base, value, nodes, fanouts, strategy))
    rows = _beside(
        (f"sampler, {fanouts}", partial(_sampled, sampler)),
        (f"drawn when asked, {fanouts}", partial(_sampled, peer)),
        seeds,
    )
    for row in rows:
        row["strategy"] = strategy
    return rows


def _sampled(sampler: BaseSampler, seed: int) -> int:
    """Ask as PyG's loaders do."""
    index = NodeSamplerInput(None, torch.tensor([seed]))
    return int(sampler.sample_from_nodes(index).row.numel())


def _ours(base: Ids, value: Ids, nodes: int, fanouts: list[int], strategy: str) -> StreamingSampler:
    data = {
        "random": {},
        "topk": {"edge_time": torch.from_numpy(value)},
        "weight": {"edge_weight": torch.from_numpy(value).double()},
    }[strategy]
    return StreamingSampler(torch.from_numpy(base), nodes, fanouts, strategy=strategy, **data)  # type: ignore[arg-type]


def _apply(sampler: StreamingSampler, edges: Ids, value: Ids, strategy: str) -> None:
    name = {"random": "", "topk": "time", "weight": "edge_weight"}[strategy]
    data = {name: torch.from_numpy(value)} if name else None
    sampler.apply_delta(edge_index_add=torch.from_numpy(edges), edge_data_add=data)


def _ingest(
    name: str, add: Callable[[Ids, Ids], None], records: Ids, values: _Values, size: int
) -> Row:
    """Take all records in, some at a time; the first batches do not count."""
    took = []
    for first in range(0, records.shape[1] - size + 1, size):
        part = np.ascontiguousarray(records[:, first : first + size])
        value = values(size)
        began = time.thread_time()
        add(part, value)
        took.append(time.thread_time() - began)
    counted = took[2:] if len(took) > 4 else took
    return {
        "records": name,
        "batches": len(counted),
        "records_per_s": size * len(counted) / sum(counted),
        "median_per_s": size / float(np.median(counted)),
        "longest_ms": 1e3 * max(counted),
    }


def _delete(name: str, sampler: StreamingSampler, records: Ids, size: int) -> Row:
    """Take the records out again, the newest first."""
    read = sampler.edges_of().rows.edges_read
    row = _ingest(
        name,
        lambda e, _: _take_out(sampler, e),
        np.ascontiguousarray(records[:, ::-1]),
        _Values("topk"),
        size,
    )
    more = sampler.edges_of().rows.edges_read - read
    row["edges_read_per_deletion"] = more / records.shape[1]
    return row


def _take_out(sampler: StreamingSampler, edges: Ids) -> None:
    sampler.apply_delta(edge_index_del=torch.from_numpy(edges), missing="ignore")


def _ask(
    name: str,
    ask: Ask,
    seeds: Ids,
    add: Callable[[Ids, Ids], None] | None = None,
    records: Ids | None = None,
    values: _Values | None = None,
) -> Row:
    """Ask for one seed after the other; with records, some arrive before every tenth query."""
    took, waited, edges = [], [], 0
    for seed in seeds[:WARM_UP].tolist():
        ask(seed)
    for at, seed in enumerate(seeds.tolist()):
        if add is not None and records is not None and values is not None and at % 10 == 0:
            first = 100 * at % max(1, records.shape[1] - 1000)
            part = np.ascontiguousarray(records[:, first : first + 1000])
            add(part, values(part.shape[1]))
        began, passed = time.thread_time(), time.perf_counter()
        edges += ask(seed)
        took.append(time.thread_time() - began)
        waited.append(time.perf_counter() - passed)
    return {
        **_spread(name, took, edges),
        "p99_with_waits_ms": 1e3 * float(np.percentile(waited, 99)),
    }


def _compiled(sampler: StreamingSampler, nodes: int) -> Ask:
    """The compiled call without what makes tensors of it, and a PyG sampler."""
    every, limits, places = np.arange(nodes), np.array(FANOUTS), sampler.edges_of().places()
    counts = np.zeros((2, limits.size + 1), np.int64)
    return lambda seed: walk(every[seed : seed + 1], limits, places, counts)[1].shape[1]


def _cached(sampler: StreamingSampler, seeds: Ids, args: argparse.Namespace) -> Row:
    x = torch.zeros(args.query_nodes, args.channels)
    cache = SampleCache(sampler, x)
    subscribed = torch.from_numpy(seeds[: args.subscribed])
    began = time.thread_time()
    cache.subscribe(subscribed)
    each = (time.thread_time() - began) / subscribed.numel()
    asked = np.resize(subscribed.numpy(), seeds.size)
    row = _ask(
        f"cache, {args.channels} features",
        lambda seed: int(cache.query(torch.tensor([seed])).edge_index.shape[1]),
        asked,
    )
    row["features_cached"] = cache.stats.features / args.query_nodes
    row["ms_to_subscribe"] = 1e3 * each
    return row


def _spread(name: str, took: list[float], edges: int) -> Row:
    p50, p99 = np.percentile(took, [50, 99])
    return {
        "queries": name,
        "queries_per_s": len(took) / sum(took),
        "p50_ms": 1e3 * float(p50),
        "p99_ms": 1e3 * float(p99),
        "p99_less_mean_ms": 1e3 * float(p99 - np.mean(took)),
        "edges": edges / len(took),
    }
