"""Readouts by `batch` in blocks: graphs are rows like any others."""

import pytest
import torch
from torch_geometric.nn import GCNConv, global_mean_pool

from pyg_incremental import InvalidDeltaError, UnsupportedModelError, evaluate
from pyg_incremental.blocks.evaluate import evaluator_of, why_not_in_blocks
from pyg_incremental.blocks.given import call_of
from pyg_incremental.blocks.layer_store import LayerStore
from pyg_incremental.call.roles import classify
from pyg_incremental.session.prepare import prepare
from pyg_incremental.session.settings import Settings
from tests.closeness import assert_close
from tests.contract.test_readouts import CHANNELS, MAKERS, Pooled

SIZES = (4, 7, 1, 0, 5, 3)  # nobody is in the fourth graph


def world(seed, make):
    """A model and its arguments; nodes of a graph do not stand side by side."""
    torch.manual_seed(seed)
    model = make().double().eval()
    batch = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
    order = torch.randperm(len(batch))
    pairs = [(i, j) for i in range(len(batch)) for j in range(len(batch)) if batch[i] == batch[j]]
    some = torch.tensor([pairs[i] for i in torch.randperm(len(pairs))[: 2 * len(batch)]]).t()
    place = order.argsort()
    x = torch.randn(len(batch), CHANNELS, dtype=torch.float64)
    return model, {"x": x, "edge_index": place[some], "batch": batch[order]}


@pytest.mark.filterwarnings("ignore:It is not recommended:UserWarning")
@pytest.mark.parametrize("size", [1, 7, None])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_every_readout_in_blocks(make, size, seed):
    model, inputs = world(seed, make)
    site = call_of(model, inputs)
    roles = classify(site)
    with torch.no_grad():
        plan = prepare(site, roles, Settings(), in_one=False)
        assert not plan.fallback
        assert not why_not_in_blocks(plan.program)
        run = evaluator_of(plan, roles, 1 << 30, LayerStore(), rows_in_block=size)
        run.run(lambda rows: None)
        assert_close(run.result(None), model(**inputs))


@pytest.mark.parametrize("name", ["mean", "attention", "virtual node", "every layer"])
def test_within_a_budget_in_a_directory_and_in_order(name, seed, tmp_path):
    model, inputs = world(seed, MAKERS[name])
    with torch.no_grad():
        want = model(**inputs)
    assert_close(evaluate(model, inputs, memory=20_000), want)
    assert_close(evaluate(model, inputs, memory=20_000, directory=tmp_path), want)
    assert_close(evaluate(model, inputs, order="degree"), want)


def test_graphs_keep_all_of_their_nodes_where_edges_are_drawn(seed):
    model, inputs = world(seed, Pooled)
    every = int(inputs["edge_index"][1].bincount().max())
    with torch.no_grad():
        want = model(**inputs)
    assert_close(evaluate(model, inputs, num_neighbors=every), want)
    assert_close(evaluate(model, inputs, num_neighbors=[every, -1]), want)
    with pytest.raises(InvalidDeltaError, match="expected 2 numbers"):
        evaluate(model, inputs, num_neighbors=[1, 1, 1])
    few = evaluate(model, inputs, num_neighbors=1)
    assert not torch.equal(few, want)
    without = {**inputs, "edge_index": inputs["edge_index"][:, :0]}
    assert_close(evaluate(model, without, num_neighbors=1), model(**without).detach())


class FromItsGraph(Pooled):
    """Rows of nodes that depend on those of all nodes of their graphs."""

    def __init__(self):
        super().__init__()
        self.one = GCNConv(CHANNELS, CHANNELS)

    def forward(self, x, edge_index, batch):
        return self.one(x - global_mean_pool(x, batch)[batch], edge_index)


def test_nodes_whose_rows_depend_on_their_graph(seed):
    model, inputs = world(seed, FromItsGraph)
    want = model(**inputs).detach()
    assert_close(evaluate(model, inputs, nodes=[9, 2]), want[[9, 2]])
    pooled, inputs = world(seed, Pooled)
    with pytest.raises(UnsupportedModelError, match="no row for each node"):
        evaluate(pooled, inputs, nodes=[1])
