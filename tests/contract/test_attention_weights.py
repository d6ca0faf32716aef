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


class Used(Weights):
    """Weights between the conv and what leaves: by rows, and added up over the targets."""

    def forward(self, x, edge_index):
        h, (_, alpha) = self.conv(x, edge_index, return_attention_weights=True)
        return h, alpha.max(1)[0].exp(), alpha[:, :1] - 0.5


class Both(Weights):
    """Weights with loops of a conv's own, and weights without them."""

    def __init__(self, conv):
        super().__init__(conv)
        self.last = TransformerConv(8, 3)

    def forward(self, x, edge_index):
        h, first = self.conv(x, edge_index, return_attention_weights=True)
        h, (_, second) = self.last(h.relu(), edge_index, return_attention_weights=True)
        return {"rows": h, "first": first, "second": second}


class Featured(Weights):
    """Edges with features, and a conv that is told not to return its weights."""

    def __init__(self, conv):
        super().__init__(conv)
        self.second = GATConv(8, 3)

    def forward(self, x, edge_index, edge_attr):
        h, more = self.conv(x, edge_index, edge_attr, return_attention_weights=True)
        return self.second(h.relu(), edge_index, return_attention_weights=False), more


MODELS = {
    "gat": lambda: Weights(gat(add_self_loops=False)),
    "gat-in-between": lambda: Between(gat(add_self_loops=False)),
    "gat-loops": lambda: Weights(gat()),
    "gat-loops-in-between": lambda: Between(gat()),
    "gat-loops-used": lambda: Used(gat(residual=True)),
    "gat-loops-mean": lambda: Weights(gat(aggr="mean", concat=False)),
    "gat-loops-max": lambda: Weights(gat(aggr="max")),
    "gat-loops-turned": lambda: Weights(gat(flow="target_to_source")),
    "gatv2-loops": lambda: Weights(GATv2Conv(5, 4, heads=2)),
    "gatv2-loops-shared": lambda: Used(GATv2Conv(5, 4, heads=3, share_weights=True, aggr="mean")),
    "gatv2-loops-turned": lambda: Weights(GATv2Conv(5, 4, flow="target_to_source")),
    "both": lambda: Both(gat()),
    "gatv2": lambda: Weights(GATv2Conv(5, 4, heads=2, add_self_loops=False)),
    "transformer": lambda: Weights(TransformerConv(5, 4, heads=2)),
    "graph": lambda: Graph(SAGEConv(5, 4)),
}


ON_ALL_ROWS = ("gat-loops-in-between", "gat-loops-max")
"""A conv on the edges with loops that another one returns; weights that are not summed up."""


@pytest.mark.parametrize("name", MODELS)
def test_what_is_returned_along_random_deltas(name, seed):
    world = World(seed, 5)
    model = MODELS[name]().double().eval()
    inc = to_incremental(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some run on all rows
        inc(world.x, world.e)
    assert (inc.mode == "mixed") == (name in ON_ALL_ROWS)
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


def test_of_own_loops_the_weights_change_where_an_edge_comes_to():
    world = World(0, 5)
    model = MODELS["gat-loops"]().double().eval()
    inc = to_incremental(model)
    inc(world.x, world.e)
    up = inc.apply_delta(edge_index_add=torch.tensor([[3], [7]]))
    (edges, alpha), into = inc.out[1], (inc.out[1][0][1] == 7).nonzero().flatten()
    assert up.changed[0].tolist() == [7]
    assert set(into.tolist()) <= set(up.changed[1][1].tolist())
    assert len(alpha) == edges.shape[1]
    plain = int((world.e[1] == 7).sum()) + 1
    assert [s.rows for s in up.stats.steps if s.kind == "edge map"] == [plain]
    assert all(s.rows == 1 for s in up.stats.steps if s.kind == "map")


@pytest.mark.parametrize("fill", ["mean", "max", 0.5])
@pytest.mark.parametrize("kind", [GATConv, GATv2Conv])
def test_edge_features_and_loops_of_its_own(kind, fill, seed):
    world = World(seed, 5)
    model = Featured(kind(5, 4, heads=2, edge_dim=3, fill_value=fill)).double().eval()
    rows = torch.randn(world.e.shape[1], 3, dtype=torch.float64)
    inc = to_incremental(model)
    inc(world.x, world.e, rows)
    assert inc.mode == "incremental"
    for at in range(8):
        ends, new = torch.randint(len(world.x), (2, 3)), torch.randn(3, 3, dtype=torch.float64)
        ends[:, :1] = ends[:1, :1]  # a self-loop, which is left out
        gone = torch.arange(world.e.shape[1]) == at
        more = {"edge_index_add": ends, "edge_data_add": {"edge_attr": new}}
        inc.apply_delta(edge_index_del=world.e[:, gone], which="oldest")
        first = (world.e == world.e[:, gone]).all(0).nonzero()[0]
        gone = torch.arange(world.e.shape[1]) == first
        world.e, rows = torch.cat([world.e[:, ~gone], ends], 1), torch.cat([rows[~gone], new])
        inc.apply_delta(**more)
        with torch.no_grad():
            assert_close(inc.out, model(world.x, world.e, rows), 1e-9)
    assert inc.verify() < 1e-9
    assert inc.check() == []
