"""Graphs on which orders are compared: real ones, and ones that are drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks import graphs
from benchmarks.peers.protocol import Skipped
from benchmarks.sampling import accuracy
from benchmarks.temporal import folder

GROUPS = 400
"""Groups of nodes in the drawn graph that has such."""
INSIDE = 0.8
"""The part of its edges that stay within a group."""


def edges_of(name: str, scale: float = 1.0) -> tuple[Tensor, int]:
    """The edges of a graph, int64 `[2, num_edges]`, each once, no loops; and its number of nodes.

    Args:
        name: One of `GRAPHS`.
        scale: Part of the published size, for drawn graphs.

    Raises:
        Skipped: If it is not here.
    """
    if name in DRAWN:
        return DRAWN[name](scale)
    if name in TIMED:
        return TIMED[name]()
    x, edges, _ = accuracy.GRAPHS[name]()
    return edges, len(x)


def _drawn(scale: float) -> tuple[Tensor, int]:
    """Of ogbn-arxiv's size; who links to whom is drawn without any groups."""
    size = graphs.SIZES["arxiv"].scaled(scale)
    return graphs.draw(size, 3).edge_index, size.nodes


def _drawn_in_groups(scale: float) -> tuple[Tensor, int]:
    """The same with groups: most links lead to a node of one's own group, early ones more often."""
    size = graphs.SIZES["arxiv"].scaled(scale)
    rng = np.random.default_rng(0)
    src = rng.integers(1, size.nodes, size.edges)
    dst = (src * rng.random(len(src)) ** size.skew).astype(np.int64)
    groups = max(2, GROUPS * size.nodes // graphs.SIZES["arxiv"].nodes)
    inside = rng.random(len(src)) < INSIDE
    own = dst - dst % groups + src % groups
    dst = np.where(inside & (own < src), own, dst)
    keys = np.unique(src[src != dst] * size.nodes + dst[src != dst])
    name = rng.permutation(size.nodes)
    return torch.from_numpy(name[np.stack([keys // size.nodes, keys % size.nodes])]), size.nodes


def _drawn_shuffled(scale: float) -> tuple[Tensor, int]:
    """The drawn one with its targets shuffled among the edges: degrees are left, and chance.

    What an order saves of the drawn graph and not of this one is due to a structure that it has.
    """
    edges, nodes = _drawn(scale)
    src, dst = edges.numpy()
    dst = np.random.default_rng(0).permutation(dst)
    keys = np.unique(src[src != dst] * nodes + dst[src != dst])
    return torch.from_numpy(np.stack([keys // nodes, keys % nodes])), nodes


def _caida() -> tuple[Tensor, int]:
    """The internet links that are there at the end, both ways."""
    held = _read("as_caida_stream.npz")
    src, dst = held["edge_index"].astype(np.int64)
    keys = src << 32 | dst
    last = len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]
    return _both_ways(held["edge_index"][:, last[held["op"][last] > 0]], held)


def _mathoverflow() -> tuple[Tensor, int]:
    """Who answered whom, each once, both ways."""
    held = _read("sx_mathoverflow.npz")
    return _both_ways(held["edge_index"], held)


def _read(name: str) -> dict[str, np.ndarray]:
    path = folder() / name
    if not path.is_file():
        raise Skipped(f"there is no {name} in the folder that PYG_INCREMENTAL_DATA names")
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def _both_ways(edges: np.ndarray, held: dict[str, np.ndarray]) -> tuple[Tensor, int]:
    nodes = int(held["num_nodes"])
    src, dst = edges.astype(np.int64)
    src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    keys = np.unique(src[src != dst] * nodes + dst[src != dst])
    return torch.from_numpy(np.stack([keys // nodes, keys % nodes])), nodes


DRAWN: dict[str, Callable[[float], tuple[Tensor, int]]] = {
    "drawn": _drawn,
    "drawn-shuffled": _drawn_shuffled,
    "drawn-in-groups": _drawn_in_groups,
}
TIMED: dict[str, Callable[[], tuple[Tensor, int]]] = {
    "caida": _caida,
    "mathoverflow": _mathoverflow,
}
GRAPHS = (*(n for n in accuracy.GRAPHS if n != "drawn"), *TIMED, *DRAWN)
