"""Models that compute with edge data: of any name, of several kinds, scaled by the whole graph."""

import torch
from torch import nn
from torch_geometric import nn as gnn

from tests.strategies import KINDS
from tests.zoo import ANY, ATTR, CHANNELS, INCREMENTAL, WEIGHT, WHOLE, Case
from tests.zoo_models import HIDDEN, OUT

TYPE = (("edge_type", "type"),)


# Edge inputs #####################################################################################


class AnyName(nn.Module):
    """Its edge input has a name that says nothing of edges."""

    def __init__(self):
        super().__init__()
        self.conv1 = gnn.GCNConv(CHANNELS, HIDDEN)
        self.conv2 = gnn.GraphConv(HIDDEN, OUT)

    def forward(self, x, edge_index, weight):
        x = self.conv1(x, edge_index, weight).relu()
        return self.conv2(x, edge_index, weight)


class TypeAndWeight(nn.Module):
    """Scales the weight of every edge by a number learned for its type."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Embedding(KINDS, 1)
        self.conv1 = gnn.GraphConv(CHANNELS, HIDDEN)
        self.conv2 = gnn.GraphConv(HIDDEN, OUT)

    def forward(self, x, edge_index, edge_type, edge_weight):
        weight = self.scale(edge_type).squeeze(-1) * edge_weight
        x = self.conv1(x, edge_index, weight).relu()
        return self.conv2(x, edge_index, edge_weight)


class WeightAndAttr(nn.Module):
    """One conv reads the weights, the other one the attributes."""

    def __init__(self):
        super().__init__()
        self.conv1 = gnn.GCNConv(CHANNELS, HIDDEN)
        self.conv2 = gnn.GATConv(HIDDEN, OUT, edge_dim=3)

    def forward(self, x, edge_index, edge_weight, edge_attr):
        x = self.conv1(x, edge_index, edge_weight).relu()
        return self.conv2(x, edge_index, edge_attr)


class Relations(nn.Module):
    """Relational convs, which read the types."""

    def __init__(self):
        super().__init__()
        self.conv1 = gnn.RGCNConv(CHANNELS, HIDDEN, KINDS)
        self.conv2 = gnn.FastRGCNConv(HIDDEN, OUT, KINDS, num_bases=2)

    def forward(self, x, edge_index, edge_type):
        return self.conv2(self.conv1(x, edge_index, edge_type).relu(), edge_index, edge_type)


INPUT_CASES = [
    Case("edges-of-any-name", AnyName, data=(("weight", None),), mode=INCREMENTAL),
    Case("edges-by-type", TypeAndWeight, data=(*TYPE, *WEIGHT), mode=ANY),
    Case("edges-weight-and-attr", WeightAndAttr, data=(*WEIGHT, *ATTR), mode=INCREMENTAL),
    Case("edges-rgcn", lambda: gnn.RGCNConv(CHANNELS, OUT, KINDS), data=TYPE),
    Case("edges-relations", Relations, data=TYPE, formats=("coo",)),
]


# Edge data mixed with what is computed from the whole graph ######################################


class Mixed(nn.Module):
    """Two convs on edge data that a function of edge data and node features returns."""

    def __init__(self, function, convs):
        super().__init__()
        self.conv1, self.conv2 = convs()
        self.function = function

    def forward(self, x, edge_index, edge_weight=None, edge_attr=None):
        rows = self.function(x, edge_weight if edge_attr is None else edge_attr)
        return self.conv2(self.conv1(x, edge_index, rows).relu(), edge_index, rows)


def on_weights():
    return gnn.GCNConv(CHANNELS, HIDDEN), gnn.GraphConv(HIDDEN, OUT)


def on_attributes():
    return gnn.GATConv(CHANNELS, HIDDEN, edge_dim=3), gnn.GATConv(HIDDEN, OUT, edge_dim=3)


def mixing(name, function, data=WEIGHT):
    convs = on_weights if data is WEIGHT else on_attributes
    # PyG finds no largest weight where there is no edge.
    return Case(
        f"edges-mix-{name}", lambda: Mixed(function, convs), data=data, mode=WHOLE, picky=True
    )


def scaled(x, w):
    return (w - w.min()) / (w.max() - w.min())


EDGE_MIXING_CASES = [
    mixing("max", lambda x, w: w / w.max()),
    mixing("max-of-x", lambda x, w: w * x.max()),
    mixing("median", lambda x, w: w * (w > w.median())),
    mixing("clamp", lambda x, w: w.clamp(max=w.mean() * 3)),
    mixing("node-count", lambda x, w: w / x.size(0)),
    mixing("min-max", scaled),
    mixing("softmax", lambda x, w: torch.softmax(w, dim=0)),
    mixing("attr-amax", lambda x, a: a - a.amax(0), ATTR),
    mixing("attr-mean-of-x", lambda x, a: a + x.mean(), ATTR),
]

EDGE_CASES = [*INPUT_CASES, *EDGE_MIXING_CASES]
