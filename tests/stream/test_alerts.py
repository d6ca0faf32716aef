"""Alerts: which rows, once for each, whatever becomes of those who are told."""

import asyncio
import json
import threading

import pytest
import torch
from torch_geometric.nn import GraphConv, global_add_pool

from pyg_incremental import to_incremental
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import JsonLines, Schema, Stream
from tests.stream import scene

EVENTS = scene.events(2, 40, kinds=["edge_add", "edge_del", "node", "node", "node"], bad=0)
for event in EVENTS:
    event["x"] = [20 * number for number in event.get("x", [])]


def stream_of(size=1, **how):
    schema = Schema(kind="kind")
    return Stream(scene.called(), IterableSource(EVENTS), schema, max_size=size, **how)


def keys(alerts):
    return [(alert.what, alert.version, alert.node) for alert in alerts]


def labels(out):
    return torch.where(out.isnan().any(1), -1, out.argmax(1))


@pytest.mark.parametrize("size", [1, 7])
def test_the_three_kinds_are_what_two_full_passes_say(size):
    stream = stream_of(size=size)
    heard = {"changed": [], "crossed": [], "flipped": []}
    stream.on(heard["changed"].append, changed=0.01)
    middle = stream.inc.out[:, 1].median().item()
    stream.on(heard["crossed"].append, crossed=middle, channel=1)
    stream.on(heard["flipped"].append, flipped=True)
    before = torch.full((scene.NODES, 2), torch.nan)
    before[:] = stream.inc.model(stream.inc.x, stream.inc.graph.to_edge_index())
    version = 0
    while stream.step():
        if stream.inc.version == version:
            continue  # all of its events were left out
        version = stream.inc.version
        now = stream.inc.model(stream.inc.x, stream.inc.graph.to_edge_index())
        before = torch.cat([before, torch.full((len(now) - len(before), 2), torch.nan)])
        far = ~((now - before).abs() <= 0.01).all(1)
        rose = (now[:, 1] >= middle) != (before[:, 1] >= middle)
        flipped = labels(now) != labels(before)
        for name, rows in (("changed", far), ("crossed", rose), ("flipped", flipped)):
            told = [a for a in heard[name] if a.version == stream.inc.version]
            assert [alert.node for alert in told] == rows.nonzero().flatten().tolist()
            assert all(alert.what == name for alert in told)
            assert all(alert.position == stream.position for alert in told)
        for alert in heard["flipped"]:
            if alert.version == stream.inc.version:
                assert (alert.old, alert.new) == (
                    labels(before)[alert.node],
                    labels(now)[alert.node],
                )
        before = now
    assert all(heard.values())
    everything = [a for told in heard.values() for a in told]
    assert stream.stats.alerts == len(everything)
    numbers = stream.metrics()
    assert numbers["stream_alerts"] == len(everything)
    assert numbers["stream_events"] == stream.stats.events
    assert numbers["updates"] == stream.stats.updates
    assert f"pyg_incremental_stream_alerts_total {len(everything)}\n" in numbers.prometheus()
    assert len(set(keys(everything))) == len(everything)


@pytest.mark.parametrize("nodes", [[1, 3], torch.tensor([1, 3]), [*torch.tensor([1, 3])]])
def test_nodes_in_any_form(nodes):
    stream, heard, every = stream_of(), [], []
    stream.on(heard.append, changed=0.0, nodes=nodes)
    stream.on(every.append, changed=0.0)
    stream.drain()
    assert keys(heard) == [key for key in keys(every) if key[-1] in (1, 3)] != []


def test_only_nodes_that_are_watched():
    stream, all_of, some = stream_of(), [], []
    stream.on(all_of.append, changed=0.0)
    watch = stream.on(some.append, changed=0.0, nodes=[3, 5])
    stream.drain()
    assert keys(some) == keys(a for a in all_of if a.node in (3, 5))
    assert len(some) == watch.given > 0
    assert len(all_of) > len(some)


def test_who_raises_stops_nothing_and_is_counted():
    stream, heard = stream_of(), []

    def fails(alert):
        if alert.node == 3:
            raise RuntimeError("no")
        heard.append(alert)

    watch = stream.on(fails, changed=0.0)
    fine = []
    other = stream.on(fine.append, changed=0.0)
    stream.drain()
    assert watch.failed == sum(a.node == 3 for a in fine) > 0
    assert watch.failed + len(heard) == watch.given == len(fine)
    assert other.failed == 0
    assert stream.stats.failed == watch.failed
    other.remove()
    watch.remove()
    assert stream._watches == []


def test_a_file_has_a_line_for_each(tmp_path):
    path = tmp_path / "alerts.jsonl"
    path.write_bytes(b'{"version": 0}\n{"ver')  # a line that was torn
    sink = JsonLines(path)
    stream, heard = stream_of(), []
    stream.on(sink, changed=0.0)
    stream.on(heard.append, changed=0.0)
    stream.drain()
    sink.flush()
    sink.close()
    first, *lines = map(json.loads, path.read_text().splitlines())
    assert first == {"version": 0}
    assert [(line["version"], line["node"]) for line in lines] == [
        (alert.version, alert.node) for alert in heard
    ]
    assert lines[0]["new"] == heard[0].new.tolist()


def test_an_iterator_hears_what_a_callback_hears():
    stream, heard = stream_of(), []
    stream.on(heard.append, changed=0.0)
    watch = stream.on(changed=0.0)

    async def listen():
        found = []
        runs = threading.Thread(target=stream.drain)
        async for alert in watch:
            found.append((alert.version, alert.node))
            if stream.stats.events == len(EVENTS) and len(found) == len(heard):
                break
        runs.join() if runs.ident else None
        return found

    stream.drain()
    found = asyncio.run(asyncio.wait_for(listen(), 10))
    assert found == [(alert.version, alert.node) for alert in heard]
    assert watch.missed == 0


def test_an_iterator_that_is_too_slow_misses_the_oldest():
    stream, heard = stream_of(), []
    stream.on(heard.append, changed=0.0)
    watch = stream.on(changed=0.0, keep=5)
    stream.drain()
    assert watch.missed == len(heard) - 5
    assert [a.node for a in watch._kept] == [a.node for a in heard[-5:]]


def test_what_cannot_be_asked_for():
    stream = stream_of()
    for asked in ({}, {"changed": 0.1, "flipped": True}):
        with pytest.raises(ValueError, match="expected one of changed"):
            stream.on(print, **asked)
    with pytest.raises(ValueError, match="ids, int64"):
        stream.on(print, changed=0.1, nodes=torch.tensor([0.5]))
    for one in ("n1", 5, torch.tensor(5)):
        with pytest.raises(ValueError, match="expected a list of nodes"):
            stream.on(print, changed=0.1, nodes=one)


class Scores(torch.nn.Module):
    """A row for each pair, for each edge, or for each graph."""

    def __init__(self, of):
        super().__init__()
        self.inner, self.of = scene.sage(), of

    def forward(self, x, edge_index, edge_label_index=None, batch=None):
        h = self.inner(x, edge_index)
        if self.of == "graph":
            return global_add_pool(h, batch)
        u, v = edge_index if self.of == "edge" else edge_label_index
        return (h[u] * h[v]).sum(-1)


@pytest.mark.parametrize("names", [None, [f"n{n}" for n in range(scene.NODES)]])
@pytest.mark.parametrize("of", ["pair", "edge", "graph"])
def test_pairs_edges_and_graphs(of, names):
    """An alert names both ends; which rows they are is what two full passes say."""
    x, edges = scene.graph()
    pairs, batch = torch.tensor([[1, 2, 3], [4, 5, 1]]), torch.arange(scene.NODES) // 4
    first = {"x": x, "edge_index": edges} | ({} if names is None else {"node_ids": names})
    more = {"pair": {"edge_label_index": pairs}, "graph": {"batch": batch}}.get(of, {})
    called = names or [*range(scene.NODES)]
    events = [{"src": called[k % 12], "dst": called[5 * k % 4]} for k in range(9)]
    model, heard, some = Scores(of).eval(), [], []
    stream = Stream(
        to_incremental(model, backend="reference", check=False), IterableSource(events),
        Schema(), first=first | more, max_size=2,
    )  # fmt: skip
    stream.on(heard.append, changed=1e-9)
    stream.on(some.append, changed=1e-9, nodes=[called[1]])
    graph = stream.inc.graph
    now = (graph["edge_index"] if isinstance(graph, dict) else graph).to_edge_index
    before = model(x, edges, **more).detach()
    while stream.step():
        out = model(x, now(), **more).detach()
        before = torch.cat(
            [before, torch.full((len(out) - len(before), *out.shape[1:]), torch.nan)]
        )
        far = ~((out - before).abs().reshape(len(out), -1) <= 1e-9).all(1)
        told = [alert for alert in heard if alert.version == stream.inc.version]
        assert [alert.node for alert in told] == far.nonzero().flatten().tolist()
        ends = pairs if of == "pair" else now()
        for alert in told:
            if of == "graph":
                assert alert.edge is None
            else:
                assert alert.edge == tuple(called[n] for n in ends[:, alert.node].tolist())
        before = out
    watched = [a for a in heard if called[1] in ((a.node,) if of == "graph" else a.edge)]
    assert keys(some) == keys(watched)
    assert of == "graph" or 0 < len(some) < len(heard)


def test_a_request_that_does_not_fit_the_output_is_refused_at_once():
    stream = stream_of()
    with pytest.raises(UnsupportedModelError, match="say which one"):
        stream.on(crossed=0.5)
    with pytest.raises(IndexError):
        stream.on(crossed=0.5, channel=2)
    stream.on(flipped=True)
    stream.drain()
    assert stream.stats.alerts


class Logistic(torch.nn.Module):
    """Whose output may be probabilities, which `flipped` refuses where it sees that."""

    def __init__(self):
        super().__init__()
        self.conv = GraphConv(3, 1)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index).sigmoid()


def test_a_request_that_raises_costs_the_others_nothing():
    events = [{"src": n, "dst": n + 1} for n in range(4)]
    first = torch.randn(6, 3), torch.tensor([[1], [2]])
    stream, heard = Stream(Logistic().eval(), IterableSource(events), first=first, max_size=2), []
    stream.on(flipped=True)
    stream.on(heard.append, changed=0.0)
    for _ in range(2):
        with pytest.raises(UnsupportedModelError, match="probabilities"):
            stream.step()
    assert stream.step() == 0
    assert stream.stats.events == 4
    assert {alert.node for alert in heard} == {1, 2, 3, 4}
