"""A drawn graph of ogbn-mag's size, with four types of nodes, and models for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import HeteroConv, HGTConv, SAGEConv

NODES = {"paper": 736_389, "author": 1_134_649, "institution": 8_740, "field": 59_965}
EDGES = {
    ("author", "writes", "paper"): 7_145_660,
    ("paper", "cites", "paper"): 5_416_271,
    ("paper", "has", "field"): 7_505_078,
    ("author", "at", "institution"): 1_043_998,
}
"""As OGB publishes them; each comes with its reverse, so that every type is a target."""
CHANNELS, CLASSES, SKEW = 128, 349, 1.5
_BOTH_WAYS = [edge for key in EDGES for edge in (key, (key[2], f"of_{key[1]}", key[0]))]
METADATA = [*NODES], sorted(_BOTH_WAYS, key="__".join)
"""Relations in the order in which folders are read, which is the one that HGT asks for."""


class RGCN(nn.Module):
    """A mean and a weight for each relation, and one for the node itself."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            HeteroConv({edge: SAGEConv(CHANNELS if not i else hidden, hidden)
                        for edge in METADATA[1]})
            for i in range(layers)
        )  # fmt: skip
        self.out = nn.Linear(hidden, CLASSES)

    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[tuple[str, str, str], Tensor]
    ) -> Tensor:
        """The classes of papers."""
        for conv in self.convs:
            x_dict = {kind: x.relu() for kind, x in conv(x_dict, edge_index_dict).items()}
        made: Tensor = self.out(x_dict["paper"])
        return made


class HGT(RGCN):
    """The same with attention, by four heads."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__(hidden, 0)
        self.convs = nn.ModuleList(
            HGTConv(hidden if i else CHANNELS, hidden, METADATA, heads=4) for i in range(layers)
        )


MODELS: dict[str, type[RGCN]] = {"rgcn": RGCN, "hgt": HGT}


def draw(folder: Path, scale: float) -> tuple[int, int]:
    """Writes features and edges, as `pyg-incremental evaluate` reads them.

    Returns:
        the numbers of nodes and edges
    """
    rng, total = np.random.default_rng(0), 0
    counts = {kind: max(16, round(scale * n)) for kind, n in NODES.items()}
    for kind, count in counts.items():
        (folder / kind).mkdir()
        np.save(folder / kind / "x.npy", rng.standard_normal((count, CHANNELS), np.float32))
    for key, full in EDGES.items():
        size = max(16, round(scale * full))
        src = rng.integers(0, counts[key[0]], size)
        dst = (counts[key[2]] * rng.random(size) ** SKEW).astype(np.int64)
        for name, ends in ((key, (src, dst)), ((key[2], f"of_{key[1]}", key[0]), (dst, src))):
            (folder / "__".join(name)).mkdir()
            np.save(folder / "__".join(name) / "edge_index.npy", np.stack(ends))
            total += size
    return sum(counts.values()), total


def make(name: str, hidden: int, layers: int) -> nn.Module:
    """A model with drawn parameters."""
    torch.manual_seed(0)
    return MODELS[name](hidden, layers).eval()
