"""An update is in if and only if its version is, whatever is raised, wherever."""

import sys

import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphConv

from pyg_incremental import GraphDelta, InvalidDeltaError, load, to_incremental
from pyg_incremental.graph.edge_store import EdgeStore
from pyg_incremental.kernels import graph_at, pairs, threads
from tests.torture.inject import Injected, injecting
from tests.trust.small import CHANNELS, drawn, edge, sage, wrapped


def state(inc):
    """What has to be the old or the new one, as a whole."""
    return inc.version, inc.graph.to_edge_index(), inc.x.clone()


def same(a, b):
    return all(
        torch.equal(torch.as_tensor(p), torch.as_tensor(q)) for p, q in zip(a, b, strict=True)
    )


DELTAS = {
    "edges": lambda inc: {"edge_index_add": edge(3, 4), "edge_index_del": first_edges(inc, 2)},
    "features": lambda inc: {
        "x_changes": (torch.tensor([5, 7]), torch.full((2, CHANNELS), 0.5 + inc.version))
    },
    "both": lambda inc: {
        "edge_index_add": edge(1, 1), "edge_index_del": first_edges(inc, 1),
        "x_changes": (torch.tensor([3]), torch.zeros(1, CHANNELS)),
    },
    "nodes": lambda inc: {"x_add": torch.ones(3, CHANNELS), "nodes_del": [2],
                          "edge_index_add": edge(2, inc.num_nodes)},
}  # fmt: skip


def first_edges(inc, count):
    return inc.graph.to_edge_index()[:, :count]


# Any two of a delta, an exception and whether updates are compiled are together in one of them.
RAISED = (KeyboardInterrupt, MemoryError)
RUNS = [
    pytest.param(what, warm, RAISED[(at + warm) % 2], id=f"{what}-{'warm' if warm else 'cold'}")
    for at, what in enumerate(DELTAS) for warm in (False, True)
]  # fmt: skip


@pytest.mark.parametrize(("what", "warm", "raised"), RUNS)
def test_the_version_moves_if_and_only_if_the_delta_is_in(what, warm, raised):
    inc = wrapped(warm=warm)
    at, done = 0, False
    while not done:
        delta, before = DELTAS[what](inc), state(inc)
        done = True
        try:
            with injecting(raised, at):
                inc.apply_delta(**delta)
        except raised:
            done = False
        moved = inc.version - before[0]
        if inc.stale is not None:
            assert moved == 0
            inc.refresh()
        after = state(inc)
        assert moved in (0, 1)
        assert moved or not done
        assert moved or same(before, after), f"at event {at}: not in, but something is"
        assert not moved or not all(map(torch.equal, before[1:], after[1:])), f"at event {at}"
        if at % 3 == 0 or done:
            assert inc.verify() < 1e-4
            assert inc.check() == []
        at += 1 if at < 30 else 31  # all events: see tests/torture
    assert at > 30


def test_an_exception_says_that_nothing_was_changed():
    inc, notes = wrapped(), []
    for at in range(0, 1200, 100):
        version = inc.version
        try:
            with injecting(MemoryError, at):
                inc.apply_delta(edge_index_add=edge(0, 1))
        except MemoryError as error:
            notes += getattr(error, "__notes__", []) if inc.version == version else []
        assert inc.stale is None
        assert inc.verify() < 1e-4
    assert len(notes) > 3
    assert all("Nothing was changed" in note for note in notes)


def test_a_repeated_delta_is_none(tmp_path):
    inc = wrapped()
    up = inc.apply_delta(edge_index_add=edge(0, 1), delta_id="a")
    assert not up.repeated
    edges = inc.num_edges
    again = inc.apply_delta(edge_index_add=edge(0, 1), delta_id="a")
    assert again.repeated
    assert "repeated" in repr(again)
    assert (again.version, inc.version, inc.num_edges) == (1, 1, edges)
    assert len(again.changed) == len(again.out) == 0
    assert again.out.shape == (0, 5)
    with pytest.raises(InvalidDeltaError):
        inc.apply_delta(edge_index_del=edge(0, inc.num_nodes), delta_id=7)
    assert not inc.apply_delta(edge_index_add=edge(2, 3), delta_id=7).repeated
    inc.refresh()
    inc.save(tmp_path / "state")
    loaded = load(tmp_path / "state", sage())
    assert loaded.version == 2
    assert loaded.apply_delta(edge_index_add=edge(0, 1), delta_id="a").repeated
    with pytest.raises(InvalidDeltaError, match="delta_id"):
        inc.apply_delta(edge_index_add=edge(2, 3), delta_id=1.5)


def test_an_interrupted_delta_may_be_handed_in_again():
    inc = wrapped(warm=True)
    once = inc.num_edges + 1
    for at in range(0, 90, 3):
        try:
            with injecting(KeyboardInterrupt, at):
                inc.apply_delta(edge_index_add=edge(0, 1), delta_id=at)
        except KeyboardInterrupt:
            if inc.stale:
                inc.refresh()
            inc.apply_delta(edge_index_add=edge(0, 1), delta_id=at)
        assert inc.num_edges == once
        once += 1


def test_an_interrupted_look_for_places_is_made_up_for(monkeypatch):
    inc = wrapped(warm=True)
    graph = inc.graph
    graph._table = graph._table.copy()  # as after it has grown

    def none(*_):
        raise MemoryError

    delta = {"edge_index_add": edge(0, 1)}
    with monkeypatch.context() as patch:
        patch.setattr(graph_at, "places_of", none)
        with pytest.raises(MemoryError):
            EdgeStore.places(graph)
    addresses = graph.places()
    assert addresses[graph_at.TABLE] == graph._table.__array_interface__["data"][0]
    inc.apply_delta(**delta)
    assert inc.verify() < 1e-4


@pytest.mark.parametrize("raised", [MemoryError, KeyboardInterrupt])
def test_a_delta_that_is_being_checked_claims_nothing(raised):
    """Wherever the check is cut off, the edges that it looked at are there afterwards."""
    x, edge_index = drawn()
    torch.manual_seed(0)
    inc = to_incremental(GraphConv(CHANNELS, 4).eval())
    inc(x, edge_index, torch.rand(edge_index.shape[1]))
    doubled = torch.cat([edge_index[:, :3]] * 2, 1)
    deltas = [
        {"nodes_del": [1, 2], "edge_index_del": edge_index[:, :4]},
        {"edge_index_del": doubled, "missing": "ignore"},
        {"edge_index_del": edge_index[:, :2],
         "edge_changes": (edge_index[:, :5], {"edge_weight": torch.ones(5)}), "missing": "ignore"},
    ]  # fmt: skip
    for delta in deltas:
        at, done = 0, False
        while not done:
            done = True
            try:
                with injecting(raised, at):
                    inc.inverse(GraphDelta(**delta))
            except raised:
                done = False
            assert (inc.graph.slots.out_at[inc.graph.slots_in_order()] >= 0).all()
            assert inc.check() == [] if at % 25 == 0 else True
            at += 3


def test_a_failed_allocation_claims_nothing(monkeypatch):
    inc = wrapped()
    real, left = np.empty, 1

    def empty(*arguments, **more):
        nonlocal left
        left -= 1
        if left < 0:
            raise MemoryError
        return real(*arguments, **more)

    edges, node = inc.graph.to_edge_index()[:, :3].numpy(), np.array([1])
    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", empty)
        with pytest.raises(MemoryError):
            inc.graph.resolve_removal(*edges, node, node)
    src, dst = inc.graph.to_edge_index().numpy()
    assert (inc.graph.find(src, dst) >= 0).all()
    assert inc.check() == []


@pytest.mark.parametrize("broken", ["change_list", "change_pairs"])
def test_an_interrupt_among_threads_keeps_all_or_nothing(monkeypatch, broken):
    """The graph changes beside the first sums; one of these jobs is cut off."""
    before_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        inc = wrapped(nodes=4000, edges=20000, warm=True)
        monkeypatch.setattr(threads, "MANY", 1 << 8)
        monkeypatch.setattr("pyg_incremental.fused.parts.MANY", 1 << 8)
        edges = inc.graph.to_edge_index()
        delta = {
            "edge_index_del": edges[:, torch.randperm(20000)[:3000]],
            "edge_index_add": torch.randint(4000, (2, 3000)),
        }
        inc.apply_delta(edge_index_add=torch.randint(4000, (2, 3000)))  # makes room
        inc.apply_delta(edge_index_del=inc.graph.to_edge_index()[:, -3000:])
        before = state(inc)
        reached = []

        def cut_off(*_):
            reached.append(True)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(graph_at, broken, cut_off)
            with pytest.raises(KeyboardInterrupt):
                inc.apply_delta(**delta)
        assert reached
        assert inc.stale == "an update was interrupted"
        inc.refresh()
        assert same(before, state(inc))
        assert inc.check() == []
        inc.apply_delta(**delta)
        assert inc.verify() < 1e-3
        assert inc.check() == []
    finally:
        torch.set_num_threads(before_threads)


def test_the_harness_injects_where_it_says():
    def here():
        one = 1
        return one + 1

    before = sys.gettrace()  # coverage may have one
    with pytest.raises(Injected), injecting(Injected, 1, packages=(__name__,)):
        here()
    assert sys.gettrace() is before
    assert pairs.GONE == -2
