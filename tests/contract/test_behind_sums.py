"""What stands behind sums in a `forward` that is read: layers, biases, a node's own message."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn

from benchmarks.traced import without_programs
from pyg_incremental import to_incremental
from pyg_incremental.ops import Linear, OwnMessage, Sum
from tests.side_by_side import SideBySide
from tests.strategies import generator, make_world
from tests.zoo import INCREMENTAL, WEIGHT, Case

CHANNELS = 6


class MeanThenLinear(gnn.MessagePassing):
    """`lin(mean) + own(x)`."""

    def __init__(self, out=4, aggr="mean"):
        super().__init__(aggr=aggr)
        self.lin, self.own = nn.Linear(CHANNELS, out), nn.Linear(CHANNELS, out)

    def forward(self, x, edge_index):
        return self.lin(self.propagate(edge_index, x=x)) + self.own(x)

    def message(self, x_j):
        return x_j


class Weighted(MeanThenLinear):
    """The same of weighted sums, twice what they are."""

    def forward(self, x, edge_index, edge_weight):
        rows = self.propagate(edge_index, x=x, edge_weight=edge_weight)
        return self.own(x) + self.lin(rows + rows)

    def message(self, x_j, edge_weight):
        return edge_weight.view(-1, 1) * x_j


class ReadTwice(MeanThenLinear):
    """Aggregated rows that are read by a layer and beside it: the layer stays where it is."""

    def forward(self, x, edge_index):
        rows = self.propagate(edge_index, x=x)
        return self.lin(rows) + rows.sum(-1, keepdim=True).sigmoid()


def case(name, make, data=()):
    return Case(name, make, data, mode=INCREMENTAL, finite=True)


CASES = [
    case("mean", MeanThenLinear),
    case("sum", lambda: MeanThenLinear(aggr="sum")),
    case("max", lambda: MeanThenLinear(aggr="max")),
    case("wide", lambda: MeanThenLinear(out=3 * CHANNELS)),
    case("weighted", lambda: Weighted(aggr="sum"), WEIGHT),
    case("read twice", ReadTwice),
    case("GCN", lambda: gnn.GCNConv(CHANNELS, 3)),
    case("GCN, no bias", lambda: gnn.GCNConv(CHANNELS, 3, bias=False)),
    case("GCN, weights", lambda: gnn.GCNConv(CHANNELS, 3), WEIGHT),
    case("GCN, no loops", lambda: gnn.GCNConv(CHANNELS, 3, add_self_loops=False)),
    case("SG", lambda: gnn.SGConv(CHANNELS, 3, K=3)),
    case("SAGE", lambda: gnn.SAGEConv(CHANNELS, 3)),
    case("GraphConv", lambda: gnn.GraphConv(CHANNELS, 3, aggr="mean"), WEIGHT),
    case("GIN", lambda: gnn.GINConv(gnn.MLP([CHANNELS, 5, 3], norm=None), eps=0.3)),
    case("SSG", lambda: gnn.SSGConv(CHANNELS, 3, alpha=0.2, K=2)),
    case("two", lambda: gnn.Sequential("x, edge_index", [
        (gnn.GCNConv(CHANNELS, 5), "x, edge_index -> x"), nn.ReLU(),
        (gnn.GraphConv(5, 3), "x, edge_index -> x"), nn.Linear(3, 2),
    ])),
]  # fmt: skip


def started(case, seed=0):
    world = make_world(generator([seed, 7]), nodes=11, edges=30, data=case.data)
    world.x = torch.randn(11, CHANNELS, dtype=torch.float64)
    with without_programs(case.make()):
        return SideBySide(case, seed=seed, world=world)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_behind_sums_stays_exact(case):
    run = started(case)
    assert run.inc.mode == "incremental", run.inc.explain()
    run.walk(kinds=8)
    run.walk(["self_loops", "self_loops_leave", "isolate_node", "mixed"])


def steps_of(name):
    return started(next(c for c in CASES if c.name == name)).inc.program.steps


@pytest.mark.parametrize("name", ["mean", "sum", "weighted", "SAGE", "GraphConv", "GIN"])
def test_a_linear_layer_runs_in_front(name):
    steps = steps_of(name)
    makers = {s.output: s for s in steps}
    (total,) = (s for s in steps if isinstance(s, Sum) and s.output.name != "degree")
    assert isinstance(getattr(makers[total.source], "fn", None), Linear)


def test_a_linear_layer_runs_in_front_of_hops_that_are_added():
    layers = [s for s in steps_of("SSG") if isinstance(getattr(s, "fn", None), Linear)]
    assert [s.output.name for s in layers] == ["lin_first"]


@pytest.mark.parametrize("name", ["wide", "read twice", "max"])
def test_a_linear_layer_stays(name):
    layers = [s for s in steps_of(name) if isinstance(getattr(s, "fn", None), Linear)]
    assert layers
    assert not any("_first" in s.output.name for s in layers)


@pytest.mark.parametrize("name", ["GCN", "GCN, no bias", "SG"])
def test_what_a_node_sends_itself_joins_the_sum(name):
    """And nothing is left behind the last sum."""
    *_, last = steps_of(name)
    own = [s for s in steps_of(name) if isinstance(getattr(s, "fn", None), OwnMessage)]
    assert len(own) == (3 if name == "SG" else 1)
    assert last.inputs[1].name.endswith("_own")


def test_a_line_is_explained_once():
    """Steps that were moved stand with the line of the model that they come from."""
    run = started(next(c for c in CASES if c.name == "SAGE"))
    lines = [step.place for step in run.inc.explain().steps]
    assert len({*lines}) == len(lines) == 3


def test_layers_between_types_move_to_the_nodes_that_send(seed):
    """Each linear layer runs on the rows of its own type, of which there is another number."""

    class Typed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = gnn.HeteroConv({
                ("user", "rates", "item"): gnn.GraphConv((5, 3), 4, aggr="mean"),
                ("item", "by", "user"): gnn.GraphConv((3, 5), 4),
            })  # fmt: skip

        def forward(self, x, edges):
            return self.conv(x, edges)

    model = Typed().double().eval()
    x = {"user": torch.randn(7, 5).double(), "item": torch.randn(11, 3).double()}
    rates = torch.stack([torch.randint(7, (20,)), torch.randint(11, (20,))])
    edges = {("user", "rates", "item"): rates, ("item", "by", "user"): rates.flip(0)}
    inc = to_incremental(model)
    inc(x, edges)
    assert inc.mode == "incremental"
    come = {"item": torch.randn(2, 3).double(), "user": torch.randn(3, 5).double()}
    pair = torch.tensor([[8], [12]])
    inc.apply_delta(x_add=come, edge_index_add={("user", "rates", "item"): pair})
    x = {kind: torch.cat([rows, come[kind]]) for kind, rows in x.items()}
    edges["user", "rates", "item"] = torch.cat([rates, pair], 1)
    for kind, rows in model(x, edges).items():
        torch.testing.assert_close(inc.out[kind], rows, rtol=1e-12, atol=1e-12)
