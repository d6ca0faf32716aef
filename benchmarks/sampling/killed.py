"""Workers that are killed while events flow: how long queries wait, and whether answers are right.

Edges arrive in steps while one seed after the other is asked for. A third of the way the sampling
worker is killed, and at two thirds the serving worker. In the end the sample of every seed is held
against that of one process on the same edges.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import Row
from benchmarks.sampling.service import NO_EDGES, Follower, deltas_of
from benchmarks.sampling.speed import FANOUTS, draw
from pyg_incremental.sampling import StreamingSampler
from pyg_incremental.sampling.workers import SampleService
from pyg_incremental.sources import IterableSource

TIMEOUT = 10.0
"""Seconds after which a silent worker counts as dead, and in which a query has to be answered."""
_STEPS = 100
_KINDS = ("none yet", "sampling", "serving")


def measure(args: argparse.Namespace) -> list[Row]:
    """One row for the time before anyone is killed, and one for each kind of worker after that."""
    nodes, edges = args.share_nodes, draw(args.share_nodes, args.share_edges, 1)
    deltas = deltas_of(edges, max(1, args.share_edges // _STEPS))
    seeds = torch.from_numpy(np.random.default_rng(3).choice(nodes, args.seeds, replace=False))
    x = torch.arange(nodes, dtype=torch.float32)[:, None].repeat(1, args.channels)
    with TemporaryDirectory() as folder:
        service = SampleService(
            IterableSource(deltas), NO_EDGES, x, FANOUTS, folder, timeout=TIMEOUT,
            checkpoint_events=args.share_edges // 4,
        )  # fmt: skip
        with service:
            service.subscribe(seeds)
            follower = Follower(service, args.share_edges // _STEPS)
            rows = _ask(service, follower, seeds, len(deltas))
            follower.join()
            replaced = service.stats.replaced
            right = _right(service, deltas, seeds, x)
    for row in rows:
        row |= {"timeout_s": TIMEOUT, "replaced": replaced, "right_afterwards": right}
    if right < 1 or replaced != len(_KINDS) - 1:
        raise RuntimeError(f"{replaced} workers were replaced, and {right:.2%} are right: {rows}")
    return rows


def _ask(service: SampleService, follower: Follower, seeds: Tensor, count: int) -> list[Row]:
    """Ask until the stream has ended, and kill on the way."""
    rows: list[Row] = []
    waited: list[float] = []
    at, killed, token = 0, 0.0, -1
    while follower.is_alive() or len(rows) < len(_KINDS):
        if len(rows) < len(_KINDS) and follower.read * len(_KINDS) >= count * len(rows):
            rows.append({"killed": _KINDS[len(rows)], "new_events_after_s": 0.0})
            waited, killed, token = [], time.perf_counter(), service.visible
            if len(rows) > 1:
                os.kill(service.workers[len(rows) - 2][0], signal.SIGKILL)
        began = time.perf_counter()
        data = service.query(seeds[at % len(seeds)].view(1), timeout=TIMEOUT)
        waited.append(time.perf_counter() - began)
        if data.token > token >= 0:
            rows[-1]["new_events_after_s"], token = time.perf_counter() - killed, -1
        rows[-1] |= {"queries": len(waited), "longest_query_s": max(waited)}
        rows[-1]["query_p50_ms"] = 1e3 * float(np.median(waited))
        at += 1
        time.sleep(0.001)
    return rows


def _right(service: SampleService, deltas: list[object], seeds: Tensor, x: Tensor) -> float:
    """The share of seeds with the edges and features that one process has for them."""
    service.barrier()
    sampler = StreamingSampler(NO_EDGES, x.shape[0], FANOUTS)
    for delta in deltas:
        sampler.apply_delta(delta)
    same = 0
    for seed in seeds.split(1):
        found, expected = service.query(seed), sampler.sample(seed)
        same += int(
            torch.equal(found.e_id, expected.edge) and torch.equal(found.x, x[expected.node])
        )
    return same / len(seeds)
