"""Whatever comes in which batches: the state is that of the events one by one."""

import random

import pytest
import torch

from pyg_incremental import (
    GraphDelta,
    IncrementalWarning,
    InvalidDeltaError,
    StaleStateError,
    to_incremental,
)
from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import Schema, Stream
from tests.stream import scene
from tests.stream.naive import Naive

SCHEMA = Schema(kind="kind")


def in_order(naive, events):
    for place, event in enumerate(events, 1):
        naive.take(place, event)
    return naive


def same_graph(inc, naive):
    x, edges, _ = naive.inputs()
    assert sorted(inc.graph.to_edge_index().t().tolist()) == sorted(edges.t().tolist())
    assert torch.equal(inc.x, x)
    assert (inc.out - inc.model(x, edges)).abs().max() < 1e-10


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("seed", range(4))
def test_events_of_all_kinds_are_as_one_by_one(seed, size):
    events = scene.events(seed, 100)
    stream = Stream(scene.called(seed), IterableSource(events), SCHEMA, max_size=size)
    assert stream.drain() == 100
    naive = in_order(Naive(*scene.graph(seed)), events)
    same_graph(stream.inc, naive)
    found = {letter.position: letter.reason for letter in stream.dead_letters}
    assert [*found] == naive.refused, found
    assert naive.refused
    assert stream.stats.applied == 100 - len(naive.refused)
    assert stream.position == 100


@pytest.mark.parametrize("which", ["newest", "oldest"])
@pytest.mark.parametrize("undirected", [False, True])
def test_edges_with_data(which, undirected):
    model = scene.Weighted().double().eval()
    x, edges = scene.graph(1)
    if undirected:
        edges = torch.cat([edges, edges.flip(0)[:, edges[0] != edges[1]]], 1)
    weights = torch.rand(edges.shape[1]).double()
    kinds = ["edge_add"] * 4 + ["edge_del"] * 3 + ["edge_change"] * 3
    events = scene.events(5, 80, kinds=kinds, weights=True)
    if undirected:  # where it is one edge in both directions, both directions are as they are
        weights = torch.ones_like(weights)
        edges = edges[:, :0]
        weights = weights[:0]
    inc = to_incremental(model, backend="reference", check=False)
    inc(x, edges, weights)
    schema = Schema(kind="kind", edge_data={"edge_weight": "w"}, which=which, undirected=undirected)
    stream = Stream(inc, IterableSource(events), schema, max_size=20)
    stream.drain()
    naive = Naive(x, edges, which=which, undirected=undirected, weights=weights)
    in_order(naive, events)
    x, edges, weights = naive.inputs()
    assert inc.num_edges == edges.shape[1]
    assert (inc.out - model(x, edges, weights)).abs().max() < 1e-10
    found = {letter.position: letter.reason for letter in stream.dead_letters}
    assert [*found] == naive.refused, found


def test_work_is_that_of_what_is_left():
    events = [{"src": 1, "dst": 2, "kind": kind} for kind in ("edge_add", "edge_del") * 50]
    stream = Stream(scene.called(), IterableSource(events), SCHEMA)
    assert stream.drain() == 100
    assert stream.stats.updates == stream.inc.version == 0  # they cancel each other
    assert stream.stats.applied == stream.position == 100


def test_an_edge_may_come_after_its_node_and_not_before():
    x = [0.5] * scene.CHANNELS
    node = {"kind": "node", "node": scene.NODES, "x": x}
    edge = {"kind": "edge_add", "src": scene.NODES, "dst": 0}
    stream = Stream(scene.called(), IterableSource([edge, node, edge]), SCHEMA)
    stream.drain()
    assert stream.inc.num_nodes == scene.NODES + 1
    (letter,) = stream.dead_letters
    assert letter.position == 1
    assert "node 12 is not there" in letter.reason
    assert stream.inc.version == 1


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"kind": "edge_add", "src": 1}, "there is no field 'dst'"),
        ({"kind": "edge_add", "src": 1, "dst": "a"}, "'dst' is 'a', expected the id of a node"),
        ({"kind": "edge_add", "src": 1, "dst": 99}, "node 99 is not there; there are 12 nodes"),
        ({"kind": "edge_del", "src": 11, "dst": 11}, "the edge to delete is not there"),
        ({"kind": "other"}, "'kind' is 'other', expected one of"),
        ({"kind": "node", "node": 1, "x": [1.0]}, "expected"),
        ({"kind": "node", "node": 1, "x": "a"}, "expected numbers"),
        ({"kind": "node", "node": 14, "x": [1.0] * 3}, "the next new one is 12"),
        (7, "fields by name"),
        (GraphDelta(edge_index_add=[[0], [99]]), "99"),
    ],
)
def test_a_bad_event_is_named_and_costs_no_other(event, reason):
    inc = scene.called()
    edges = inc.graph.to_edge_index()
    inc.apply_delta(edge_index_del=edges[:, (edges == 11).all(0)])
    good = [{"kind": "edge_add", "src": k, "dst": 0} for k in range(4)]
    heard = []
    stream = Stream(inc, IterableSource([*good, event, *good]), SCHEMA, dead_letters=heard.append)
    edges = inc.num_edges
    assert stream.drain() == 9
    assert inc.num_edges == edges + 8
    (letter,) = heard
    assert (letter.position, letter.value) == (5, event)
    assert reason in letter.reason
    assert [*stream.dead_letters] == heard


def test_deltas_of_a_source_are_applied_as_they_are():
    values = [
        GraphDelta(edge_index_add=[[1, 2, 3], [0, 0, 0]]),
        {"src": 5, "dst": 6},
        GraphDelta(edge_index_del=[[1], [0]]),
    ]
    stream = Stream(scene.called(), IterableSource(values))
    assert stream.drain() == 3
    assert stream.inc.version == 3
    assert stream.stats.events == 5
    assert stream.inc.verify() < 1e-10


def test_an_event_that_comes_again_counts_once():
    edges = [{"id": f"e{k}", "src": k, "dst": 0, "kind": "edge_add"} for k in range(6)]
    order = [*edges[:3], edges[1], *edges[3:], edges[0], edges[5]]
    late = {"id": "e9", "src": 10**9, "dst": 0, "kind": "edge_add"}
    mended = {**late, "src": 1}  # what was left out may come once more
    order += [late, mended, {"src": 1, "dst": 1, "kind": "edge_add"}, {**edges[0], "id": 1.5}]
    for size in (1, 2, 100):
        schema = Schema(kind="kind", event_id="id")
        stream = Stream(scene.called(), IterableSource(order), schema, max_size=size)
        edges_before = stream.inc.num_edges
        stream.drain()
        assert stream.inc.num_edges == edges_before + 7, size
        assert stream.stats.repeated == 3
        assert [letter.position for letter in stream.dead_letters] == [10, 12, 13]


def test_the_model_fails_on_what_an_event_would_make():
    class Fails(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = scene.sage()

        def forward(self, x, edge_index):
            if (x > 100).any():
                raise RuntimeError("too large")
            return self.inner(x, edge_index)

    inc = to_incremental(Fails().eval(), backend="reference", check=False)
    with pytest.warns(IncrementalWarning):
        inc(*scene.graph())
    rng = random.Random(0)
    events = [
        {"kind": "node", "node": k % 7 if k != 9 else 11, "x": [rng.random()] * 3}
        for k in range(20)
    ]
    events[9]["x"] = [1e3] * 3
    stream = Stream(inc, IterableSource(events), SCHEMA)
    assert inc.mode == "full pass"
    assert stream.drain() == 20
    assert [letter.position for letter in stream.dead_letters] == [10]
    assert "too large" in stream.dead_letters[0].reason
    assert inc.verify() < 1e-10


def test_a_state_that_is_stale_is_no_fault_of_events():
    stream = Stream(scene.called(), IterableSource([{"src": 1, "dst": 2}] * 3))
    with torch.no_grad():
        next(stream.inc.model.parameters()).add_(1.0)
    with pytest.raises(StaleStateError):
        stream.step()
    assert stream.stats.events == 0
    stream.inc.refresh()
    assert stream.drain() == 3  # nothing was lost
    assert stream.inc.verify() < 1e-10


def test_an_interrupt_after_an_update_is_in(monkeypatch):
    stream = Stream(scene.called(), IterableSource([{"src": k, "dst": 2} for k in range(6)]))
    stream._pace.max_size = 2
    apply, edges = stream.inc.apply_delta, stream.inc.num_edges

    def interrupted(*args, **kwargs):
        apply(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(stream.inc, "apply_delta", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream.step()
    monkeypatch.undo()
    stream.drain()
    assert stream.inc.num_edges == edges + 6
    assert stream.stats.applied == 6
    assert stream.inc.version == 3


def test_without_a_first_call():
    with pytest.raises(StaleStateError, match=r"first=\(x, edge_index\)"):
        Stream(scene.sage(), IterableSource([]))
    x, edges = scene.graph()
    for first in ((x, edges), {"x": x, "edge_index": edges}):
        assert Stream(scene.sage(), IterableSource([]), first=first).inc.num_nodes == scene.NODES


def test_what_does_not_fit_a_schema_or_a_stream():
    with pytest.raises(ValueError, match=r"kinds\['x'\]: expected one of"):
        Schema(kinds={"x": "edge"})
    for wrong in ({"max_size": 0}, {"max_latency": 0.0}):
        with pytest.raises(ValueError, match="expected"):
            Stream(scene.called(), IterableSource([]), **wrong)
    assert issubclass(InvalidDeltaError, ValueError)
