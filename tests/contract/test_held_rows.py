"""Rows of edges that a model holds under any name, or that a layer of it has returned."""

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINEConv, GraphConv, MessagePassing, SAGEConv

from pyg_incremental import load, to_incremental
from tests.closeness import assert_close

N, E = 40, 90

pytestmark = pytest.mark.usefixtures("double")


class Holds(nn.Module):
    """A graph and weights of its edges, as buffers."""

    name = "w"

    def __init__(self, edges, weight):
        super().__init__()
        self.conv = GraphConv(5, 4)
        self.register_buffer("edge_index", edges)
        self.register_buffer("w", weight)
        self.register_buffer("scale", torch.ones(E))  # no rows of edges, though as many

    def forward(self, x):
        return self.conv(x, self.edge_index, self.w)


class HoldsData(Holds):
    """The same in an object."""

    name = "data.weight"

    def __init__(self, edges, weight):
        super().__init__(edges, weight)
        del self.edge_index, self.w
        self.data = Data(edge_index=edges, weight=weight, num_nodes=N)

    def forward(self, x):
        return self.conv(x, self.data.edge_index, self.data.weight)


class HoldsWeights(Holds):
    """Weights of a graph that it is given."""

    def __init__(self, edges, weight):
        super().__init__(edges, weight)
        del self.edge_index

    def forward(self, x, edge_index):
        return self.conv(x, edge_index, self.w)


class Learned(HoldsWeights):
    """Weights that are learned, which no delta can add to."""

    def __init__(self, edges, weight):
        super().__init__(edges, weight)
        del self.w
        self.w = nn.Parameter(weight)


def given(model, x, edges):
    return (x, edges) if isinstance(model, HoldsWeights) else (x,)


def with_rows(model, edges, weight):
    """The original with what it should hold by now."""
    if isinstance(model, HoldsData):
        model.data = Data(edge_index=edges, weight=weight, num_nodes=N)
    else:
        model.w = weight
        if "edge_index" in model._buffers:
            model.edge_index = edges
    return model


@pytest.mark.parametrize("make", [Holds, HoldsData, HoldsWeights])
def test_rows_of_edges_that_a_model_holds_are_followed(make, seed, tmp_path):
    x, edges, weight = torch.randn(N, 5), torch.randint(N, (2, E)), torch.rand(E)
    model = make(edges, weight).eval()
    inc = to_incremental(model)
    out = inc(*given(model, x, edges))
    assert_close(out, model(*given(model, x, edges)))
    assert inc.mode == "incremental"
    key = next(n for n, role in inc.roles.items() if role.what == "edge")
    assert key == make.name
    kept = [t.clone() for t in (*model.buffers(),)]
    for step in range(6):
        new, rows = torch.randint(N, (2, 2)), torch.rand(2)
        x = x.clone().index_fill(0, torch.tensor([step]), float(step))
        inc.apply_delta(
            edge_index_add=new,
            edge_data_add={key: rows},
            edge_index_del=edges[:, :1],
            edge_data_del={key: weight[:1]},
            x_changes=([step], x[step : step + 1]),
        )
        edges, weight = torch.cat([edges[:, 1:], new], 1), torch.cat([weight[1:], rows])
        twin = with_rows(make(edges, weight).eval(), edges, weight)
        twin.conv.load_state_dict(model.conv.state_dict())
        assert_close(inc.out, twin(*given(model, x, edges)))
    assert all(map(torch.equal, kept, model.buffers()))  # the model is as it was
    assert inc.verify() < 1e-12
    inc.save(tmp_path / "state")
    again = load(tmp_path / "state", model)
    assert_close(again.out, inc.out)


def test_weights_that_are_parameters_are_asked_for_as_a_buffer(seed):
    x, edges = torch.randn(N, 5), torch.randint(N, (2, E))
    inc = to_incremental(Learned(edges, torch.rand(E)).eval())
    with pytest.warns(match="does not run on a probe"):
        inc(x, edges)
    assert "self.register_buffer('w', w)" in str(inc.explain())


class Validates(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(5, 4)

    def forward(self, data):
        data.validate(raise_on_error=True)
        return self.conv(data.x, data.edge_index)


def test_an_object_that_is_validated_is_followed(seed):
    x, edges, model = torch.randn(N, 5), torch.randint(N, (2, E)), Validates().eval()
    inc = to_incremental(model)
    inc(Data(x=x, edge_index=edges))
    assert inc.mode == "incremental"
    for step in range(4):
        new = torch.tensor([[N + step], [step]])
        inc.apply_delta(edge_index_add=new, x_add=torch.ones(1, 5))
        x, edges = torch.cat([x, torch.ones(1, 5)]), torch.cat([edges, new], 1)
        assert_close(inc.out, model(Data(x=x, edge_index=edges)))


# Rows of edges from one layer to the next #########################################################


class Updates(MessagePassing):
    """A layer that returns rows of nodes and of edges."""

    def __init__(self, channels):
        super().__init__(aggr="add")
        self.of_node, self.of_edge = nn.Linear(channels + 3, 4), nn.Linear(11, 3)

    def forward(self, x, edge_index, edge_attr):
        out = self.propagate(edge_index, x=x, edge_attr=edge_attr)
        return out, self.edge_updater(edge_index, x=out, edge_attr=edge_attr)

    def message(self, x_j, edge_attr):
        return self.of_node(torch.cat([x_j, edge_attr], -1)).tanh()

    def edge_update(self, x_i, x_j, edge_attr):
        return self.of_edge(torch.cat([x_i, x_j, edge_attr], -1)).relu()


class Hands(nn.Module):
    """Rows of edges that a layer returned go on to the next."""

    def __init__(self, last):
        super().__init__()
        self.first, self.last = Updates(5), last

    def forward(self, x, edge_index, edge_attr):
        h, rows = self.first(x, edge_index, edge_attr)
        out = self.last(h, edge_index, rows)
        return out[0] if isinstance(out, tuple) else out


class Weighs(nn.Module):
    """Weights that a function makes of rows of nodes, or that a conv has returned."""

    def __init__(self, last, attends=False):
        super().__init__()
        self.first, self.mlp, self.last = SAGEConv(5, 4), nn.Linear(8, 1), last
        self.attend = GATConv(4, 4) if attends else None

    def forward(self, x, edge_index, edge_attr):
        h = self.first(x, edge_index).relu()
        if self.attend is not None:
            h, (edge_index, rows) = self.attend(h, edge_index, return_attention_weights=True)
            return self.last(h, edge_index, rows.squeeze(-1))
        ends = torch.cat([h[edge_index[0]], h[edge_index[1]]], -1)
        return self.last(h, edge_index, self.mlp(ends).sigmoid().squeeze(-1))


LAYERS = {
    "twice": lambda: Hands(Updates(4)),
    "gine": lambda: Hands(GINEConv(nn.Linear(4, 4), edge_dim=3)),
    "gcn": lambda: Weighs(GCNConv(4, 3)),
    "gat": lambda: Weighs(GATConv(4, 3, edge_dim=1)),
    "graph": lambda: Weighs(GraphConv(4, 3)),
    "attention": lambda: Weighs(GraphConv(4, 3), True),
}


@pytest.mark.parametrize("layers", LAYERS)
def test_rows_of_edges_that_a_layer_returns_are_followed(layers, seed):
    x, edges, rows = torch.randn(N, 5), torch.randint(N, (2, E)), torch.randn(E, 3)
    model = LAYERS[layers]().eval()
    inc = to_incremental(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inc(x, edges, rows)
    assert inc.mode == "incremental"
    for step in range(8):
        new, more = torch.randint(N, (2, 2)), torch.randn(2, 3)
        x = x.clone().index_fill(0, torch.tensor([step]), float(step))
        gone = {"edge_index_del": edges[:, :1], "edge_data_del": {"edge_attr": rows[:1]}}
        inc.apply_delta(
            edge_index_add=new, edge_attr_add=more, x_changes=([step], x[step : step + 1]), **gone
        )
        edges, rows = torch.cat([edges[:, 1:], new], 1), torch.cat([rows[1:], more])
        if step == 5:
            inc.apply_delta(nodes_del=[7])
            x[7], left = 0, (edges != 7).all(0)
            edges, rows = edges[:, left], rows[left]
        assert_close(inc.out, model(x, edges, rows))
    assert inc.verify() < 1e-12
