"""Nodes by name come and go, with events of their own or with their first edge."""

import random

import pytest
import torch

from pyg_incremental import to_incremental
from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import Schema, Stream
from tests.stream import scene


def called(name=str):
    inc = to_incremental(scene.sage(), backend="reference", check=False)
    inc(*scene.graph(), node_ids=[name(k) for k in range(scene.NODES)])
    return inc


def in_names(inc):
    """The edges and the features by name."""
    names = inc.node_ids
    edges = sorted((names[u], names[v]) for u, v in inc.graph.to_edge_index().t().tolist())
    rows = {name: inc.x[at].tolist() for at, name in enumerate(names) if name is not None}
    return edges, rows


class Naive:
    def __init__(self, name, new_x):
        x, edges = scene.graph()
        self.x = {name(k): row for k, row in enumerate(x.tolist())}
        self.edges = [(name(u), name(v)) for u, v in edges.t().tolist()]
        self.new_x, self.refused = new_x, []

    def take(self, place, event):
        kind = event["kind"]
        pair = event.get("src"), event.get("dst")
        if kind == "node":
            self.x[event["node"]] = event["x"]
            return
        if kind == "edge_add" and self.new_x is not None:
            for name in pair:
                self.x.setdefault(name, self.new_x)
        known = all(n in self.x for n in (pair if kind != "node_del" else [event["node"]]))
        if not known or (kind == "edge_del" and pair not in self.edges):
            self.refused.append(place)
        elif kind == "edge_add":
            self.edges.append(pair)
        elif kind == "edge_del":
            self.edges.remove(pair)
        else:
            self.x.pop(event["node"])
            self.edges = [edge for edge in self.edges if event["node"] not in edge]


def events_of(seed, name, count=80):
    rng, found = random.Random(seed), []
    for _ in range(count):
        kind = rng.choice(["edge_add"] * 3 + ["edge_del"] * 2 + ["node", "node_del"])
        if kind.startswith("edge"):
            event = {"src": name(rng.randrange(18)), "dst": name(rng.randrange(5))}
        else:
            event = {"node": name(rng.randrange(18))}
            event |= {"x": [rng.random() for _ in range(3)]} if kind == "node" else {}
        found.append({"kind": kind, **event})
    return found


def far(number):
    return number * 10**15 + 7


@pytest.mark.parametrize("new_x", [None, [0.5, 0.25, 0.0]])
@pytest.mark.parametrize("size", [1, 9, 80])
@pytest.mark.parametrize("name", [str, far])
def test_events_by_name_are_as_one_by_one(name, size, new_x):
    for seed in range(2):
        inc, events = called(name), events_of(seed, name)
        schema = Schema(kind="kind", new_x=new_x)
        stream = Stream(inc, IterableSource(events), schema, max_size=size)
        stream.drain()
        naive = Naive(name, new_x)
        for place, event in enumerate(events, 1):
            naive.take(place, event)
        assert in_names(inc) == (sorted(naive.edges), naive.x)
        assert [letter.position for letter in stream.dead_letters] == naive.refused
        assert (inc.out - inc.model(inc.x, inc.graph.to_edge_index())).abs().max() < 1e-10


def test_alerts_and_a_restart_speak_of_names(tmp_path):
    heard = []

    def opened():
        first = dict(zip(("x", "edge_index"), scene.graph(), strict=True))
        inc = to_incremental(scene.sage(), backend="reference", check=False)
        stream = Stream(
            inc, IterableSource(events_of(1, str)), Schema(kind="kind", new_x=[0.0] * 3),
            first=first | {"node_ids": [str(k) for k in range(scene.NODES)]},
            directory=tmp_path, max_size=10,
        )  # fmt: skip
        stream.on(heard.append, changed=0.0, nodes=["3", "14"])
        return stream

    stream = opened()
    for _ in range(4):
        stream.step()
    stream._let_go()
    before = [(alert.version, alert.node) for alert in heard]
    assert {node for _, node in before} == {"3", "14"}
    heard.clear()
    with opened() as stream:
        stream.drain()
    assert [(alert.version, alert.node) for alert in heard][: len(before)] == before
    naive = Naive(str, [0.0] * 3)
    for place, event in enumerate(events_of(1, str), 1):
        naive.take(place, event)
    assert in_names(stream.inc) == (sorted(naive.edges), naive.x)
    assert torch.isfinite(stream.inc.out).all()


def test_what_is_no_name_is_left_out():
    events = [{"src": "1", "dst": "2"}, {"src": [1], "dst": "2"}, {"src": None, "dst": "1"}]
    stream = Stream(called(), IterableSource(events))
    stream.drain()
    assert [letter.position for letter in stream.dead_letters] == [2, 3]
    assert "expected the name of a node" in stream.dead_letters[0].reason
