"""Convs that a user writes: exact without a program, with one, and found out with a wrong one."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import (
    add_self_loops,
    coalesce,
    degree,
    remove_self_loops,
    softmax,
    to_undirected,
)

from pyg_incremental import UnsupportedModelError, check_conv, load, register_conv, to_incremental
from pyg_incremental.conv import NotIncremental, registry
from pyg_incremental.session import prepare
from pyg_incremental.testing import (
    CHANGES,
    ConvCheckError,
    assert_matches_full,
    random_delta,
    steps,
    subject,
    trials,
)
from tests.oracle import World
from tests.side_by_side import SideBySide
from tests.strategies import DELTAS
from tests.zoo import ATTR, CHANNELS, WEIGHT, Case

UNSORTED = ("coo", "edge_index")
BACK = "target_to_source"
KINDS = {"type": (("edge_type", "type"),)}


@pytest.fixture(autouse=True)
def registrations_end(monkeypatch, seed):
    torch.manual_seed(seed)
    monkeypatch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))


# Local to the in-neighbours #######################################################################


class MaxOfMLP(MessagePassing):
    """The largest of an MLP over the rows at both ends."""

    def __init__(self, aggr="max", **options):
        super().__init__(aggr=aggr, **options)
        self.nn = nn.Sequential(nn.Linear(2 * CHANNELS, 6), nn.ReLU(), nn.Linear(6, 4))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.nn(torch.cat([x_i, x_j - x_i], dim=-1))


class OwnDegree(MessagePassing):
    """Reads how many edges lead into a row."""

    def forward(self, x, edge_index):
        count = degree(edge_index[1], x.size(0), x.dtype)
        return self.propagate(edge_index, x=x) / (1 + count.view(-1, 1)).log1p()


class TwoSums(MessagePassing):
    """Calls `propagate` twice, side by side."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x) * self.propagate(edge_index, x=x.tanh())


class Fading(MessagePassing):
    """Each edge counts half as much as the one after it."""

    def __init__(self):
        super().__init__(aggr=None)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def aggregate(self, inputs, index, ptr=None, dim_size=None):
        out = inputs.new_zeros(dim_size, inputs.size(1))
        for message, row in zip(inputs, index.tolist(), strict=True):
            out[row] = out[row] / 2 + message
        return out


class EdgeMLP(MessagePassing):
    """Messages from source, target and edge attributes."""

    def __init__(self):
        super().__init__(aggr="mean")
        self.lin = nn.Linear(2 * CHANNELS + 3, 4)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i, x_j, edge_attr):
        return self.lin(torch.cat([x_i, x_j, edge_attr], dim=-1)).sigmoid()


class WithUpdate(MessagePassing):
    """A gate in `update`, weights on the edges, attention over them."""

    def __init__(self):
        super().__init__(aggr="sum")
        self.gate = nn.Linear(2 * CHANNELS, CHANNELS)

    def forward(self, x, edge_index, edge_weight):
        return self.propagate(edge_index, x=x, edge_weight=edge_weight)

    def message(self, x_j, edge_weight, index, ptr, size_i):
        return softmax(edge_weight * x_j[:, 0], index, ptr, size_i).view(-1, 1) * x_j

    def update(self, inputs, x):
        gate = self.gate(torch.cat([inputs, x], dim=-1)).sigmoid()
        return gate * inputs + (1 - gate) * x


class AddsLoops(MessagePassing):
    """Gives every node a self-loop, whether it has one or not."""

    def __init__(self):
        super().__init__(aggr="max")

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        return self.propagate(edge_index, x=x)


class OtherLoops(MessagePassing):
    """Takes self-loops for what they are: they count double."""

    def forward(self, x, edge_index, edge_attr):
        rest, rest_attr = remove_self_loops(edge_index, edge_attr)
        loops = edge_index[:, edge_index[0] == edge_index[1]]
        out = self.propagate(rest, x=x, edge_attr=rest_attr)
        return out + 2 * degree(loops[1], x.size(0), x.dtype).view(-1, 1) * x

    def message(self, x_j, edge_attr):
        return x_j * edge_attr.sum(dim=1, keepdim=True)


class Distinct(MessagePassing):
    """Counts parallel edges once."""

    def forward(self, x, edge_index):
        return self.propagate(coalesce(edge_index, num_nodes=x.size(0)), x=x)


class RowCol(MessagePassing):
    """Written without `propagate`, and against the edges."""

    def forward(self, x, edge_index):
        row, col = edge_index
        return torch.zeros_like(x).index_add_(0, row, x[col]).tanh()


class TypedEdges(MessagePassing):
    """One weight for each type of edge."""

    def __init__(self):
        super().__init__(aggr="sum")
        self.scale = nn.Parameter(torch.randn(3, CHANNELS))

    def forward(self, x, edge_index, edge_type):
        return self.propagate(edge_index, x=x, scale=self.scale[edge_type])

    def message(self, x_j, scale):
        return x_j * scale


class OtherSAGE(gnn.SAGEConv):
    """A conv of PyG with another message."""

    def message(self, x_j):
        return x_j.abs().sqrt()


class Doubled(gnn.SAGEConv):
    """A conv of PyG that adds what it makes to itself."""

    def update(self, inputs):
        return inputs + inputs


class Sharpened(MessagePassing):
    """Takes a number and a second set of node rows, both by keyword."""

    def __init__(self):
        super().__init__(aggr="mean")

    def forward(self, x, edge_index, *, pos, power: float = 1.0):
        return self.propagate(edge_index, x=x, pos=pos).abs() ** power

    def message(self, x_j, pos_i, pos_j):
        return x_j * (pos_i - pos_j).norm(dim=-1, keepdim=True)


class Positions(nn.Module):
    """One conv called twice with other constants, on positions and features."""

    def __init__(self):
        super().__init__()
        self.conv = Sharpened()

    def forward(self, x, edge_index):
        x, pos = x[:, :3], x[:, 3:]
        one = self.conv(x, edge_index, pos=pos, power=1.5)
        return one - self.conv(x, edge_index, pos=pos, power=2.0)


class Pairs(nn.Module):
    """A conv with other rows at the source than at the target."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(CHANNELS, 3)
        self.conv = OtherSAGE((3, CHANNELS), 4)

    def forward(self, x, edge_index):
        return self.conv((self.lin(x), x), edge_index)


class WantsEdges(MessagePassing):
    """Fails without edges, as it would for a row alone that has none."""

    def forward(self, x, edge_index):
        if not edge_index.size(1):
            raise RuntimeError("no edges")
        return self.propagate(edge_index, x=x)


class Stack(nn.Module):
    """Two of them with something between."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = OtherSAGE(CHANNELS, CHANNELS), MaxOfMLP(["mean", "std"])

    def forward(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


@pytest.fixture
def outside(monkeypatch):
    """Convs are tried, and not looked into."""
    monkeypatch.setattr(prepare, "_traced", prepare.trace)


from_outside = pytest.mark.usefixtures("outside")


LOCAL = [
    Case("max-of-mlp", MaxOfMLP),
    Case("mean-and-std-of-mlp", lambda: MaxOfMLP(["mean", "std"])),
    Case("max-of-mlp-backward", lambda: MaxOfMLP(flow=BACK), formats=UNSORTED),
    Case("own-degree", OwnDegree),
    Case("two-sums", TwoSums),
    Case("order-of-edges", Fading),
    Case("edge-attr", EdgeMLP, data=ATTR),
    Case("update-and-weight", WithUpdate, data=WEIGHT),
    Case("edge-type", TypedEdges, data=KINDS["type"]),
    Case("adds-loops", AddsLoops),
    Case("other-loops", OtherLoops, data=ATTR),
    Case("distinct-neighbours", Distinct, formats=("coo",)),
    Case("row-col", RowCol),
    Case("other-message-of-sage", lambda: OtherSAGE(CHANNELS, 4)),
    Case("median-of-mlp", lambda: MaxOfMLP("median"), picky=True),
    Case("wants-edges", WantsEdges, picky=True),
    Case("positions", Positions),
    Case("pairs", Pairs),
    Case("stack", Stack),
]


@pytest.mark.parametrize(
    ("case", "fmt"),
    [pytest.param(case, fmt, id=f"{case}-{fmt}") for case in LOCAL for fmt in case.formats],
)
@from_outside
def test_local_convs_are_recomputed_row_by_row(case, fmt, seed):
    sides = SideBySide(case, fmt, seed=seed)
    assert sides.inc.mode == "incremental"
    assert "rows" in {s.kind for s in sides.inc.program.steps}
    sides.walk()


@from_outside
@pytest.mark.parametrize("case", LOCAL, ids=str)
def test_reference_kernels_and_float32(case, seed):
    SideBySide(case, seed=seed + 1, backend="reference").walk()
    SideBySide(case, dtype=torch.float32, seed=seed + 2).walk()


KEPT_WHOLE = "order-of-edges", "median-of-mlp", "wants-edges"
"""What they do can't be followed along edges."""


@pytest.mark.parametrize("case", LOCAL, ids=str)
def test_local_convs_are_looked_into_first(case, seed):
    """What a conv does is followed, where all of it can be, and costs less than whole rows."""
    sides = SideBySide(case, seed=seed + 3)
    assert sides.inc.mode == "incremental"
    kinds = {s.kind for s in sides.inc.program.steps}
    assert ("rows" in kinds) == (case.name in KEPT_WHOLE)
    sides.walk()


@from_outside
def test_rows_that_a_change_does_not_reach_are_left_alone():
    """On a path each row sees one node, so that a change reaches two rows."""
    inc = to_incremental(OwnDegree().double().eval())
    path = torch.stack([torch.arange(99), torch.arange(1, 100)])
    inc(torch.randn(100, CHANNELS).double(), path)
    up = inc.apply_delta(x_changes=([50], torch.randn(1, CHANNELS).double()))
    assert up.changed.tolist() == [51]
    assert up.stats["OwnDegree.forward"].rows == 2
    up = inc.apply_delta(edge_index_add=torch.tensor([[3], [70]]))
    assert up.changed.tolist() == [70]
    assert up.stats["OwnDegree.forward"].rows == 1
    assert inc.verify() <= 1e-12


# Not local ########################################################################################


class NeighbourDegree(MessagePassing):
    """GCN by hand: reads the degree of the neighbours."""

    def forward(self, x, edge_index):
        norm = (1 + degree(edge_index[1], x.size(0), x.dtype)).rsqrt().view(-1, 1)
        return norm * self.propagate(edge_index, x=norm * x)


class OutDegree(MessagePassing):
    """Reads how many edges lead out of a row."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x) + degree(edge_index[0], x.size(0)).view(-1, 1)


class TwoHops(MessagePassing):
    """Two hops in one forward."""

    def forward(self, x, edge_index):
        for _ in range(2):
            x = self.propagate(edge_index, x=x).tanh()
        return x


class NumNodes(MessagePassing):
    """Divides by the number of nodes."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x) / x.size(0)


class NumEdges(MessagePassing):
    """Divides by the number of edges."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x) / max(edge_index.size(1), 1)


class ClosedGate(MessagePassing):
    """Would read the mean of all rows, but for a gate that training has not opened yet."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1, 1))

    def forward(self, x, edge_index):
        out = self.propagate(edge_index, x=x)
        return out + self.gate * x.mean(dim=0) if bool(self.gate != 0) else out


class Dense(MessagePassing):
    """A product with a dense adjacency: zero times NaN is NaN, in every row."""

    def forward(self, x, edge_index):
        adj = x.new_zeros(x.size(0), x.size(0))
        adj.index_put_((edge_index[1], edge_index[0]), x.new_ones(1), accumulate=True)
        return adj @ x


class BothWays(MessagePassing):
    """Reads out-neighbours, too."""

    def forward(self, x, edge_index):
        return self.propagate(to_undirected(edge_index, num_nodes=x.size(0)), x=x)


class NodeIds(MessagePassing):
    """Adds the position of a row."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x) + torch.arange(x.size(0)).view(-1, 1).to(x)


class TopRows(MessagePassing):
    """Picks the largest hundred of all rows, which on small graphs are all of them."""

    def forward(self, x, edge_index):
        kept = torch.zeros_like(x[:, :1])
        kept[x[:, 0].topk(min(100, x.size(0))).indices] = 1
        return self.propagate(edge_index, x=x) * kept


class Diagonal(MessagePassing):
    """Returns one column for every node."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=torch.diag(x[:, 0]))


NOT_LOCAL = [
    (NeighbourDegree, "edges that do not lead into it"),
    (OutDegree, "edges that do not lead into it"),
    (TwoHops, "edges that do not lead into it"),
    (NumNodes, "number of nodes"),
    (NumEdges, "edges that do not lead into it"),
    (ClosedGate, "number of nodes|not its in-neighbours"),
    (Dense, "not its in-neighbours"),
    (BothWays, "edges that do not lead into it"),
    (NodeIds, "ids of the nodes"),
    (TopRows, "alone, a row differs"),
    (lambda: gnn.TAGConv(CHANNELS, 4, K=2), "edges that do not lead into it"),
]


class AfterLayer(nn.Module):
    """A conv behind a layer, so that something stays incremental."""

    def __init__(self, conv):
        super().__init__()
        self.lin, self.conv = nn.Linear(CHANNELS, CHANNELS), conv

    def forward(self, x, edge_index):
        return self.conv(self.lin(x).tanh(), edge_index)


@pytest.mark.parametrize(("make", "reason"), NOT_LOCAL)
@from_outside
def test_what_is_not_local_runs_on_all_rows(make, reason, seed, monkeypatch):
    monkeypatch.delitem(registry._BUILDERS, gnn.TAGConv, raising=False)
    sides = SideBySide(Case("far", lambda: AfterLayer(make())), seed=seed)
    assert sides.inc.mode == "mixed"
    (step,) = sides.inc.program.whole_steps
    assert any(part in step.reason for part in reason.split("|")), step.reason
    sides.walk()


@pytest.mark.parametrize(
    "make",
    [lambda: AfterLayer(NeighbourDegree()), lambda: AfterLayer(OutDegree()),
     lambda: AfterLayer(TwoHops()), lambda: Telling(), lambda: First()],
    ids=["neighbour-degree", "out-degree", "two-hops", "size", "several"],
)  # fmt: skip
def test_what_is_not_local_is_followed_by_what_it_does(make, seed):
    sides = SideBySide(Case("inside", make), seed=seed)
    assert sides.inc.mode == "incremental"
    assert {"sum"} <= {s.kind for s in sides.inc.program.steps}
    sides.walk()


def test_rows_that_grow_with_the_graph_are_not_local(seed):
    sides = SideBySide(Case("diagonal", Diagonal), seed=seed)
    assert sides.inc.mode == "mixed"
    sides.walk(["change_features", "add_edges", "delete_edges"])
    sides.inc.apply_delta(x_add=torch.ones(1, CHANNELS).double())
    assert sides.inc.out.shape == (13, 13)
    assert sides.inc.verify() == 0


def test_a_gcn_without_its_program_is_followed(seed, monkeypatch):
    monkeypatch.delitem(registry._BUILDERS, gnn.GCNConv)
    sides = SideBySide(Case("gcn", lambda: gnn.GCNConv(CHANNELS, 4)), seed=seed)
    assert sides.inc.mode == "incremental"
    assert {s.kind for s in sides.inc.program.steps} == {"input", "map", "ones", "sum"}
    sides.walk()


class OtherGCN(gnn.GCNConv):
    """A GCN with another message."""

    def message(self, x_j, edge_weight):
        return super().message(x_j, edge_weight).tanh()


def test_an_overridden_gcn_is_followed_by_what_it_does(seed):
    sides = SideBySide(Case("other-gcn", lambda: OtherGCN(CHANNELS, 4)), seed=seed)
    assert sides.inc.mode == "incremental"
    assert "rows" not in {s.kind for s in sides.inc.program.steps}
    sides.walk()


def test_what_remembers_is_not_local():
    class Remembers(MessagePassing):
        def forward(self, x, edge_index):
            self.seen = getattr(self, "seen", 0) + x.size(0)
            return self.propagate(edge_index, x=x) * math.sin(self.seen)

    inc = to_incremental(Remembers().eval())
    with pytest.warns(match="full pass"):
        inc(torch.randn(8, 3), torch.randint(8, (2, 20)))
    assert inc.mode == "full pass"


class FirstSeen(MessagePassing):
    """Numbers what it sees in the order in which it sees it, over all calls."""

    def __init__(self):
        super().__init__()
        self.number = {}

    def forward(self, x, edge_index):
        keys = [tuple(row) for row in self.propagate(edge_index, x=x).long().tolist()]
        return x.new_tensor([[self.number.setdefault(k, len(self.number))] for k in keys])


def test_what_numbers_in_order_of_calls_runs_whole():
    conv = FirstSeen().eval()
    inc = to_incremental(conv)
    with pytest.warns(match="it keeps 'number' of FirstSeen from call to call"):
        inc(torch.randn(8, 3), torch.randint(8, (2, 20)))
    assert inc.mode == "full pass"
    assert not conv.number


def test_what_cannot_be_copied_runs_whole():
    conv = OwnDegree().eval()
    conv.lock = __import__("threading").Lock()
    inc = to_incremental(conv)
    with pytest.warns(match="cannot be copied"):
        inc(torch.randn(8, 3), torch.randint(8, (2, 20)))
    assert inc.mode == "full pass"


class Sized(MessagePassing):
    """Is told how many nodes there are, and an option that is neither number nor name."""

    def forward(self, x, edge_index, size=None, option=None):
        return self.propagate(edge_index, x=x, size=size)


class Telling(nn.Module):
    """Tells its conv something beside rows."""

    def __init__(self, **told):
        super().__init__()
        self.conv, self.told = Sized(), told

    def forward(self, x, edge_index):
        told = {"size": (x.size(0), x.size(0))} if not self.told else self.told
        return self.conv(x, edge_index, **told)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({}, "'size' is computed from all rows"),
        ({"option": range(3)}, "'option' is a range"),
        ({"option": ["name", 1.5, None]}, None),
        ({"option": {"name": 2}}, None),
    ],
)
@from_outside
def test_arguments_beside_rows(told, reason, seed):
    sides = SideBySide(Case("telling", lambda: Telling(**told)), seed=seed)
    whole = [s.reason for s in sides.inc.program.whole_steps if s.output.name == "conv"]
    assert whole == ([f"conv: Sized has no program, and {reason}"] if reason else [])
    sides.walk(["mixed", "new_isolated_nodes", "change_features"])


class FromEdges(MessagePassing):
    """Takes no node features, and returns the number of edges beside its rows."""

    def forward(self, edge_index, edge_attr, num_nodes):
        rows = edge_attr.new_zeros(num_nodes, edge_attr.size(1))
        return rows.index_add_(0, edge_index[1], edge_attr)


class OnlyEdges(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = FromEdges()

    def forward(self, x, edge_index, edge_attr):
        return x[:, :3] + self.conv(edge_index, edge_attr, x.size(0))


@from_outside
def test_a_conv_without_node_features_runs_on_all_rows(seed):
    sides = SideBySide(Case("only-edges", OnlyEdges, data=ATTR), seed=seed)
    assert sides.inc.mode != "incremental"
    sides.walk(["mixed", "new_isolated_nodes", "change_edge_data"])


class Several(MessagePassing):
    """Returns more than one row for each node."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x), edge_index


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = Several()

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)[0]


@from_outside
def test_a_conv_that_returns_several_things_runs_on_all_rows(seed):
    sides = SideBySide(Case("several", First), seed=seed)
    assert sides.inc.mode == "mixed"
    assert "one row for each node" in sides.inc.program.whole_steps[0].reason
    sides.walk(["mixed", "change_features"])


class Constant(MessagePassing):
    """All rows are zero, so that nothing can be learnt from them."""

    def forward(self, x, edge_index):
        return 0 * self.propagate(edge_index, x=x).clamp(0, 1)


@from_outside
def test_a_conv_of_which_nothing_can_be_told(seed):
    sides = SideBySide(Case("untold", Constant), seed=seed)
    assert sides.inc.mode == "mixed"
    assert "tells nothing" in sides.inc.program.whole_steps[0].reason
    sides.walk()


class Float32Only(MessagePassing):
    """Insists on single precision."""

    def forward(self, x, edge_index):
        if x.dtype is not torch.float32:
            raise TypeError("single precision, please")
        return self.propagate(edge_index, x=x)


class Picks(MessagePassing):
    """Takes its features for indices."""

    def __init__(self):
        super().__init__(aggr="mean")
        self.rows = nn.Embedding(10, 3)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.rows(x.flatten().round().long()))


def test_convs_that_do_not_take_any_number(seed):
    x, edge_index = torch.randint(4, (30, 1)).float(), torch.randint(30, (2, 90))
    for conv in (Float32Only(), Picks()):
        inc = to_incremental(conv.eval())
        inc(x, edge_index)
        assert inc.mode == "incremental"
        inc.apply_delta(x_changes=([3], torch.ones(1, 1)), edge_index_del=edge_index[:, :4])
        assert_matches_full(inc)


@from_outside
def test_equal_features_where_noise_is_none_tell_nothing():
    inc = to_incremental(Picks().eval())
    inc(torch.ones(30, 1), torch.randint(30, (2, 90)))
    assert inc.mode == "mixed"
    assert "tells nothing" in inc.program.whole_steps[0].reason


SMALL = [
    World(torch.randn(1, CHANNELS).double(), []),
    World(torch.randn(4, CHANNELS).double(), []),
    World(torch.randn(2, CHANNELS).double(), [(0, 0)]),
    World(torch.randn(2, CHANNELS).double(), [(0, 1)] * 4),
    World(torch.zeros(0, CHANNELS).double(), []),
]


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("world", SMALL)
@pytest.mark.parametrize("case", [LOCAL[0], LOCAL[3], LOCAL[5], LOCAL[-1]], ids=str)
def test_smallest_graphs(case, world, backend, seed):
    sides = SideBySide(case, seed=seed, world=world.copy(), backend=backend)
    if not world.num_nodes:
        sides.step({"x_add": torch.ones(2, CHANNELS).double()})
    sides.walk(["new_nodes_with_edges", "add_edges", "mixed", "all_edges_leave", "refill"])


def test_a_saved_state_continues(tmp_path, seed):
    sides = SideBySide(LOCAL[-1], seed=seed)
    sides.inc.save(tmp_path / "state.pt")
    again = load(tmp_path / "state.pt", sides.inc.model)
    assert torch.equal(again.out, sides.inc.out)
    delta = DELTAS["mixed"](sides.world, sides.rng)
    sides.step(delta)
    again.apply_delta(**delta)
    assert torch.equal(again.out, sides.inc.out)


def test_integer_features(seed):
    x, edge_index = torch.randint(9, (30, 2)), torch.randint(30, (2, 90))
    inc = to_incremental(AddsLoops().eval())
    inc(x, edge_index)
    assert inc.mode == "incremental"
    inc.apply_delta(x_changes=([3], [[1, 100]]), edge_index_del=edge_index[:, :4])
    inc.apply_delta(random_delta(inc, np.random.default_rng(seed), "mixed"))
    assert_matches_full(inc, tolerance=0)


@pytest.mark.parametrize("aggr", [gnn.LSTMAggregation, gnn.GRUAggregation])
def test_padded_aggregations_are_read_and_not_tried(aggr):
    edge_index = torch.randint(9, (2, 30))
    inc = to_incremental(MaxOfMLP(aggr(4, 4)).eval())
    inc(torch.randn(9, CHANNELS), edge_index[:, edge_index[1].argsort()])
    assert inc.mode == "mixed"
    assert "pads all rows" in inc.program.whole_steps[0].reason


def test_hooks_see_all_rows():
    conv = OwnDegree().eval()
    conv.register_message_forward_hook(lambda module, inputs, out: 2 * out)
    inc = to_incremental(conv)
    inc(torch.randn(8, 3), torch.randint(8, (2, 20)))
    assert inc.mode == "mixed"
    assert "hooks" in inc.program.whole_steps[0].reason


@pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR:UserWarning")
@pytest.mark.parametrize("fmt", ["csr", "csc"])
@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
def test_entries_of_a_sparse_adjacency_are_edges(aggr, fmt, seed):
    """A product with a matrix is a reduction of weighted rows."""
    sides = SideBySide(Case("matrix", lambda: Doubled(CHANNELS, 4, aggr=aggr)), fmt, seed=seed)
    assert sides.inc.mode == "incremental"
    assert "rows" not in {s.kind for s in sides.inc.program.steps}
    sides.walk(kinds=6)


@from_outside
def test_a_sparse_adjacency_is_not_taken_apart_from_outside(seed):
    sides = SideBySide(Case("csr", lambda: OtherSAGE(CHANNELS, 4)), "csr", seed=seed)
    assert sides.inc.mode == "mixed"
    assert "sparse adjacency" in sides.inc.program.whole_steps[0].reason
    sides.walk(kinds=6)


def test_a_call_that_the_program_does_not_cover_is_recomputed(seed):
    """SAGE's own program takes one set of features."""

    class NoProgram(gnn.SAGEConv):
        pass

    @register_conv(NoProgram)
    def refuses(call):
        call.sum(call.node(), None)  # a step that has to be taken back
        raise NotIncremental("not like this")

    sides = SideBySide(Case("refused", lambda: NoProgram(CHANNELS, 4)), seed=seed)
    assert sides.inc.mode == "incremental"
    assert [s.kind for s in sides.inc.program.steps] == ["input", "input", "rows", "map"]
    sides.walk()


@from_outside
def test_constant_features_tell_nothing_about_a_conv_without_parameters():
    """Rows of the probe are mixed from the example; noise still tells them apart."""
    inc = to_incremental(NeighbourDegree().eval())
    inc(torch.zeros(8, 3), torch.randint(8, (2, 20)))
    assert inc.mode == "mixed"
    inc = to_incremental(TwoSums().eval())
    inc(torch.zeros(8, 3), torch.randint(8, (2, 20)))
    assert inc.mode == "incremental"


def test_the_probe_leaves_chance_and_conv_alone():
    conv = WithUpdate().eval()
    before = {k: v.clone() for k, v in conv.state_dict().items()}
    torch.manual_seed(3)
    to_incremental(conv)(torch.ones(8, CHANNELS), torch.zeros(2, 3).long(), torch.ones(3))
    after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(1))
    assert all(torch.equal(before[k], v) for k, v in conv.state_dict().items())


# Programs of a user's own #########################################################################


class Gated(MessagePassing):
    """A sum of gated rows, and the row itself."""

    def __init__(self):
        super().__init__(aggr="sum")
        self.lin = nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x, edge_index, edge_weight=None):
        z = torch.sigmoid(self.lin(x)) * x
        return x + self.propagate(edge_index, x=z, edge_weight=edge_weight)

    def message(self, x_j, edge_weight):
        return x_j if edge_weight is None else x_j * edge_weight.view(-1, 1)


def gated(call):
    conv = call.conv
    call.only("x", "edge_weight")
    x = call.node()
    z = call.map("z", lambda x: torch.sigmoid(conv.lin(x)) * x, x, costly=True)
    return call.map("out", torch.add, x, call.sum(z, call.weight()))


@pytest.mark.parametrize("data", [(), WEIGHT])
def test_a_registered_program_runs(data, seed):
    assert register_conv(Gated)(gated) is gated
    sides = SideBySide(Case("gated", Gated, data=data), seed=seed)
    assert sides.inc.mode == "incremental"
    assert "sum" in {s.kind for s in sides.inc.program.steps}
    assert "rows" not in {s.kind for s in sides.inc.program.steps}
    sides.walk()


def test_a_users_program_wins_over_a_built_in_one(seed):
    @register_conv(gnn.SAGEConv)
    def by_rows(call):
        conv = call.conv
        call.only("x")
        x = call.node()
        aggregated = call.rows("mine", lambda a: _mean_of(a), (x,))
        return call.map("out", lambda x, a: conv.lin_l(a) + conv.lin_r(x), x, aggregated)

    def _mean_of(around):
        return gnn.MeanAggregation()(around.source[0], around.index, dim_size=around.num_rows)

    sides = SideBySide(Case("mine", lambda: gnn.SAGEConv(CHANNELS, 4)), seed=seed)
    assert "SAGEConv.mine" in {s.output.name for s in sides.inc.program.steps}
    sides.walk()


def test_register_conv_takes_convs():
    for wrong in (nn.Linear, Gated(), gated):
        with pytest.raises(UnsupportedModelError, match="subclass of MessagePassing"):
            register_conv(wrong)


def test_a_program_serves_subclasses_that_compute_the_same():
    class Named(Gated):
        """Nothing new."""

    class Louder(Gated):
        def message(self, x_j, edge_weight):
            return 2 * super().message(x_j, edge_weight)

    register_conv(Gated)(gated)
    x, edge_index = torch.randn(9, CHANNELS), torch.randint(9, (2, 30))
    names = []
    for make in (Named, Louder):
        inc = to_incremental(make().eval())
        inc(x, edge_index)
        names.append(next(s.output.name for s in inc.program.steps if s.kind == "sum"))
        assert inc.verify() < 1e-5
    assert names == [
        "Named.sum",
        "Louder.scatter_add.sum",
    ]  # the other's is what its `forward` does


# Checking #########################################################################################


def test_check_conv_of_convs_without_a_program():
    for conv, options, mode in [
        (MaxOfMLP(), {"nan": True}, "incremental"),
        (EdgeMLP(), {"edge_dim": 3}, "incremental"),
        (WithUpdate(), {"edge_weight": True}, "incremental"),
        (Positions(), {}, "incremental"),
        (TwoHops(), {}, "incremental"),
        (Dense(), {"nan": True}, "mixed"),
    ]:
        report = check_conv(conv, channels=CHANNELS, num_deltas=30, **options)
        assert report.mode == mode
        assert bool(report.why) == (mode == "mixed")
        assert report.num_deltas > 30
        assert report.max_difference <= 1e-12


@pytest.mark.parametrize(
    "make",
    [
        lambda: gnn.GCNConv(-1, 4),
        lambda: gnn.SAGEConv(CHANNELS, 4),
        lambda: gnn.GATConv(CHANNELS, 4, heads=2),
        lambda: gnn.GINConv(nn.Linear(4, 3)),
        lambda: gnn.GraphConv(CHANNELS, 4, aggr="max"),
    ],
)
def test_check_conv_of_built_in_programs(make, seed):
    report = check_conv(make(), seed=seed, nan=True)
    assert report.mode == "incremental"
    assert report.max_difference <= 1e-9
    assert check_conv(make(), seed=seed, dtype=torch.float32, num_deltas=20).max_difference <= 1e-4


def test_check_conv_of_a_registered_program():
    register_conv(Gated)(gated)
    report = check_conv(Gated(), channels=CHANNELS, edge_weight=True)
    assert report.mode == "incremental"
    assert any("sum(" in step for step in report.steps)


def test_check_conv_with_a_call_of_its_own():
    def call(conv, x, edge_index, edge_attr):
        return conv(x, edge_index, (3 * edge_attr[:, 0]).long().clamp(0, 2))

    report = check_conv(TypedEdges(), channels=CHANNELS, edge_dim=1, call=call)
    assert report.mode == "incremental"
    with pytest.raises(UnsupportedModelError, match=r"edge_attr \[25, 1\] \(.*call="):
        check_conv(TypedEdges(), channels=CHANNELS, edge_dim=1)


def test_check_conv_of_what_cannot_be_traced():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = gnn.GCNConv(CHANNELS, 4)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index) * (1 if x.sum() > 0 else 2)

    assert check_conv(Branches(), channels=CHANNELS, num_deltas=8).mode == "full pass"


def test_check_conv_says_that_it_does_not_try_hypergraphs():
    with pytest.raises(
        UnsupportedModelError, match=r"connects nodes and 'hyperedge'.*assert_match"
    ):
        check_conv(gnn.HypergraphConv(4, 3))


def failing(conv, **options):
    with pytest.raises(ConvCheckError) as caught:
        check_conv(conv, channels=2, **options)
    return caught.value


class Weighted(MessagePassing):
    """A mean of weighted rows."""

    def __init__(self):
        super().__init__(aggr="mean")

    def forward(self, x, edge_index, edge_weight):
        return self.propagate(edge_index, x=x, edge_weight=edge_weight)

    def message(self, x_j, edge_weight):
        return x_j * edge_weight.view(-1, 1)


def test_a_forgotten_division_is_found():
    register_conv(Weighted)(lambda call: call.sum(call.node(), call.weight()))
    error = failing(Weighted(), edge_weight=True)
    assert error.condition == "it computes something else than the conv"
    assert error.inputs["edge_index"].shape == (2, 2)  # with one edge sum and mean are equal
    assert error.row is not None
    assert error.deltas == []
    assert "Weighted.sum = sum(x, edge_weight" in str(error)
    assert "to_incremental does not use it" in str(error)
    assert "x_i" not in str(error)
    assert error.step.name == "Weighted.sum"
    assert "in what forward returns" in str(error)


class MeanByWeights(MessagePassing):
    """The sum of weighted rows by that of the weights."""

    def __init__(self):
        super().__init__(aggr="sum")

    def forward(self, x, edge_index, edge_weight):
        total = self.propagate(edge_index, x=x, edge_weight=edge_weight)
        ones = torch.ones_like(x[:, :1])
        return total / self.propagate(edge_index, x=ones, edge_weight=edge_weight).clamp(min=0.1)

    message = Weighted.message


def test_the_first_step_that_differs_from_forward_is_named():
    """The sum is right, though it stands in another order; the count behind it is not."""

    @register_conv(MeanByWeights)
    def by_count(call):
        x, weight = call.node(), call.weight()
        double = call.map("double", lambda x: 2 * x, x)  # stands nowhere in forward, and is right
        total = call.map("half", lambda t: t / 2, call.sum(double, weight))
        return call.map("out", lambda t, n: t / n.clamp(min=0.1), total, call.degree())

    error = failing(MeanByWeights(), edge_weight=True)
    step = error.step
    assert (step.name, step.channel) == ("degree", 0)
    assert step.got == round(step.got)  # a number of edges
    assert "step 'degree' is the first that differs" in str(error)
    assert "makes in forward (test_own_convs.py:" in str(error)


@torch.no_grad()
def test_the_first_step_that_deltas_have_left_wrong_is_named():
    graph = trials.TrialGraph(torch.randn(4, 2).double(), ((0, 1), (1, 2), (3, 2)), {})
    held = subject.Subject(gnn.LEConv(2, 3), None, graph, None)
    plan = steps.with_all_rows(held.plan)
    kept, afresh = (held.start(graph, plan=plan) for _ in range(2))
    assert steps.differs_from_afresh(kept, afresh, None) is None
    for value, cell in kept.engine.cells.items():
        if str(value) in ("LEConv.lin3", "LEConv.out"):
            cell.tensor[2, 1] += 1
    found = steps.differs_from_afresh(kept, afresh, None)
    assert (found.name, found.row, found.channel) == ("LEConv.lin3", 2, 1)
    assert "if it is made afresh" in str(found)


class Centred(MessagePassing):
    """Messages minus the mean of all rows."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x - x.mean(dim=0))


def test_a_map_that_mixes_rows_is_found():
    """It is right in the first pass, and wrong with every update."""

    @register_conv(Centred)
    def centred(call):
        return call.sum(call.map("centre", lambda x: x - x.mean(dim=0), call.node()), None)

    error = failing(Centred())
    assert error.condition == "a step does not compute rows one by one"
    assert "step 'Centred.centre'" in str(error)
    assert error.inputs["x"].shape == (2, 2)
    assert error.inputs["edge_index"].shape == (2, 0)


class Difference(MessagePassing):
    """What a message brings depends on the row that it leads to."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return (x_j - x_i).relu()


def test_a_message_that_hides_its_target_is_found():
    register_conv(Difference)(lambda call: call.sum(call.map("z", torch.relu, call.node()), None))
    error = failing(Difference())
    assert "messages read the row that they lead to (x_i)" in str(error)
    assert error.inputs["edge_index"].shape == (2, 1)


class Remembered(MessagePassing):
    """A plain sum, whose program remembers the first rows that it has seen."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=2 * x)


def test_a_map_that_counts_rows_is_found():
    @register_conv(Remembered)
    def remembered(call):
        def twice(x):
            return 2 * x if len(x) != 1 else x + x.sign()

        return call.sum(call.map("twice", twice, call.node()), None)

    error = failing(Remembered())
    assert error.condition == "a step does not compute rows one by one"


def test_a_program_that_is_wrong_only_after_a_delta_is_found():
    @register_conv(Remembered)
    def remembered(call):
        def fn(around):  # edges that have come late count more than they should
            late = (around.order >= 30).view(-1, 1)
            out = around.source[0].new_zeros(around.num_rows, 2)
            return out.index_add_(0, around.index, 2 * around.source[0] + late)

        return call.rows("sum", fn, (call.node(),))

    error = failing(Remembered(), num_deltas=200)
    assert error.condition == "a delta leaves another output than a full pass"
    assert error.deltas
    assert "delta       edge_index_add" in str(error)


class LoopsFirst(MessagePassing):
    """Reads its target, and has more messages than the graph has edges."""

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return (x_j - x_i).relu()


def test_a_program_of_another_width_is_told():
    @register_conv(LoopsFirst)
    def wide(call):
        x = call.node()
        return call.map("wide", lambda x, s: torch.cat([x, s], dim=1), x, call.sum(x, None))

    error = failing(LoopsFirst())
    assert "it is torch.float64 [0, 4] (expected torch.float64 [0, 2])" in str(error)
    assert "x_i" not in str(error)  # it is so, but cannot be seen


def test_a_program_that_fails_is_told():
    @register_conv(Remembered)
    def fails(call):
        def fn(x):
            return 2 * x if len(x) > 1 else x[5]

        return call.sum(call.map("twice", fn, call.node()), None)

    error = failing(Remembered())
    assert error.row is None
    assert "it fails with IndexError" in str(error)


# Tools ############################################################################################


@pytest.mark.parametrize("kind", [None, *CHANGES])
def test_random_deltas_fit(kind, seed):
    inc = to_incremental(EdgeMLP().double().eval())
    rng = np.random.default_rng(seed)
    x = torch.randn(8, CHANNELS).double()
    edge_index = torch.randint(8, (2, 20))
    inc(x, edge_index, edge_attr=torch.rand(20, 3).double())
    for _ in range(8):
        inc.apply_delta(random_delta(inc, rng, kind))
        assert_matches_full(inc)


def test_random_deltas_of_matrices_and_several_node_inputs(seed):
    rng = np.random.default_rng(seed)
    edges = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    adj = torch.sparse_coo_tensor(edges.flip(0), torch.ones(5), (6, 6)).to_sparse_csr()
    inc = to_incremental(gnn.SAGEConv(3, 4).eval())
    inc(torch.randn(6, 3), adj)
    for _ in range(30):
        inc.apply_delta(random_delta(inc, rng))
        pairs = inc.graph.to_edge_index().t().tolist()
        assert len({tuple(p) for p in pairs}) == len(pairs)
        assert_matches_full(inc)
    model = gnn.Sequential("x, pos, edge_index", [(gnn.GCNConv(3, 4), "x, edge_index -> x")])
    inc = to_incremental(model.eval())
    inc(torch.randn(6, 3), torch.randn(6, 2), edges)
    for _ in range(30):
        inc.apply_delta(random_delta(inc, rng))
    assert inc.num_nodes == 6
    assert_matches_full(inc)


def test_random_deltas_of_an_empty_graph(seed):
    inc = to_incremental(gnn.GCNConv(3, 4).eval())
    inc(torch.zeros(0, 3), torch.zeros(2, 0).long())
    inc.apply_delta(random_delta(inc, np.random.default_rng(seed)))
    assert inc.num_nodes == 2
    assert_matches_full(inc)


def test_assert_matches_full_names_the_worst_row():
    inc = to_incremental(gnn.GCNConv(3, 2).double().eval())
    inc(torch.randn(6, 3).double(), torch.randint(6, (2, 9)))
    assert_matches_full(inc)
    rows = inc.out.numpy()  # written to behind PyTorch's back
    rows[4, 1] += 1e-3
    rows[2, 0] -= 1e-5
    assert_matches_full(inc, tolerance=1e-2)
    with pytest.raises(AssertionError, match=r"GCNConv: row 4 .*off by 0\.001"):
        assert_matches_full(inc)


def test_the_report_is_frozen():
    report = check_conv(gnn.SimpleConv(), channels=2, num_deltas=4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.mode = "another"
