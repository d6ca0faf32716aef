"""`check()` finds what does not fit, wherever it is."""

import pytest
import torch
from torch_geometric.nn import GCNConv, GraphConv, SAGEConv

from pyg_incremental import StaleStateError, to_incremental
from tests.trust.small import CHANNELS, drawn, edge, wrapped


def after_some_deltas(model=None, **options):
    inc = wrapped(model, **options)
    for i in range(5):
        inc.apply_delta(
            edge_index_add=edge(i, i + 1), edge_index_del=inc.graph.to_edge_index()[:, :2]
        )
    return inc


def lists_at(graph, name):
    """A place of some list that is in use."""
    adj = getattr(graph, name)
    v = int(adj.degree.argmax())
    return adj, v, adj.start[v]


def wrong_neighbor(graph):
    adj, _, at = lists_at(graph, "out")
    adj.neighbor[at] += 1


def wrong_slot(graph):
    adj, _, at = lists_at(graph, "inn")
    adj.edge[at] = adj.edge[at + 1]


def wrong_degree(graph):
    adj, v, _ = lists_at(graph, "inn")
    adj.degree[v] -= 1


def overlapping_lists(graph):
    adj, v, _ = lists_at(graph, "out")
    adj.capacity[v] += 50


def wrong_position(graph):
    graph.slots.out_at[graph.slots_in_order()[0]] += 1


def claimed(graph):
    slot = graph.slots_in_order()[0]
    graph.slots.out_at[slot] = ~graph.slots.out_at[slot]


def lost_pair(graph):
    slot = graph.slots_in_order()[3]
    graph._table[graph._table == slot] = -2


def wrong_chain(graph):
    graph.slots.older[graph.slots_in_order()[0]] = 1


def slot_free_and_used(graph):
    graph._free[0] = graph.slots_in_order()[0]


def lost_slot(graph):
    graph._num_free -= 1


def wrong_count(graph):
    graph.num_edges += 1


def wrong_end(graph):
    graph.slots.dst[graph.slots_in_order()[0]] = 1000


def wrong_age(graph):
    slots = graph.slots_in_order()
    graph.slots.order[slots[0]] = graph.slots.order[slots[1]]


GRAPHS = [
    wrong_neighbor, wrong_slot, wrong_degree, overlapping_lists, wrong_position, claimed, lost_pair,
    wrong_chain, slot_free_and_used, lost_slot, wrong_count, wrong_end, wrong_age,
]  # fmt: skip


@pytest.mark.parametrize("spoil", GRAPHS, ids=lambda f: f.__name__)
def test_a_graph_that_does_not_fit(spoil):
    inc = after_some_deltas()
    assert inc.check() == []
    spoil(inc.graph)
    found = inc.check()
    assert found
    assert all(what.startswith("graph '") for what in found)
    assert sum(map(len, found)) < 2000


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_a_row_that_is_wrong(backend):
    inc = after_some_deltas(backend=backend)
    stored = {v: c for v, c in inc._session.engine.cells.items() if c.stored and c.rows is not None}
    inputs = set(inc.program.inputs.values())
    for value, cell in stored.items():
        if value in inputs:
            continue
        cell.rows.data[7] += 1
        assert any(str(value) in what and "row 7 " in what for what in inc.check()), value
        cell.rows.data[7] -= 1
        assert inc.check() == []


def test_an_owner_that_is_wrong():
    inc = after_some_deltas(SAGEConv(CHANNELS, 4, aggr="max").eval())
    (state,) = (a for a in inc._session.engine.aggregators if hasattr(a, "owner"))
    owner = state.owner.rows
    row = int((owner[:40] >= 0).all(1).nonzero()[0])
    slot = inc.graph.slots_in_order()
    owner[row, 0] = int(slot[inc.graph.slots.dst[slot] != row][0])
    assert any("edge of another row" in what for what in inc.check())


def test_an_owner_that_is_wrong_at_a_new_node(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(6, 3, generator=generator)
    ring = torch.stack([torch.arange(6), torch.arange(1, 7) % 6])
    inc = to_incremental(SAGEConv(3, 3, aggr="max").eval(), compile_after=1)
    inc(x, ring)
    for _ in range(4):  # the last of them in compiled code, as what follows
        inc.apply_delta(x_changes=(torch.tensor([0]), torch.randn(1, 3, generator=generator)))
    inc.apply_delta(torch.tensor([[0, 6], [6, 1]]), x_add=x[:1])
    assert inc.check() == []
    (state,) = (a for a in inc._session.engine.aggregators if hasattr(a, "owner"))
    state.owner.rows[6, 0] = 0  # the slot of an edge into node 1
    assert any("row 6 " in what and "edge of another row" in what for what in inc.check())


def test_edge_data_that_does_not_fit():
    torch.manual_seed(0)
    x, edge_index = drawn()
    inc = to_incremental(GraphConv(CHANNELS, 4).eval())
    inc(x, edge_index, torch.rand(edge_index.shape[1]))
    assert inc.check() == []
    inc.graph.edge_data["edge_weight"].data[3] += 1
    assert inc.check()
    inc.graph.edge_data["edge_weight"] = inc.graph.edge_data["edge_weight"][:-1]
    assert any("rows for" in what for what in inc.check())


def test_a_spread_that_most_rows_have_none_of():
    """What is left of a zero by additions is held against the rows that have one."""
    torch.manual_seed(0)
    inc = to_incremental(SAGEConv(4, 4, aggr="var").double().eval())
    path = torch.stack([torch.arange(11), torch.arange(1, 12)])
    inc(torch.randn(12, 4).double(), torch.cat([path, torch.tensor([[3, 7], [1, 1]])], 1))
    for i in range(12):
        inc.apply_delta(x_changes=(torch.tensor([i]), torch.randn(1, 4).double()))
        assert inc.check() == []


class Scores(torch.nn.Module):
    """One number for each edge."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(8, 8)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return (h[edge_index[0]] * h[edge_index[1]]).sum(1)


def test_numbers_that_cancel():
    """One of them that is almost zero is held against the others, as a channel is."""
    torch.manual_seed(0)
    edges = torch.randint(2000, (2, 20000))
    inc = to_incremental(Scores().eval())
    inc(torch.randn(2000, 8), edges)
    for i in range(5):
        inc.apply_delta(torch.randint(2000, (2, 1000)), edges[:, 1000 * i : 1000 * (i + 1)])
        assert inc.check() == []


def test_what_is_stale_is_not_checked():
    inc = wrapped()
    inc.model.convs[0].lin_l.weight.data += 1
    with pytest.raises(StaleStateError):
        inc.check()
