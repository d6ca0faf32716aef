"""`evaluate` as a user calls it: nodes, budgets, samples, models without a program."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GAT, GCN, GCNConv, GraphSAGE, SAGEConv, to_hetero

from pyg_incremental import (
    IncrementalWarning,
    InvalidDeltaError,
    StaleStateError,
    UnsupportedModelError,
    evaluate,
    to_incremental,
)
from pyg_incremental.blocks import node_wise
from pyg_incremental.blocks.block import Block
from pyg_incremental.blocks.evaluate import evaluator_of
from pyg_incremental.blocks.given import bytes_of, call_of
from pyg_incremental.blocks.layer_store import LayerStore
from pyg_incremental.call.roles import classify
from pyg_incremental.session.prepare import prepare
from pyg_incremental.session.settings import Settings
from tests.closeness import assert_close

NODES, CHANNELS = 400, 6


def graph(seed, nodes=NODES, edges=1600):
    torch.manual_seed(seed)
    x = torch.randn(nodes, CHANNELS, dtype=torch.float64)
    edge_index = (nodes * torch.rand(2, edges) ** 2).long().clamp(max=nodes - 1)
    return Data(x=x, edge_index=edge_index, y=torch.zeros(nodes))


def model_of(make=GCN, layers=2, **options):
    return make(CHANNELS, 16, num_layers=layers, out_channels=3, **options).double().eval()


def full(model, data):
    with torch.no_grad():
        return model(data.x, data.edge_index)


def evaluator(model, data, memory, asked=None, **options):
    site = call_of(model, data)
    roles = classify(site)
    with torch.no_grad():
        plan = prepare(site, roles, Settings())
    assert not plan.fallback
    return evaluator_of(plan, roles, memory, LayerStore(), asked, **options)


@pytest.mark.parametrize("make", [GCN, GAT, GraphSAGE])
def test_data_or_arguments_by_name(make, seed):
    data, model = graph(seed), model_of(make)
    want = full(model, data)
    assert_close(evaluate(model, data, progress=False), want)
    by_name = {"x": data.x, "edge_index": data.edge_index}
    assert_close(evaluate(model, by_name), want)
    assert_close(to_incremental(model).evaluate(data), want)


def test_jumping_knowledge_residuals_and_weights(seed):
    data = graph(seed)
    model = model_of(GCN, 3, jk="cat", norm="batch_norm")
    weight = torch.rand(data.num_edges, dtype=torch.float64)
    want = model(data.x, data.edge_index, edge_weight=weight).detach()
    assert_close(evaluate(model, Data(**data.to_dict(), edge_weight=weight)), want)


def test_heterogeneous_data(seed):
    torch.manual_seed(seed)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(9, 4), torch.randn(7, 5)
    data["user", "buys", "item"].edge_index = torch.randint(7, (2, 30))
    data["item", "bought_by", "user"].edge_index = torch.randint(7, (2, 30))

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = SAGEConv((-1, -1), 8), SAGEConv((-1, -1), 3)

        def forward(self, x, edge_index):
            return self.two(self.one(x, edge_index).relu(), edge_index)

    model = to_hetero(Two(), data.metadata()).eval()
    want = model(data.x_dict, data.edge_index_dict)
    got = evaluate(model, data)
    assert list(got) == list(want)
    ids = {"user": torch.tensor([8, 0]), "item": torch.tensor([3])}
    part = evaluate(model, data, nodes=ids)
    for kind in want:
        assert_close(got[kind], want[kind].detach())
        assert_close(part[kind], want[kind][ids[kind]].detach())
    with pytest.raises(InvalidDeltaError, match="a dict by kind"):
        evaluate(model, data, nodes=[1])
    with pytest.raises(InvalidDeltaError, match="no nodes of type 'shop'"):
        evaluate(model, data, nodes={"shop": [1]})


def test_some_nodes_in_the_order_asked(seed):
    data, model = graph(seed), model_of()
    want = full(model, data)
    ids = torch.tensor([7, 3, 399, 3])
    assert_close(evaluate(model, data, nodes=ids), want[ids])
    assert_close(evaluate(model, data, nodes=[7, 3]), want[[7, 3]])
    mask = torch.zeros(NODES, dtype=torch.bool)
    mask[[5, 17]] = True
    assert_close(evaluate(model, data, nodes=mask), want[mask])
    assert evaluate(model, data, nodes=ids[:0]).shape == (0, 3)
    for wrong in ([NODES], [-1], torch.zeros(2, 2).long(), torch.zeros(3)):
        with pytest.raises(InvalidDeltaError, match=r"evaluate: node"):
            evaluate(model, data, nodes=wrong)


def test_only_what_some_nodes_see_is_computed(seed):
    """On a path, two layers see two nodes back."""
    part = evaluator(model_of(GraphSAGE), path(seed), 1 << 30, {"": np.array([50, 200])})
    part.run(lambda rows: None)
    assert [len(layer[""]) for layer in part.targets] == [0, 4, 2]
    assert part.total == 6
    every = evaluator(model_of(GraphSAGE), path(seed), 1 << 30)
    assert every.total == 2 * NODES


def test_all_nodes_where_most_are_seen_anyway(seed):
    data = graph(seed, edges=40 * NODES)
    most = evaluator(model_of(GraphSAGE), data, 1 << 30, {"": np.arange(20)})
    assert [layer[""] is None for layer in most.targets] == [False, True, False]


@pytest.mark.parametrize("make", [GCN, GAT, GraphSAGE])
def test_blocks_keep_to_the_budget(make, seed):
    data, model = graph(seed, 3000, 24_000), model_of(make)
    loose = evaluator(model, data, 1 << 30)
    loose.run(lambda rows: None)
    memory = loose.peak // 2
    tight = evaluator(model, data, memory)
    told = []
    tight.run(told.append)
    assert tight.peak <= memory
    assert tight.blocks > loose.blocks
    assert sum(told) == tight.total
    assert len(told) == tight.blocks
    assert_close(tight.result(None), full(model, data))


@pytest.mark.parametrize("make", [GCN, GAT, GraphSAGE])
def test_all_rows_at_once_are_read_where_they_lie(make, seed, monkeypatch):
    """Behind the small block that tells prices comes one of all rows, for which nothing is copied.

    Rows of messages and of the next layer are all that there is beside what is kept.
    """
    data, model = graph(seed, 3000, 24_000), model_of(make)
    run = evaluator(model, data, 1 << 30)
    read, told, hold = [], [], Block._hold

    def noted(self, key, rows, lent=False):
        if len(self._ids) == 3000 and key[1] is not None:
            read.append((lent, rows.shape[1]))
        hold(self, key, rows, lent)

    monkeypatch.setattr(Block, "_hold", noted)
    run.run(told.append)
    assert len(read) >= 2  # of each layer with an aggregation
    assert all(lent or width == 1 for lent, width in read)
    assert run.blocks == len(told) == 2 * run.total // 3000
    assert sum(told) == run.total
    assert_close(run.result(None), full(model, data))


def test_blocks_use_most_of_the_budget(seed):
    data = graph(seed, 3000, 24_000)
    some = evaluator(model_of(), data, 1 << 30)
    some.run(lambda rows: None)
    memory = some.peak * 2 // 3
    tight = evaluator(model_of(), data, memory)
    tight.run(lambda rows: None)
    assert 0.6 * memory <= tight.peak <= memory
    assert tight.blocks < 40


def test_one_node_that_does_not_fit_is_named(seed):
    star = torch.stack([torch.arange(NODES), torch.zeros(NODES, dtype=torch.long)])
    data = Data(x=torch.randn(NODES, CHANNELS).double(), edge_index=star)
    with pytest.raises(MemoryError, match="the in-edges of node number 0 need"):
        evaluate(model_of(), data, memory=10_000)
    with pytest.raises(MemoryError, match="kept from layer to layer take"):
        evaluate(model_of(), data, memory=30_000)


def test_out(seed):
    data, model = graph(seed), model_of()
    rows = torch.empty(NODES, 3, dtype=torch.float64)
    assert evaluate(model, data, out=rows) is rows
    assert_close(rows, full(model, data))
    few = torch.empty(2, 3, dtype=torch.float64)
    evaluate(model, data, nodes=[4, 1], out=few)
    assert_close(few, full(model, data)[[4, 1]])
    with pytest.raises(InvalidDeltaError, match="out: expected"):
        evaluate(model, data, out=rows.float())


def test_every_node_keeps_some_edges(seed):
    """It is the model on the graph of these edges, the same ones in every layer and block."""
    data, model = graph(seed), model_of(GraphSAGE)
    got = evaluate(model, data, num_neighbors=3, seed=seed)
    assert_close(evaluate(model, data, num_neighbors=3, seed=seed, memory=100_000), got, 1e-12)
    assert not torch.equal(evaluate(model, data, num_neighbors=3, seed=seed + 1), got)
    weight = torch.arange(data.num_edges, dtype=torch.float64)
    first = GCNConv(CHANNELS, CHANNELS, normalize=False, bias=False).double().eval()
    with torch.no_grad():
        first.lin.weight.copy_(torch.eye(CHANNELS))
    ones = Data(x=torch.ones(NODES, CHANNELS).double(), edge_index=data.edge_index)
    kept = evaluate(first, ones, num_neighbors=3, seed=seed)[:, 0]
    degree = data.edge_index[1].bincount(minlength=NODES).double()
    assert torch.equal(kept, degree.clamp(max=3))
    assert_close(
        evaluate(model, data, num_neighbors=int(degree.max()), seed=seed), full(model, data)
    )
    assert len(weight) > kept.sum()
    for wrong in (0, True, 2.5, "3"):
        with pytest.raises(InvalidDeltaError, match="num_neighbors: expected"):
            evaluate(model, data, num_neighbors=wrong)


class Branches(nn.Module):
    """Its control flow depends on values."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 3)

    def forward(self, x, edge_index):
        out = self.conv(x, edge_index)
        return out.relu() if x.isfinite().all() else out


class Mixes(Branches):
    """... and every row depends on all others."""

    def forward(self, x, edge_index):
        out = super().forward(x, edge_index)
        return out - out.mean(0)


def test_a_model_without_a_program_runs_whole(seed):
    data, model = graph(seed), Branches().double().eval()
    with pytest.warns(IncrementalWarning, match="It runs whole, in one full pass"):
        assert_close(evaluate(model, data), full(model, data))
    with pytest.warns(IncrementalWarning):
        assert_close(evaluate(model, data, nodes=[3, 1]), full(model, data)[[3, 1]])
    with pytest.raises(UnsupportedModelError, match="no edges can be drawn"):
        evaluate(model, data, num_neighbors=2)


def path(seed):
    edge_index = torch.stack([torch.arange(NODES - 1), torch.arange(1, NODES)])
    return Data(x=graph(seed).x, edge_index=edge_index)


def test_a_model_without_a_program_runs_node_by_node(seed):
    data, model = path(seed), Branches().double().eval()
    with pytest.warns(IncrementalWarning, match="node by node, on what each sees within 1 hops"):
        assert_close(evaluate(model, data, memory=100_000, hops=1), full(model, data))
    with pytest.warns(IncrementalWarning, match="node by node"):
        part = evaluate(model, data, nodes=[9, 2], memory=100_000, hops=1)
    assert_close(part, full(model, data)[[9, 2]])
    with pytest.raises(UnsupportedModelError, match="depends on more than it sees"):
        evaluate(Mixes().double().eval(), data, memory=100_000, hops=1)
    with pytest.raises(UnsupportedModelError, match=r"say so: evaluate\(\.\.\., hops=k\)"):
        evaluate(model, data, memory=100_000)
    with pytest.raises(ValueError, match="hops: expected how many hops a row sees"):
        evaluate(model, data, memory=100_000, hops=-1)
    with (
        pytest.warns(IncrementalWarning),
        pytest.raises(MemoryError, match="what node 1 sees"),
    ):
        evaluate(model, data, memory=500, hops=1)


class Repeats(Branches):
    """One conv three times: a row sees three hops, which the convs do not tell."""

    def forward(self, x, edge_index):
        for _ in range(3):
            x = torch.cat([super().forward(x, edge_index), x[:, 3:]], dim=1)
        return x


def test_how_far_a_row_sees_is_said_by_the_user(seed):
    generator = torch.Generator().manual_seed(seed)
    # No edges lead to the first nodes.
    ends = torch.randint(2 * NODES, (NODES,), generator=generator)
    more = torch.randint(NODES, 2 * NODES, (NODES,), generator=generator)
    x = torch.randn(2 * NODES, CHANNELS, dtype=torch.float64, generator=generator)
    data, model = Data(x=x, edge_index=torch.stack([ends, more])), Repeats().double().eval()
    with pytest.raises(UnsupportedModelError, match="depends on more than it sees within 1 hops"):
        evaluate(model, data, memory=100_000, hops=1)
    with pytest.warns(IncrementalWarning, match="within 3 hops"):
        assert_close(evaluate(model, data, memory=100_000, hops=3), full(model, data))


class Scales(Branches):
    """It branches on what one row of all decides."""

    def forward(self, x, edge_index):
        return super().forward(2 * x if x.max() > 50 else x, edge_index)


@pytest.mark.parametrize("hot", [7, NODES - 1])
def test_what_is_decided_by_values_is_the_same_in_all_batches(hot, seed):
    data, model = path(seed), Scales().double().eval()
    with pytest.warns(IncrementalWarning):
        assert_close(evaluate(model, data, memory=100_000, hops=1), full(model, data))
    data.x[hot, 0] = 100.0
    with (
        pytest.warns(IncrementalWarning),
        pytest.raises(UnsupportedModelError, match="reads other values than on another"),
    ):
        evaluate(model, data, memory=100_000, hops=1)


def test_node_by_node_in_few_batches(seed):
    site = call_of(Branches().double().eval(), path(seed))
    alone = node_wise.NodeWise(site, classify(site), 100_000, 1)
    told = []
    with pytest.warns(IncrementalWarning):
        alone.run("it branches", None, told.append)
    assert told == [16, 32, 64, 128, 128, 32]
    assert alone.batches == len(told)


def test_refused(seed):
    data = graph(seed)
    with pytest.raises(StaleStateError, match="training mode"):
        evaluate(model_of().train(), data)
    for wrong in ("much", 0, True, "4XB", ""):
        with pytest.raises(ValueError, match="memory: expected"):
            evaluate(model_of(), data, memory=wrong)

    class Pooled(Branches):
        def forward(self, x, edge_index):
            return self.conv(x, edge_index).mean(0)

    pooled = Pooled().double().eval()
    assert_close(evaluate(pooled, data), full(pooled, data))
    with pytest.raises(UnsupportedModelError, match="no row for each node"):
        evaluate(pooled, data, nodes=[1])


def test_bytes():
    assert [bytes_of(m) for m in (17, "17", "4GB", "1.5 k", "2 MiB", "1gib")] == [
        17, 17, 4 * 10**9, 1500, 2 << 20, 1 << 30,
    ]  # fmt: skip


def test_rows_go_with_their_last_reader(seed):
    """Beside the output, at most two layers' rows are kept at a time."""
    run = evaluator(model_of(GraphSAGE, 6), graph(seed), 1 << 30)
    held = []
    run.run(lambda rows: held.append(len(run._kept)))
    assert max(held) <= 5
    assert len(run._kept) == 1
    assert math.isfinite(float(run.result(None).sum()))


@pytest.mark.parametrize("make", [GCN, GAT, GraphSAGE])
def test_memory_of_one_layer_serves_the_next(make, seed):
    """Rows that nobody reads any more are written to again, and are none of what comes out."""
    data, model = graph(seed, 3000, 24_000), model_of(make, 6)
    run = evaluator(model, data, 1 << 30)
    told, spare, held = [], [], []

    def look(rows):
        told.append(rows)
        held.append({r.data_ptr() for r in run._spare})
        spare.append(sum(r.nbytes for r in run._spare))
        assert not held[-1] & {k.rows.data_ptr() for k in run._kept.values()}
        assert run.resident >= spare[-1]

    run.run(look)
    assert max(map(len, held)) in (1, 2, 3, 4)
    assert len(set().union(*held)) <= 8  # of six layers
    assert not run._spare
    assert_close(run.result(None), full(model, data))
    tight = evaluator(model, data, run.peak * 2 // 3)
    tight.run(lambda rows: None)
    assert tight.peak <= tight.memory
    assert_close(tight.result(None), full(model, data))


def test_what_an_incremental_model_holds(seed):
    data, model = graph(seed), model_of()
    inc = to_incremental(model)
    inc(data.x, data.edge_index)
    inc.apply_delta(edge_index_add=torch.tensor([[1], [2]]))
    assert_close(inc.evaluate(), inc.out)
    assert_close(inc.evaluate(nodes=[2, 1]), inc.out[[2, 1]])
