"""Convs whose edge data is made in `forward` of rows at the ends of the edges."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn

from pyg_incremental import to_incremental
from tests.example import INCREMENTAL, MIXED, ROWS, Example, Run
from tests.scene import CHANNELS, a_graph

HIDDEN = 6


class Made(nn.Module):
    """A conv between others, with attributes of edges that are made of the rows before it."""

    def __init__(self, conv, ends=(0, 1), width=HIDDEN, weight=False):
        super().__init__()
        self.lin, self.conv, self.ends, self.weight = (
            nn.Linear(CHANNELS, HIDDEN),
            conv,
            ends,
            weight,
        )
        self.edge = nn.Linear(len(ends) * HIDDEN, 1 if weight else width)

    def forward(self, x, edge_index):
        h = self.lin(x).relu()
        attr = self.edge(torch.cat([h[edge_index[end]] for end in self.ends], -1)).tanh()
        return self.conv(h, edge_index, attr.view(-1).exp() if self.weight else attr)


class FromDifferences(Made):
    """Relative positions, and a second layer that reads what becomes of them."""

    def forward(self, x, edge_index):
        src, dst = edge_index
        h = self.lin(x)
        attr = self.edge(h[src] - h[dst])
        h = self.conv(h, edge_index, attr).relu()
        attr = attr + (h[src] * h[dst]).sum(-1, keepdim=True)
        return self.conv(h, edge_index, attr)


def made(conv, **options):
    return lambda: Made(conv(), **options)


FOLLOWED = {
    "GINEConv": made(lambda: gnn.GINEConv(nn.Linear(HIDDEN, HIDDEN))),
    "GINEConv, sources": made(lambda: gnn.GINEConv(nn.Linear(HIDDEN, HIDDEN)), ends=(0,)),
    "GINEConv, targets": made(lambda: gnn.GINEConv(nn.Linear(HIDDEN, HIDDEN)), ends=(1,)),
    "GINEConv, turned": made(
        lambda: gnn.GINEConv(nn.Linear(HIDDEN, HIDDEN), flow="target_to_source"), ends=(0,)
    ),
    "GATConv": made(lambda: gnn.GATConv(HIDDEN, 4, heads=2, edge_dim=HIDDEN, add_self_loops=False)),
    "GATv2Conv": made(lambda: gnn.GATv2Conv(HIDDEN, 4, edge_dim=HIDDEN, add_self_loops=False)),
    "TransformerConv": made(lambda: gnn.TransformerConv(HIDDEN, 3, heads=2, edge_dim=HIDDEN)),
    "TransformerConv, turned": made(
        lambda: gnn.TransformerConv(HIDDEN, 3, edge_dim=HIDDEN, flow="target_to_source"), ends=(1,)
    ),
    "NNConv": made(lambda: gnn.NNConv(HIDDEN, 3, nn.Linear(HIDDEN, 3 * HIDDEN))),
    "CGConv": made(lambda: gnn.CGConv(HIDDEN, HIDDEN)),
    "GENConv": made(lambda: gnn.GENConv(HIDDEN, 4, edge_dim=HIDDEN)),
    "ResGatedGraphConv": made(lambda: gnn.ResGatedGraphConv(HIDDEN, 4, edge_dim=HIDDEN)),
    "GMMConv": made(lambda: gnn.GMMConv(HIDDEN, 4, dim=2, kernel_size=2), width=2),
    "GraphConv": made(lambda: gnn.GraphConv(HIDDEN, 4), weight=True),
    "GraphConv, max": made(lambda: gnn.GraphConv(HIDDEN, 4, aggr="max"), weight=True),
    "two layers": lambda: FromDifferences(
        gnn.GINEConv(nn.Linear(HIDDEN, HIDDEN)), ends=(0,), width=HIDDEN
    ),
}
AS_THEY_ARE = {
    "GCNConv": made(lambda: gnn.GCNConv(HIDDEN, 4), weight=True),
    "LEConv": made(lambda: gnn.LEConv(HIDDEN, 4), weight=True),
    "GATConv with loops": made(lambda: gnn.GATConv(HIDDEN, 4, edge_dim=HIDDEN)),
    "PNAConv": made(
        lambda: gnn.PNAConv(
            HIDDEN, 4, ["mean", "std"], ["identity"], torch.tensor([1, 3, 2]), edge_dim=HIDDEN
        )
    ),
    "TAGConv": made(lambda: gnn.TAGConv(HIDDEN, 4, K=2), weight=True),
}


def walked(make, seed):
    run = Run(Example("made", "", make, a_graph), seed)
    run.walk(seed)
    run.walk(seed + 1)
    return run


@pytest.mark.parametrize("make", FOLLOWED.values(), ids=FOLLOWED)
def test_edge_data_of_both_ends_is_followed(make, seed):
    run = walked(make, seed)
    assert run.runs == INCREMENTAL, run.inc.explain()
    assert run.inc.verify() < 1e-12


@pytest.mark.parametrize("make", AS_THEY_ARE.values(), ids=AS_THEY_ARE)
def test_edge_data_that_is_more_than_part_of_a_message_is_right(make, seed):
    """Where a conv reads it otherwise, too (a degree, a loop), it runs on all rows and says so."""
    run = walked(make, seed)
    if run.runs not in (INCREMENTAL, ROWS):
        assert run.runs == MIXED
        assert "its edge data is computed from node rows, and is more" in str(run.inc.explain())


def test_a_change_of_a_node_reaches_the_edges_at_it(seed):
    torch.manual_seed(seed)
    run = Run(Example("made", "", FOLLOWED["TransformerConv"], a_graph), seed)
    ring = torch.stack([torch.arange(400), torch.arange(400).roll(1)])
    run.inc(torch.randn(400, CHANNELS).double(), ring)
    up = run.inc.apply_delta(x_changes=([7], torch.ones(1, CHANNELS).double()))
    assert up.changed.tolist() == [6, 7]
    assert max(step.edges for step in up.stats.steps) <= 4


class AttentionFirst(nn.Module):
    """The attributes go into two convs and leave, beside attributes that are handed in."""

    def __init__(self):
        super().__init__()
        self.lin, self.edge = nn.Linear(CHANNELS, HIDDEN), nn.Linear(2 * HIDDEN + 1, HIDDEN)
        self.one = gnn.TransformerConv(HIDDEN, HIDDEN, edge_dim=HIDDEN)
        self.two = gnn.GINEConv(nn.Linear(HIDDEN, HIDDEN))

    def forward(self, x, edge_index, w):
        h, (src, dst) = self.lin(x), edge_index
        attr = self.edge(torch.cat([h[src], h[dst], w.view(-1, 1)], -1))
        h = self.one(h, edge_index, attr).relu()
        return self.two(h, edge_index, attr), attr


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"store": "minimal"}, {"backend": "reference"}, {"compile_after": 1}], ids=str
)
def test_in_other_configurations_all_that_is_stored_is_right(options, dtype, seed):
    torch.manual_seed(seed)
    inc = to_incremental(AttentionFirst().to(dtype).eval(), **options)
    inc(
        torch.randn(30, CHANNELS, dtype=dtype), torch.randint(30, (2, 90)), torch.rand(90).to(dtype)
    )
    assert inc.mode == INCREMENTAL
    for k in range(5):
        n, row, data = inc.num_nodes, torch.randn(1, CHANNELS, dtype=dtype), torch.rand(2).to(dtype)
        to_and_from, twice = torch.tensor([[n, 2], [1, n]]), torch.tensor([[5, 5], [6, 6]])
        inc.apply_delta(x_add=row, edge_index_add=to_and_from, edge_data_add={"w": data})
        inc.apply_delta(edge_index_add=twice, edge_data_add={"w": data})
        inc.apply_delta(edge_index_del=twice[:, :1])
        inc.apply_delta(x_changes=([k], row), nodes_del=[k + 10])
    assert inc.verify() < (1e-12 if dtype is torch.float64 else 1e-4)
    assert not inc.check()
