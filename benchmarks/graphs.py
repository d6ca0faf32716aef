"""Graphs of the published sizes of real ones, drawn from a seed.

They are citation-like: nodes come one after the other and link to earlier ones, to early ones far
more often. Sizes are those that OGB and PyG publish; the skew is such that the largest degree comes
out near the real one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.workload import ADD, CHANGE, DELETE, Workload

Pairs = NDArray[np.int32]
AT_ONCE = 1 << 21  # pairs drawn at a time, so that no more than this is in memory twice


@dataclass(frozen=True)
class Size:
    """How large a graph is.

    Attributes:
        edges: Directed edges; of an undirected graph both directions count.
        skew: A node with `i` nodes before it links to number `i * u ** skew` for a uniform `u`.
    """

    nodes: int
    edges: int
    channels: int
    classes: int
    undirected: bool
    skew: float

    def scaled(self, by: float) -> Size:
        """Fewer nodes of the same degree, as far as there are so many pairs of them."""
        nodes = max(64, round(by * self.nodes))
        return replace(self, nodes=nodes, edges=min(round(by * self.edges), nodes * nodes // 16))


SIZES = {
    "arxiv": Size(169_343, 1_166_243, 128, 40, False, 2.5),
    "reddit": Size(232_965, 114_615_892, 602, 41, True, 1.5),
    "products": Size(2_449_029, 123_718_280, 100, 47, True, 1.55),
    "large": Size(11_000_000, 160_000_000, 128, 47, True, 1.55),
}


def draw(size: Size, updates: int, seed: int = 0) -> Workload:
    """A drawn graph of that size with drawn features, and the updates of `stream_of`."""
    rng = np.random.default_rng(seed)
    pairs = draw_pairs(size.nodes, size.edges // (1 + size.undirected), size.skew, rng)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size.nodes, size.channels, generator=generator)
    return stream_of(x, pairs, updates, size.undirected, size.classes, seed + 1)


def stream_of(
    x: torch.Tensor, pairs: Pairs, updates: int, undirected: bool, classes: int, seed: int
) -> Workload:
    """A graph, and equally many additions, deletions and feature changes in random order.

    The edges to be added are held back from the graph, those to be deleted are in it. The order of
    `pairs` is changed.
    """
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    third = min(updates // 3, pairs.shape[1] // 10)
    to_the_end(pairs, rng.choice(pairs.shape[1], third, replace=False))
    start, held = pairs[:, :-third], pairs[:, -third:]
    gone = start[:, rng.choice(start.shape[1], third, replace=False)]
    nodes = rng.integers(0, len(x), third, np.int32)
    mixed = torch.from_numpy(rng.permutation(3 * third))
    ends = np.concatenate([held, gone, np.stack([nodes, np.full_like(nodes, -1)])], 1)
    a, b = torch.from_numpy(ends.astype(np.int64))[:, mixed]
    return Workload(
        x=x,
        edge_index=as_edge_index(start, undirected),
        kind=torch.tensor([ADD, DELETE, CHANGE]).repeat_interleave(third)[mixed],
        a=a,
        b=b,
        rows=torch.randn(third, x.shape[1], generator=generator),
        undirected=undirected,
        classes=classes,
    )


def draw_pairs(nodes: int, count: int, skew: float, rng: np.random.Generator) -> Pairs:
    """Pairs (later node, earlier node) `[2, count]` under random names, none twice."""
    name = rng.permutation(nodes).astype(np.int32)
    pairs = np.empty((2, count), np.int32)
    made = 0
    borders = np.linspace(1, nodes, 1 + -(-count // AT_ONCE)).astype(np.int64)
    for low, high in pairwise(borders):
        wanted = count * (high - 1) // (nodes - 1) - made
        if high < nodes:  # early nodes have few to link to; later ones make up for it
            wanted = min(wanted, (high - low) * low // 4)
        keys = np.empty(0, np.int64)
        while len(keys) < wanted:
            source = rng.integers(low, high, int(1.3 * (wanted - len(keys))) + 64)
            target = (source * rng.random(len(source)) ** skew).astype(np.int64)
            keys = np.unique(np.concatenate([keys, source * nodes + target]))
        keys = rng.permutation(keys)[:wanted]
        pairs[0, made : made + wanted] = name[keys // nodes]
        pairs[1, made : made + wanted] = name[keys % nodes]
        made += wanted
    return pairs


def to_the_end(pairs: Pairs, at: NDArray[np.int64]) -> None:
    """Let the pairs at these places and the last ones change places."""
    first = pairs.shape[1] - len(at)
    is_chosen = np.zeros(len(at), np.bool_)
    is_chosen[at[at >= first] - first] = True
    inner, tail = at[at < first], first + np.flatnonzero(~is_chosen)
    pairs[:, inner], pairs[:, tail] = pairs[:, tail], pairs[:, inner]


def as_edge_index(pairs: Pairs, undirected: bool) -> torch.Tensor:
    """The pairs as int64 edges, both directions if undirected; no other copy is made."""
    count = pairs.shape[1]
    edges = torch.empty(2, count * (1 + undirected), dtype=torch.int64)
    edges[:, :count] = torch.from_numpy(pairs)
    if undirected:
        edges[:, count:] = torch.from_numpy(pairs).flip(0)
    return edges
