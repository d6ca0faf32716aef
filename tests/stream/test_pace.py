"""Batches are as large as the deadline allows, by what they took."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import HeteroConv, SAGEConv

from pyg_incremental import to_incremental
from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import HeteroSchema, Schema, Stream
from pyg_incremental.stream.pace import Pace
from tests.stream import scene


def run(pace, offered, seconds, fixed, each, weights=(1.0,)):
    """Events come at a rate; what each waited, by a clock that only batches move.

    Each of them reaches one row, and one more for each unit of its weight, which takes time.
    """
    now, taken, waited, sizes, last, end = 0.0, 0, [], [], 0.0, 0
    weights = np.resize(weights, int(offered * seconds) * 2)
    while now < seconds:
        if taken == end:  # what was read is taken before more is
            end = min(int(now * offered + 1e-6), taken + pace.size(last))
        if taken == end:
            now = (taken + 1) / offered + 1e-9
            continue
        reached = (1 + weights[taken:end]).cumsum()
        size = end - taken
        if pace.most is not None:
            size = max(1, int(np.searchsorted(reached, pace.most, side="right")))
        took = fixed + each * float(weights[taken : taken + size].sum())
        now += took
        pace.note(size, took, 0.0 if pace.most is None else float(reached[size - 1]))
        waits = now - (taken + 1 + np.arange(size)) / offered
        last, taken = float(waits[0]), taken + size
        waited.append(waits)
        sizes.append(size)
    return np.concatenate(waited), sizes


@pytest.mark.parametrize("offered", [100, 5_000, 50_000])
def test_no_event_is_late_where_none_need_be(offered):
    pace = Pace(10_000, 0.01)
    waited, _ = run(pace, offered, 2.0, fixed=2e-4, each=1e-5)
    assert (waited > 0.01).mean() < 0.001


def test_a_burst_is_caught_up_with_by_larger_batches():
    pace = Pace(10_000, 0.005)
    for _ in range(20):
        pace.note(1, 1e-3)
    # Of one event each, ten thousand a second would never be answered.
    waited, sizes = run(pace, 10_000, 3.0, fixed=1e-3, each=2e-5)
    assert max(sizes) >= 15
    assert (waited[waited.size // 2 :] > 0.005).mean() < 0.01


class OfOneSize:
    """Batches of one size, whatever they take."""

    most = None

    def __init__(self, events):
        self._events = events

    def size(self, waited):
        return self._events

    def note(self, events, seconds, reached):
        pass


@pytest.mark.parametrize("offered", [2_000, 8_000])
@pytest.mark.parametrize("price", [1e-4, 2.5e-4, 4.5e-4])
def test_a_batch_by_deadline_is_as_good_as_the_best_size_beside_hubs(price, offered):
    # One event alone takes up to half of the deadline, and the largest hub all of it.
    weights = 1 + np.random.default_rng(0).pareto(1.5, 40_000)
    weights = np.minimum(weights / weights.mean(), 250.0)

    def late(pace):
        return (run(pace, offered, 1.0, price, 4e-6, weights)[0] > 1e-3).mean()

    best = min(late(OfOneSize(size)) for size in (4, 16, 64))
    assert late(Pace(10_000, 1e-3)) <= 1.1 * best + 0.0003


def test_batches_that_are_cheap_are_split_at_a_hub():
    weights = np.ones(100_000)
    weights[2_000::5_000] = 2_500.0  # 10 ms
    _, sizes = run(Pace(10_000, 8e-3), 100_000, 1.0, 1e-4, 4e-6, weights)
    assert 1 in sizes


def test_what_took_long_once_does_not_count_for_ever():
    pace = Pace(1000, 0.01)
    for took in (3.0, 1e-3, 1e-3):  # compiled code was made meanwhile
        pace.note(40, took)
    assert pace.size(0.0) >= 63


def test_without_a_deadline():
    assert Pace(123, None).size(1e9) == 123


def test_a_batch_ends_before_a_hub_that_would_make_it_late():
    n, hub = 60, 0
    x = torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    away = torch.stack([torch.full((n - 1,), hub), torch.arange(1, n)])
    ring = torch.stack([torch.arange(1, n), torch.arange(1, n).roll(1)])
    ends = [*range(1, 21), hub, *range(21, 26)]
    events = [{"src": 40, "dst": end} for end in ends]
    model = scene.sage()
    with Stream(
        to_incremental(model, backend="reference", check=False), IterableSource(events),
        first=(x, torch.cat([away, ring], dim=1)), max_latency=0.3, max_size=8, clock=lambda: 0.0,
    ) as stream:  # fmt: skip
        for _ in range(16):  # an event takes 10 ms, and reaches two rows
            stream._pace.note(1, 0.01, reached=2)
            stream._pace.note(8, 0.08, reached=16)
        steps = [stream.step() for _ in range(7)]
        edges = stream.inc.graph.to_edge_index()
        expected = model(x, torch.cat([away, ring, torch.tensor([[40] * 26, ends])], dim=1))
        assert edges.shape[1] == 2 * (n - 1) + 26
        assert (stream.inc.out - expected).abs().max() < 1e-12
    # The hub reaches 60 rows, which take all of the time.
    assert steps == [8, 8, 4, 1, 3, 2, 0]


def test_events_at_a_hub_count_as_many():
    pace = Pace(10_000, 0.01)
    for _ in range(40):
        pace.note(16, 16e-5, reached=32)  # two rows and ten microseconds each
    assert pace.most == pytest.approx(2 * 1000)
    before = pace.size(0.0)
    for _ in range(20):
        pace.note(1, 5e-3, reached=1000)
    assert pace.size(0.0) > before / 2  # what a hub takes is not what one event takes


RATES = ("user", "rates", "film")


class Pairs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = scene.sage()

    def forward(self, x, edge_index, edge_label_index):
        h = self.inner(x, edge_index)
        u, v = edge_label_index
        return (h[u] * h[v]).sum(-1)


def bipartite():
    return SAGEConv((3, 2), 2).double().eval()


def one_relation():
    return HeteroConv({RATES: bipartite()}).eval()


X, ENDS = (torch.randn(4, 3).double(), torch.randn(9, 2).double()), torch.tensor([[0, 3], [8, 1]])
GRAPHS = {
    "pairs": (Pairs, Schema(), {"x": scene.graph()[0], "edge_index": ENDS,
                                "edge_label_index": torch.tensor([[2, 5], [4, 1]])}),
    "bipartite": (bipartite, Schema(), {"x": X, "edge_index": ENDS}),
    "one relation": (one_relation, HeteroSchema({RATES: Schema()}), {
        "x_dict": dict(zip(("user", "film"), X, strict=True)), "edge_index_dict": {RATES: ENDS}}),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:There exist node types")
@pytest.mark.parametrize("name", GRAPHS)
def test_what_events_reach_in_graphs_of_every_kind(name):
    model, schema, first = GRAPHS[name]
    events = [{"type": "rates", "src": k % 4, "dst": k % 9} for k in range(40)]
    inc = to_incremental(model().eval(), backend="reference", check=False)
    with Stream(
        inc, IterableSource(events), schema, first=first, max_latency=1e3, max_size=8
    ) as stream:
        assert stream.drain() == 40
        assert stream.stats.dead == 0
        assert (stream._pace._reached > 1) == (name == "pairs")  # no edge leads on from a film
    assert inc.verify() < 1e-12
