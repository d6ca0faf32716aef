"""The work of an update, on graphs where the right number is known by hand."""

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.nn import GAT, GCN, GATConv, GCNConv, GINConv, GraphConv, SAGEConv

from pyg_incremental import IncrementalWarning, to_incremental
from tests.zoo_models import PoolNet, ValueFlowNet

CONVS = {
    "gcn": lambda a, b: GCNConv(a, b),
    "sage": lambda a, b: SAGEConv(a, b),
    "gin": lambda a, b: GINConv(nn.Linear(a, b)),
    "gat": lambda a, b: GATConv(a, b),
    "graph": lambda a, b: GraphConv(a, b),
}
PATH = [(v, v + 1) for v in range(9)]
OUT_STAR = [(0, v) for v in range(1, 10)]
IN_STAR = [(v, 0) for v in range(1, 10)]
NODES = 10
CHANNELS = 4

pytestmark = pytest.mark.parametrize("backend", ["compiled", "reference"])


def wrap(model, edges, backend, nodes=NODES, **options):
    """A wrapped model after its first pass on a graph given by its edges."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    inc = to_incremental(model.double().eval(), backend=backend, **options)
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
    inc(torch.randn(nodes, CHANNELS).double(), index)
    return inc


class TwoLayers(nn.Module):
    """Two convs; tanh between them lets every change through."""

    def __init__(self, make):
        super().__init__()
        self.conv1, self.conv2 = make(CHANNELS, 5), make(5, 3)

    def forward(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).tanh(), edge_index)


class AfterReLU(nn.Module):
    """A linear layer and a ReLU before one conv."""

    def __init__(self, make):
        super().__init__()
        self.lin, self.conv = nn.Linear(CHANNELS, 5), make(5, 3)

    def forward(self, x, edge_index):
        return self.conv(self.lin(x).relu(), edge_index)


def change(inc, *nodes):
    return inc.apply_delta(x_changes=(torch.tensor(nodes), torch.randn(len(nodes), 4).double()))


def pairs(*listed):
    return torch.tensor(listed).t()


def work(update, *kinds):
    """Edges and rows of all steps of some kinds."""
    steps = [step for step in update.stats.steps if not kinds or step.kind in kinds]
    return sum(step.edges for step in steps), sum(step.rows for step in steps)


@pytest.mark.parametrize("make", CONVS.values(), ids=CONVS)
def test_path_change_travels_one_edge_per_layer(make, backend):
    inc = wrap(TwoLayers(make), PATH, backend)
    assert change(inc, 3).changed.tolist() == [3, 4, 5]
    assert change(inc, 9).changed.tolist() == [9]
    assert change(inc, 0, 7).changed.tolist() == [0, 1, 2, 7, 8, 9]


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "graph"])
def test_path_pushes_along_three_edges(name, backend):
    """Layer one: the edge out of 3. Layer two: the edges out of 3 and of 4.

    Sums are kept as finished rows, so that of 3 is written, too: its own term changes.
    """
    inc = wrap(TwoLayers(CONVS[name]), PATH, backend)
    assert work(change(inc, 3), "sum") == (3, 5)
    assert work(change(inc, 9), "sum") == (0, 2)


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "graph"])
def test_star_hub_and_leaf(name, backend):
    inc = wrap(CONVS[name](CHANNELS, 3), OUT_STAR, backend)
    update = change(inc, 0)
    assert update.changed.tolist() == list(range(10))
    assert work(update, "sum") == (9, 10)
    update = change(inc, 4)
    assert update.changed.tolist() == [4]
    assert work(update, "sum") == (0, 1)


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "graph"])
def test_in_star_touches_one_row_over_one_edge(name, backend):
    """The other eight in-edges of the hub are not read again."""
    inc = wrap(CONVS[name](CHANNELS, 3), IN_STAR, backend)
    update = change(inc, 4)
    assert update.changed.tolist() == [0, 4]
    assert work(update, "sum") == (1, 2)
    assert all(step.reread == 0 for step in update.stats.steps)


def test_attention_does_not_read_the_other_in_edges(backend):
    """A source with a small share changes: its old term goes, its new one comes."""
    edges = [(v, 0) for v in range(1, 200)]
    inc = wrap(GATConv(CHANNELS, 3, add_self_loops=False), edges, backend, nodes=200)
    update = inc.apply_delta(x_changes=(torch.tensor([7]), 1.01 * inc.x[[7]]))
    assert update.changed.tolist() == [0]
    assert work(update, "softmax")[0] <= 2
    assert all(step.reread == 0 for step in update.stats.steps)


def test_attention_reads_all_in_edges_when_the_target_changes(backend):
    inc = wrap(GATConv(CHANNELS, 3, add_self_loops=False), IN_STAR, backend)
    update = change(inc, 0)
    assert update.changed.tolist() == [0]
    assert work(update, "softmax") == (9, 1)
    assert sum(step.reread for step in update.stats.steps) == 1


@pytest.mark.parametrize("make", CONVS.values(), ids=CONVS)
def test_other_component_is_not_touched(make, backend):
    edges = [(0, 1), (1, 2), (2, 0), (5, 6), (6, 7), (7, 5)]
    inc = wrap(TwoLayers(make), edges, backend)
    update = inc.apply_delta(edge_index_add=pairs((2, 1)))
    assert set(update.changed.tolist()) <= {0, 1, 2}
    assert all(step.rows <= 3 for step in update.stats.steps)


@pytest.mark.parametrize("make", CONVS.values(), ids=CONVS)
def test_same_value_touches_nothing(make, backend):
    inc = wrap(TwoLayers(make), PATH, backend)
    update = inc.apply_delta(x_changes=(torch.tensor([3, 4]), inc.x[[3, 4]].clone()))
    assert update.changed.tolist() == []
    assert update.out.shape == (0, 3)
    assert update.stats.edges == 0
    assert update.stats.changed == 0
    assert work(update, "map", "sum", "softmax", "rows") == (0, 0)


@pytest.mark.parametrize("make", CONVS.values(), ids=CONVS)
def test_empty_delta_does_nothing(make, backend):
    inc = wrap(TwoLayers(make), PATH, backend)
    out = inc.out.clone()
    update = inc.apply_delta()
    assert update.changed.tolist() == []
    assert update.stats.rows == update.stats.edges == update.stats.changed == 0
    assert torch.equal(inc.out, out)


@pytest.mark.parametrize("make", CONVS.values(), ids=CONVS)
def test_dead_units_prune(make, backend):
    """A ReLU that stays at zero stops the wave before the conv."""
    inc = wrap(AfterReLU(make), OUT_STAR, backend)
    with torch.no_grad():
        inc.model.lin.bias.fill_(-1e3)
    inc.refresh()
    update = change(inc, 0, 5)
    assert update.changed.tolist() == []
    assert update.stats.edges == 0
    assert work(update, "sum", "softmax", "rows") == (0, 0)


def test_dead_units_prune_between_layers(backend):
    """All of the second layer stays as it is when the first one's ReLU is dead."""
    inc = wrap(GCN(CHANNELS, 5, 2, 3), PATH, backend)
    with torch.no_grad():
        inc.model.convs[0].bias.fill_(-1e3)
    inc.refresh()
    update = change(inc, 3)
    assert update.changed.tolist() == []
    assert update.stats.edges == 1  # the first layer's only


@pytest.mark.parametrize("name", ["sage", "gin", "graph"])
def test_added_edge_is_pushed_once_per_layer(name, backend):
    """On a path, 0 -> 5: both layers add it, and the second one pushes the change of 5 to 6."""
    inc = wrap(TwoLayers(CONVS[name]), PATH, backend)
    update = inc.apply_delta(edge_index_add=pairs((0, 5)))
    assert update.changed.tolist() == [5, 6]
    assert update.stats.edges_added == 1
    assert update.stats.edges_deleted == 0
    sums = [step for step in update.stats.steps if step.kind == "sum"]
    pushed = sorted((step.edges, step.rows) for step in sums)
    degree = [(1, 1)] if name == "sage" else []
    assert pushed == sorted([*degree, (1, 1), (2, 2)])


def test_gcn_edge_rescales_the_out_edges_of_its_target(backend):
    """4 -> 0 changes the degree of 0, so 0 and all its out-neighbours change, and no one else."""
    inc = wrap(GCNConv(CHANNELS, 3), [(0, 1), (0, 2), (3, 1), (5, 6)], backend)
    assert inc.apply_delta(edge_index_add=pairs((4, 0))).changed.tolist() == [0, 1, 2]
    assert inc.apply_delta(edge_index_del=pairs((4, 0))).changed.tolist() == [0, 1, 2]


def test_gcn_same_degree_stops_at_the_target(backend):
    """One in-edge leaves and another comes: the degree is the same, the out-neighbours stay."""
    inc = wrap(GCNConv(CHANNELS, 3), [(0, 1), (0, 2), (3, 0)], backend)
    update = inc.apply_delta(edge_index_del=pairs((3, 0)), edge_index_add=pairs((4, 0)))
    assert update.changed.tolist() == [0]


def test_max_does_not_change_when_an_equal_neighbour_comes(backend):
    """Node 0 has in-neighbours 1 and 2 with one and the same row; a third such one changes none."""
    torch.manual_seed(0)
    inc = to_incremental(SAGEConv(CHANNELS, 3, aggr="max").double().eval(), backend=backend)
    x = torch.ones(5, CHANNELS).double()
    inc(x, pairs((1, 0), (2, 0)))
    update = inc.apply_delta(edge_index_add=pairs((3, 0)))
    assert update.changed.tolist() == []


@pytest.mark.parametrize("make", CONVS.values(), ids=CONVS)
def test_delete_and_add_the_same_edge(make, backend):
    inc = wrap(make(CHANNELS, 3), PATH, backend)
    out = inc.out.clone()
    update = inc.apply_delta(edge_index_del=pairs((2, 3)), edge_index_add=pairs((2, 3)))
    assert update.stats.edges_added == update.stats.edges_deleted == 1
    assert set(update.changed.tolist()) <= {3, 4}
    torch.testing.assert_close(inc.out, out, rtol=1e-12, atol=1e-12)
    assert inc.graph.to_edge_index().t().tolist()[-1] == [2, 3]


def test_counts_of_edges(backend):
    inc = wrap(SAGEConv(CHANNELS, 3), IN_STAR, backend)
    update = inc.apply_delta(edge_index_add=pairs((5, 6), (7, 7)), undirected=True)
    assert (update.stats.edges_added, update.stats.edges_deleted) == (3, 0)
    update = inc.apply_delta(nodes_del=torch.tensor([0]))
    assert (update.stats.edges_added, update.stats.edges_deleted) == (0, 9)
    update = inc.apply_delta(nodes_del=torch.tensor([7]))
    assert (update.stats.edges_added, update.stats.edges_deleted) == (0, 1)


def test_new_nodes_are_changed_rows(backend):
    inc = wrap(SAGEConv(CHANNELS, 3), PATH, backend)
    update = inc.apply_delta(x_add=torch.zeros(2, CHANNELS).double())
    assert update.changed.tolist() == [10, 11]
    assert update.out.shape == (2, 3)
    assert update.stats.edges == 0
    update = inc.apply_delta(x_add=torch.ones(1, 4).double(), edge_index_add=pairs((12, 4)))
    assert update.changed.tolist() == [4, 12]


def test_isolated_node_removed_again_changes_nothing(backend):
    inc = wrap(SAGEConv(CHANNELS, 3), PATH, backend)
    inc.apply_delta(nodes_del=torch.tensor([5]))
    update = inc.apply_delta(nodes_del=torch.tensor([5]))
    assert update.changed.tolist() == []
    assert update.stats.edges == update.stats.changed == 0


def test_layers_on_one_graph_share_their_degree(backend):
    """Two GCN layers: one degree and one sum each."""
    inc = wrap(GCN(CHANNELS, 5, 2, 3), PATH, backend)
    assert [step.kind for step in inc.program.steps].count("sum") == 3
    inc = wrap(TwoLayers(CONVS["sage"]), PATH, backend)
    assert [step.kind for step in inc.program.steps].count("sum") == 3
    inc = wrap(GAT(CHANNELS, 5, 2, 3), PATH, backend)
    assert [step.kind for step in inc.program.steps].count("softmax") == 2
    assert len(str(inc.program).splitlines()) >= len(inc.program.steps)


def test_removed_hub_reads_each_edge_once(backend):
    inc = wrap(GraphConv(CHANNELS, 3), OUT_STAR, backend)
    update = inc.apply_delta(nodes_del=torch.tensor([0]))
    assert update.changed.tolist() == list(range(10))
    assert work(update, "sum")[0] == 9


def test_row_recompute_reads_the_rows_it_must(backend):
    """An aggregation without deltas of its own reads the in-edges of touched rows, no others."""
    edges = [*IN_STAR, (5, 6), (7, 6)]
    inc = wrap(SAGEConv(CHANNELS, 3, aggr="median"), [*edges, (0, 9)], backend)
    update = change(inc, 5)
    assert update.changed.tolist() == [0, 5, 6]
    assert work(update, "rows") == (2 + 9 + 2, 2)  # two pushed along, eleven read


def test_modes_are_named(backend):
    inc = to_incremental(PoolNet(False).double().eval(), backend=backend)
    inc(torch.randn(NODES, 5).double(), pairs(*PATH))
    update = inc.apply_delta(x_changes=(torch.tensor([3]), torch.ones(1, 5).double()))
    assert (inc.mode, update.stats.mode) == ("mixed", "mixed")
    assert len(update.changed) == NODES

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        inc = to_incremental(ValueFlowNet().double().eval(), backend=backend)
        inc(torch.randn(NODES, 5).double(), pairs(*PATH))
        inc(torch.randn(NODES, 5).double(), pairs(*PATH))
    said = [str(w.message) for w in caught if w.category is IncrementalWarning]
    assert len(said) == 1
    assert "ValueFlowNet" in said[0]
    update = inc.apply_delta(x_changes=(torch.tensor([3]), torch.ones(1, 5).double()))
    assert (inc.mode, update.stats.mode) == ("full pass", "full pass")
    assert "full pass" in repr(inc)
    assert "full pass" in str(update.stats)


def test_version_counts_the_deltas(backend):
    inc = wrap(SAGEConv(CHANNELS, 3), PATH, backend)
    start = inc.version
    assert change(inc, 1).version == start + 1 == inc.version
    assert change(inc, 1).version == start + 2 == inc.version


def test_stats_print_as_a_table(backend):
    inc = wrap(GCN(CHANNELS, 5, 2, 3), PATH, backend)
    stats = change(inc, 3).stats
    text = str(stats)
    for step in stats.steps:
        assert step.name in text
    assert stats.rows == sum(step.rows for step in stats.steps)
    assert stats.totals() == (stats.rows, stats.changed, stats.edges)
    assert stats.seconds > 0
    assert backend in repr(inc)
