"""Features that are made of events are those of a plain count over the edges that are there."""

import math
import random

import pytest
import torch
from torch_geometric.nn import GraphSAGE

from pyg_incremental import GraphDelta, IncrementalError, to_incremental
from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import Feature, Schema, Stream, Window
from tests.stream import scene

CHANNELS = 7
DECLARED = [
    Feature(1, "count"),
    Feature(2, "sum", of="w", at="src"),
    Feature(3, "last", of="w", at="both"),
    Feature(4, "decayed", of="w", half_life=4.0),
    Feature(5, "count", at="both", within=10.0),
    Feature(6, "sum", of="v", within=20.0),
]
SCHEMA = Schema(kind="kind", time="at", features=DECLARED, edge_data={"edge_time": "at"})


class Plain:
    """A list of edges, and rows that are made anew of all of them."""

    def __init__(self, x, edges, *, undirected=False, window=None):
        self.x = dict(enumerate(x.tolist()))
        self.edges = [(u, v, None) for u, v in edges.t().tolist()]
        self.undirected, self.window, self.latest = undirected, window, -math.inf
        self.refused, self.new_x = [], None

    def take(self, place, event):
        if self.window and event["at"] < begin(self.window, self.latest):
            self.refused.append(place)
            return
        self._take(place, event)
        if self.window:
            begins = begin(self.window, self.latest)
            self.edges = [e for e in self.edges if (e[2]["at"] if e[2] else 0.0) >= begins]

    def _take(self, place, event):
        kind, pair = event["kind"], (event.get("src"), event.get("dst"))
        if kind == "node":
            self._node(place, event)
            return
        at = [n for n, e in enumerate(self.edges) if e[2] is not None or e[:2] == pair]
        at = [n for n in at if self._is(self.edges[n], pair)]
        nodes = [event["node"]] if kind == "node_del" else pair
        if kind == "edge_add" and self.new_x is not None:
            for node in pair:
                self.x.setdefault(node, self.new_x)
        if any(n not in self.x for n in nodes) or (kind in ("edge_del", "edge_change") and not at):
            self.refused.append(place)
            return
        self.latest = max(self.latest, event["at"])
        if kind == "edge_add":
            self.edges.append((*pair, event))
        elif kind == "edge_del":
            del self.edges[at[-1]]
        elif kind == "edge_change" and self.edges[at[-1]][2] is not None:
            self.edges[at[-1]] = (*self.edges[at[-1]][:2], event)
        elif kind == "node_del":
            self.edges = [e for e in self.edges if event["node"] not in e[:2]]
            self.x[event["node"]] = [0.0] * CHANNELS
            if self.new_x is not None:  # a name goes with its node
                del self.x[event["node"]]

    def _is(self, edge, pair):
        return edge[:2] == pair or (self.undirected and edge[:2] == pair[::-1])

    def _node(self, place, event):
        node = event["node"]
        if self.new_x is None and node > len(self.x):
            self.refused.append(place)
            return
        self.latest = max(self.latest, event["at"])
        own = {f.channel for f in DECLARED} if node in self.x else set()
        was = self.x.get(node)
        self.x[node] = [was[c] if c in own else v for c, v in enumerate(event["x"])]

    def rows(self):
        for node, row in self.x.items():
            made = list(row)
            for f in DECLARED:
                parts = [
                    (e["at"], n, e) for n, (u, v, e) in enumerate(self.edges) if e is not None
                    and node in {"src": [u], "dst": [v], "both": [u, v]}[f.at]
                    and (f.within is None or e["at"] >= begin(f.within, self.latest))
                ]  # fmt: skip
                parts.sort(key=lambda p: p[:2])
                made[f.channel] = self._value(f, parts, row[f.channel])
            yield made

    def _value(self, f, parts, base):
        if f.what == "count":
            return base + len(parts)
        if f.what == "last":
            return parts[-1][2][f.of] if parts else base
        faded = [
            e[f.of] * (0.5 ** ((parts[-1][0] - at) / f.half_life) if f.half_life else 1.0)
            for at, _, e in parts
        ]
        return base + sum(faded)


def begin(length, latest):
    if latest == -math.inf:
        return latest
    return math.floor((latest - length) / (length / 100)) * (length / 100)


def graph(seed):
    torch.manual_seed(seed)
    return torch.randn(scene.NODES, CHANNELS).double(), torch.randint(scene.NODES, (2, 20))


def model():
    torch.manual_seed(0)
    return GraphSAGE(CHANNELS, 4, num_layers=2, out_channels=2).double().eval()


def called(x, edges):
    inc = to_incremental(model(), backend="reference", check=False)
    inc(x, edges, edge_time=torch.zeros(edges.shape[1]).double())
    return inc


def events_of(seed, count, kinds, ordered=False):
    rng, found, nodes = random.Random(seed), [], scene.NODES
    for n in range(count):
        kind = rng.choice(kinds)
        event = {"kind": kind, "at": n / 3 - (0 if ordered else rng.choice([0, 0, 1.5, 6.0]))}
        if kind.startswith("edge"):
            event |= {"src": rng.randrange(nodes), "dst": rng.randrange(4)}
            event |= {"w": rng.gauss(0, 10.0), "v": rng.choice([0.1, 1e8, 1e-8])}
        else:
            event["node"] = rng.randrange(nodes + 1)
            if kind == "node":
                event["x"] = [rng.gauss(0, 1) for _ in range(CHANNELS)]
                nodes = max(nodes, event["node"] + 1)
            event["node"] = min(event["node"], nodes - 1)
        found.append(event)
    return found


KINDS = ["edge_add"] * 5 + ["edge_del"] * 2 + ["edge_change", "node", "node_del"]


def held_against(stream, plain, events, since=0):
    stream.drain()
    for place, event in enumerate(events, 1):
        plain.take(place, event)
    want = torch.tensor([*plain.rows()], dtype=torch.float64)
    assert {letter.position for letter in stream.dead_letters} == {
        place for place in plain.refused if place > since
    }
    assert (stream.inc.x - want).abs().max() < 1e-7, (stream.inc.x - want).abs().max()
    edges = stream.inc.graph.to_edge_index()
    assert (stream.inc.out - stream.inc.model(want, edges)).abs().max() < 1e-7


@pytest.mark.parametrize("size", [1, 6, 100])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("undirected", [False, True])
def test_random_streams(seed, size, undirected):
    x, edges = graph(seed)
    if undirected:
        edges = edges[:, :0]
    events = events_of(seed, 90, KINDS)
    inc = called(x, edges)
    schema = Schema(
        kind="kind", time="at", features=DECLARED, undirected=undirected,
        edge_data={"edge_time": "at"},
    )  # fmt: skip
    stream = Stream(inc, IterableSource(events), schema, max_size=size)
    held_against(stream, Plain(x, edges, undirected=undirected), events)
    assert stream.stats.dead


@pytest.mark.parametrize(("size", "kinds"), [(1, KINDS), (8, ["edge_add"] * 4 + ["node"])])
@pytest.mark.parametrize("seed", range(3))
def test_edges_that_fall_out_of_the_window(seed, size, kinds):
    x, edges = graph(seed)
    events = events_of(seed, 90, kinds)
    stream = Stream(
        called(x, edges), IterableSource(events), SCHEMA, max_size=size,
        window=Window(12.0, every=0.12),
    )  # fmt: skip
    held_against(stream, Plain(x, edges, window=12.0), events)
    assert stream.stats.expired > 10


@pytest.mark.parametrize("size", [1, 9])
def test_nodes_by_name(size):
    names = [f"n{k}" for k in range(scene.NODES)]
    x, edges = graph(1)
    inc = to_incremental(model(), backend="reference", check=False)
    inc(x, edges, edge_time=torch.zeros(edges.shape[1]).double(), node_ids=names)
    schema = Schema(
        kind="kind", time="at", features=DECLARED, new_x=[2.0] * CHANNELS,
        edge_data={"edge_time": "at"},
    )  # fmt: skip
    events = events_of(3, 120, ["edge_add"] * 5 + ["edge_del"] * 2 + ["node", "node_del"])
    for event in events:
        event |= {k: f"n{event[k]}" for k in ("src", "dst", "node") if k in event}
    events.insert(30, {**events[0], "kind": "edge_add", "src": "new", "dst": "n1", "at": 9.0,
                       "w": 1.0, "v": 1.0})  # fmt: skip
    plain = Plain(torch.zeros(0, CHANNELS), edges[:, :0])
    plain.x = dict(zip(names, x.tolist(), strict=True))
    plain.edges = [(names[u], names[v], None) for u, v in edges.t().tolist()]
    plain.new_x = [2.0] * CHANNELS
    with Stream(inc, IterableSource(events), schema, max_size=size) as stream:
        stream.drain()
    for place, event in enumerate(events, 1):
        plain.take(place, event)
    assert {letter.position for letter in stream.dead_letters} == {*plain.refused}
    want = dict(zip(plain.x, plain.rows(), strict=True))
    assert len(want) > scene.NODES - 5
    for name, row in want.items():
        found = stream.inc.x[stream.inc.node_rows[name]]
        assert (found - torch.tensor(row, dtype=torch.float64)).abs().max() < 1e-7, name


@pytest.mark.parametrize("cut", [1, 40, 77])
def test_a_restart_goes_on_with_what_was_made(tmp_path, cut):
    x, edges = graph(2)
    events = events_of(2, 90, KINDS)
    first = {"x": x, "edge_index": edges, "edge_time": torch.zeros(edges.shape[1]).double()}
    window = Window(12.0, every=0.12)
    for end in (cut, len(events)):
        stream = Stream(
            model(), IterableSource(events[:end]), SCHEMA, max_size=1, first=first, window=window,
            directory=tmp_path,
        )  # fmt: skip
        stream.drain()
        if end == cut:
            stream.close()
    held_against(stream, Plain(x, edges, window=12.0), events, since=cut)
    stream.close()
    other = Schema(kind="kind", time="at", features=DECLARED[:1], edge_data={"edge_time": "at"})
    with pytest.raises(IncrementalError, match="written with other features"):
        Stream(model(), IterableSource(events), other, first=first, directory=tmp_path)


def test_what_the_model_refuses_counts_nowhere():
    """A batch fails as a whole first, and its events are tried apart."""
    x, edges = graph(0)
    inc = called(x, edges)
    events = events_of(0, 60, KINDS)
    apply, plain = inc.apply_delta, Plain(x, edges)

    def fussy(delta, **options):
        if delta.edge_index_add is not None and (delta.edge_index_add == 3).any():
            raise RuntimeError("not node 3")
        return apply(delta, **options)

    inc.apply_delta = fussy
    stream = Stream(inc, IterableSource(events), SCHEMA, max_size=16)
    stream.drain()
    dead = {letter.position for letter in stream.dead_letters}
    assert any("not node 3" in letter.reason for letter in stream.dead_letters)
    for place, event in enumerate(events, 1):
        if place not in dead:
            plain.take(place, event)
    want = torch.tensor([*plain.rows()], dtype=torch.float64)
    assert (inc.x - want).abs().max() < 1e-7


@pytest.mark.parametrize("size", [1, 4])
def test_of_a_new_node_the_first_row_counts(size):
    """Also where it comes with an edge that is gone before the batch ends."""
    x, edges = graph(0)
    inc = to_incremental(model(), check=False)
    names = [f"n{k}" for k in range(scene.NODES)]
    inc(x, edges, node_ids=names)
    rows = [{"kind": "node", "node": "b", "x": [v] * CHANNELS} for v in (4.0, 5.0)]
    pair = {"src": "a", "dst": "n1"}
    events = [{"kind": k, **pair} for k in ("edge_add", "edge_del")]
    events += [{**rows[1], "node": "a"}, *rows]
    schema = Schema(kind="kind", features=[Feature(0, "count")], new_x=[3.0] * CHANNELS)
    Stream(inc, IterableSource(events), schema, max_size=size).drain()
    at = inc.node_rows
    assert inc.x[at["a"]].tolist() == [3.0] + [5.0] * (CHANNELS - 1)
    assert inc.x[at["b"]].tolist() == [4.0] + [5.0] * (CHANNELS - 1)


def test_a_sum_is_exact_whatever_came_and_left():
    events = [{"src": 0, "dst": 1, "w": w, "kind": "edge_add"} for w in (1e20, 0.1, 0.2)]
    events += [{"src": 0, "dst": 1, "kind": "edge_del"}] * 2
    events.insert(3, {"src": 2, "dst": 1, "w": 0.7, "kind": "edge_add"})
    x, edges = torch.zeros(4, CHANNELS).double(), torch.zeros(2, 0, dtype=torch.long)
    inc = to_incremental(model(), check=False)
    inc(x, edges)
    schema = Schema(kind="kind", features=[Feature(0, "sum", of="w")])
    stream = Stream(inc, IterableSource(events), schema, max_size=1)
    stream.drain()
    assert inc.x[1, 0] == math.fsum([1e20, 0.7])
    inc_events = [{"src": 0, "dst": 1, "kind": "edge_del"}]
    stream = Stream(inc, IterableSource([*events, *inc_events]), schema, max_size=1)
    assert stream.drain() == 7


def test_what_does_not_go_together():
    with pytest.raises(ValueError, match="what: expected"):
        Feature(0, "mean")
    with pytest.raises(ValueError, match="at: expected"):
        Feature(0, "count", at="from")
    with pytest.raises(ValueError, match="channel: expected"):
        Feature(-1, "count")
    with pytest.raises(ValueError, match="of: 'sum' needs it"):
        Feature(0, "sum")
    with pytest.raises(ValueError, match="of: 'count' has none"):
        Feature(0, "count", of="w")
    with pytest.raises(ValueError, match="half_life: 'decayed' needs it"):
        Feature(0, "decayed", of="w")
    with pytest.raises(ValueError, match="within: expected"):
        Feature(0, "count", within=0.0)
    with pytest.raises(ValueError, match="need the field of the event time"):
        Schema(features=[Feature(0, "count", within=2.0)])
    with pytest.raises(ValueError, match="one for each channel"):
        Schema(features=[Feature(0, "count")] * 2)
    with pytest.raises(ValueError, match="expected which='newest'"):
        Schema(features=[Feature(0, "count")], which="oldest")
    with pytest.raises(ValueError, match="expected channels of x, which has 7"):
        Stream(model(), IterableSource([]), Schema(features=[Feature(7, "count")]), first=graph(0))


def test_a_delta_from_the_source_and_a_field_that_is_not_there():
    x, edges = graph(0)
    events = [GraphDelta(torch.tensor([[0], [1]])), {"src": 0, "dst": 1}]
    schema = Schema(features=[Feature(0, "sum", of="w")])
    stream = Stream(called(x, edges), IterableSource(events), schema)
    stream.drain()
    why = [letter.reason for letter in stream.dead_letters]
    assert "this one is a GraphDelta" in why[0]
    assert "there is no field 'w'" in why[1]
    assert torch.equal(stream.inc.x, x)


@pytest.mark.parametrize("beside", [
    lambda inc: inc.apply_delta(edge_index_add=torch.tensor([[2], [3]])),
    lambda inc: inc.compact(), lambda inc: inc(*graph(1)),
], ids=["a delta", "compacted", "called"])  # fmt: skip
def test_what_the_model_took_beside_the_stream_is_noticed(beside):
    """Features would count edges that are not there, or write into rows of others."""
    events = [{"src": 0, "dst": 1}, {"src": 1, "dst": 2}]
    schema = Schema(features=[Feature(0, "count")])
    inc = to_incremental(model(), backend="reference", check=False)
    stream = Stream(inc, IterableSource(events), schema, first=graph(0), max_size=1)
    assert stream.step() == inc.version == 1
    beside(inc)
    with pytest.raises(IncrementalError, match=r"stream\.inc took something else"):
        stream.drain()
