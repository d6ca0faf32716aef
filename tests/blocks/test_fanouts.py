"""Layers with edges of their own: the same as convs that are called on one graph each."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    APPNP,
    GAT,
    GCN,
    GIN,
    GCNConv,
    GraphSAGE,
    Linear,
    SAGEConv,
    SGConv,
)

from pyg_incremental import InvalidDeltaError, StateFileError, UnsupportedModelError, evaluate
from pyg_incremental.blocks.fanouts import StepLayers, with_fanouts
from pyg_incremental.blocks.given import call_of
from pyg_incremental.call.roles import classify
from pyg_incremental.session.prepare import prepare
from pyg_incremental.session.settings import Settings
from tests.blocks.test_evaluate import CHANNELS, full, graph, model_of
from tests.blocks.test_order import bipartite
from tests.closeness import assert_close


def drawn_of(model, data, most, seed):
    """Which edges each layer gathers over, from the first to the last."""
    site = call_of(model, data)
    roles = classify(site)
    with torch.no_grad():
        plan, graphs = with_fanouts(prepare(site, roles, Settings()), roles, most, seed)
    every = np.arange(data.num_edges)
    of = {name: torch.from_numpy(d.places) for name, d in graphs.items()}
    layers = range(1, 1 + len(most))
    return [of.get(f"edge_index@{at}", torch.from_numpy(every)) for at in layers], plan.program


def by_hand(model, data, places, weight=None):
    """The layers of a `BasicGNN`, each on its own edges."""
    x, outs = data.x, []
    for i, conv in enumerate(model.convs):
        more = () if weight is None else (weight[places[i]],)
        x = conv(x, data.edge_index[:, places[i]], *more)
        if i < len(model.convs) - 1 or model.jk_mode:
            x = model.act(x)
        outs.append(x)
    return model.lin(model.jk(outs)) if model.jk_mode else x


@pytest.mark.parametrize("jk", [None, "cat"])
@pytest.mark.parametrize("make", [GCN, GAT, GraphSAGE, GIN])
def test_each_layer_on_its_own_edges(make, jk, seed):
    data, model = graph(seed, 1000, 8000), model_of(make, 3, jk=jk)
    most = [5, -1, 2]  # for the last layer first
    places, program = drawn_of(model, data, most, seed)
    degree = data.edge_index[1].bincount(minlength=1000)
    for some, least in zip(places, (2, 1000, 5), strict=True):
        kept = data.edge_index[1][some].bincount(minlength=1000)
        assert torch.equal(kept, degree.clamp(max=least))
    with torch.no_grad():
        want = by_hand(model, data, places)
    got = evaluate(model, data, num_neighbors=most, seed=seed)
    assert_close(got, want)
    assert_close(evaluate(model, data, num_neighbors=most, seed=seed, memory=1_000_000), got, 1e-12)
    assert_close(evaluate(model, data, num_neighbors=most, seed=seed, nodes=[7, 3]), want[[7, 3]])
    assert_close(evaluate(model, data, num_neighbors=most, seed=seed, order="rcm"), want)
    assert not torch.equal(evaluate(model, data, num_neighbors=most, seed=seed + 1), got)
    assert len({s.output.name for s in program.steps}) == len(program.steps)


def test_edge_weights(seed):
    data, model = graph(seed, 1000, 8000), model_of(GCN, 2)
    weight = torch.rand(data.num_edges, dtype=torch.float64)
    weighted = Data(**data.to_dict(), edge_weight=weight)
    places, _ = drawn_of(model, weighted, [4, 2], seed)
    with torch.no_grad():
        want = by_hand(model, data, places, weight)
    assert_close(evaluate(model, weighted, num_neighbors=[4, 2], seed=seed), want)


def test_layers_draw_apart(seed):
    """Two layers of one number keep other edges."""
    data, model = graph(seed, 1000, 8000), model_of(GraphSAGE, 2)
    (first, second), _ = drawn_of(model, data, [2, 2], seed)
    assert len(first) == len(second)
    assert not torch.equal(first, second)


def test_all_edges(seed):
    data, model = graph(seed), model_of(GCN, 2)
    assert_close(evaluate(model, data, num_neighbors=[-1, -1]), full(model, data))
    _, program = drawn_of(model, data, [-1, -1], seed)
    assert "@" not in str(program)


class Source(nn.Module):
    """Gathers at the sources of edges."""

    def __init__(self):
        super().__init__()
        self.one = SAGEConv(CHANNELS, 8, flow="target_to_source")
        self.two = SAGEConv(8, 3, flow="target_to_source")

    def forward(self, x, edge_index):
        return self.two(self.one(x, edge_index).relu(), edge_index)


def test_edges_that_are_gathered_at_their_sources(seed):
    data, model = graph(seed, 1000, 8000), Source().double().eval()
    (first, second), _ = drawn_of(model, data, [3, 2], seed)
    edges = data.edge_index
    degree = edges[0].bincount(minlength=1000)
    assert torch.equal(edges[0][first].bincount(minlength=1000), degree.clamp(max=2))
    with torch.no_grad():
        want = model.two(model.one(data.x, edges[:, first]).relu(), edges[:, second])
    assert_close(evaluate(model, data, num_neighbors=[3, 2], seed=seed), want)


def test_several_types(seed):
    """Every relation of a layer keeps so many edges of each node."""
    data, model = bipartite(seed)
    most = max(
        int(store.edge_index[1].bincount().max()) for store in (data[t] for t in data.edge_types)
    )
    want = model(data.x_dict, data.edge_index_dict)
    got = evaluate(model, data, num_neighbors=[most, most])
    assert_close(got, {kind: rows.detach() for kind, rows in want.items()})
    fewer = evaluate(model, data, num_neighbors=[2, 1])
    assert not torch.allclose(fewer["user"], got["user"])


class Twice(nn.Module):
    """One conv in two layers."""

    def __init__(self, conv):
        super().__init__()
        self.conv, self.lin = conv, Linear(CHANNELS, 3)

    def forward(self, x, edge_index):
        return self.lin(self.conv(self.conv(x, edge_index), edge_index))


class Propagates(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def test_what_belongs_to_no_one_layer(seed):
    data = graph(seed)
    for conv in (GCNConv(CHANNELS, CHANNELS), SAGEConv(CHANNELS, CHANNELS)):
        with pytest.raises(UnsupportedModelError, match=r"'conv\..*' belongs to no one layer"):
            evaluate(Twice(conv).double().eval(), data, num_neighbors=[2, 2])
    for conv in (APPNP(2, 0.1), SGConv(CHANNELS, 3, K=2)):
        with pytest.raises(UnsupportedModelError, match="give one number for all layers"):
            evaluate(Propagates(conv).double().eval(), data, num_neighbors=[2, 2])
    one = Propagates(SGConv(CHANNELS, 3, K=1)).double().eval()
    assert evaluate(one, data, num_neighbors=[2]).shape == (data.num_nodes, 3)
    plain = Twice(SAGEConv(CHANNELS, CHANNELS, aggr="sum")).double().eval()
    (first, second), _ = drawn_of(plain, data, [2, 1], seed)
    with torch.no_grad():
        inner = plain.conv(data.x, data.edge_index[:, first])
        want = plain.lin(plain.conv(inner, data.edge_index[:, second]))
    assert_close(evaluate(plain, data, num_neighbors=[2, 1], seed=seed), want)


class Scaled(nn.Module):
    """A norm over all rows, which is no matter of edges."""

    def __init__(self):
        super().__init__()
        self.one, self.two = GCNConv(CHANNELS, 8), GCNConv(8, 3)

    def forward(self, x, edge_index):
        x = self.one(x, edge_index)
        return self.two(x / x.norm(), edge_index)


def test_a_step_on_all_rows(seed):
    data, model = graph(seed), Scaled().double().eval()
    (first, second), _ = drawn_of(model, data, [3, 2], seed)
    edges = data.edge_index
    with torch.no_grad():
        x = model.one(data.x, edges[:, first])
        want = model.two(x / x.norm(), edges[:, second])
    assert_close(evaluate(model, data, num_neighbors=[3, 2], seed=seed), want)


def test_as_many_numbers_as_layers(seed):
    data, model = graph(seed), model_of(GCN, 3, jk="cat")
    for wrong in ([2], [2, 2], [2] * 4, []):
        with pytest.raises(InvalidDeltaError, match="expected 3 numbers, one for each layer"):
            evaluate(model, data, num_neighbors=wrong)
    with pytest.raises(InvalidDeltaError, match="1 or more, or a list"):
        evaluate(model, data, num_neighbors=[2, 0, 2])


def test_layers_of_a_program(seed):
    """A degree counts for none."""
    for make, layers in itertools.product((GCN, GraphSAGE, GAT), (1, 3)):
        site = call_of(model_of(make, layers), graph(seed))
        with torch.no_grad():
            program = prepare(site, classify(site), Settings()).program
        assert StepLayers(program).count == layers


def test_a_killed_evaluation_is_not_gone_on_with_other_edges(seed, tmp_path):
    data, model = graph(seed), model_of(GCN, 2)
    got = evaluate(model, data, num_neighbors=[3, 2], directory=tmp_path).clone()
    assert_close(evaluate(model, data, num_neighbors=[3, 2], directory=tmp_path), got)
    for most in ([2, 3], 3, None):
        with pytest.raises(StateFileError, match="holds another evaluation"):
            evaluate(model, data, num_neighbors=most, directory=tmp_path)
