"""Pairs and graphs beside the edges: small changes of the edges take the short way all the same.

And pairs that come and go by themselves, said in every way.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GAT, GCN, HeteroConv, SAGEConv, global_add_pool

from pyg_incremental import GraphDelta, IncrementalModel, InvalidDeltaError, to_incremental
from pyg_incremental.fused import FastPath
from pyg_incremental.graph.dynamic import DynamicGraph
from tests.closeness import assert_close
from tests.torture.inject import injecting

CHANNELS, N = 4, 30
LABELS = "edge_label_index"


class Scores(nn.Module):
    """Pairs that are watched, and edges, both by the rows at their ends."""

    def __init__(self):
        super().__init__()
        self.gnn = GCN(CHANNELS, 6, 2)

    def forward(self, x, edge_index, edge_label_index):
        h = self.gnn(x, edge_index)
        (u, v), (src, dst) = edge_label_index, edge_index
        return (h[u] * h[v]).sum(-1), (h[src] - h[dst]).tanh()


class Read(nn.Module):
    """A row for each graph, and those of its nodes that know of it."""

    def __init__(self):
        super().__init__()
        self.gnn, self.two = GAT(CHANNELS, 6, 2), nn.Linear(6, 3)

    def forward(self, x, edge_index, batch):
        h = self.gnn(x, edge_index)
        rows = self.two(global_add_pool(h, batch)).tanh()
        return rows, h[:, :3] + rows[batch]


class Sides:
    """A wrapped model, and the original on the arguments that it should have by now."""

    def __init__(self, seed, make=Scores, **options):
        torch.manual_seed(seed)
        self.rng = torch.Generator().manual_seed(seed)
        self.model = make().double().eval()
        self.x, self.edges = self.rows(N), self.pairs(90)
        self.more = self.pairs(25) if make is Scores else torch.arange(N) // 10
        self.inc = to_incremental(self.model, **options)
        self.inc(self.x, self.edges, self.more)
        assert self.inc.mode == "incremental"

    def rows(self, count):
        return torch.randn(count, CHANNELS, generator=self.rng, dtype=torch.float64)

    def pairs(self, count):
        return torch.randint(N, (2, count), generator=self.rng)

    def apply(self, add=0, remove=0, change=0):
        """Some edges come and leave, features change; every row that moved has to be named."""
        delta, before = {}, [rows.clone() for rows in self.inc.out]
        if add:
            delta["edge_index_add"] = self.pairs(add)
        if remove:
            at = torch.randperm(self.edges.size(1), generator=self.rng)[:remove]
            delta["edge_index_del"] = self.edges[:, at]
        if change:
            ids = torch.randperm(N, generator=self.rng)[:change]
            delta["x_changes"] = (ids, self.rows(change))
            self.x = self.x.clone().index_copy(0, *delta["x_changes"])
        for u, v in delta.get("edge_index_del", torch.empty(2, 0)).t().tolist():
            newest = ((self.edges[0] == u) & (self.edges[1] == v)).nonzero().max()
            self.edges = torch.cat([self.edges[:, :newest], self.edges[:, newest + 1 :]], 1)
        self.edges = torch.cat([self.edges, delta.get("edge_index_add", self.edges[:, :0])], 1)
        up = self.inc.apply_delta(**delta)
        self.check()
        moved = (before[0] != self.inc.out[0]).reshape(len(before[0]), -1).any(1)
        assert up.changed[0].tolist() == moved.nonzero().view(-1).tolist()
        for rows, ids, out in zip(self.inc.out, up.changed, up.out, strict=True):
            assert torch.equal(rows[ids], out)
        if up.changed_edges is not None:
            assert torch.equal(up.changed_edges[1], self.edges[:, up.changed[1]])
        return up

    def check(self):
        with torch.no_grad():
            want = self.model(self.x, self.edges, self.more)
        for ours, theirs in zip(self.inc.out, want, strict=True):
            assert_close(ours, theirs)
        assert torch.equal(self.graph().to_edge_index(), self.edges)

    def graph(self):
        graph = self.inc.graph
        return graph["edge_index"] if isinstance(graph, dict) else graph


@pytest.mark.parametrize("make", [Scores, Read])
@pytest.mark.parametrize("compile_after", [1, 3, None])
def test_small_changes_of_edges(make, compile_after, seed, monkeypatch):
    short, run = [], FastPath.run_at_once
    monkeypatch.setattr(FastPath, "run_at_once", lambda *a: short.append(1) or run(*a))
    sides = Sides(seed, make, compile_after=compile_after)
    for at in range(24):
        sides.apply(add=at % 3, remove=(at + 1) % 2 * 2, change=(at + 2) % 4)
    expected = 0 if compile_after is None else 24 - compile_after
    assert len(short) == expected
    assert sides.inc.verify() < 1e-12
    assert not sides.inc.check()


@pytest.mark.parametrize("make", [Scores, Read])
def test_the_compiled_plan_ends_at_the_other_graph(make, seed):
    sides = Sides(seed, make, compile_after=1)
    up = [sides.apply(add=1) for _ in range(3)][-1]
    kinds = {step.kind for step in up.stats.steps}
    engine = sides.inc._require().engine
    assert engine.fast is not None
    assert ("is not known" if make is Scores else "over another graph") in engine.stops_at
    assert ("edge map" if make is Scores else "sum") in kinds


@pytest.mark.parametrize("make", [Scores, Read])
def test_an_interrupted_small_change_is_taken_back_or_in(make, seed):
    sides, at = Sides(seed, make, compile_after=1), 0
    sides.apply(add=2, remove=1)
    sides.apply(add=1)
    done = False
    while not done:
        edges, done = sides.edges, True
        new = sides.pairs(2)
        version = sides.inc.version
        try:
            with injecting(MemoryError, at):
                sides.inc.apply_delta(edge_index_add=new, edge_index_del=edges[:, -1:])
        except MemoryError:
            done = False
        if sides.inc.stale is not None:
            sides.inc.refresh()
        if sides.inc.version > version:
            newest = ((edges == edges[:, -1:]).all(0)).nonzero().max()
            sides.edges = torch.cat([edges[:, :newest], edges[:, newest + 1 :], new], 1)
        sides.check()
        at += 7
    assert at > 100
    sides.apply(add=2, remove=2, change=1)


def test_places_of_edges_are_those_after_a_look_at_all(seed):
    """Whatever has come and gone, and however often ages were counted anew."""
    rng = np.random.default_rng(seed)
    graph = DynamicGraph(torch.from_numpy(rng.integers(0, N, (2, 60))), N)
    some = graph.slots_in_order()[::3]
    for turn in range(60):
        graph.in_order_for_model(some)
        graph.most_gone = 16
        gone = rng.choice(graph.num_edges, rng.integers(0, 6), replace=False)
        slots = graph.slots_in_order()[gone]
        graph.remove(slots)
        if turn % 3:  # else it is noticed by itself
            graph.note_removed(slots)
            graph.note_removed(slots)
        graph.release(slots)
        graph.add(*rng.integers(0, N, (2, int(rng.integers(0, 6)))), {})
        every = graph.slots_in_order()
        some = rng.permutation(every)[: rng.integers(0, every.size + 1)]
        places, at = graph.in_order_for_model(some)
        assert np.array_equal(every[places], at)
        assert np.array_equal(np.sort(some), np.sort(at))
        assert (np.diff(places) > 0).all()
    assert graph.times_counted > 0


# Pairs by themselves ##############################################################################


def pairs_of(sides):
    return sides.inc.graph[LABELS].to_edge_index()


def test_pairs_come_and_go_beside_everything_else(seed):
    sides = Sides(seed, compile_after=1)
    new, x = sides.pairs(3), sides.rows(1)
    gone = sides.more[:, :2]
    edge = torch.tensor([[N], [2]])
    up = sides.inc.apply_delta(edge, x_add=x, pairs_add=new, pairs_del=gone, undirected=True)
    sides.x = torch.cat([sides.x, x])
    sides.edges = torch.cat([sides.edges, edge, edge.flip(0)], 1)
    for pair in gone.t():
        newest = (sides.more == pair[:, None]).all(0).nonzero().max()
        sides.more = torch.cat([sides.more[:, :newest], sides.more[:, newest + 1 :]], 1)
    sides.more = torch.cat([sides.more, new], 1)
    sides.check()
    assert torch.equal(pairs_of(sides), sides.more)
    assert torch.equal(up.changed_edges[0], sides.more[:, up.changed[0]])
    assert set(up.changed[0].tolist()) >= {23, 24, 25}


@pytest.mark.parametrize("by_key", [False, True])
def test_pairs_are_previewed_joined_and_undone(by_key, seed):
    sides = Sides(seed)
    new, gone = sides.pairs(2), sides.more[:, 3:4]
    named = (lambda pairs: {LABELS: pairs}) if by_key else (lambda pairs: pairs)
    first = GraphDelta(torch.tensor([[1], [2]]), pairs_add=named(new))
    both = first + GraphDelta(pairs_del=named(torch.cat([new[:, :1], gone], 1)))
    inverse, seen = sides.inc.inverse(both), sides.inc.preview(both)
    before = [rows.clone() for rows in sides.inc.out]
    up = sides.inc.apply_delta(both)
    assert [ids.tolist() for ids in up.changed] == [ids.tolist() for ids in seen.changed]
    newest = (sides.more == gone).all(0).nonzero().max()
    left = torch.cat([sides.more[:, :newest], sides.more[:, newest + 1 :], new[:, 1:]], 1)
    assert torch.equal(pairs_of(sides), left)
    sides.inc.apply_delta(inverse)
    assert_close(sides.inc.out[1], before[1])
    assert_close(sides.inc.out[0].sort().values, before[0].sort().values)  # one pair is last now
    assert sides.inc.verify() < 1e-12


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        ({"pairs_add": torch.tensor([[1], [N]])}, f"{N}"),
        ({"pairs_del": torch.tensor([[N - 1], [0]])}, "is not"),
        ({"pairs_add": {"pairs": torch.tensor([[1], [2]])}}, "there is no 'pairs'"),
        (
            {"pairs_add": torch.tensor([[1], [2]]), "edge_index_add": {LABELS: [[1], [2]]}},
            "pairs are given twice",
        ),
    ],
    ids=["no such node", "no such pair", "no such argument", "twice"],
)
def test_pairs_that_do_not_fit_change_nothing(delta, message, seed):
    sides = Sides(seed)
    sides.more = sides.more[:, (sides.more != torch.tensor([[N - 1], [0]])).any(0)]
    sides.inc(sides.x, sides.edges, sides.more)
    digest = sides.inc.state_digest()
    with pytest.raises(InvalidDeltaError, match=message):
        sides.inc.apply_delta(**delta)
    assert sides.inc.state_digest() == digest


# Pairs between two kinds ##########################################################################


class Shop(nn.Module):
    """Users times items; or, `by_all`, something that is not followed."""

    def __init__(self, by_all=False):
        super().__init__()
        self.conv = HeteroConv({key: SAGEConv((CHANNELS, CHANNELS), 6) for key in (BUYS, BACK)})
        self.by_all = by_all

    def forward(self, x_dict, edge_index_dict, edge_label_index):
        z, (row, col) = self.conv(x_dict, edge_index_dict), edge_label_index
        if self.by_all:
            return (z["user"][row] * z["item"][col]).cumsum(0)
        return (z["user"][row] * z["item"][col]).sum(-1)


BUYS, BACK = ("user", "buys", "item"), ("item", "of", "user")


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("by_all", [False, True])
def test_pairs_join_the_kinds_whose_rows_the_model_reads(by_all, seed):
    torch.manual_seed(seed)
    model, counts = Shop(by_all).double().eval(), {"item": 9, "user": 14}
    x = {k: torch.randn(n, CHANNELS, dtype=torch.float64) for k, n in counts.items()}
    edges = {BUYS: torch.randint(9, (2, 30)), BACK: torch.randint(9, (2, 30))}
    pairs = torch.randint(9, (2, 12))  # these might as well join items, or the other way round
    inc = to_incremental(model)
    inc(x, edges, pairs)
    assert inc.mode == ("mixed" if by_all else "incremental")
    new = torch.tensor([[13], [8]])
    up = inc.apply_delta(pairs_add=new, x_changes={"user": ([2], torch.ones(1, CHANNELS))})
    x["user"][2] = 1.0
    pairs = torch.cat([pairs, new], 1)
    assert_close(inc.out, model(x, edges, pairs))
    if not by_all:
        bought = edges[BUYS][1, edges[BUYS][0] == 2]
        touched = ((pairs[0] == 2) | torch.isin(pairs[1], bought)).nonzero()
        assert up.changed.tolist() == sorted({*touched.view(-1).tolist(), 12})
        assert torch.equal(up.changed_edges, pairs[:, up.changed])
    with pytest.raises(InvalidDeltaError, match="13"):
        inc.apply_delta(pairs_add=new.flip(0))
    assert inc.verify() < 1e-12


def test_pairs_without_any_watched_are_refused():
    inc = IncrementalModel(GCN(CHANNELS, 6, 1).eval())
    inc(torch.ones(3, CHANNELS), torch.tensor([[0], [1]]))
    with pytest.raises(InvalidDeltaError, match="called without pairs to be watched"):
        inc.apply_delta(pairs_add=torch.tensor([[1], [2]]))


def test_pairs_said_in_two_ways_are_not_joined():
    new = torch.tensor([[1], [2]])
    with pytest.raises(InvalidDeltaError, match="pairs_add"):
        GraphDelta(pairs_add=new) + GraphDelta(edge_index_del={LABELS: new})
