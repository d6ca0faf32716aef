"""A stream that keeps its last updates: rows as of then, and the events behind a flip."""

import itertools

import numpy as np
import pytest
import torch

from pyg_incremental import IncrementalError, UnsupportedModelError, to_incremental
from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import Feature, Schema, Stream, Window
from pyg_incremental.stream import why as searching
from tests.stream import scene
from tests.stream.naive import Naive

SCHEMA = Schema(kind="kind")


class Even(torch.nn.Module):
    """Labels that are near to flip: of two channels each is as often the larger one."""

    def __init__(self):
        super().__init__()
        self.inner = scene.sage()
        with torch.no_grad():
            out = self.inner(*scene.graph())
        middle = (out[:, 0] - out[:, 1]).median() + 1e-3
        self.register_buffer("middle", torch.stack([middle, torch.zeros_like(middle)]))

    def forward(self, x, edge_index):
        return self.inner(x, edge_index) - self.middle


def opened(events, schema=SCHEMA, **options):
    model = to_incremental(Even().eval(), backend="reference", check=False)
    options = {"max_size": 6, "keep": 50, "first": scene.graph()} | options
    return Stream(model, IterableSource(events), schema, **options)


def label(row):
    return int(row.argmax())


# As of ############################################################################################


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_those_of_then(seed):
    with opened(scene.events(seed, 80)) as stream:
        kept = {0: stream.inc.out.clone()}
        while stream.step():
            kept[stream.inc.version] = stream.inc.out.clone()
        assert len(kept) > 10
        for version, out in kept.items():
            assert torch.equal(stream.as_of(version), out)


def test_only_so_many_are_kept():
    with opened(scene.events(1, 80), keep=3) as stream:
        stream.drain()
        now = stream.inc.version
        assert torch.equal(stream.as_of(now), stream.inc.out)
        assert stream.as_of(now - 3).shape[1] == 2
        with pytest.raises(IncrementalError, match=f"expected one from {now - 3} to {now}"):
            stream.as_of(now - 4)
        with pytest.raises(IncrementalError, match="is not kept"):
            stream.as_of(now + 1)


def test_what_is_kept_takes_the_bytes_of_the_rows_and_their_numbers():
    with opened(scene.events(2, 80)) as stream:
        changed = []
        stream.inc.on_update(lambda update: changed.append(len(update.changed)))
        stream.drain()
        assert stream._history.nbytes == sum(changed) * (2 * 8 + 8)


def test_an_update_beside_the_stream_ends_what_is_kept():
    with opened(scene.events(3, 30)) as stream:
        stream.step()
        stream.inc.apply_delta(edge_index_add=[[0], [1]])
        with pytest.raises(IncrementalError, match="took something else"):
            stream.as_of(0)
        assert torch.equal(stream.as_of(stream.inc.version), stream.inc.out)
        version, out = stream.inc.version, stream.inc.out.clone()
        stream.step()
        assert torch.equal(stream.as_of(version), out)


def test_edges_that_fall_out_of_a_window_are_updates_like_others():
    events = [{"src": k % 9, "dst": k % 4, "at": float(k)} for k in range(60)]
    model, (x, edges) = scene.sage(), scene.graph()
    first = {"x": x, "edge_index": edges, "edge_time": torch.zeros(edges.shape[1]).double()}
    schema = Schema(time="at", edge_data={"edge_time": "at"})
    with Stream(
        model, IterableSource(events), schema, first=first, window=Window(10.0), max_size=5, keep=99
    ) as stream:
        kept = {0: stream.inc.out.clone()}
        stream.inc.on_update(lambda update: kept.update({update.version: stream.inc.out.clone()}))
        stream.drain()
        assert stream.stats.expired > 20
        assert len(kept) > 15
        for version, out in kept.items():
            assert torch.equal(stream.as_of(version), out)


def test_nothing_is_kept_by_default():
    with opened([], keep=0) as stream:
        for call in (lambda: stream.as_of(0), lambda: stream.why(0)):
            with pytest.raises(IncrementalError, match=r"Stream\(\.\.\., keep=1000\)"):
                call()
    for keep in (-1, 2.5, True):
        with pytest.raises(ValueError, match="a number of updates, 1 or more"):
            opened([], keep=keep)


# Why ##############################################################################################


@torch.no_grad()
def without(events, left_out, node):
    """The label of a node where some events have not come, one after the other, by full passes."""
    naive = Naive(*scene.graph())
    for place, event in enumerate(events):
        if place not in left_out:
            naive.take(place, event)
    x, edges, _ = naive.inputs()
    return label(Even()(x, edges)[node])


def subject(event):
    return (event["src"], event["dst"]) if event["kind"].startswith("edge") else event["node"]


@pytest.mark.parametrize(("seed", "size"), [(0, 4), (1, 6)])
def test_the_fewest_events_as_by_full_passes(seed, size):
    events = scene.events(seed, 50, kinds=["edge_add"] * 4 + ["edge_del"] * 2 + ["node"], bad=0.1)
    looked = []
    with opened(events, max_size=size) as stream:
        stream.on(lambda alert: alerts.append(alert), flipped=True)
        while True:
            before, alerts = stream.position, []
            count = stream.inc.num_nodes
            if not stream.step():
                break
            until = stream.position
            dead = {letter.position - 1 for letter in stream.dead_letters}
            given = [n for n in range(before, until) if n not in dead]
            about = {}
            for n in given:
                about.setdefault(subject(events[n]), []).append(n)
            new = {s for s in about if isinstance(s, int) and s >= count}
            for alert in alerts:
                if alert.old == -1:
                    continue
                found = stream.why(alert.node, alert.version)
                assert (found.old, found.new, found.is_smallest) == (alert.old, alert.new, True)
                assert alert.new == without(events[:until], (), alert.node)
                can = {
                    taken: without(events[:until], {n for s in taken for n in about[s]}, alert.node)
                    == alert.old
                    for k in range(1, 4)
                    for taken in itertools.combinations([s for s in about if s not in new], k)
                }
                least = min((len(taken) for taken, flips in can.items() if flips), default=None)
                places = {event.position - 1 for event in found.events}
                if least is None:
                    assert not found.events or len(found.events) > 3
                else:
                    assert len({subject(events[n]) for n in places}) == least
                    assert without(events[:until], places, alert.node) == alert.old
                looked.append(least)
    assert len(looked) > 3
    assert max(least or 0 for least in looked) > 1


def test_a_greedy_search_finds_some_that_are_all_needed(monkeypatch):
    """A hub flips when enough of many like edges have come."""
    events = [{"src": k % 12, "dst": 0} for k in range(40)]
    monkeypatch.setattr(searching, "TRIED", 30)
    found = []
    with opened(events, Schema(), max_size=1) as stream:
        stream.drain()  # where it stands in the end
    for size in (40, 20, 10):
        with opened(events, Schema(), max_size=size) as stream:
            stream.on(lambda a: found.append((stream.why(a.node, a.version), size)), flipped=True)  # noqa: B023
            stream.drain()
    found = [(why, size) for why, size in found if why.events and not why.is_smallest]
    assert found
    for why, size in found:
        until = -(-why.events[-1].position // size) * size
        given = [{"kind": "edge_add", **event} for event in events[:until]]
        places = {event.position - 1 for event in why.events}
        assert without(given, places, why.node) == why.old
        for pair in {(events[n]["src"], 0) for n in places}:
            fewer = {n for n in places if (events[n]["src"], 0) != pair}
            assert without(given, fewer, why.node) != why.old


def test_names():
    x, edges = scene.graph()
    names = [f"n{n}" for n in range(len(x))]
    rng = np.random.default_rng(0)
    events = [{"from": f"n{a}", "to": f"n{b}"} for a, b in rng.integers(0, 12, (60, 2))]
    schema = Schema(src="from", dst="to")
    found = []
    first = {"x": x, "edge_index": edges, "node_ids": names}
    with opened(events, schema, first=first, max_size=3, keep=1) as stream:
        stream.on(lambda alert: found.append(stream.why(alert.node, alert.version)), flipped=True)
        stream.drain()
    assert found
    for why in found:
        assert why.node in names
        assert 1 <= len(why.events) <= 3


def test_what_cannot_be_said():
    with opened(scene.events(0, 40)) as stream:
        stream.step()
        version = stream.inc.version
        stream.step()
        with pytest.raises(IncrementalError, match="from the callback of the alert"):
            stream.why(0, version)
        with pytest.raises(IncrementalError, match="there is no node 99"):
            stream.why(99)
        calm = next(n for n in range(12) if torch.equal(
            stream.as_of(version)[n].argmax(), stream.inc.out[n].argmax()))  # fmt: skip
        with pytest.raises(IncrementalError, match="did not flip"):
            stream.why(calm)
    events = [{"src": 1, "dst": 2}]
    with opened(events, Schema(features=[Feature(0, "count")])) as stream:
        stream.drain()
        with pytest.raises(UnsupportedModelError, match="features are made of the events"):
            stream.why(0)
