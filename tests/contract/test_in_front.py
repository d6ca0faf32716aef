"""Products of one end of an edge run at its node; row maps behind each other are one."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import softmax

from pyg_incremental.ops import Aggregate, FunctionSum
from pyg_incremental.program.steps import Domain, RowMap
from tests.side_by_side import SideBySide
from tests.strategies import generator, make_world
from tests.zoo import ATTR, PARTLY, Case

CHANNELS = 8


class OfOneEnd(gnn.MessagePassing):
    """A product of the row at one end, behind something cheap, inside of the message."""

    def __init__(self, at="x_j", out=CHANNELS, aggr="sum", flow="source_to_target"):
        super().__init__(aggr=aggr, flow=flow)
        self.lin, self.at = nn.Linear(CHANNELS, out), at

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        rows, other = (x_j, x_i) if self.at == "x_j" else (x_i, x_j)
        return (self.lin(rows.tanh()) + other.sum(-1, keepdim=True)).sigmoid()


class OfTheDifference(OfOneEnd):
    """A product of both ends: it stays on the edge, where the difference is exact."""

    def message(self, x_i, x_j):
        return self.lin(x_j - x_i).sigmoid()


class Beside(gnn.MessagePassing):
    """A layer of a network on rows beside each other, as in CGConv, EdgeConv and HEATConv."""

    def __init__(self, parts="ije", out=CHANNELS, aggr="sum", bias=True):
        super().__init__(aggr=aggr)
        width = sum({"i": CHANNELS, "j": CHANNELS, "d": CHANNELS, "e": 3}[p] for p in parts)
        self.mlp = nn.Sequential(nn.Linear(width, out, bias=bias), nn.ReLU(), nn.Linear(out, 5))
        self.parts = parts

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i, x_j, edge_attr):
        rows = {"i": x_i, "j": x_j, "d": x_j - x_i, "e": edge_attr}
        return self.mlp(torch.cat([rows[p] for p in self.parts], -1))


class ByName(nn.Module):
    """Rows beside each other and layers that are handed theirs by name, without a conv."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(2 * CHANNELS, 5), nn.Linear(2 * CHANNELS, 5)

    def forward(self, x, edge_index):
        both = torch.cat(tensors=[x[edge_index[0]], x[edge_index[1]]], dim=1)
        rows = self.one(input=both) * self.two(input=both).sigmoid()
        return rows.new_zeros(x.size(0), 5).index_add_(0, edge_index[1], rows)


class Attending(gnn.MessagePassing):
    """Attention by a network of both ends and the edge."""

    def __init__(self):
        super().__init__(aggr="sum")
        self.lin, self.value = nn.Linear(2 * CHANNELS + 3, CHANNELS), nn.Linear(CHANNELS, 5)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i, x_j, edge_attr, index, ptr, size_i):
        logits = self.lin(torch.cat([x_i, x_j, edge_attr], -1)).tanh().sum(-1)
        weights = softmax(logits, index, ptr, size_i)
        return weights.view(-1, 1) * self.value(x_j)


class Gated(gnn.MessagePassing):
    """A gate of both ends between the factors of `gcn_norm`, as in FAConv."""

    def __init__(self, loops=True):
        super().__init__(aggr="sum")
        self.left, self.right, self.loops = nn.Linear(CHANNELS, 1), nn.Linear(CHANNELS, 1), loops

    def forward(self, x, edge_index):
        edge_index, norm = gcn_norm(edge_index, None, x.size(0), add_self_loops=self.loops,
                                    dtype=x.dtype)  # fmt: skip
        return self.propagate(edge_index, x=x, norm=norm)

    def message(self, x_i, x_j, norm):
        gate = (self.left(x_j) + self.right(x_i)).tanh().squeeze(-1)
        return x_j * (gate * norm).unsqueeze(-1)


class ByKernels(gnn.MessagePassing):
    """Edge rows made by a chain of maps and of parameters, as in GMMConv."""

    def __init__(self):
        super().__init__(aggr="mean")
        self.mu, self.sigma = nn.Parameter(torch.rand(4, 3)), nn.Parameter(torch.rand(4, 3))
        self.lin = nn.Linear(CHANNELS, 4 * 5)

    def forward(self, x, edge_index, edge_attr):
        far = (edge_attr.unsqueeze(1) - self.mu).pow(2) / (1e-9 + self.sigma.pow(2))
        return self.propagate(edge_index, x=self.lin(x), near=(-far.sum(-1)).exp())

    def message(self, x_j, near):
        return (x_j.view(-1, 4, 5) * near.unsqueeze(-1)).sum(1)


def case(name, make, data=ATTR):
    return Case(name, make, data, mode=PARTLY, finite=True)


MAKERS = [
    ("source", OfOneEnd, ()),
    ("target", lambda: OfOneEnd("x_i"), ()),
    ("against the edges", lambda: OfOneEnd(flow="target_to_source"), ()),
    ("max", lambda: OfOneEnd(aggr="max"), ()),
    ("wide", lambda: OfOneEnd(out=8 * CHANNELS), ()),
    ("difference", OfTheDifference, ()),
    ("both and the edge", Beside, ATTR),
    ("no bias", lambda: Beside(bias=False), ATTR),
    ("without the edge", lambda: Beside("ji", aggr="mean"), ATTR),
    ("one of them", lambda: Beside("id", aggr="max"), ATTR),
    ("one twice", lambda: Beside("jeij"), ATTR),
    ("too wide", lambda: Beside(out=20 * CHANNELS), ATTR),
    ("by name", ByName, ()),
    ("attention", Attending, ATTR),
    ("gated", Gated, ()),
    ("gated, no loops", lambda: Gated(loops=False), ()),
    ("kernels", ByKernels, ATTR),
    ("CG", lambda: gnn.CGConv(CHANNELS, dim=3), ATTR),
    ("EdgeConv", lambda: gnn.EdgeConv(gnn.MLP([2 * CHANNELS, 6, 4], norm=None)), ()),
]
CASES = {name: case(name, make, data) for name, make, data in MAKERS}


def started(name, seed=0, **options):
    case = CASES[name]
    dtype = options.get("dtype", torch.float64)
    world = make_world(generator([seed, 7]), nodes=11, edges=30, data=case.data, dtype=dtype)
    world.x = torch.randn(11, CHANNELS, dtype=dtype)
    return SideBySide(case, seed=seed, world=world, **options)


@pytest.mark.parametrize("name", CASES)
def test_products_in_front_stay_exact(name):
    run = started(name)
    assert run.inc.mode == "incremental", run.inc.explain()
    run.walk(kinds=8)
    run.walk(["self_loops", "self_loops_leave", "isolate_node", "mixed"])


def products(name):
    """The products of node rows, and the aggregation."""
    steps = started(name).inc.program.steps
    maps = [s for s in steps if type(s) is RowMap and s.costly and s.output.domain is Domain.NODE]
    (last,) = (s for s in steps if isinstance(s, Aggregate) and s.output.name != "degree")
    return [s for s in maps if "apart" not in s.output.name], last


@pytest.mark.parametrize(
    ("name", "count"),
    [("source", 1), ("target", 1), ("against the edges", 1), ("max", 1), ("both and the edge", 2),
     ("without the edge", 2), ("one of them", 1), ("one twice", 2), ("CG", 4), ("attention", 3),
     ("by name", 4)],
)  # fmt: skip
def test_products_run_at_nodes(name, count):
    maps, _ = products(name)
    assert len(maps) == count


@pytest.mark.parametrize("name", ["wide", "too wide", "difference"])
def test_products_stay_on_edges(name):
    """Where more would be stored than is saved, and where a difference would be lost."""
    maps, _ = products(name)
    assert not maps


def test_a_message_does_not_read_what_its_products_read():
    maps, last = products("without the edge")
    assert {v for s in maps for v in s.inputs}.isdisjoint(last.inputs)


def test_a_factor_of_the_target_is_multiplied_behind_the_sum():
    run = started("gated, no loops")
    (last,) = (s for s in run.inc.program.steps if isinstance(s, FunctionSum))
    names = [v.name for v in last.message.target]
    assert names == ["right"], names


def test_edge_rows_on_the_way_to_others_are_not_stored():
    steps = started("kernels").inc.program.steps
    on_edges = [s for s in steps if s.output.domain is Domain.EDGE and type(s) is RowMap]
    assert len(on_edges) == 1


def test_a_layer_on_a_cat_of_node_rows_is_left_alone():
    class OfNodes(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.lin = gnn.SAGEConv(CHANNELS, 3), nn.Linear(CHANNELS + 3, 2)

        def forward(self, x, edge_index):
            return self.lin(torch.cat([x, self.conv(x, edge_index).relu()], -1))

    CASES["of nodes"] = case("of nodes", OfNodes, ())
    run = started("of nodes")
    maps = [s.output.name for s in run.inc.program.steps if getattr(s, "costly", False)]
    assert "lin" in maps
    assert not any("_source" in name or "_target" in name for name in maps)
    run.walk(kinds=6)
