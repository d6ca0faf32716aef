"""Graphs that a model makes of its edges: turned, joined, filtered, with loops, merged."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import (
    add_remaining_self_loops,
    add_self_loops,
    coalesce,
    degree,
    remove_self_loops,
    scatter,
    softmax,
    to_undirected,
)

from pyg_incremental import IncrementalModel, IncrementalWarning, to_incremental
from pyg_incremental.ops import Sum
from tests.closeness import assert_close
from tests.oracle import full
from tests.side_by_side import SideBySide, clone
from tests.strategies import DELTAS, generator, make_world, oldest_changes
from tests.zoo import ATTR, CHANNELS, INCREMENTAL, WEIGHT, Case


class Own(gnn.MessagePassing):
    """A conv of a user's, with weights."""

    def __init__(self, aggr="sum"):
        super().__init__(aggr=aggr)

    def forward(self, x, edge_index, weight=None):
        return self.propagate(edge_index, x=x, weight=weight)

    def message(self, x_j, weight):
        return x_j if weight is None else x_j * weight.view(-1, 1)


class Makes(nn.Module):
    """Some convs, and a `forward` that makes the edges for them."""

    def __init__(self, make):
        super().__init__()
        self.make = make
        self.sage, self.max = gnn.SAGEConv(CHANNELS, 4), gnn.SAGEConv(CHANNELS, 4, aggr="max")
        self.gcn = gnn.GCNConv(CHANNELS, 4)
        self.plain = gnn.GCNConv(CHANNELS, 4, normalize=False)
        self.graph = gnn.GraphConv(CHANNELS, 4)
        self.gat = gnn.GATConv(CHANNELS, 2, heads=2, edge_dim=3)
        self.bare = gnn.GATConv(CHANNELS, 2, heads=2, add_self_loops=False)
        self.gine = gnn.GINEConv(nn.Linear(CHANNELS, 4), edge_dim=3)
        self.cut, self.own, self.own_max = nn.Parameter(torch.tensor(0.4)), Own(), Own("max")

    def forward(self, x, edge_index, edge_weight=None, edge_attr=None):
        return self.make(self, x, edge_index, edge_attr if edge_weight is None else edge_weight)


def both(e):
    row, col = e
    return torch.stack([torch.cat([row, col]), torch.cat([col, row])])


def normed(m, x, e, w):
    e, w = add_remaining_self_loops(e, w, 2.0, x.size(0))
    row, col = e
    d = scatter(w, col, 0, x.size(0), "sum").pow(-0.5)
    d = d.masked_fill(d == float("inf"), 0)
    return m.own(x, e, d[row] * w * d[col])


def attended(m, x, e, w):
    e, w = add_self_loops(*remove_self_loops(e, w), fill_value=0.5, num_nodes=x.size(0))
    src, dst = e
    a = softmax((x[src] * x[dst]).sum(-1) * w, dst, num_nodes=x.size(0))
    return scatter(a.view(-1, 1) * x[src], dst, 0, x.size(0), "sum")


def twice(m, x, e, w):
    h = m.gcn(x, *to_undirected(e, w, x.size(0), "mean")).relu()
    e, w = remove_self_loops(e, w)
    return h + m.graph(x, e, w)


def shares(m, x, e, w):
    """Factors at either end; where there is no edge, one of them is infinite."""
    share = 1 / degree(e[1], x.size(0), x.dtype)
    sent = x[e[0]] * (w * x[:, 0].exp()[e[0]]).view(-1, 1)
    return scatter(sent * share[e[1]].view(-1, 1), e[1], 0, x.size(0), "sum")


def matrix(e, w, x):
    w = x.new_ones(e.size(1)) if w is None else w
    return torch.sparse_coo_tensor(e, w, (x.size(0), x.size(0)))


def masked(m, x, e, w):
    row, col = e
    near = (w > 0.3) & (row != col)
    return m.own(x, torch.stack([row[near], col[near]]), w[near])


def by_degree(m, x, e, w):
    e = to_undirected(e, num_nodes=x.size(0))
    return m.sage(x, e) / (1 + degree(e[0], x.size(0), x.dtype)).view(-1, 1)


def weighted(name, make, **options):
    return Case(name, lambda: Makes(make), WEIGHT, mode=INCREMENTAL, finite=True, **options)


def with_attr(name, make):
    return Case(name, lambda: Makes(make), ATTR, mode=INCREMENTAL, finite=True)


CASES = [
    weighted("stack", lambda m, x, e, w: m.sage(x, torch.stack([e[1], e[0]]))),
    weighted("flip by rows", lambda m, x, e, w: m.graph(x, e[[1, 0]], w)),
    weighted("cat of both", lambda m, x, e, w: m.max(x, torch.cat([e, e.flip(0)], 1))),
    weighted(
        "cat of both, weights",
        lambda m, x, e, w: m.graph(x, torch.cat([e, e.flip(0)], 1), torch.cat([w, 0.5 * w])),
    ),
    weighted("ends of both", lambda m, x, e, w: m.gcn(x, both(e), torch.cat([w, w]))),
    with_attr("ends of both, attr", lambda m, x, e, w: m.gine(x, both(e), torch.cat([w, -w]))),
    weighted("undirected", lambda m, x, e, w: m.max(x, to_undirected(e))),
    weighted("undirected, num_nodes", lambda m, x, e, w: m.gcn(x, to_undirected(e, x.size(0)))),
    *(
        weighted(
            f"undirected, {reduce}",
            lambda m, x, e, w, reduce=reduce: m.graph(x, *to_undirected(e, w, x.size(0), reduce)),
        )
        for reduce in ("add", "mean", "min", "max", "mul")
    ),
    with_attr(
        "undirected, attr", lambda m, x, e, w: m.gat(x, *to_undirected(e, w.sin(), x.size(0)))
    ),
    weighted(
        "undirected, several",
        lambda m, x, e, w: (lambda e, ws: m.graph(x, e, ws[0] + ws[1].cos()))(
            *to_undirected(e, [w, w * w], x.size(0))
        ),
    ),
    weighted("coalesce", lambda m, x, e, w: m.graph(x, *coalesce(e, w, x.size(0)))),
    weighted(
        "coalesce, own", lambda m, x, e, w: m.own_max(x, *coalesce(e.flip(0), w, reduce="max"))
    ),
    weighted("gcn_norm", lambda m, x, e, w: m.plain(x, *gcn_norm(e, w, x.size(0)))),
    weighted("gcn_norm, improved", lambda m, x, e, w: m.plain(x, *gcn_norm(e, w, x.size(0), True))),
    weighted(
        "gcn_norm, unit",
        lambda m, x, e, w: m.plain(x, *gcn_norm(e, None, x.size(0), dtype=x.dtype)),
    ),
    weighted(
        "gcn_norm, no loops",
        lambda m, x, e, w: m.plain(x, *gcn_norm(e, w, x.size(0), add_self_loops=False)),
    ),
    weighted("gcn_norm, by hand", normed),
    weighted("loops", lambda m, x, e, w: m.max(x, add_self_loops(e, num_nodes=x.size(0))[0])),
    weighted(
        "loops, weights", lambda m, x, e, w: m.graph(x, *add_self_loops(e, w, 0.7, x.size(0)))
    ),
    weighted(
        "loops, mean", lambda m, x, e, w: m.graph(x, *add_self_loops(e, w, "mean", x.size(0)))
    ),
    with_attr("loops, attr", lambda m, x, e, w: m.gine(x, *add_self_loops(e, w, 2.0, x.size(0)))),
    weighted("loops, GAT", lambda m, x, e, w: m.bare(x, add_self_loops(e, num_nodes=x.size(0))[0])),
    weighted("loops, own", lambda m, x, e, w: m.own(x, *add_self_loops(e, w, 3.0, x.size(0)))),
    weighted(
        "remaining",
        lambda m, x, e, w: m.own_max(x, *add_remaining_self_loops(e, w, 3.0, x.size(0))),
    ),
    weighted(
        "remaining, conv",
        lambda m, x, e, w: m.graph(x, *add_remaining_self_loops(e, w.exp(), 3.0, x.size(0))),
    ),
    with_attr(
        "remaining, attr",
        lambda m, x, e, w: m.gine(x, *add_remaining_self_loops(e, w, 0.5, x.size(0))),
    ),
    weighted(
        "remaining, plain",
        lambda m, x, e, w: m.sage(x, add_remaining_self_loops(e, num_nodes=x.size(0))[0]),
    ),
    weighted("no loops", lambda m, x, e, w: m.max(x, remove_self_loops(e)[0])),
    weighted("no loops, weights", lambda m, x, e, w: m.gcn(x, *remove_self_loops(e, w))),
    weighted("filtered", lambda m, x, e, w: m.sage(x, e[:, w > 0.5])),
    weighted("filtered, weights", lambda m, x, e, w: m.graph(x, e[:, w > 0.5], w[w > 0.5])),
    weighted("filtered, learned", lambda m, x, e, w: m.max(x, e[:, w > m.cut])),
    weighted("filtered, turned", lambda m, x, e, w: m.sage(x, e.flip(0)[:, w < 0.6])),
    with_attr("filtered, attr", lambda m, x, e, w: m.gine(x, e[:, w[:, 0] > 0], w[w[:, 0] > 0])),
    weighted("half of both", lambda m, x, e, w: m.sage(x, to_undirected(e[:, e[0] < e[1]]))),
    weighted("filtered ends", masked),
    weighted("attended", attended),
    weighted("but one node", lambda m, x, e, w: m.max(x, e[:, (e[0] != e[1]) & (e[0] != 5)])),
    weighted("shares", shares),
    weighted("twice", twice),
    weighted("degree", by_degree),
    weighted(
        "then gcn_norm", lambda m, x, e, w: m.plain(x, *gcn_norm(*to_undirected(e, w), x.size(0)))
    ),
    weighted("matrix", lambda m, x, e, w: torch.sparse.mm(matrix(e.flip(0), w, x), x)),
    weighted(
        "matrix, turned", lambda m, x, e, w: matrix(e, w, x).t() @ x.relu() + matrix(e, w, x) @ x
    ),
    weighted(
        "matrix, merged", lambda m, x, e, w: m.sage.lin_l((matrix(e, w, x).coalesce() @ x).relu())
    ),
    weighted("matrix, normed", lambda m, x, e, w: matrix(*gcn_norm(e, w, x.size(0)), x).t() @ x),
    weighted(
        "matrix, CSR", lambda m, x, e, w: matrix(to_undirected(e), None, x).to_sparse_csr() @ x
    ),
    weighted(
        "one of each",
        lambda m, x, e, w: m.sage(x, torch.cat([e, e.flip(0)[:, w > 0.5], e[:, w < 0.2]], 1)),
    ),
]


def wide(case, seed=0, **options):
    """Side by side on a graph with loops and edges of the same ends."""
    world = make_world(generator([seed, 5]), nodes=9, edges=26, data=case.data, dtype=torch.float64)
    return SideBySide(case, seed=seed, world=world, **options)


@pytest.mark.many
@pytest.mark.parametrize("case", CASES, ids=str)
def test_made_edges_are_followed(case):
    run = wide(case, seed=len(case.name))
    assert run.inc.mode == "incremental", run.inc.explain()
    run.walk(kinds=8)
    run.walk(["self_loops", "duplicate_edges", "self_loops_leave", "mixed"])


BESIDE = [
    "gcn_norm", "gcn_norm, improved", "gcn_norm, unit", "gcn_norm, by hand", "loops", "loops, mean",
    "loops, attr", "loops, GAT", "remaining", "no loops", "attended",
]  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_loops_need_no_table(name):
    case = next(c for c in CASES if c.name == name)
    relations = wide(case).inc.program.graphs.values()
    assert [r.graph for r in relations] == ["edge_index"]


def test_products_are_no_messages():
    """What stands at one end of an edge alone is multiplied there."""
    case = next(c for c in CASES if c.name == "shares")
    run = wide(case)
    sums = [s for s in run.inc.program.steps if s.kind == "sum"]
    assert all(type(s) is Sum for s in sums), run.inc.program
    run.walk(["add_edges", "mixed"])


@pytest.mark.parametrize("name", ["gcn_norm", "undirected, mean", "filtered, weights", "remaining"])
def test_kept_refreshed_and_tried(name, tmp_path):
    case = next(c for c in CASES if c.name == name)
    run = wide(case, seed=3)
    for kind in ("mixed", "self_loops", "remove_nodes"):
        run.step(DELTAS[kind](run.world, run.rng), kind)
        before = run.inc.out.clone()
        delta = DELTAS["mixed"](run.world, run.rng)
        after = run.world.copy()
        after.apply(**delta)
        tried = run.inc.preview(**delta)
        want = full(run.twin, after, case.call)
        assert_close(tried.out, want[tried.changed], what="preview")
        assert torch.equal(run.inc.out, before)
        run.step(DELTAS["mixed"](run.world, run.rng), "mixed")
        run.inc.refresh()
        run.out = clone(run.inc.out)
        run.check_all()
        run.inc.save(tmp_path / "state")
        run.inc = IncrementalModel.load(tmp_path / "state", run.case.build(3)[0])
        run.check_all()
        assert run.inc.mode == "incremental"
        assert run.inc.verify() < 1e-9


class LoopsTwice(nn.Module):
    """A GCN that adds the loops that are missing to edges that a function makes."""

    def __init__(self, made):
        super().__init__()
        self.gcn, self.made = gnn.GCNConv(CHANNELS, 4), made

    def forward(self, x, edge_index, edge_weight):
        return self.gcn(x, *self.made(edge_index, edge_weight, x.size(0)))


def with_light_ones_again(e, w, _):
    return torch.cat([e, e[:, w < 0.8]], 1), torch.cat([w, 5 * w[w < 0.8]])


def both_ways(e, w, _):
    return torch.cat([e, e.flip(0)], 1), torch.cat([w, w])


def heavy_ones(e, w, _):
    return e[:, w > 0.5], w[w > 0.5]


def light_ones_of_heavy_ones_first(e, w, _):
    e, w = e[:, w > 0.2], w[w > 0.2]
    return torch.cat([e[:, w < 0.9].flip(0), e], 1), torch.cat([2 * w[w < 0.9], w.sqrt()])


PARTS = [with_light_ones_again, both_ways, heavy_ones, light_ones_of_heavy_ones_first]


@pytest.mark.parametrize("made", [lambda e, w, n: add_self_loops(e, w, 2.0, n), *PARTS])
def test_a_younger_loop_need_not_be_the_last_one(made):
    """PyG keeps the weight of the last loop: of the last part, whenever its edges came."""
    torch.manual_seed(0)
    model, x = LoopsTwice(made).double().eval(), torch.randn(5, CHANNELS).double()
    ends = [[0, 1, 2, 4, 4, 3], [1, 2, 2, 4, 4, 4]]
    weight = torch.tensor([0.5, 0.7, 0.3, 0.6, 0.85, 0.7]).double()
    inc = to_incremental(model)
    if made in PARTS:
        inc(x, torch.tensor(ends), weight)
        assert inc.mode == "incremental"
    else:
        with pytest.warns(IncrementalWarning, match="runs that on all rows"):
            inc(x, torch.tensor(ends), weight)

    def check():
        now = inc.graph.to_edge_index(), inc.edge_data("edge_weight")
        torch.testing.assert_close(inc.out, model(x, *now), rtol=1e-12, atol=1e-12)

    inc.apply_delta(
        edge_index_add=torch.tensor([[2, 0, 3], [2, 3, 3]]), edge_weight_add=[0.9, 0.25, 1.5]
    )
    check()
    loops = [[2, 4], [2, 4]]  # the older one of each pair
    for weights in ([0.95, 0.1], [0.4, 0.7], [0.1, 1.0], [0.85, 0.15]):
        changes = torch.tensor(loops), {"edge_weight": torch.tensor(weights).double()}
        inc.apply_delta(edge_changes=changes, which="oldest")
        check()
    inc.apply_delta(edge_index_del=loops, edge_index_add=[[4, 4], [4, 0]], edge_weight_add=[0.6, 1])
    check()


@pytest.mark.parametrize("made", PARTS)
def test_last_loops_along_deltas(made):
    run = wide(weighted("last loop", lambda m, x, e, w: m.gcn(x, *made(e, w, x.size(0)))), 5)
    assert run.inc.mode == "incremental"
    for kind in ["self_loops", "duplicate_edges", "change_edge_data", "self_loops_leave"] * 3:
        run.step(DELTAS[kind](run.world, run.rng), kind)
        run.step(oldest_changes(run.world, run.rng), "oldest_changes")
    run.check_all()
