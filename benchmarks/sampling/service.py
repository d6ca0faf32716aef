"""Workers that sample and workers that serve: a stream of Taobao's shape, and what is cached.

All edges arrive while one thread asks for seeds that are subscribed, one after the other, and
another one steps. Times are those that pass, since several processes share the cores.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.report import Row
from benchmarks.sampling.speed import FANOUTS, draw
from pyg_incremental import GraphDelta
from pyg_incremental.sampling import StreamingSampler
from pyg_incremental.sampling.workers import SampleService
from pyg_incremental.sources import IterableSource

Ids = NDArray[np.int64]
NO_EDGES = torch.empty((2, 0), dtype=torch.int64)
_CHECKED = 2_000
"""Queries of which it is looked up what they could not see."""


class _Asked(NamedTuple):
    """One query: its seed, how many deltas had been read and how many were in the answer."""

    seed: int
    read: int
    seen: int
    edges: Tensor


def stream(args: argparse.Namespace) -> list[Row]:
    """All edges through one sampling and one serving worker."""
    edges = draw(args.nodes, args.edges, 1)
    deltas = deltas_of(edges, args.service_batch)
    seeds = np.random.default_rng(3).choice(args.nodes, args.seeds, replace=False)
    x = torch.zeros(args.nodes, args.channels)
    with TemporaryDirectory() as folder:
        service = SampleService(
            IterableSource(lambda: iter(deltas)), NO_EDGES, x, FANOUTS, folder,
            checkpoint_events=10**12, timeout=300.0,
        )  # fmt: skip
        del x
        with service:
            service.subscribe(torch.from_numpy(seeds))
            for _ in range(20):
                service.query(torch.from_numpy(seeds[:1]))
            follower = Follower(service, args.service_batch)
            asked, waited = _ask(service, follower, seeds)
            follower.join()
            row = _row(follower, waited, args)
            stats = service.stats
            row["features_cached"] = stats.serving[0]["features"] / args.nodes
            row |= {"asked_while_behind": stats.behind / stats.queries}
            began = time.perf_counter()
            service.checkpoint()
            row["checkpoint_s"] = time.perf_counter() - began
    row["updates_invisible"] = _invisible(deltas, args.nodes, asked)
    return [row]


def deltas_of(edges: Ids, size: int) -> list[GraphDelta]:
    """Edges in the order in which they are, so many in a delta."""
    found = []
    for first in range(0, edges.shape[1], size):
        part = np.ascontiguousarray(edges[:, first : first + size])
        found.append(GraphDelta(edge_index_add=torch.from_numpy(part)))
    return found


class Follower(threading.Thread):
    """Steps until the stream ends, and notes when what was read became visible."""

    def __init__(self, service: SampleService, batch: int) -> None:
        super().__init__()
        self._service, self._batch = service, batch
        self.visible: list[float] = []  # seconds after it was read
        self.by_token: dict[int, int] = {}
        self.events = self.read = 0
        self.seconds = 0.0
        self.start()

    def run(self) -> None:
        began = time.perf_counter()
        pending: dict[int, float] = {}
        while True:
            now = time.perf_counter()
            step = self._service.step(self._batch, wait=False)
            if not step.events:
                break
            self.events += step.events
            self.read = int(step.position)
            self.by_token[step.token] = self.read
            pending[step.token] = now
            self._note(pending, self._service.visible)
        self._note(pending, self._service.barrier())
        self.seconds = time.perf_counter() - began

    def _note(self, pending: dict[int, float], done: int) -> None:
        now = time.perf_counter()
        for token in [t for t in pending if t <= done]:
            self.visible.append(now - pending.pop(token))


def _ask(
    service: SampleService, follower: Follower, seeds: Ids
) -> tuple[list[_Asked], list[float]]:
    """Ask until the stream has ended."""
    asked, waited = [], []
    for seed in _again(seeds):
        if not follower.is_alive():
            return asked, waited
        read = follower.read
        began = time.perf_counter()
        data = service.query(torch.tensor([seed]))
        waited.append(time.perf_counter() - began)
        tokens = [t for t in follower.by_token.copy() if t <= data.token]
        seen = follower.by_token[max(tokens)] if tokens else 0
        asked.append(_Asked(seed, max(read, seen), seen, data.e_id))
        time.sleep(0.001)
    raise AssertionError("seeds are asked for again and again")


def _again(seeds: Ids) -> Iterator[int]:
    while True:
        yield from seeds.tolist()


def _row(follower: Follower, waited: list[float], args: argparse.Namespace) -> Row:
    visible = 1e3 * np.array(follower.visible)
    took = 1e3 * np.array(waited)
    return {
        "stream": f"{args.nodes:,} nodes, {args.edges:,} edges",
        "records_per_s": follower.events / follower.seconds,
        "visible_p50_ms": float(np.percentile(visible, 50)),
        "visible_p99_ms": float(np.percentile(visible, 99)),
        "queries": len(waited),
        "query_p50_ms": float(np.percentile(took, 50)),
        "query_p99_ms": float(np.percentile(took, 99)),
    }


def _invisible(deltas: list[GraphDelta], nodes: int, asked: list[_Asked]) -> float:
    """The share of the edges in samples of now that queries did not see, by one process.

    Every answer is held against the sample of its own time on the way.
    """
    some = asked[:: max(1, len(asked) // _CHECKED)]
    sampler = StreamingSampler(NO_EDGES, nodes, FANOUTS)
    at: dict[int, list[int]] = {}
    for i, query in enumerate(some):
        for time_ in {query.seen, query.read}:
            at.setdefault(time_, []).append(i)
    seen: dict[int, Tensor] = {}
    missed = every = 0
    for count in range(len(deltas) + 1):
        if count:
            sampler.apply_delta(deltas[count - 1])
        for i in at.get(count, []):
            query = some[i]
            found = sampler.sample(torch.tensor([query.seed])).edge
            if count == query.seen:
                seen[i] = found
                if not torch.equal(found, query.edges):
                    raise RuntimeError(f"an answer is not the sample of its time: {query}")
            if count == query.read:
                every += found.numel()
                missed += int((~torch.isin(found, seen[i])).sum())
    return missed / max(1, every)


def shares(args: argparse.Namespace) -> list[Row]:
    """What each of 1, 2 and 4 serving workers holds of the edges and features of a graph."""
    nodes, count = args.share_nodes, args.share_edges
    edges = torch.from_numpy(draw(nodes, count, 1))
    x = torch.zeros(nodes, args.channels)
    seeds = torch.from_numpy(np.random.default_rng(3).choice(nodes, nodes // 10, replace=False))
    everything = edges.nbytes + 8 * count + x.nbytes  # ends and ids of edges, features
    rows: list[Row] = []
    with TemporaryDirectory() as folder:
        service = SampleService(
            IterableSource([]), edges, x, FANOUTS, folder, timeout=300.0
        )  # fmt: skip
        with service:
            service.subscribe(seeds)
            for serving in (1, 2, 4):
                service.scale(serving=serving)
                held = service.stats.serving
                own = [worker["row_bytes"] / everything for worker in held]
                rows.append(
                    {
                        "serving_workers": serving,
                        "cached_by_each": float(np.mean(own)),
                        "most": max(own),
                        "features_by_each": float(np.mean([w["features"] for w in held])) / nodes,
                    }
                )
    return rows
