"""What compiling costs, apart from everything else: each program once on a tiny graph, then again.

Numba keeps compiled code on disk, so this is the time to load it in every run but the first.
"""

from __future__ import annotations

import time

from benchmarks.graphs import Size, draw
from benchmarks.models import build
from benchmarks.peers import OURS, PEERS, Skipped
from benchmarks.report import Row
from benchmarks.stream import Stream, all_nodes
from benchmarks.workload import Workload
from pyg_incremental.kernels import warm_up


def measure(models: list[str], layers: list[int], peers: list[str]) -> list[Row]:
    """Seconds of the first run of each program beyond those of its second one, over all models."""
    work = draw(Size(64, 256, 8, 4, False, 1.5), updates=60)
    kernels = warm_up() if OURS in peers else 0.0
    rows: list[Row] = []
    for name in peers:
        extra = kernels if name == OURS else 0.0
        for model in models:
            for depth in layers:
                first = _run(name, model, depth, work)
                extra += max(0.0, first - _run(name, model, depth, work))
        rows.append({"program": name, "compiling_s": extra})
    return rows


def _run(name: str, model: str, layers: int, work: Workload) -> float:
    net = build(model, work.x.shape[1], 8, work.classes, layers)
    stream = Stream(work)
    deltas = [stream.take(1), stream.take(1), stream.take(12), all_nodes(work.x, 0)]
    began = time.perf_counter()
    try:
        peer = PEERS[name](net)
        peer.bootstrap(work.x, work.edge_index)
    except Skipped:
        return 0.0
    for delta in deltas:
        peer.apply(delta)
    return time.perf_counter() - began
