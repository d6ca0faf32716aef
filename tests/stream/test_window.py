"""What is in the window is what a run through all events one by one leaves there."""

import random
import time
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pandas as pd
import pytest
import torch

from pyg_incremental import to_incremental
from pyg_incremental.sources import IterableSource, SqliteLog
from pyg_incremental.stream import Schema, Stream, Window
from tests.stream import scene

SCHEMA = Schema(time="at", edge_data={"edge_time": "at"})


def events_of(seed, count=120, disorder=4.0):
    rng = random.Random(seed)
    return [
        {"src": rng.randrange(12), "dst": rng.randrange(12), "at": n + rng.uniform(-disorder, 0)}
        for n in range(count)
    ]


def opened(events, window, size, schema=SCHEMA, **how):
    x, _ = scene.graph()
    inc = to_incremental(scene.sage(), backend="reference", check=False)
    first = {"x": x, "edge_index": torch.empty(2, 0).long(), "edge_time": torch.empty(0).double()}
    return Stream(
        inc, IterableSource(events), schema, first=first, window=window, max_size=size, **how
    )


def naive(events, window):
    edges, refused, latest = [], [], float("-inf")
    for place, event in enumerate(events, 1):
        watermark, limit = latest - window.lateness, float("inf")
        if window.ahead is not None and edges:
            limit = latest + window.ahead
        if (
            event["at"] > limit
            or event["at"] < window.begins(latest)
            or (window.late == "drop" and event["at"] < watermark)
        ):
            refused.append(place)
            continue
        latest = max(latest, event["at"])
        edges.append((event["src"], event["dst"], event["at"]))
    return sorted(edge for edge in edges if edge[2] >= window.begins(latest)), refused


def found(inc):
    pairs, times = inc.graph.to_edge_index().t().tolist(), inc.edge_data("edge_time").tolist()
    return sorted((*pair, time) for pair, time in zip(pairs, times, strict=True))


@pytest.mark.parametrize("size", [1, 8, 200])
@pytest.mark.parametrize(
    "window",
    [
        Window(20.0),
        Window(20.0, lateness=2.0, late="drop", every=1.0),
        Window(3.0, every=0.5),
        Window(15.0, ahead=10.0, every=5.0),
    ],
)
def test_as_one_by_one(window, size):
    events = events_of(1)
    events[40]["at"] = 1e9 if window.ahead is not None else events[40]["at"]
    stream = opened(events, window, size)
    stream.drain()
    edges, refused = naive(events, window)
    assert found(stream.inc) == edges
    assert [letter.position for letter in stream.dead_letters] == refused
    assert stream.stats.expired == len(events) - len(refused) - len(edges)
    assert (
        stream.inc.out - stream.inc.model(stream.inc.x, stream.inc.graph.to_edge_index())
    ).abs().max() < 1e-10


def test_a_restart_has_the_versions_of_before(tmp_path):
    events, window, heard = events_of(2), Window(20.0), []

    def run(folder, steps=None):
        stream = opened(events, window, 9, directory=folder)
        stream.on(lambda alert: heard.append((alert.version, alert.node)), changed=0.0)
        for _ in range(steps or 10**6):
            if not stream.step():
                break
        edges, version = found(stream.inc), stream.inc.version
        stream._let_go()
        return edges, version

    whole = run(tmp_path / "whole")
    keys = [*heard]
    heard.clear()
    run(tmp_path / "torn", 3)
    run(tmp_path / "torn", 7)
    assert run(tmp_path / "torn") == whole
    assert sorted(set(heard)) == sorted(set(keys))


def test_an_event_without_a_time_is_left_out():
    stream = opened(
        [{"src": 1, "dst": 2, "at": "noon"}, {"src": 1, "dst": 2, "at": 3}], Window(9.0), 9
    )
    stream.drain()
    assert [letter.position for letter in stream.dead_letters] == [1]
    assert found(stream.inc) == [(1, 2, 3.0)]


def test_moments_and_decimals_are_numbers():
    noon = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
    east = noon.astimezone(timezone(timedelta(hours=5)))
    events = [
        {"src": n, "dst": 2, "at": at}
        for n, at in enumerate(
            [noon, noon.replace(tzinfo=None), pd.Timestamp(east), Decimal("2e9")]
        )
    ]
    stream = opened(events, Window(1e9), 9)
    stream.drain()
    assert found(stream.inc) == [(n, 2, noon.timestamp()) for n in range(3)] + [(3, 2, 2e9)]


def test_all_of_it_falls_out():
    events = [{"src": 1, "dst": 2, "at": 0.0}, {"src": "a", "dst": 2, "at": 50.0}]
    events += [{"src": 1, "dst": 2, "at": 90.0}, {"src": 1, "dst": 2, "at": 190.0}]
    stream = opened(events, Window(9.0), 1)
    stream.drain()
    assert found(stream.inc) == [(1, 2, 190.0)]
    stream.inc.apply_delta(edge_index_del=[[1], [2]])
    stream.inc.expire(before=1e3)  # there is no edge
    assert stream.inc.num_edges == 0


def test_time_goes_on_without_an_event(tmp_path):
    """Where a log says when it took an event, a timer may say that time has passed since."""
    log = SqliteLog(tmp_path / "events.db", time_field="at")
    began = time.time()
    log.append({"src": 1, "dst": 2}, {"src": 3, "dst": 2})
    now = time.time()

    def made():
        x, _ = scene.graph()
        none = {"edge_index": torch.empty(2, 0).long(), "edge_time": torch.empty(0).double()}
        inc = to_incremental(scene.sage(), backend="reference", check=False)
        return Stream(
            inc, log, SCHEMA, first={"x": x, **none}, window=Window(60.0), directory=tmp_path / "s"
        )

    stream = made()
    stream.drain()
    assert [edge[:2] for edge in found(stream.inc)] == [(1, 2), (3, 2)]
    assert all(began <= edge[2] <= now for edge in found(stream.inc))
    assert stream.advance(began - 1.0) == stream.advance(now + 50.0) == 0
    assert stream.advance(now + 70.0) == 2
    assert stream.inc.num_edges == 0
    version, latest = stream.inc.version, stream._intake.latest
    stream._let_go()
    again = made()  # from the checkpoint of the beginning
    again.drain()
    assert (again.inc.version, again.inc.num_edges) == (version, 0)
    assert again._intake.latest == latest == now + 70.0
    log.append({"src": 4, "dst": 5})  # it comes before the window that time has moved
    again.drain()
    assert len(again.dead_letters) == 1
    again._let_go()
    log.close()


def test_time_that_went_on_behind_events_without_an_update_does_so_again(tmp_path):
    """A repeated event leads to no update; time that went on behind it must not do so before it."""
    events = [{"src": 1, "dst": 2, "at": 0.0, "id": 1}, {"src": 3, "dst": 2, "at": 20.0, "id": 2}]
    events += [{**events[0]}, {"src": 4, "dst": 2, "at": 30.0, "id": 3}]
    schema = Schema(time="at", edge_data={"edge_time": "at"}, event_id="id")

    def run(folder, restart):
        stream = opened(events, Window(25.0, every=1.0), 1, schema, directory=folder)
        for turn in range(3):
            stream.step()
            assert stream.position == turn + 1
        assert stream.advance(40.0) == 1
        if restart:
            stream._let_go()
            stream = opened(events, Window(25.0, every=1.0), 1, schema, directory=folder)
        stream.drain()
        stream._let_go()
        return found(stream.inc), stream.stats.saved(), stream.inc.version

    whole = run(tmp_path / "whole", restart=False)
    assert whole[1]["repeated"] == 1
    assert run(tmp_path / "torn", restart=True) == whole


def test_what_is_no_window():
    for wrong in ({"length": 0}, {"length": 1, "every": 0}, {"length": 1, "late": "wait"}):
        with pytest.raises(ValueError, match="expected"):
            Window(**wrong)
    with pytest.raises(ValueError, match="which field is the time"):
        Stream(scene.called(), IterableSource([]), window=Window(3.0))
    with pytest.raises(ValueError, match="no window"):
        Stream(scene.called(), IterableSource([])).advance(3.0)
    with pytest.raises(ValueError, match="expected seconds"):
        opened([], Window(3.0), 1).advance(float("inf"))


@pytest.mark.parametrize("ahead", [None, 6.0])
@pytest.mark.parametrize("seed", range(4))
def test_what_fits_is_the_same_in_groups_of_any_size(seed, ahead):
    """Events that do not fit move no time, so nothing is too late because of them, or not there."""
    rng = random.Random(seed)
    events = scene.events(seed, 40, kinds=["edge_add"], bad=0.15)
    for node in range(scene.NODES, scene.NODES + 12):
        place = 3 * (node - scene.NODES) + rng.randrange(3)
        events.insert(place, {"kind": "node", "node": node, "x": [1.0, 2.0, float(node)]})
    for _ in range(8):  # of nodes that are not there, and of a time to come
        events.insert(rng.randrange(60), {"kind": "edge_add", "src": 500, "dst": 0, "far": 8.0})
    for at, event in enumerate(events):
        event["at"] = at + rng.uniform(-3.0, 0.0) + event.pop("far", 0.0)
    window = Window(20.0, lateness=4.0, late="drop", ahead=ahead)
    schema = Schema(kind="kind", time="at", edge_data={"edge_time": "at"})
    runs = []
    for size in (1, 5, 60):
        stream = opened(events, window, size, schema)
        stream.drain()
        runs.append((stream.inc.x.clone(), found(stream.inc),
                     sorted({letter.position for letter in stream.dead_letters})))  # fmt: skip
    assert len(runs[0][2]) > 5
    assert len(runs[0][0]) > scene.NODES
    for x, edges, refused in runs[1:]:
        assert torch.equal(x, runs[0][0])
        assert edges == runs[0][1]
        assert refused == runs[0][2]
