"""Workloads: a graph at its start and a stream of updates, in one .npz file.

A workload file has these arrays, where `kind`, `a` and `b` have one entry per update:

- `num_nodes`, `in_channels`: sizes
- `edge_index`: [2, E], the graph at the start
- `x_seed`: seed of the features, `default_rng(x_seed).standard_normal(shape, float32)`
- `rows_seed`: the same for the new rows of the updates that change features, in their order
- `kind`: 0 adds the edge a -> b, 1 deletes it, 2 changes the features of node a
- `a`, `b`: source and target of the edge; for kind 2 the node and -1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from examples.datasets import citations
from pyg_incremental import GraphDelta

ADD, DELETE, CHANGE = 0, 1, 2


@dataclass(frozen=True)
class Workload:
    """A graph at its start and the updates that follow."""

    x: Tensor
    edge_index: Tensor
    kind: Tensor
    a: Tensor
    b: Tensor
    rows: Tensor  # the new rows of the updates of kind 2, in their order
    undirected: bool = False  # every edge of an update counts in both directions
    classes: int = 40  # channels of a model's output

    def batches(self, size: int) -> Iterator[GraphDelta]:
        """The updates in order, `size` to a delta; a rest that fills no batch is left out."""
        row_of = (self.kind == CHANGE).cumsum(0) - 1
        for start in range(0, len(self.kind) - size + 1, size):
            part = slice(start, start + size)
            kind, pair = self.kind[part], torch.stack([self.a[part], self.b[part]])
            added, deleted, changed = (kind == k for k in (ADD, DELETE, CHANGE))
            # as a caller would, name only what changed
            yield GraphDelta(
                edge_index_add=pair[:, added] if added.any() else None,
                edge_index_del=pair[:, deleted] if deleted.any() else None,
                x_changes=(pair[0, changed], self.rows[row_of[part][changed]])
                if changed.any()
                else None,
            )


def read(path: Path) -> Workload:
    """Read a workload file."""
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    wanted = {"num_nodes", "in_channels", "edge_index", "x_seed", "rows_seed", "kind", "a", "b"}
    if missing := sorted(wanted - arrays.keys()):
        raise SystemExit(f"{path} is not a workload file: it has no {', '.join(missing)}.")

    def draw(seed: str, rows: int) -> Tensor:
        rng = np.random.default_rng(int(arrays[seed]))
        return torch.from_numpy(rng.standard_normal((rows, int(arrays["in_channels"])), np.float32))

    return Workload(
        x=draw("x_seed", int(arrays["num_nodes"])),
        edge_index=torch.from_numpy(arrays["edge_index"]).long(),
        kind=torch.from_numpy(arrays["kind"]).long(),
        a=torch.from_numpy(arrays["a"]).long(),
        b=torch.from_numpy(arrays["b"]).long(),
        rows=draw("rows_seed", int((arrays["kind"] == CHANGE).sum())),
    )


def draw(num_nodes: int, num_edges: int, channels: int, updates: int, seed: int = 0) -> Workload:
    """A citation-like graph and equally many additions, deletions and feature changes."""
    generator = torch.Generator().manual_seed(seed)
    x, edges = citations(num_nodes, num_edges, channels, seed)
    third = min(updates // 3, num_edges // 3)
    node = torch.randint(num_nodes, (third,), generator=generator)
    pair = torch.cat([edges[:, : 2 * third], torch.stack([node, torch.full_like(node, -1)])], 1)
    order = torch.randperm(3 * third, generator=generator)
    return Workload(
        x=x,
        edge_index=edges[:, third:],
        kind=torch.tensor([ADD, DELETE, CHANGE]).repeat_interleave(third)[order],
        a=pair[0, order],
        b=pair[1, order],
        rows=torch.randn(third, channels, generator=generator),
    )
