"""Batches are as large as the deadline allows, by what they took."""

import pytest
import torch
from torch_geometric.nn import HeteroConv, SAGEConv

from pyg_incremental import to_incremental
from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import HeteroSchema, Schema, Stream
from pyg_incremental.stream.pace import Pace
from tests.stream import scene


def run(pace, offered, seconds, fixed, each):
    """Events come at a rate; what each waited, by a clock that only batches move."""
    now, taken, waited, sizes, last = 0.0, 0, [], [], 0.0
    while now < seconds:
        there = int(now * offered + 1e-6) - taken
        if there < 1:
            now = (taken + 1) / offered + 1e-9
            continue
        size = min(pace.size(last), there)
        took = fixed + each * size
        now += took
        pace.note(size, took)
        waits = [now - (taken + k + 1) / offered for k in range(size)]
        last, taken = waits[0], taken + size
        waited += waits
        sizes.append(size)
    return waited, sizes


@pytest.mark.parametrize("offered", [100, 5_000, 50_000])
def test_no_event_is_late_where_none_need_be(offered):
    pace = Pace(10_000, 0.01)
    waited, _ = run(pace, offered, 2.0, fixed=2e-4, each=1e-5)
    late = sum(w > 0.01 for w in waited) / len(waited)
    assert late < 0.001


def test_a_burst_is_caught_up_with_by_larger_batches():
    pace = Pace(10_000, 0.005)
    for _ in range(20):
        pace.note(1, 1e-3)
    # Of one event each, ten thousand a second would never be answered.
    waited, sizes = run(pace, 10_000, 3.0, fixed=1e-3, each=2e-5)
    assert max(sizes) >= 15
    assert sum(w > 0.005 for w in waited[len(waited) // 2 :]) / len(waited) < 0.01


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
    ends = [*range(1, 25), hub, *range(25, 30)]
    events = [{"src": 40, "dst": end} for end in ends]
    model = scene.sage()
    with Stream(
        to_incremental(model, backend="reference", check=False), IterableSource(events),
        first=(x, torch.cat([away, ring], dim=1)), max_latency=1e3, max_size=8,
    ) as stream:  # fmt: skip
        steps = [stream.step() for _ in range(6)]
        edges = stream.inc.graph.to_edge_index()
        expected = model(x, torch.cat([away, ring, torch.tensor([[40] * 30, ends])], dim=1))
        assert edges.shape[1] == 2 * (n - 1) + 30
        assert (stream.inc.out - expected).abs().max() < 1e-12
    # The first batch is not weighed by anything yet. The hub reaches 60 rows, the others two each.
    assert steps == [8, 8, 8, 1, 5, 0]


def test_events_at_a_hub_count_as_many():
    pace = Pace(10_000, 0.01)
    for _ in range(40):
        pace.note(16, 16e-5, reached=32)  # two rows and ten microseconds each
    assert pace.most(100) == pytest.approx(400)
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
