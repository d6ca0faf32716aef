"""Rows of edges and pairs in blocks: returned, and read again by later layers."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.utils import scatter

from pyg_incremental import UnsupportedModelError, evaluate
from pyg_incremental.blocks import edge_maps
from tests.closeness import assert_close

CHANNELS, NODES, EDGES = 5, 60, 200


class Pairs(nn.Module):
    """Scores of pairs of nodes."""

    def __init__(self):
        super().__init__()
        self.one, self.two = GCNConv(CHANNELS, 8), SAGEConv(8, 8)

    def forward(self, x, edge_index, edge_label_index):
        h = self.two(self.one(x, edge_index).relu(), edge_index)
        return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(-1).sigmoid()


class EdgesToo(nn.Module):
    """Rows of edges that are updated from those of nodes, and the other way round."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2 * CHANNELS + 2, 6)
        self.node = nn.Linear(CHANNELS + 6, CHANNELS)
        self.last = nn.Linear(2 * CHANNELS + 6, 3)

    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index
        e = self.first(torch.cat([x[row], x[col], edge_attr], 1)).relu()
        x = self.node(torch.cat([x, scatter(e, col, dim_size=x.size(0), reduce="mean")], 1)).tanh()
        return x, self.last(torch.cat([x[row], x[col], e], 1)), e


def world(seed, make):
    torch.manual_seed(seed)
    model = make().double().eval()
    edges = torch.randint(NODES, (2, EDGES))
    inputs = {"x": torch.randn(NODES, CHANNELS).double(), "edge_index": edges}
    if make is Pairs:
        inputs["edge_label_index"] = torch.randint(NODES, (2, 90))
    else:
        inputs["edge_attr"] = torch.randn(EDGES, 2).double()
    with torch.no_grad():
        return model, inputs, model(**inputs)


@pytest.mark.parametrize("at_once", [1, 7, 1 << 14])
@pytest.mark.parametrize("make", [Pairs, EdgesToo])
def test_equal_to_the_model(make, at_once, seed, tmp_path, monkeypatch):
    """However many edges are computed at a time; without a warning that it ran whole."""
    monkeypatch.setattr(edge_maps, "AT_ONCE", at_once)
    model, inputs, want = world(seed, make)
    assert_close(evaluate(model, inputs), want)
    assert_close(evaluate(model, inputs, memory=40_000), want)
    assert_close(evaluate(model, inputs, directory=tmp_path, memory=40_000), want)
    assert_close(evaluate(model, inputs, directory=tmp_path, memory=40_000), want)  # goes on
    assert_close(evaluate(model, inputs, order="degree"), want)
    with pytest.raises(UnsupportedModelError, match="no row for each node"):
        evaluate(model, inputs, nodes=[1])


def test_no_edges_and_no_pairs(seed):
    for make, name in ((Pairs, "edge_label_index"), (EdgesToo, "edge_index")):
        model, inputs, _ = world(seed, make)
        inputs[name] = inputs[name][:, :0]
        if make is EdgesToo:
            inputs["edge_attr"] = inputs["edge_attr"][:0]
        with torch.no_grad():
            assert_close(evaluate(model, inputs), model(**inputs))


@pytest.mark.parametrize("most", [2, [2, -1]])
def test_drawn_edges_leave_pairs_alone(most, seed):
    """They are looked at, and nothing is gathered over them."""
    model, inputs, want = world(seed, Pairs)
    got = evaluate(model, inputs, num_neighbors=most, seed=seed)
    assert got.shape == want.shape
    every = int(inputs["edge_index"][1].bincount().max())
    every = every if isinstance(most, int) else [every, every]
    assert_close(evaluate(model, inputs, num_neighbors=every), want)
