"""Attention weights and graphs that a model returns, held against the model itself."""

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GATv2Conv, SAGEConv, TransformerConv

from pyg_incremental import to_incremental
from tests.closeness import assert_close
from tests.contract.test_kinds_of_rows import World


class Weights(nn.Module):
    """All that a conv returns: rows, its edges, and a weight for each of them and each head."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index):
        return self.conv(x, edge_index, return_attention_weights=True)


class Between(Weights):
    """Weights that are asked for by position, go into a second layer, and are returned."""

    def __init__(self, conv):
        super().__init__(conv)
        self.last = SAGEConv(8, 3)

    def forward(self, x, edge_index):
        h, (edges, alpha) = self.conv(x, edge_index, None, None, True)
        return self.last(h.relu(), edges), alpha.mean(1), edges


class Graph(Weights):
    """No weights, but the graph."""

    def forward(self, x, edge_index):
        return self.conv(x, edge_index), edge_index


def gat(**options):
    return GATConv(5, 4, heads=2, **options)


MODELS = {
    "gat": lambda: Weights(gat(add_self_loops=False)),
    "gat-in-between": lambda: Between(gat(add_self_loops=False)),
    "gat-loops": lambda: Weights(gat()),
    "gatv2": lambda: Weights(GATv2Conv(5, 4, heads=2, add_self_loops=False)),
    "transformer": lambda: Weights(TransformerConv(5, 4, heads=2)),
    "graph": lambda: Graph(SAGEConv(5, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_returned_along_random_deltas(name, seed):
    world = World(seed, 5)
    model = MODELS[name]().double().eval()
    inc = to_incremental(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loops are made in `forward`
        inc(world.x, world.e)
    assert name == "gat-loops" or inc.mode == "incremental"
    for _ in range(12):
        before, was = inc.out, inc.version
        fields = world.delta()
        foreseen = inc.preview(**fields)
        assert inc.version == was
        assert_close(inc.out, before, 1e-9)
        up = inc.apply_delta(**fields)
        with torch.no_grad():
            assert_close(inc.out, model(world.x, world.e), 1e-9)
        assert_close(foreseen.out, up.out, 1e-9)
    assert inc.verify() < 1e-9
    assert inc.check() == []


def test_only_weights_of_edges_into_a_node_that_an_edge_comes_to():
    world = World(0, 5)
    inc = to_incremental(MODELS["gat"]().double().eval())
    inc(world.x, world.e)
    up = inc.apply_delta(edge_index_add=torch.tensor([[3], [7]]))
    into = (inc.out[1][0][1] == 7).nonzero().flatten()
    assert up.changed[0].tolist() == [7]
    assert up.changed[1][1].tolist() == into.tolist()
    assert [s.rows for s in up.stats.steps if s.kind == "edge map"] == [len(into)]
