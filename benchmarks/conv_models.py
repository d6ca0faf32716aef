"""One of each conv class of PyG with a program of its own, with its usual options.

Called as `model(x, edge_index, edge_attr, edge_type)`, with the edge data that it takes; convs that
take other arguments (points, a first layer's rows, several kinds of nodes) make them of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn

HEADS, TYPES, ATTRIBUTES = 4, 3, 4
ATTR, TYPE, WEIGHT = "edge_attr", "edge_type", "edge_weight"


@dataclass(frozen=True)
class Sample:
    """A conv class with its usual options.

    Attributes:
        make: Makes the module, of rows of so many channels.
        data: The edge data that it is called with.
        key: What a delta calls its edges where there are several graphs; else empty.
    """

    make: Callable[[int], nn.Module]
    data: tuple[str, ...] = ()
    key: Any = ""


class Called(nn.Module):
    """A conv that is called by a function `call(conv, x, edge_index, *edge data)`."""

    def __init__(self, conv: nn.Module, call: Callable[..., Tensor]) -> None:
        """Keep both."""
        super().__init__()
        self.conv, self.call = conv, call

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        edge_type: Tensor | None = None,
    ) -> Tensor:
        """The output of the conv."""
        given = (rows for rows in (edge_attr, edge_type) if rows is not None)
        return self.call(self.conv, x, edge_index, *given)


def called(make: Callable[[int], nn.Module], call: Callable[..., Tensor], *data: str) -> Sample:
    """A conv with a call of its own."""
    return Sample(lambda c: Called(make(c), call), data)


def small(size: int, out: int) -> nn.Module:
    """A network of two layers."""
    return nn.Sequential(nn.Linear(size, out), nn.ReLU(), nn.Linear(out, out))


def _with_points(conv: nn.Module, x: Tensor, edge_index: Tensor) -> Any:
    return conv(x, x[:, :3], edge_index)


def _with_first(conv: nn.Module, x: Tensor, edge_index: Tensor) -> Any:
    return conv(x, x, edge_index)


EDGE = ("v", "to", "v")
META = (["v"], [EDGE])
DEGREES = torch.tensor([1, 3, 4, 2])
SCALERS = ["identity", "amplification", "attenuation"]

SAMPLES = {
    "SimpleConv": Sample(lambda c: gnn.SimpleConv()),
    "GCNConv": Sample(lambda c: gnn.GCNConv(c, c)),
    "ChebConv": Sample(lambda c: gnn.ChebConv(c, c, K=3)),
    "SAGEConv": Sample(lambda c: gnn.SAGEConv(c, c)),
    "GraphConv": Sample(lambda c: gnn.GraphConv(c, c)),
    "GatedGraphConv": Sample(lambda c: gnn.GatedGraphConv(c, 2)),
    "ResGatedGraphConv": Sample(lambda c: gnn.ResGatedGraphConv(c, c)),
    "GATConv": Sample(lambda c: gnn.GATConv(c, c // HEADS, HEADS)),
    "GATv2Conv": Sample(lambda c: gnn.GATv2Conv(c, c // HEADS, HEADS)),
    "TransformerConv": Sample(lambda c: gnn.TransformerConv(c, c // HEADS, HEADS)),
    "AGNNConv": Sample(lambda c: gnn.AGNNConv()),
    "TAGConv": Sample(lambda c: gnn.TAGConv(c, c)),
    "GINConv": Sample(lambda c: gnn.GINConv(small(c, c))),
    "GINEConv": Sample(lambda c: gnn.GINEConv(small(c, c), edge_dim=ATTRIBUTES), (ATTR,)),
    "ARMAConv": Sample(lambda c: gnn.ARMAConv(c, c, num_stacks=2, num_layers=2)),
    "SGConv": Sample(lambda c: gnn.SGConv(c, c, K=2)),
    "SSGConv": Sample(lambda c: gnn.SSGConv(c, c, alpha=0.1, K=2)),
    "APPNP": Sample(lambda c: gnn.APPNP(K=3, alpha=0.1)),
    "MFConv": Sample(lambda c: gnn.MFConv(c, c, max_degree=4)),
    "RGCNConv": Sample(lambda c: gnn.RGCNConv(c, c, TYPES), (TYPE,)),
    "FastRGCNConv": Sample(lambda c: gnn.FastRGCNConv(c, c, TYPES), (TYPE,)),
    "RGATConv": Sample(lambda c: gnn.RGATConv(c, c // HEADS, TYPES, heads=HEADS), (TYPE,)),
    "SignedConv": Sample(
        lambda c: _BothSigns(gnn.SignedConv(c, c, first_aggr=True)), key="pos_edge_index"
    ),
    "DNAConv": called(gnn.DNAConv, lambda conv, x, edges: conv(torch.stack([x, 2 * x], 1), edges)),
    "PointNetConv": called(lambda c: gnn.PointNetConv(small(c + 3, c)), _with_points),
    "GMMConv": Sample(lambda c: gnn.GMMConv(c, c, dim=ATTRIBUTES, kernel_size=2), (ATTR,)),
    "NNConv": Sample(lambda c: gnn.NNConv(c, 4, nn.Linear(ATTRIBUTES, 4 * c)), (ATTR,)),
    "CGConv": Sample(lambda c: gnn.CGConv(c, dim=ATTRIBUTES), (ATTR,)),
    "EdgeConv": Sample(lambda c: gnn.EdgeConv(small(2 * c, c))),
    "PPFConv": called(
        lambda c: gnn.PPFConv(small(c + 4, c)),
        lambda conv, x, edges: conv(x, x[:, :3], x[:, 3:6], edges),
    ),
    "FeaStConv": Sample(lambda c: gnn.FeaStConv(c, c, heads=HEADS)),
    "PointTransformerConv": called(lambda c: gnn.PointTransformerConv(c, c), _with_points),
    "HypergraphConv": Sample(lambda c: gnn.HypergraphConv(c, c)),
    "LEConv": Sample(lambda c: gnn.LEConv(c, c)),
    "PNAConv": Sample(lambda c: gnn.PNAConv(c, c, ["mean", "min", "max", "std"], SCALERS, DEGREES)),
    "ClusterGCNConv": Sample(lambda c: gnn.ClusterGCNConv(c, c)),
    "GENConv": Sample(lambda c: gnn.GENConv(c, c)),
    "GCN2Conv": called(lambda c: gnn.GCN2Conv(c, alpha=0.1, theta=0.5, layer=1), _with_first),
    "WLConvContinuous": Sample(lambda c: gnn.WLConvContinuous()),
    "FiLMConv": Sample(lambda c: gnn.FiLMConv(c, c)),
    "SuperGATConv": Sample(lambda c: gnn.SuperGATConv(c, c // HEADS, HEADS)),
    "FAConv": called(gnn.FAConv, _with_first),
    "EGConv": Sample(lambda c: gnn.EGConv(c, c, num_heads=HEADS)),
    "PDNConv": Sample(lambda c: gnn.PDNConv(c, c, edge_dim=ATTRIBUTES, hidden_channels=c), (ATTR,)),
    "GeneralConv": Sample(lambda c: gnn.GeneralConv(c, c)),
    "HGTConv": Sample(lambda c: _OneKind(gnn.HGTConv(c, c, META, heads=HEADS))),
    "HEATConv": called(
        lambda c: gnn.HEATConv(c, c // HEADS, 2, TYPES, 3, ATTRIBUTES, 3, heads=HEADS),
        lambda conv, x, edges, attr, kind: conv(x, edges, (x[:, 0] > 0).long(), kind, attr),
        ATTR,
        TYPE,
    ),
    "HeteroConv": Sample(lambda c: _OneKind(gnn.HeteroConv({EDGE: gnn.SAGEConv(c, c)}))),
    "LGConv": Sample(lambda c: gnn.LGConv()),
    "PointGNNConv": called(
        lambda c: gnn.PointGNNConv(small(c, 3), small(c + 3, c), small(c, c)), _with_points
    ),
    "AntiSymmetricConv": Sample(gnn.AntiSymmetricConv),
    "DirGNNConv": Sample(lambda c: gnn.DirGNNConv(gnn.SAGEConv(c, c))),
    "MixHopConv": Sample(lambda c: gnn.MixHopConv(c, c // 4)),
}


class _OneKind(nn.Module):
    """A conv of many kinds of nodes and edges, on one of each."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        made: Tensor = self.conv({"v": x}, {EDGE: edge_index})["v"]
        return made


class _BothSigns(nn.Module):
    """A conv of two graphs, the second one without edges."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, pos_edge_index: Tensor, neg_edge_index: Tensor) -> Tensor:
        made: Tensor = self.conv(x, pos_edge_index, neg_edge_index)
        return made
