"""Rows on demand: what a lazy model answers is what the original answers, whatever waits."""

import threading

import numpy as np
import pytest
import torch
from torch_geometric.nn import GAT, GCN, GraphSAGE

from pyg_incremental import GraphDelta, IncrementalError, StaleStateError, load, to_incremental
from pyg_incremental.engine import on_demand
from tests.lazily import LazyHetero, LazySides, draw_sizes
from tests.zoo_all import PLAIN, SEVERAL

FIRST = (
    "gcn-weights", "sage-mean", "sage-max", "sage-median", "gat-edge-attr", "gin-eps",
)  # fmt: skip
"""Sums with factors and loops, means, maxima, softmaxes, rows and nets, whatever is drawn."""


@pytest.mark.matrix
@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_every_case(case, seed, monkeypatch):
    draw_sizes(monkeypatch, case, seed)
    formats = [f for f in case.formats if f != "sparse_tensor"]
    sides = LazySides(case, formats[-1], seed=seed)
    sides.walk(kinds=24)
    sides.check_the_end()


@pytest.mark.parametrize("case", [c for c in PLAIN if str(c) in FIRST], ids=str)
@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_each_kind_of_step(case, backend, seed, monkeypatch):
    draw_sizes(monkeypatch, case, seed + 1)
    sides = LazySides(case, seed=seed + 1, backend=backend)
    sides.walk(kinds=24)
    sides.check_the_end()


@pytest.mark.matrix
@pytest.mark.parametrize("case", SEVERAL, ids=str)
def test_several_kinds_of_nodes(case, seed, monkeypatch):
    draw_sizes(monkeypatch, case, seed)
    sides = LazyHetero(case, seed=seed)
    sides.walk()
    sides.check_the_end()


# A graph of some size #############################################################################


def lazy_and_eager(model, nodes=400, edges=2000, seed=0):
    rng = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    x = torch.randn(nodes, 5, generator=rng, dtype=torch.float64)
    edge_index = torch.randint(nodes, (2, edges), generator=rng)
    model = model.double().eval()
    both = to_incremental(model, lazy=True), to_incremental(model)
    for inc in both:
        inc(x, edge_index)
    return *both, rng


def change(inc, rng, count):
    """So many edges come, others leave, and rows change."""
    nodes, edges = inc.num_nodes, inc.graph.to_edge_index()
    ids = torch.randperm(nodes, generator=rng)[:count]
    return GraphDelta(
        torch.randint(nodes, (2, count), generator=rng),
        edges[:, torch.randperm(edges.shape[1], generator=rng)[:count]],
        (ids, torch.randn(count, 5, generator=rng, dtype=torch.float64)),
    )


@pytest.mark.parametrize("aggr", ["mean", "max"])
def test_a_read_computes_what_it_sees_and_settle_the_rest(aggr, monkeypatch):
    monkeypatch.setattr(on_demand, "FEW", 0)
    lazy, eager, rng = lazy_and_eager(GraphSAGE(5, 8, 2, 3, aggr=aggr))
    before = lazy.out.clone()
    for _ in range(5):
        delta = change(eager, rng, 20)
        lazy.apply_delta(delta)
        eager.apply_delta(delta)
    engine = lazy._session.engine
    stored = engine.cells[engine.program.outputs[0]].tensor
    assert torch.equal(stored[:400], before)  # deltas computed nothing
    moved = (eager.out != before).any(1).nonzero().flatten()
    assert len(moved) > 200
    asked = moved[:3]
    torch.testing.assert_close(lazy.read(asked).out, eager.out[asked])
    now = stored[:400]
    assert int((now != before).any(1).sum()) == 3  # no other row of the output was computed
    assert lazy.read(asked).version == 5
    lazy.settle()
    torch.testing.assert_close(stored[:400], eager.out)
    assert lazy.check() == []
    assert not lazy._session.on_demand.waits


@pytest.mark.parametrize("model", [GCN, GAT])
def test_few_changes_are_one_update_and_slots_come_back(model):
    """Edges that come and leave again while they wait never reach a row."""
    lazy, eager, rng = lazy_and_eager(model(5, 8, 2, 3))
    pairs = torch.randint(400, (2, 8), generator=rng)
    for inc in (lazy, eager):
        inc.apply_delta(pairs)
        inc.apply_delta(edge_index_del=pairs)
        inc.apply_delta(x_changes=(torch.tensor([1]), inc.x[2:3]))
        inc.apply_delta(x_changes=(torch.tensor([1]), inc.x[3:4]))
    assert lazy._session.on_demand.waiting.is_one
    torch.testing.assert_close(lazy.read([1, 7]).out, eager.read([1, 7]).out)
    assert not lazy._session.on_demand.waits  # so the rest has followed
    for name in lazy._session.graphs:
        mine, theirs = (inc._session.graphs[name] for inc in (lazy, eager))
        assert mine.num_edges == theirs.num_edges
        assert mine._num_free == theirs._num_free
    torch.testing.assert_close(lazy.out, eager.out)


def test_a_stream_that_nobody_settles_keeps_its_memory(monkeypatch):
    monkeypatch.setattr(on_demand, "FEW", 0)
    lazy, eager, rng = lazy_and_eager(GCN(5, 8, 2, 3))
    for turn in range(60):
        delta = change(lazy, rng, 40)
        lazy.apply_delta(delta)
        eager.apply_delta(delta)
        lazy.read([turn])
    mine, theirs = (inc._session.graphs["edge_index"] for inc in (lazy, eager))
    assert mine.slot_capacity == theirs.slot_capacity
    assert mine._end == theirs._end
    assert lazy.verify() < 1e-9


# What reads everything ############################################################################


@pytest.fixture
def waiting(monkeypatch):
    """A lazy model of which much waits and little was read, and one that is as it should be."""
    monkeypatch.setattr(on_demand, "FEW", 0)
    lazy, eager, rng = lazy_and_eager(GCN(5, 8, 2, 3), seed=3)
    for turn in range(4):
        delta = change(eager, rng, 10)
        lazy.apply_delta(delta)
        eager.apply_delta(delta)
        lazy.read([turn])
    assert lazy._session.on_demand.waits
    return lazy, eager, change(eager, rng, 3)


def test_out_read_and_verify(waiting):
    lazy, eager, _ = waiting
    assert lazy.verify() < 1e-9
    torch.testing.assert_close(lazy.out, eager.out)
    torch.testing.assert_close(lazy.read().out, eager.out)


def test_saved_and_loaded(waiting, tmp_path):
    lazy, eager, delta = waiting
    lazy.save(tmp_path / "state")
    again = load(tmp_path / "state", lazy.model, lazy=True)
    assert again.version == eager.version
    for inc in (again, eager):
        inc.apply_delta(delta)
    torch.testing.assert_close(again.read([5, 6]).out, eager.read([5, 6]).out)
    torch.testing.assert_close(again.out, eager.out)


def test_previewed_undone_and_refreshed(waiting):
    lazy, eager, delta = waiting
    ours, theirs = lazy.preview(delta), eager.preview(delta)
    torch.testing.assert_close(ours.changed, theirs.changed)
    torch.testing.assert_close(ours.out, theirs.out)
    was = eager.out.clone()
    back = lazy.apply_delta(delta, undo=True).undo
    lazy.read([3])
    lazy.apply_delta(back)
    torch.testing.assert_close(lazy.out, was)
    back = eager.apply_delta(delta, undo=True).undo
    lazy.apply_delta(delta)
    lazy.refresh([1, 2])
    torch.testing.assert_close(lazy.out, eager.out)
    lazy.apply_delta(back)
    lazy.refresh()
    torch.testing.assert_close(lazy.out, was)
    assert not lazy._session.on_demand.waits


def test_asked_for_old_rows_a_delta_is_applied_at_once(waiting):
    lazy, eager, delta = waiting
    ours, theirs = (inc.apply_delta(delta, old=True) for inc in (lazy, eager))
    assert torch.equal(ours.changed, theirs.changed)
    torch.testing.assert_close(ours.old, theirs.old)
    torch.testing.assert_close(ours.out, theirs.out)
    assert ours.flips.ids.tolist() == theirs.flips.ids.tolist()


def test_what_an_update_does_not_know_it_says(waiting):
    lazy, _, delta = waiting
    update = lazy.apply_delta(delta, delta_id="a")
    assert lazy.apply_delta(delta, delta_id="a").repeated
    assert repr(update).startswith("Update(version=5, rows wait")
    for name in ("changed", "out"):
        with pytest.raises(IncrementalError, match=rf"update\.{name}.*inc\.read\(nodes\)"):
            getattr(update, name)
    with pytest.raises(IncrementalError, match="old=True"):
        _ = update.flips


def test_a_refused_delta_and_a_stale_state(waiting):
    lazy, eager, delta = waiting
    with pytest.raises(IncrementalError):
        lazy.apply_delta(torch.tensor([[0], [999]]))
    torch.testing.assert_close(lazy.read([0]).out, eager.read([0]).out)
    lazy.apply_delta(delta)
    with torch.no_grad():
        next(lazy.model.parameters()).mul_(2)
    for read in (lambda: lazy.read([1]), lazy.settle, lambda: lazy.out):
        with pytest.raises(StaleStateError):
            read()
    lazy.refresh()
    assert lazy.verify() < 1e-9


def test_interrupted_while_it_settles(monkeypatch):
    """An error in the midst of the one update leaves marks at everything, and no wrong row."""
    lazy, eager, rng = lazy_and_eager(GCN(5, 8, 2, 3))
    delta = change(eager, rng, 3)
    for inc in (lazy, eager):
        inc.apply_delta(delta)
    engine = lazy._session.engine
    last = engine.node_executors[-1]
    with monkeypatch.context() as patch:
        engine.interpret()
        patch.setattr(last, "rows_changed", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lazy.settle()
    torch.testing.assert_close(lazy.read([4, 5]).out, eager.read([4, 5]).out)
    torch.testing.assert_close(lazy.out, eager.out)
    assert lazy.check() == []


def test_threads_that_read_see_one_version_each(monkeypatch):
    monkeypatch.setattr(on_demand, "FEW", 0)
    lazy, eager, rng = lazy_and_eager(GCN(5, 8, 2, 3))
    deltas, wanted = [], [eager.out.clone()]
    for _ in range(40):
        deltas.append(change(eager, rng, 5))
        eager.apply_delta(deltas[-1])
        wanted.append(eager.out.clone())
    torn, is_over = [], threading.Event()

    def look(of):
        choice = np.random.default_rng(of)
        while not is_over.is_set():
            nodes = torch.from_numpy(choice.integers(0, 400, 3))
            version, rows = lazy.read(nodes)
            if not torch.allclose(rows, wanted[version][nodes]):
                torn.append((version, nodes))

    readers = [threading.Thread(target=look, args=(i,)) for i in range(4)]
    for reader in readers:
        reader.start()
    for delta in deltas:
        lazy.apply_delta(delta)
    is_over.set()
    for reader in readers:
        reader.join()
    assert torn == []
    torch.testing.assert_close(lazy.out, eager.out)


def test_settings_that_do_not_go_with_it():
    for options in ({"store": "minimal"}, {"scrub_rows": 4}):
        with pytest.raises(ValueError, match="lazy=True"):
            to_incremental(GCN(5, 8, 2, 3).eval(), lazy=True, **options)


def test_a_worker_settles_a_little_at_a_time():
    lazy, eager, *_ = lazy_and_eager(GraphSAGE(5, 8, num_layers=2, out_channels=3))
    for seed in range(3):
        edges = torch.randint(400, (2, 90), generator=torch.Generator().manual_seed(seed))
        for inc in (lazy, eager):
            inc.apply_delta(edge_index_add=edges)
        (step,) = [s for s in lazy._session.on_demand._steps if s.out.value in lazy.program.outputs]
        lazy._session.on_demand._spread()
        left, calls = int((step.marks == on_demand.MARK).sum()), 0
        assert left > 200
        while True:
            waits = lazy.settle(rows=50)
            now, calls = int((step.marks == on_demand.MARK).sum()), calls + 1
            assert left - now <= 50  # no more than was said
            left = now
            if not waits:
                break
        assert calls >= 5
        assert (lazy.out - eager.out).abs().max() < 1e-12
    assert lazy.settle() is lazy.settle(rows=1) is eager.settle() is False
    with pytest.raises(ValueError, match="1 or more"):
        lazy.settle(rows=0)
