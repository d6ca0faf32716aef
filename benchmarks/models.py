"""The models that are compared: one kind of conv with ReLUs between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch_geometric.nn import GAT, GCN, GIN, GraphConv, GraphSAGE


class GraphConvNet(nn.Module):
    """GraphConv layers; PyG has no ready model of them."""

    def __init__(self, in_channels: int, hidden: int, num_layers: int, out_channels: int) -> None:
        """Build as many layers as asked for."""
        super().__init__()
        sizes = [in_channels, *[hidden] * (num_layers - 1), out_channels]
        self.convs = nn.ModuleList(GraphConv(i, o) for i, o in pairwise(sizes))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Outputs of all nodes."""
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


# a GAT has 4 heads, of a quarter of the hidden channels each
MODELS: dict[str, Callable[..., nn.Module]] = {
    "gcn": GCN,
    "sage": GraphSAGE,
    "sage-max": partial(GraphSAGE, aggr="max"),
    "gin": GIN,
    "gat": partial(GAT, heads=4),
    "graphconv": GraphConvNet,
}


def build(
    name: str, in_channels: int, hidden: int, out_channels: int, layers: int, seed: int = 0
) -> nn.Module:
    """A model with drawn parameters, in eval mode."""
    torch.manual_seed(seed)
    model = MODELS[name](in_channels, hidden, num_layers=layers, out_channels=out_channels)
    return model.eval()
