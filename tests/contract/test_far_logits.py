"""Softmax where a row starts from nothing, far from any reference, or loses what was not finite."""

from itertools import permutations

import pytest
import torch
from torch_geometric.nn import GATConv, GraphConv, SAGEConv, TransformerConv

from pyg_incremental import GraphDelta, to_incremental
from tests.closeness import assert_close
from tests.oracle import World, full
from tests.strategies import index

pytestmark = pytest.mark.kernels

BACKENDS = ("compiled", "reference")


def softmax_of_features():
    return SAGEConv(1, 1, aggr="softmax", root_weight=False)


def additive():
    conv = GATConv(1, 1, add_self_loops=False, negative_slope=1.0)
    with torch.no_grad():
        conv.lin.weight.fill_(1)
        conv.att_src.fill_(1)
    return conv


def dot_product():
    conv = TransformerConv(1, 1, root_weight=False)
    with torch.no_grad():
        for layer in (conv.lin_key, conv.lin_query, conv.lin_value):
            layer.weight.fill_(1)
    return conv


CONVS = [softmax_of_features, additive, dot_product]


def wrapped(make, features, pairs, backend, dtype=torch.float64):
    torch.manual_seed(0)
    conv = make().to(dtype).eval()
    world = World(torch.tensor(features, dtype=dtype)[:, None], pairs)
    inc = to_incremental(conv, backend=backend)
    inc(**world.inputs())
    assert inc.mode == "incremental"
    return conv, world, inc


def step(conv, world, inc, **delta):
    world.apply(**delta)
    update = inc.apply_delta(**delta)
    assert_close(inc.out, full(conv, world))
    return update


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("make", CONVS)
def test_the_first_edge_of_a_row_may_have_any_logit(make, dtype, backend):
    conv, world, inc = wrapped(make, [-1000.0, 1.0, 2.0, 1.0], [(1, 2)], backend, dtype)
    step(conv, world, inc, edge_index_add=index([(0, 3)]))  # never had an edge
    step(conv, world, inc, edge_index_del=index([(1, 2)]))
    step(conv, world, inc, edge_index_add=index([(0, 2)]))  # lost its last one
    step(conv, world, inc, edge_index_del=index([(0, 2)]), edge_index_add=index([(1, 2)]))
    step(conv, world, inc, edge_index_del=index([(1, 2)]), edge_index_add=index([(0, 2)]))
    new = torch.ones(1, 1, dtype=dtype)
    step(conv, world, inc, x_add=new, edge_index_add=index([(0, 4)]))  # is new itself
    step(conv, world, inc, edge_index_add=index([(1, 4)]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", CONVS)
def test_a_message_of_no_weight_that_is_not_finite_leaves_no_trace(make, backend):
    conv, world, inc = wrapped(make, [1.0, 0.5, 2.0, 3.0], [(0, 2), (1, 2), (0, 3)], backend)
    minus = torch.tensor([[-torch.inf]]).double()
    step(conv, world, inc, x_changes=([1], minus))
    step(conv, world, inc, edge_index_del=index([(1, 2)]))
    step(conv, world, inc, edge_index_add=index([(1, 3)]))
    step(conv, world, inc, x_changes=([1], torch.ones(1, 1).double()))


LOGITS = [-torch.inf, -1000.0, -1.0, 0.5, 1000.0, torch.nan]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("some", [[0, 0], [0, 1, 3], [1, 2, 3, 4], [0, 3, 4], [0, 3, 5]], ids=str)
def test_a_row_is_the_same_in_whatever_order_its_logits_come(some, dtype, backend):
    """One row for each order, made afresh, and once more with one of its edges gone."""
    conv = GATConv(1, 1, edge_dim=1, add_self_loops=False, negative_slope=1.0)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.fill_(1)
    conv.to(dtype).eval()
    orders = list(permutations(range(len(some))))
    pairs = [(at, len(some) + row) for row, order in enumerate(orders) for at in order]
    logits = [LOGITS[some[at]] for order in orders for at in order]
    x = torch.linspace(0.1, 0.4, len(some) + len(orders), dtype=dtype)[:, None]
    world = World(x, pairs, {"edge_attr": torch.tensor(logits, dtype=dtype)[:, None]})
    inc = to_incremental(conv, backend=backend)
    inc(**world.inputs())
    assert inc.mode == "incremental"
    assert_close(inc.out, full(conv, world))
    # their targets change, so all rows are made afresh, and then the last logits leave
    ids = torch.arange(len(some), len(x))
    step(conv, world, inc, x_changes=(ids, x[ids] + 1))
    step(conv, world, inc, edge_index_del=index([(len(some) - 1, int(v)) for v in ids]))


class OfTwoColumns(torch.nn.Module):
    """Attention from the first feature of a source to the second one of a target, with loops."""

    def __init__(self):
        super().__init__()
        self.conv = GATConv((1, 1), 1)
        with torch.no_grad():
            for parameter in self.conv.parameters():
                parameter.fill_(1)

    def forward(self, x, edge_index):
        return self.conv((x[:, :1], x[:, 1:]), edge_index)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_target_changes_and_the_logit_of_its_loop_is_too_large_to_show_it(backend):
    model = OfTwoColumns().double().eval()
    x = torch.tensor([[-1e18, -1.0], [0.5, 0.0], [-2.0, 0.0]]).double()
    world = World(x, [(1, 0), (2, 0)])
    inc = to_incremental(model, backend=backend, compile_after=2)
    inc(**world.inputs())
    assert {step.kind for step in inc.program.steps} >= {"softmax"}
    for target in (1.0, -1.0, 3.0, 0.0):
        before = inc.out[0].clone()
        rows = torch.tensor([[-1e18, target]]).double()
        step(model, world, inc, x_changes=([0], rows))
        assert (inc.out[0] - before).abs() > 1e-3


@pytest.mark.parametrize("gone", [1, 2])
def test_an_inverse_tells_parallel_edges_apart(gone):
    """One edge of a pair leaves, and another one changes."""
    torch.manual_seed(0)
    conv = GraphConv(1, 1).double().eval()
    weight = torch.tensor([0.5, 2.0, 4.0, 8.0]).double()
    pairs = [(0, 1), (0, 1), (0, 1), (1, 2)]
    world = World(torch.randn(3, 1).double(), pairs, {"edge_weight": weight})
    inc = to_incremental(conv)
    inc(**world.inputs())
    before = inc.out.clone()
    delta = GraphDelta(
        edge_index_del=index([(0, 1)] * gone),
        edge_changes=(index([(0, 1)]), {"edge_weight": torch.tensor([7.0]).double()}),
    )
    back = delta.inverse(inc)
    inc.apply_delta(delta)
    inc.apply_delta(back)
    assert_close(inc.out, before)
    kept = (inc.graph.to_edge_index() == torch.tensor([[0], [1]])).all(0)
    of_pair = inc.edge_data("edge_weight")[kept].tolist()
    assert of_pair == [0.5, 2.0, 4.0]
