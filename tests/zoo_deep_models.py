"""Deeper models: PyG's PNA and EdgeCNN, residual stacks, jumping knowledge, relations."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as gnn

from tests.strategies import KINDS
from tests.zoo import ANY, ATTR, CHANNELS, WEIGHT, Case

HIDDEN, OUT = 6, 4
ATTRIBUTED = {"data": ATTR}
TYPED = {"data": (("edge_type", "type"),)}
DEGREES = torch.tensor([1, 3, 4, 2])


def pna(**options):
    options = {
        "aggregators": ["mean", "max", "std"],
        "scalers": ["identity", "amplification"],
        "deg": DEGREES,
        **options,
    }
    return lambda: gnn.PNA(CHANNELS, HIDDEN, num_layers=2, out_channels=OUT, **options)


def edge_cnn(**options):
    return lambda: gnn.EdgeCNN(CHANNELS, HIDDEN, num_layers=2, out_channels=OUT, **options)


class ResidualGINE(nn.Module):
    """Edge attributes are encoded once and read by three residual layers."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(CHANNELS, HIDDEN)
        self.edge = nn.Sequential(nn.Linear(3, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
        self.convs = nn.ModuleList(gnn.GINEConv(gnn.MLP([HIDDEN] * 3)) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm1d(HIDDEN) for _ in range(3))
        self.out = nn.Linear(HIDDEN, OUT)

    def forward(self, x, edge_index, edge_attr):
        x, edge = self.encode(x), self.edge(edge_attr)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.relu(norm(conv(x, edge_index, edge)))
        return self.out(x)


class DeepGCN(nn.Module):
    """The stack of DeeperGCN: pre-activation residual layers around one kind of conv."""

    def __init__(self, conv, block="res+"):
        super().__init__()
        self.encode, self.edge = nn.Linear(CHANNELS, HIDDEN), nn.Linear(3, HIDDEN)
        self.layers = nn.ModuleList(
            gnn.DeepGCNLayer(conv(), nn.BatchNorm1d(HIDDEN), nn.ReLU(inplace=True), block, 0.1)
            for _ in range(3)
        )
        self.out = nn.Linear(HIDDEN, OUT)

    def forward(self, x, edge_index, edge_attr):
        x, edge = self.encode(x), self.edge(edge_attr)
        x = self.layers[0].conv(x, edge_index, edge)
        for layer in self.layers[1:]:
            x = layer(x, edge_index, edge)
        return self.out(self.layers[0].act(self.layers[0].norm(x)))


def gine():
    return gnn.GINEConv(gnn.MLP([HIDDEN, HIDDEN]))


def gen():
    return gnn.GENConv(HIDDEN, HIDDEN, aggr="softmax", learn_t=True, num_layers=2, norm="batch")


class Jumping(nn.Module):
    """All layers reach the last one."""

    def __init__(self, mode, conv):
        super().__init__()
        self.convs = nn.ModuleList(conv(width) for width in (CHANNELS, HIDDEN, HIDDEN))
        self.jump = gnn.JumpingKnowledge(mode, HIDDEN, 3)
        self.out = nn.Linear(3 * HIDDEN if mode == "cat" else HIDDEN, OUT)

    def forward(self, x, edge_index):
        rows = []
        for conv in self.convs:
            x = conv(x, edge_index).relu()
            rows.append(x)
        return self.out(self.jump(rows))


def res_gated(width):
    return gnn.ResGatedGraphConv(width, HIDDEN)


def edge_conv(width):
    return gnn.EdgeConv(gnn.MLP([2 * width, HIDDEN, HIDDEN]))


class Relational(nn.Module):
    """Two relational convs, then one that is modulated by relation."""

    def __init__(self):
        super().__init__()
        self.conv1 = gnn.RGCNConv(CHANNELS, HIDDEN, KINDS, num_bases=2)
        self.conv2 = gnn.FastRGCNConv(HIDDEN, HIDDEN, KINDS)
        self.conv3 = gnn.FiLMConv(HIDDEN, OUT, KINDS)

    def forward(self, x, edge_index, edge_type):
        x = self.conv1(x, edge_index, edge_type).relu()
        x = self.conv2(x, edge_index, edge_type).relu()
        return self.conv3(x, edge_index, edge_type)


class PointNet(nn.Module):
    """Positions are handed on to every layer, features change."""

    def __init__(self):
        super().__init__()
        self.conv1 = gnn.PointNetConv(nn.Linear(5, HIDDEN), nn.Linear(HIDDEN, HIDDEN))
        self.conv2 = gnn.PointNetConv(nn.Linear(HIDDEN + 3, HIDDEN))
        self.out = nn.Linear(HIDDEN, OUT)

    def forward(self, x, edge_index):
        pos = x[:, :3]
        h = self.conv1(x[:, 3:], pos, edge_index).relu()
        return self.out(self.conv2(h, pos, edge_index).relu())


class Light(nn.Module):
    """LightGCN with the learned rows of the nodes as input: its forward has no node features."""

    def __init__(self):
        super().__init__()
        self.inner = gnn.LightGCN(1, CHANNELS, 3)

    def forward(self, x, edge_index, edge_weight=None):
        out = x * self.inner.alpha[0]
        for i, conv in enumerate(self.inner.convs):
            x = conv(x, edge_index, edge_weight)
            out = out + x * self.inner.alpha[i + 1]
        return out


DEEP_CASES = [
    Case("deep-pna", pna()),
    Case("deep-pna-attr", pna(edge_dim=3, towers=2, norm="batch", jk="cat"), **ATTRIBUTED),
    Case("deep-pna-layers", pna(pre_layers=2, post_layers=2)),
    Case("deep-edge-cnn", edge_cnn()),
    Case("deep-edge-cnn-jk", edge_cnn(norm="batch", jk="max", act="elu")),
    Case("deep-residual-gine", ResidualGINE, **ATTRIBUTED),
    *(
        Case(f"deep-gcn-{block}", lambda block=block: DeepGCN(gine, block), **ATTRIBUTED)
        for block in ("res+", "res", "plain")
    ),
    Case("deep-gcn-softmax", lambda: DeepGCN(gen), **ATTRIBUTED),
    *(
        Case(f"deep-jumping-{mode}", lambda mode=mode, conv=conv: Jumping(mode, conv))
        for mode, conv in (("cat", res_gated), ("max", edge_conv), ("lstm", res_gated))
    ),
    Case("deep-relational", Relational, **TYPED),
    Case("deep-point-net", PointNet),
    Case("deep-light-gcn", Light, mode=ANY),
    Case("deep-light-gcn-weights", Light, data=WEIGHT, mode=ANY),
]
