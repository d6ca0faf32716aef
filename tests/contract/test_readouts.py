"""Outputs for graphs: readouts by `batch`, held against the model after every kind of delta."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch_geometric.nn import (  # fmt: skip
    GCNConv,
    GINConv,
    GraphNorm,
    HeteroConv,
    InstanceNorm,
    SAGEConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)
from torch_geometric.nn import aggr as aggregations
from torch_geometric.utils import degree, scatter, softmax

from pyg_incremental import (  # fmt: skip
    GraphDelta,
    IncrementalWarning,
    InvalidDeltaError,
    UnsupportedModelError,
    evaluate,
    load,
    to_incremental,
)
from pyg_incremental.distributed import DistributedIncrementalModel
from tests.closeness import assert_close

CHANNELS, WIDTH = 5, 6


class Pooled(nn.Module):
    """Two convs, a readout, and a classifier of graphs."""

    def __init__(self, pool=global_mean_pool):
        super().__init__()
        self.one, self.two = GCNConv(CHANNELS, WIDTH), GCNConv(WIDTH, WIDTH)
        self.pool, self.head = pool, nn.Linear(WIDTH, 3)

    def forward(self, x, edge_index, batch):
        h = self.two(self.one(x, edge_index).relu(), edge_index)
        return self.head(self.pool(h, batch)).relu()


class Doubled(Pooled):
    """A readout that is twice as wide as what it reads."""

    def __init__(self, pool):
        super().__init__(pool)
        self.head = nn.Linear(2 * WIDTH, 3)


class Wide(Pooled):
    """Several aggregations beside each other."""

    def __init__(self):
        super().__init__(aggregations.MultiAggregation(["sum", "mean", "min", "max", "std"]))
        self.head = nn.Linear(5 * WIDTH, 3)


class VirtualNode(Pooled):
    """A row for each graph that all of its nodes read, and rows of nodes beside those of graphs."""

    def forward(self, x, edge_index, batch):
        h = self.one(x, edge_index).relu()
        h = self.two(h + global_add_pool(h, batch).tanh()[batch], edge_index)
        return self.head(global_max_pool(h, batch)), h


class Normed(Pooled):
    """Normalisation within each graph."""

    def __init__(self):
        super().__init__()
        self.first, self.second = GraphNorm(WIDTH), InstanceNorm(WIDTH)

    def forward(self, x, edge_index, batch):
        h = self.first(self.one(x, edge_index), batch).relu()
        return self.head(self.pool(self.second(h, batch).relu(), batch))


class ByHand(Pooled):
    """What people write without PyG."""

    def forward(self, x, edge_index, batch):
        h = self.one(x, edge_index)
        count = batch.max().item() + 1
        share = softmax(h[:, 0], batch)
        rows = torch.zeros(count, WIDTH, dtype=h.dtype).index_add_(0, batch, h * share[:, None])
        size = torch.zeros(int(batch.max() + 1), dtype=h.dtype).scatter_add_(
            0, batch, torch.ones(len(x), dtype=h.dtype)
        )
        return rows, size, degree(batch), scatter(h, batch, reduce="min") / size.view(-1, 1)


class AtEveryLayer(nn.Module):
    """The readouts of all layers, joined: GIN as its authors classify graphs."""

    def __init__(self):
        super().__init__()
        widths = (CHANNELS, WIDTH, WIDTH)
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b)))
            for a, b in pairwise(widths)
        )
        self.head = nn.Linear(2 * WIDTH, 2)

    def forward(self, x, edge_index, batch):
        found = []
        for conv in self.convs:
            x = conv(x, edge_index).relu()
            found.append(global_add_pool(x, batch))
        return self.head(torch.cat(found, 1)).log_softmax(-1)


MAKERS = {
    "mean": Pooled,
    "sum": lambda: Pooled(global_add_pool),
    "max": lambda: Pooled(global_max_pool),
    "attention": lambda: Pooled(aggregations.AttentionalAggregation(nn.Linear(WIDTH, 1))),
    "softmax": lambda: Pooled(aggregations.SoftmaxAggregation(learn=True)),
    "power mean": lambda: Pooled(aggregations.PowerMeanAggregation()),
    "variance": lambda: Pooled(aggregations.VarAggregation()),
    "deep sets": lambda: Pooled(
        aggregations.DeepSetsAggregation(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    ),
    "median": lambda: Pooled(aggregations.MedianAggregation()),
    "quantile": lambda: Doubled(aggregations.QuantileAggregation([0.1, 0.7])),
    "product": lambda: Pooled(aggregations.MulAggregation()),
    "set2set": lambda: Doubled(aggregations.Set2Set(WIDTH, 2)),
    "several": Wide,
    "virtual node": VirtualNode,
    "norms": Normed,
    "by hand": ByHand,
    "every layer": AtEveryLayer,
}


class Graphs:
    """Graphs that change, as plain tensors, and a model that follows them.

    Removed nodes are no part of any: the oracle is the model on the nodes that are left.
    """

    def __init__(self, make, seed, sizes=(4, 7, 1, 5, 3), **options):
        torch.manual_seed(seed)
        self.model = make().double().eval()
        self.batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        n = len(self.batch)
        self.x = torch.randn(n, CHANNELS, dtype=torch.float64)
        pairs = [(i, j) for i in range(n) for j in range(n) if self.batch[i] == self.batch[j]]
        some = torch.randperm(len(pairs))[: 2 * n]
        self.edges = torch.tensor([pairs[i] for i in some]).t()
        self.there = torch.ones(n, dtype=torch.bool)
        self.inc = to_incremental(self.model, **options)
        self.inc(self.x, self.edges, self.batch)

    def apply(self, **delta):
        """Take a delta twice: in plain tensors, and incrementally."""
        for pair in delta.get("edge_index_del", torch.empty(2, 0)).t().long():
            last = (self.edges == pair[:, None]).all(0).nonzero().max()
            self.edges = torch.cat([self.edges[:, :last], self.edges[:, last + 1 :]], 1)
        gone = delta.get("nodes_del")
        if gone is not None:
            self.edges = self.edges[:, ~torch.isin(self.edges, gone).any(0)]
            self.x = self.x.index_fill(0, gone, 0)
            self.there = self.there.index_fill(0, gone, False)
        new = delta.get("x_add")
        if new is not None:
            self.x = torch.cat([self.x, new["x"]])
            self.batch = torch.cat([self.batch, new["batch"]])
            self.there = torch.cat([self.there, torch.ones(len(new["x"]), dtype=torch.bool)])
        for name, (ids, rows) in delta.get("x_changes", {}).items():
            setattr(self, name, getattr(self, name).index_copy(0, ids, rows))
            if name == "batch":
                self.there = self.there.index_copy(0, ids, rows >= 0)
        if "edge_index_add" in delta:
            self.edges = torch.cat([self.edges, delta["edge_index_add"]], 1)
        before = [rows.clone() for rows in _parts(self.inc.out)]
        up = self.inc.apply_delta(**delta)
        self.check(before, up)
        return up

    def expected(self):
        """The output on the nodes that are left, with their rows where it has rows of nodes."""
        edges = (self.there.cumsum(0) - 1)[self.edges]
        return _parts(self.model(self.x[self.there], edges, self.batch[self.there]))

    def check(self, before, up):
        """All rows are the model's, and just those that differ are named."""
        expected, ours = self.expected(), _parts(self.inc.out)
        of_nodes = [value.kind == "" for value in self.inc.program.outputs]
        rows = zip(expected, ours, before, _parts(up.changed), _parts(up.out), strict=True)
        for (want, got, old, ids, new), at_nodes in zip(rows, of_nodes, strict=True):
            assert_close(got[self.there] if at_nodes else got[: len(want)], want)
            differs = torch.ones(len(got), dtype=torch.bool)
            both = min(len(old), len(got))
            differs[:both] = (got[:both] != old[:both]).reshape(both, -1).any(1)
            assert ids.tolist() == differs.nonzero().view(-1).tolist()
            assert torch.equal(new, got[ids])

    def walk(self, steps=6):
        """Random deltas: each brings, moves and removes some of everything."""
        for _ in range(steps):
            n = len(self.x)
            self.apply(edge_index_add=self.some(4).view(2, 2))
            self.apply(edge_index_del=self.edges[:, torch.randperm(self.edges.size(1))[:2]])
            rows = torch.randn(2, CHANNELS, dtype=torch.float64)
            self.apply(x_changes={"x": (self.some(2), rows)})
            graphs = int(self.batch.max()) + 1
            known = self.some(1).item()
            self.apply(
                x_add={"x": rows + 1, "batch": torch.randint(graphs + 1, (2,))},
                edge_index_add=torch.tensor([[n, known], [known, n + 1]]),
            )
            moved = torch.randperm(n)[:2]  # one that was removed comes back
            self.apply(
                x_changes={"batch": (moved, torch.randint(graphs, (2,)))},
                edge_index_del=self.edges[:, :1],
                edge_index_add=moved.view(2, 1),
            )
            self.apply(nodes_del=self.some(2))
            self.apply(nodes_del=torch.randperm(n)[:1])

    def some(self, count):
        """Distinct nodes that were not removed."""
        ids = self.there.nonzero().view(-1)
        return ids[torch.randperm(len(ids))[:count]]


def _parts(out):
    return list(out) if isinstance(out, tuple) else [out]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_every_readout_follows_every_delta(make, seed):
    run = Graphs(make, seed)
    assert run.inc.mode == "incremental", run.inc
    run.walk(4)
    assert not run.inc.check()


@pytest.mark.parametrize("name", ["attention", "several", "virtual node"])
@pytest.mark.parametrize("options", [{"backend": "reference"}, {"store": "minimal"}], ids=str)
def test_in_other_configurations(name, options, seed):
    run = Graphs(MAKERS[name], seed, **options)
    assert run.inc.mode == "incremental"
    run.walk(2)


def test_a_changed_edge_among_1000_graphs_touches_one_graph(seed):
    run = Graphs(Pooled, seed, sizes=[6] * 20)
    batch = torch.arange(1000).repeat_interleave(6)
    edges = torch.stack([torch.arange(6000), torch.arange(6000) // 6 * 6])
    inc = to_incremental(run.model)
    inc(torch.randn(6000, CHANNELS, dtype=torch.float64), edges, batch)
    up = inc.apply_delta(edge_index_add=torch.tensor([[3004], [3003]]))
    assert up.changed.tolist() == [500]
    assert (up.stats.edges_added, up.stats.edges_deleted) == (1, 0)
    for step in up.stats.steps:
        assert step.rows <= (1 if "scatter" in step.name else 6), step


def test_a_delta_that_moves_nodes_is_previewed_joined_and_undone(seed):
    run = Graphs(VirtualNode, seed)
    before = [rows.clone() for rows in run.inc.out]
    move = GraphDelta(
        x_changes={"batch": (torch.tensor([5, 6]), torch.tensor([3, 2]))},
        edge_index_add=torch.tensor([[5], [0]]),
    )
    more = GraphDelta(x_changes={"x": (torch.tensor([5]), torch.ones(1, CHANNELS).double())})
    both = move + more
    back, seen = run.inc.inverse(both), run.inc.preview(both)
    for now, was in zip(run.inc.out, before, strict=True):
        assert torch.equal(now, was)
    up = run.inc.apply_delta(both, old=True)
    rows = zip(up.changed, seen.changed, up.old, before, strict=True)
    for ids, told, old, was in rows:
        assert ids.tolist() == told.tolist()
        assert torch.equal(old, was[ids])
    assert run.inc.verify() < 1e-12
    run.inc.apply_delta(back)
    for now, was in zip(run.inc.out, before, strict=True):
        assert_close(now, was)


def test_what_undoes_a_new_node_names_no_graph(seed):
    """The node leaves it, like any removed one."""
    run = Graphs(Pooled, seed)
    rows = torch.ones(1, CHANNELS, dtype=torch.float64)
    delta = {"x_add": {"x": rows, "batch": torch.tensor([5])}}
    back = run.inc.inverse(GraphDelta(**delta))
    assert {**back.nodes_del}[""].tolist() == [len(run.x)]
    run.apply(**delta)
    run.apply(nodes_del=torch.tensor([len(run.x) - 1]))


@pytest.mark.parametrize("name", ["mean", "median", "virtual node"])
def test_removed_nodes_leave_come_back_and_leave_again(name, seed):
    run = Graphs(MAKERS[name], seed)
    gone, before = torch.tensor([3, 9, 2]), [rows.clone() for rows in _parts(run.inc.out)]
    delta = GraphDelta(nodes_del=gone)
    back, seen = run.inc.inverse(delta), run.inc.preview(delta)
    up = run.apply(nodes_del=gone)
    for ids, told in zip(_parts(up.changed), _parts(seen.changed), strict=True):
        assert ids.tolist() == told.tolist()
    assert run.inc.verify() < 1e-12
    run.apply(nodes_del=gone[:2])  # nothing is left of them
    assert run.inc.verify() < 1e-12
    whole = run.inc.evaluate()
    for ours, theirs in zip(_parts(whole), run.expected(), strict=True):
        assert_close(ours if len(ours) == len(theirs) else ours[run.there], theirs)
    away = run.inc.inverse(back)
    run.inc.apply_delta(back)
    for now, was in zip(_parts(run.inc.out), before, strict=True):
        assert_close(now, was)
    run.inc.apply_delta(away)
    for now, rows in zip(_parts(run.inc.out), run.expected(), strict=True):
        assert_close(now if len(now) == len(rows) else now[run.there], rows)
    run.walk(1)


def test_who_is_removed_leaves_whatever_else_the_delta_says_of_it(seed):
    run = Graphs(Normed, seed)
    n, rows = len(run.x), torch.ones(2, CHANNELS).double()
    run.inc.apply_delta(
        nodes_del=torch.tensor([3, n]),
        x_changes={"batch": (torch.tensor([3]), torch.tensor([1]))},
        x_add={"x": rows, "batch": torch.tensor([0, 5])},
        edge_index_add=torch.tensor([[n, 1], [2, n]]),
    )
    gone = torch.tensor([3, n])
    run.x = torch.cat([run.x, rows]).index_fill(0, gone, 0)
    run.batch = torch.cat([run.batch, torch.tensor([0, 5])])
    run.there = torch.ones(n + 2, dtype=torch.bool).index_fill(0, gone, False)
    run.edges = run.edges[:, ~torch.isin(run.edges, gone).any(0)]
    assert_close(run.inc.out, run.expected()[0])
    run.walk(1)


class OfUsers(nn.Module):
    """A readout over one of two kinds of nodes."""

    def __init__(self):
        super().__init__()
        kinds = [("u", "r", "i"), ("i", "b", "u")]
        self.conv = HeteroConv({k: SAGEConv((CHANNELS, CHANNELS), WIDTH) for k in kinds})
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x_dict, edge_index_dict, batch_dict):
        h = self.conv(x_dict, edge_index_dict)
        return self.head(global_mean_pool(h["u"], batch_dict["u"]))


def test_removed_nodes_of_one_kind_leave_its_graphs(seed):
    torch.manual_seed(seed)
    model, counts = OfUsers().double().eval(), {"u": 8, "i": 6}
    x = {kind: torch.randn(n, CHANNELS).double() for kind, n in counts.items()}
    batch = {kind: torch.arange(n) // 3 for kind, n in counts.items()}
    rated = torch.stack([torch.randint(8, (15,)), torch.randint(6, (15,))])
    inc = to_incremental(model)
    inc(x, {("u", "r", "i"): rated, ("i", "b", "u"): rated.flip(0)}, batch)
    assert inc.mode == "incremental"
    gone = {"u": torch.tensor([2]), "i": torch.tensor([1])}
    inc.apply_delta(nodes_del=gone)
    left = {
        k: torch.ones(n, dtype=torch.bool).index_fill(0, gone[k], False) for k, n in counts.items()
    }
    place = {kind: there.cumsum(0) - 1 for kind, there in left.items()}
    rated = rated[:, left["u"][rated[0]] & left["i"][rated[1]]]
    rated = torch.stack([place["u"][rated[0]], place["i"][rated[1]]])
    edges = {("u", "r", "i"): rated, ("i", "b", "u"): rated.flip(0)}
    rest = [{kind: rows[left[kind]] for kind, rows in of.items()} for of in (x, batch)]
    assert_close(inc.out, model(rest[0], edges, rest[1]))
    assert inc.verify() < 1e-12


def test_a_graph_of_removed_nodes_is_empty_and_its_number_is_used_again(seed):
    run = Graphs(lambda: Pooled(global_add_pool), seed, sizes=(3, 2, 2))
    run.apply(nodes_del=torch.tensor([5, 6]))
    assert_close(run.inc.out[2], run.model.head(torch.zeros(WIDTH).double()).relu())
    assert run.inc.verify() < 1e-12
    rows = torch.ones(1, CHANNELS).double()
    run.apply(x_add={"x": rows, "batch": torch.tensor([2])})
    run.apply(nodes_del=torch.arange(8))  # nobody is left
    assert run.inc.verify() < 1e-12
    run.apply(
        x_changes={"x": (torch.tensor([1]), rows), "batch": (torch.tensor([1]), torch.tensor([0]))}
    )


def test_a_removed_node_says_its_graph_before_edges_come_to_it(seed):
    """Where nodes read the row of their graph; else it takes part as a neighbour only."""
    run = Graphs(VirtualNode, seed)
    run.apply(nodes_del=torch.tensor([4]))
    edge = torch.tensor([[4], [5]])
    with pytest.raises(InvalidDeltaError, match="node 4 was removed, and is in no graph"):
        run.inc.apply_delta(edge_index_add=edge)
    run.apply(edge_index_add=edge, x_changes={"batch": (edge[0], torch.tensor([1]))})
    run = Graphs(Pooled, seed)
    run.apply(nodes_del=torch.tensor([4]))
    run.inc.apply_delta(edge_index_add=edge)
    apart = run.batch.index_fill(0, edge[0], int(run.batch.max()) + 1)
    whole = run.model(run.x, torch.cat([run.edges, edge], 1), apart)
    assert_close(run.inc.out, whole[:-1])
    assert run.inc.verify() < 1e-12


class Branching(Pooled):
    """Reads the numbers of graphs themselves where it is told to."""

    numbered = False

    def forward(self, x, edge_index, batch):
        return super().forward(x + batch[:, None] if self.numbered else x, edge_index, batch)


def test_removed_nodes_count_where_the_number_of_a_graph_is_read(seed, tmp_path):
    run = Graphs(Branching, seed)
    run.apply(nodes_del=torch.tensor([4, 12]))
    run.inc.save(tmp_path / "state")
    again = load(tmp_path / "state", copy.deepcopy(run.model))
    assert torch.equal(again.out, run.inc.out)
    run.model.numbered = again.model.numbered = True
    expected = run.model(run.x, run.edges, run.batch)
    for inc in (run.inc, again):
        inc.refresh()
        assert_close(inc.out, expected)
        inc.compact()
        with pytest.warns(IncrementalWarning, match="removed nodes still count .* 'batch' names"):
            inc.apply_delta(nodes_del=torch.tensor([0]))
        inc.apply_delta(nodes_del=torch.tensor([1]))  # it is said once
        assert inc.verify() < 1e-12


def test_removed_nodes_leave_when_ids_are_given_back(seed):
    run = Graphs(Pooled, seed)
    gone = torch.tensor([3, 9])
    run.apply(nodes_del=gone)
    ids = run.inc.compact()
    stays = ids >= 0
    run.x, run.batch, run.edges = run.x[stays], run.batch[stays], ids[run.edges]
    run.there = run.there[stays]
    assert (~stays).nonzero().view(-1).tolist() == gone.tolist()
    assert_close(run.inc.out, run.expected()[0])
    assert run.inc.num_edges == run.edges.size(1)
    run.walk(1)


def test_a_graph_that_loses_its_last_node_keeps_its_row(seed):
    run = Graphs(lambda: Pooled(global_add_pool), seed, sizes=(3, 2, 1))
    run.apply(x_changes={"batch": (torch.tensor([5]), torch.tensor([0]))})
    assert len(run.expected()[0]) == 2
    assert_close(run.inc.out[2], run.model.head(torch.zeros(WIDTH).double()).relu())
    assert run.inc.verify() < 1e-12
    run.apply(x_changes={"batch": (torch.tensor([4]), torch.tensor([2]))})
    assert len(run.expected()[0]) == 3


@pytest.mark.parametrize("graph", [-7, 7, 10**12])
def test_graphs_that_cannot_be_there_are_refused(graph, seed):
    run = Graphs(Pooled, seed)
    before = run.inc.out.clone()
    with pytest.raises(InvalidDeltaError, match=f"node 3 is put into graph {graph}, but there are"):
        run.inc.apply_delta(x_changes={"batch": (torch.tensor([3]), torch.tensor([graph]))})
    assert torch.equal(run.inc.out, before)
    run.walk(1)


def test_state_is_saved_loaded_and_refreshed(seed, tmp_path):
    run = Graphs(VirtualNode, seed)
    run.walk(1)
    run.inc.save(tmp_path / "state")
    again = load(tmp_path / "state", run.model)
    for ours, theirs in zip(again.out, run.inc.out, strict=True):
        assert torch.equal(ours, theirs)
    run.inc = again
    run.walk(1)
    run.inc.refresh()
    assert run.inc.mode == "incremental"
    run.walk(1)


def test_rows_of_graphs_are_read_by_their_ids(seed):
    run = Graphs(Pooled, seed)
    assert_close(run.inc.read(torch.tensor([4, 0])).out, run.expected()[0][[4, 0]])
    with pytest.raises(InvalidDeltaError):
        run.inc.read(torch.tensor([5]))


def test_ids_that_are_no_graphs_are_rows_like_any_other(seed):
    """A type of each node is one int64 too; nothing is added up by it."""

    class Typed(Pooled):
        def __init__(self):
            super().__init__()
            self.types = nn.Embedding(50, WIDTH)

        def forward(self, x, edge_index, batch):
            return self.one(x, edge_index) + self.types(batch)

    run = Graphs(Typed, seed)
    assert run.inc.mode == "incremental"
    run.apply(x_changes={"batch": (torch.tensor([3]), torch.tensor([40]))})


def test_ranks_refuse_readouts_and_evaluate_has_no_rows_of_nodes(seed):
    run = Graphs(Pooled, seed)
    with pytest.raises(UnsupportedModelError, match="adds up rows by 'batch'"):
        DistributedIncrementalModel(run.model)(run.x, run.edges, run.batch)
    inputs = {"x": run.x, "edge_index": run.edges, "batch": run.batch}
    assert_close(evaluate(run.model, inputs), run.expected()[0])
    with pytest.raises(UnsupportedModelError, match="no row for each node"):
        evaluate(run.model, inputs, nodes=[3])
