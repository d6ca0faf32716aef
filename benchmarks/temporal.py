"""Real graphs whose edges came, and in one case went, at known times."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.peers.protocol import Skipped
from benchmarks.workload import ADD, DELETE, Workload

Arrays = dict[str, NDArray[np.int64]]
CHANNELS = 128


def folder() -> Path:
    """Where the files lie: `PYG_INCREMENTAL_DATA`, or `shared/data` beside the repository."""
    default = Path(__file__).parents[2] / "shared" / "data"
    return Path(os.environ.get("PYG_INCREMENTAL_DATA", default))


def caida() -> Workload:
    """Internet links: monthly insertions and deletions, undirected."""
    arrays = _read("as_caida_stream.npz")
    return _replay(arrays, np.where(arrays["op"] > 0, ADD, DELETE), undirected=True)


def mathoverflow() -> Workload:
    """Who answered whom; only the first time counts, and nobody answers himself."""
    return _replay(*_first_times(_read("sx_mathoverflow.npz")), undirected=False)


def arxivai() -> Workload:
    """Citations between papers on artificial intelligence, undirected."""
    arrays = _read("gnnet24_arxivai.npz")
    arrays["edge_index"] = np.sort(arrays["edge_index"], axis=0)
    return _replay(*_first_times(arrays), undirected=True)


TEMPORAL: dict[str, Callable[[], Workload]] = {
    "caida": caida,
    "mathoverflow": mathoverflow,
    "arxivai": arxivai,
}


def _read(name: str) -> Arrays:
    path = folder() / name
    if not path.is_file():
        raise Skipped(f"there is no {name} in the folder that PYG_INCREMENTAL_DATA names")
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def _first_times(arrays: Arrays) -> tuple[Arrays, NDArray[np.int64]]:
    """The first occurrence of every edge that is no self-loop, each an addition."""
    source, target = arrays["edge_index"].astype(np.int64)
    first = np.sort(np.unique(source << 32 | target, return_index=True)[1])
    first = first[source[first] != target[first]]
    arrays["edge_index"] = arrays["edge_index"][:, first]
    return arrays, np.full(len(first), ADD)


def _replay(arrays: Arrays, kind: NDArray[np.int64], undirected: bool) -> Workload:
    """The first half of the events make the graph at the start, the others are the updates."""
    edges = arrays["edge_index"].astype(np.int64)
    half, nodes = edges.shape[1] // 2, int(arrays["num_nodes"])
    keys = edges[0, :half] << 32 | edges[1, :half]
    # of every edge the last event of the first half says whether it is there
    last = half - 1 - np.unique(keys[::-1], return_index=True)[1]
    start = torch.from_numpy(edges[:, last[kind[last] == ADD]])
    later = torch.from_numpy(edges[:, half:])
    return Workload(
        x=torch.randn(nodes, CHANNELS, generator=torch.Generator().manual_seed(0)),
        edge_index=torch.cat([start, start.flip(0)], 1) if undirected else start,
        kind=torch.from_numpy(kind[half:].astype(np.int64)),
        a=later[0],
        b=later[1],
        rows=torch.empty(0, CHANNELS),
        undirected=undirected,
    )
