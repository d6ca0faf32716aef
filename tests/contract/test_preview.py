"""A delta tried without keeping it: what it would do is told, and not one bit is another one."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import (
    GAT,
    GCN,
    AntiSymmetricConv,
    GATv2Conv,
    GCNConv,
    GraphNorm,
    GraphSAGE,
    SAGEConv,
    Sequential,
)

from pyg_incremental import GraphDelta, InvalidDeltaError, StaleStateError, to_incremental
from pyg_incremental.fused.undo import Undo
from pyg_incremental.program.steps import hops_to
from pyg_incremental.rows import Scratch
from pyg_incremental.session import preview, rollback
from pyg_incremental.session.preview import step_by_step
from pyg_incremental.session.reach import reach
from pyg_incremental.session.rollback import Rollback
from tests.closeness import assert_close, tensors_of
from tests.contract.test_what_changed import MODELS, Classes, wrap
from tests.oracle import full
from tests.side_by_side import clone
from tests.strategies import DELTAS, EVERY, generator, journey, make_world
from tests.trust.small import edge, wrapped
from tests.zoo import CHANNELS


def bytes_of(inc):
    """Every byte that is held, by where it is; but for room to collect ids in."""
    held = {}
    for graph in inc._session.graphs.values():
        graph.places()  # looked up now, which a delta that is read would do
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollback, "_LEFT_ALONE", (*rollback._LEFT_ALONE, Scratch))
        arrays = Rollback(inc._session)._arrays
    for place, (_, copy) in arrays.items():
        array = copy.numpy() if isinstance(copy, torch.Tensor) else copy
        held[place] = array.tobytes()
    return held


def same_bytes(inc, held):
    """Whether all that was held is where it was; what is only looked up more quickly may be new."""
    now = bytes_of(inc)
    return len(held) > 10 and {place: now.get(place) for place in held} == held


def assert_same(one, other):
    """Whether two updates tell the same, bit by bit; but for the time that they took."""
    for of in ("changed", "out", "old"):
        for a, b in zip(tensors_of(getattr(one, of)), tensors_of(getattr(other, of)), strict=True):
            assert torch.equal(a.nan_to_num(7), b.nan_to_num(7))
    assert one.stats.steps == other.stats.steps
    assert one.stats.edges_added == other.stats.edges_added
    assert one.stats.edges_deleted == other.stats.edges_deleted
    assert (one.version, one.may_be_probabilities) == (other.version, other.may_be_probabilities)


def assert_tells(preview, update):
    """Whether a preview tells what the update did.

    One may go step by step and the other in compiled code, and round another way. So a row that
    moves by no more than that may be told of by one of them alone.
    """
    parts = [[*map(tensors_of, (of.changed, of.out, of.old))] for of in (preview, update)]
    for (one, *rows), (other, *others) in zip(*(zip(*p, strict=True) for p in parts), strict=True):
        both = [torch.isin(one, other), torch.isin(other, one)]
        assert torch.equal(one[both[0]], other[both[1]])
        for mine, theirs in zip(rows, others, strict=True):
            assert_close(mine[both[0]], theirs[both[1]])
        for (out, old), common in ((rows, both[0]), (others, both[1])):
            assert_close(out[~common], old[~common], tolerance=1e-13)


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("store", ["fast", "minimal"])
@pytest.mark.parametrize("name", MODELS)
def test_a_preview_tells_what_an_update_does_and_changes_nothing(name, store):
    rng = generator([11, len(name)])
    world = make_world(rng, channels=CHANNELS)
    _, twin = wrap(name, world, compile_after=4, store=store)
    model, inc = wrap(name, world, compile_after=4, store=store)
    told = 0
    for kind in journey(rng, finite=True, kinds=EVERY):
        delta = DELTAS[kind](world, rng)
        inc._session.resolver.resolve(GraphDelta(**delta))  # may place a pair anew in the table
        was, digest = clone(inc.out), inc.state_digest()
        [first] = inc.preview_many([GraphDelta(**delta)])  # makes room for it, if need be
        assert inc.state_digest() == digest
        held, about = bytes_of(inc), repr(inc)
        up = inc.preview(**delta) if rng.random() < 0.5 else inc.preview(GraphDelta(**delta))
        assert same_bytes(inc, held)
        assert_same(first, up)
        assert (repr(inc), inc.stale) == (about, None)
        assert up.version == inc.version
        for before, now in zip(tensors_of(was), tensors_of(inc.out), strict=True):
            assert torch.equal(before, now)
        world.apply(**delta)
        done = inc.apply_delta(**delta, old=True)
        twin.apply_delta(**delta)
        assert inc.state_digest() == twin.state_digest()  # as if there had been no preview
        assert_close(inc.out, full(model, world))
        assert_tells(up, done)
        assert (up.stats.edges_added, up.stats.edges_deleted) == (
            done.stats.edges_added, done.stats.edges_deleted,
        )  # fmt: skip
        told += sum(t.numel() for t in tensors_of(up.changed))
    assert told > 100
    assert inc.check() == []


def test_its_cost_is_that_of_the_update():
    inc = wrapped(nodes=400, edges=1200, warm=True)
    for i in range(20):
        delta = GraphDelta(edge_index_add=edge(i, 2 * i), x_changes=([i], torch.ones(1, 6)))
        up = inc.preview(delta)
        done = inc.apply_delta(delta)
        assert (up.stats.rows, up.stats.edges) == (done.stats.rows, done.stats.edges)
        assert up.stats.rows < 400


@torch.no_grad()
def test_only_rows_in_reach_are_copied():
    inc = wrapped(nodes=4000, edges=8000)
    resolved = inc._session.resolver.resolve(GraphDelta(edge_index_add=edge(1, 2)))
    nodes = reach(inc._session, resolved)[""]
    adjacency = torch.zeros(4000, 4000)
    source, target = inc.graph.to_edge_index()
    adjacency[target, source] = 1
    seen = torch.zeros(4000)
    seen[[1, 2]] = 1
    for _ in range(inc.program.depth):
        seen = ((adjacency @ seen + seen) > 0).float()
    assert nodes.tolist() == seen.nonzero().view(-1).tolist()
    copied = []
    original = Rollback.__init__

    def counted(self, root, few=None):
        original(self, root, few)
        arrays = sum(size for (_, size), (a, _) in self._arrays.items() if len(a))
        copied.append((arrays, sum(len(ids) for _, ids, _ in self._rows)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rollback, "__init__", counted)
        step_by_step(inc._session, GraphDelta(edge_index_add=edge(1, 2)))
    report = inc.memory_report()
    rows = sum(p.bytes for p in report.parts if p.what != "graph" and p.name != "marks")
    assert copied[0][0] < report.total - rows + 20_000
    assert copied[0][1] <= 20 * len(nodes)


@pytest.mark.parametrize(("of", "hops"), [(GraphSAGE, 2), (GCN, 3)])
def test_a_degree_that_is_read_where_it_stands_is_no_hop(of, hops):
    """The mean divides by the target's degree; GCN multiplies by those of sources as well."""
    inc = to_incremental(of(CHANNELS, CHANNELS, 2, CHANNELS).double().eval())
    inc(torch.randn(6, CHANNELS).double(), torch.tensor([[0, 1, 2], [1, 2, 3]]))
    steps = [e.step for e in inc._session.engine.executors]  # degrees that sums share included
    assert hops_to(steps)[inc.program.outputs[0]] == hops


def test_reach_is_not_guessed():
    def of(inc, **delta):
        return reach(inc._session, inc._session.resolver.resolve(GraphDelta(**delta)))

    inc = wrapped(nodes=40)
    assert of(inc, x_changes=(torch.arange(30), torch.ones(30, 6))) is None  # most of the graph
    assert of(wrapped(nodes=4000, store="minimal"), edge_index_add=edge(1, 2)) is None
    world = make_world(generator(0), channels=CHANNELS)
    for name in ("nodes and edges", "spread of all"):
        assert of(wrap(name, world)[1], edge_index_add=edge(1, 2)) is None


@torch.no_grad()
def test_rows_are_put_back_where_only_those_in_reach_were_copied():
    rng = generator(4)
    for aggr in ("mean", "max", "softmax"):
        world = make_world(rng, nodes=300, edges=500, channels=CHANNELS)
        torch.manual_seed(0)
        model = Classes(lambda a, b, aggr=aggr: SAGEConv(a, b, aggr=aggr)).double().eval()
        inc = to_incremental(model, compile_after=2)
        inc(**world.inputs())
        small = 0
        for kind in (*journey(rng, finite=True, kinds=EVERY), "mixed", "mixed"):
            delta = DELTAS[kind](world, rng)
            resolved = inc._session.resolver.resolve(GraphDelta(**delta))
            small += reach(inc._session, resolved) is not None
            held = bytes_of(inc)
            step_by_step(inc._session, GraphDelta(**delta))
            assert same_bytes(inc, held)
            world.apply(**delta)
            inc.apply_delta(**delta)
            if kind == "all_edges_leave":
                break
        assert small > 3
        assert_close(inc.out, full(model, world))


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: AntiSymmetricConv(CHANNELS, num_iters=2),
        lambda: Sequential("x, e", [(GCNConv(CHANNELS, 4), "x, e -> x"), (GraphNorm(4), "x -> x")]),
    ],
    ids=["a parameter", "an expanded mean"],
)
def test_what_a_session_holds_besides_rows(make):
    """A parameter counts who writes to it, and an expanded tensor refuses it."""
    world = make_world(generator(6), channels=CHANNELS)
    inc = to_incremental(make().double().eval())
    inc(world.x, world.edge_index())
    digest = inc.state_digest()
    up = inc.preview(edge_index_add=edge(1, 2))
    assert inc.stale is None
    assert inc.state_digest() == digest
    assert torch.equal(inc.apply_delta(edge_index_add=edge(1, 2)).changed, up.changed)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("compile_after", [None, 1])
def test_whatever_is_raised_everything_is_as_before(error, compile_after):
    inc = wrapped(warm=True, compile_after=compile_after)
    inc.preview(edge_index_add=edge(1, 2))
    held, digest = bytes_of(inc), inc.state_digest()
    engine = inc._session.engine
    at, of = engine.node_executors[-1], "rows_changed"
    if compile_after:
        assert engine.fast.is_alone
        at, of = engine, "_finish"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at, of, lambda *_: (_ for _ in ()).throw(error("no")))
        with pytest.raises(error):
            inc.preview(edge_index_add=edge(1, 2))
    assert same_bytes(inc, held)
    assert inc.state_digest() == digest
    assert inc.stale is None
    assert inc.preview(edge_index_add=edge(1, 2)).changed.numel()


@pytest.mark.parametrize("of", [Rollback, Undo])
def test_an_interrupt_while_it_is_put_back(of):
    inc = wrapped(warm=True, compile_after=None if of is Rollback else 1)
    inc.preview(edge_index_add=edge(1, 2))
    held, calls = bytes_of(inc), []
    original = of.put_back

    def interrupted(self):
        calls.append(0)
        if len(calls) == 1:
            raise KeyboardInterrupt
        original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of, "put_back", interrupted)
        with pytest.raises(KeyboardInterrupt):
            inc.preview(edge_index_add=edge(1, 2))
    assert same_bytes(inc, held)
    assert inc.stale is None


def test_what_does_not_fit_is_refused():
    inc = to_incremental(Classes().eval())
    with pytest.raises(StaleStateError, match="not been called"):
        inc.preview(edge_index_add=edge(1, 2))
    inc = wrapped()
    with pytest.raises(InvalidDeltaError, match="node ids"):
        inc.preview(edge_index_add=edge(1, 2000))
    assert np.array_equal(inc.preview().changed, [])


class Attended(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.lin = (
            GATv2Conv(4, 3, heads=2, edge_dim=2, add_self_loops=False),
            torch.nn.Linear(6, 1),
        )

    def forward(self, x, edge_index, edge_attr):
        return self.lin(self.conv(x, edge_index, edge_attr).relu()).sigmoid()


MANY = {
    "mean": (lambda: GraphSAGE(4, 8, 2, 3), False),
    "degrees": (lambda: GCN(4, 8, 3, 3), False),
    "softmax": (lambda: GAT(4, 8, 2, 3), False),
    "max": (lambda: GraphSAGE(4, 8, 2, 3, aggr="max"), False),
    "edge data": (Attended, True),
    "backwards": (lambda: GraphSAGE(4, 8, 2, 3, flow="target_to_source"), False),
}


@pytest.mark.parametrize("name", MANY)
def test_compiled_code_tries_many_deltas_one_by_one(name, monkeypatch):
    """Hubs, parallel edges and self-loops, rows and nodes that come; lists and pools that are full.

    Whatever was tried, the next update does as on a model on which nothing was.
    """
    rng = generator([5, len(name)])
    torch.manual_seed(0)
    model, attr = MANY[name]
    model = model().double().eval()
    nodes, edges = 60, 150
    x = torch.randn(nodes, 4, dtype=torch.float64)
    ends = torch.from_numpy(rng.integers(nodes, size=(2, edges)))
    ends[1, :40] = 3  # a hub
    more = {"edge_attr": torch.randn(edges, 2, dtype=torch.float64)} if attr else {}
    inc, twin = (to_incremental(model, compile_after=1) for _ in range(2))
    for one in (inc, twin):
        one(x, ends, **more)
        one.apply_delta(x_changes=([0], x[:1]))

    def draw():
        came, left = int(rng.integers(4)), int(rng.integers(3))
        new, told = int(rng.integers(3)) * int(rng.integers(2)), int(rng.integers(2))
        every = inc.num_nodes + new
        now = inc.graph.to_edge_index()
        add = torch.from_numpy(rng.integers(every, size=(2, came)))
        add[:, add[0] % 3 == 0] = now[:, :1]  # parallel to one that is there
        fields = {"edge_index_add": add, "edge_index_del": now[:, rng.permutation(150)[:left]]}
        if new:
            fields["x_add"] = torch.randn(new, 4, dtype=torch.float64)
        if told:
            fields["x_changes"] = torch.tensor([7]), torch.randn(1, 4, dtype=torch.float64)
        if attr and came:
            fields["edge_attr_add"] = torch.randn(came, 2, dtype=torch.float64)
        return GraphDelta(**fields)

    alone = []
    by_steps = preview.step_by_step
    monkeypatch.setattr(preview, "step_by_step", lambda *a: alone.append(0) or by_steps(*a))
    for _ in range(6):
        deltas = [draw() for _ in range(12)]
        digest = inc.state_digest()
        ups = inc.preview_many(deltas)
        assert inc.state_digest() == digest
        held = bytes_of(inc)
        for delta, up in zip(deltas, ups, strict=True):
            assert_same(inc.preview(delta), up)
            assert same_bytes(inc, held)
        done = inc.apply_delta(deltas[-1], old=True)
        twin.apply_delta(deltas[-1])
        assert inc.state_digest() == twin.state_digest()
        assert torch.equal(done.changed, ups[-1].changed)
        assert_close(done.out, ups[-1].out)
        assert_close(done.old, ups[-1].old)
    assert not alone
    assert inc.check() == []
    assert inc.verify() < 1e-12


def test_one_of_many_does_not_fit():
    inc = wrapped(warm=True, compile_after=1)
    digest = inc.state_digest()
    fits = GraphDelta(edge_index_add=edge(1, 2))
    with pytest.raises(InvalidDeltaError, match=r"deltas\[1\]: edge_index_add: .* node ids"):
        inc.preview_many([fits, GraphDelta(edge_index_add=edge(1, 2000)), fits])
    assert inc.state_digest() == digest
    assert len(inc.preview_many([])) == 0
    assert len(inc.preview_many([fits] * 3)[1:]) == 2
