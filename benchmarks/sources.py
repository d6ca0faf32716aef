"""Where workloads come from, by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import graphs, temporal, workload
from benchmarks.peers.protocol import Skipped
from benchmarks.workload import Workload
from examples.datasets import DataError, ogb_arrays

DOWNLOADS = ("ogbn-arxiv", "ogbn-products")
NAMES = (*graphs.SIZES, *temporal.TEMPORAL, *DOWNLOADS)


def load(
    name: str,
    *,
    updates: int,
    scale: float = 1.0,
    undirected: bool | None = None,
    root: str = "data",
    seed: int = 0,
) -> Workload:
    """A workload by one of `NAMES`, or by the path of a file.

    Args:
        name: What to load.
        updates: How many updates, if they are drawn.
        scale: Part of the published size, for drawn graphs.
        undirected: Whether drawn graphs have edges in both directions; as published by default.
        root: Folder of downloads.
        seed: Seed of what is drawn.

    Raises:
        Skipped: If it is not here and cannot be fetched.
    """
    if name in temporal.TEMPORAL:
        return temporal.TEMPORAL[name]()
    if name in DOWNLOADS:
        return _downloaded(name, updates, root, seed)
    if name not in graphs.SIZES:
        return _without_loops(workload.read(Path(name)))
    size = graphs.SIZES[name].scaled(scale) if scale != 1 else graphs.SIZES[name]
    if undirected is not None and undirected != size.undirected:
        edges = size.edges * 2 if undirected else size.edges // 2
        size = replace(size, undirected=undirected, edges=edges)
    return graphs.draw(size, updates, seed)


def _downloaded(name: str, updates: int, root: str, seed: int) -> Workload:
    """A real graph of OGB; its updates are drawn as for a drawn graph."""
    try:
        x, y, edge_index = ogb_arrays(name, root)
    except DataError as error:
        raise Skipped(str(error)) from error
    undirected = name == "ogbn-products"
    pairs = edge_index.numpy().astype(np.int32)
    if undirected:
        pairs = np.ascontiguousarray(pairs[:, pairs[0] < pairs[1]])
    pairs = np.ascontiguousarray(pairs[:, pairs[0] != pairs[1]])
    return graphs.stream_of(x, pairs, updates, undirected, int(y.max()) + 1, seed)


def _without_loops(work: Workload) -> Workload:
    """The same without self-loops: the programs that are compared have none."""
    is_loop = (work.kind != workload.CHANGE) & (work.a == work.b)
    parts = {name: getattr(work, name)[~is_loop] for name in ("kind", "a", "b")}
    edges = work.edge_index[:, work.edge_index[0] != work.edge_index[1]]
    return replace(work, edge_index=edges, **parts)
