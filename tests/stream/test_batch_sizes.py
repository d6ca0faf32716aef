"""What a stream makes of its events does not depend on which of them are taken together."""

import random
from decimal import Decimal

import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphConv, HeteroConv, SAGEConv

from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import HeteroSchema, Schema, Stream, Window

NODES = 8
RATES = ("user", "rates", "film")
WEIGHTS = (0.5, 2, np.float32(0.25), Decimal("1.5"), True, [0.75], "heavy", None, [1.0, 2.0])
"""As producers write them: the last three say nothing that can be read."""


def taken(make, size):
    """The stream behind all events, in batches of a size."""
    with make(size) as stream:
        stream.drain()
        return stream


def same(make, graph_of):
    """Hold batches against events one by one."""
    alone = taken(make, 1)
    for size in (2, 7, 1000):
        together = taken(make, size)
        letters = [[letter.position for letter in of.dead_letters] for of in (together, alone)]
        assert letters[0] == letters[1], size
        assert graph_of(together.inc) == graph_of(alone.inc), size
        assert torch.allclose(together.inc.out, alone.inc.out, rtol=0, atol=1e-12)
        assert together.inc.verify() < 1e-10
    return alone


def edges_of(inc):
    pairs, names = inc.graph.to_edge_index().t().tolist(), ("edge_weight", "edge_time")
    data = [inc.edge_data(name).flatten().tolist() for name in names]
    return sorted(zip(map(tuple, pairs), *data, strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_edges_in_a_window_that_come_go_and_change(seed):
    """An edge may have fallen out of the window by the events right before its own."""
    rng, torch_rng = random.Random(seed), torch.Generator().manual_seed(seed)
    which = rng.choice(["newest", "oldest"])
    x = torch.randn(NODES, 3, generator=torch_rng, dtype=torch.float64)
    edges = torch.randint(NODES, (2, 10), generator=torch_rng)
    first = {
        "x": x, "edge_index": edges, "edge_weight": torch.ones(10).double(),
        "edge_time": torch.arange(10.0).double(),
    }  # fmt: skip
    now, events = 10.0, []
    for _ in range(80):
        now += rng.choice([0, 0.5, 1, 4])
        kind = rng.choice(["edge_add", "edge_add", "edge_del", "edge_change"])
        ends = rng.choice([(1, 2), (2, 1), (rng.randrange(NODES), rng.randrange(NODES))])
        at, weight = now - rng.choice([0, 0, 0, 3, 30]), rng.choice(WEIGHTS)
        events.append({"op": kind, "src": ends[0], "dst": ends[1], "at": at, "w": weight})
    schema = Schema(
        kind="op", time="at", edge_data={"edge_weight": "w", "edge_time": "at"}, which=which
    )
    model = GraphConv(3, 2).double().eval()

    def make(size):
        return Stream(
            model, IterableSource(events), schema, first=first, max_size=size,
            window=Window(12.0),
        )  # fmt: skip

    alone = same(make, edges_of)
    assert alone.stats.expired
    assert alone.stats.dead
    assert alone.stats.applied > 15


@pytest.mark.parametrize("seed", range(6))
def test_an_event_that_is_left_out_brings_no_node(seed):
    rng = random.Random(seed)
    names = [f"user {n}" for n in range(12)]
    kinds = ["edge_add", "edge_add", "edge_del"]
    events = [
        {
            "type": "rates", "op": rng.choice(kinds), "src": rng.choice(names),
            "dst": rng.choice([0, 1, 2, 9, -1]),
        }
        for _ in range(60)
    ]  # fmt: skip
    convs = {RATES: SAGEConv((3, 2), 2), ("film", "of", "user"): SAGEConv((2, 3), 2)}
    model = HeteroConv(convs).double().eval()
    of = ("film", "of", "user")
    first = {
        "x_dict": {"user": torch.ones(2, 3).double(), "film": torch.ones(3, 2).double()},
        "edge_index_dict": {
            RATES: torch.tensor([[0, 1], [1, 0]]), of: torch.tensor([[0, 1], [0, 1]])
        },
        "node_ids": {"user": names[:2]},
    }  # fmt: skip
    schema = HeteroSchema({"user": Schema(new_x=[0.0, 1.0, 2.0]), RATES: Schema(kind="op")})

    def make(size):
        return Stream(model, IterableSource(events), schema, first=first, max_size=size)

    def graph_of(inc):
        users = {row: name for name, row in inc.node_rows["user"].items()}
        pairs = inc.graph[RATES].to_edge_index().t().tolist()
        return {*users.values()}, sorted((users[src], dst) for src, dst in pairs)

    with make(1) as alone, make(1000) as together:
        alone.drain()
        together.drain()
        assert graph_of(alone.inc) == graph_of(together.inc)
        dead = [[letter.position for letter in of.dead_letters] for of in (alone, together)]
        assert dead[0] == dead[1]
        assert dead[0]
        assert together.inc.verify() < 1e-10


def test_times_and_nodes_are_no_truth_values():
    events = [
        {"src": 1, "dst": 2, "at": 1.0}, {"src": 1, "dst": 3, "at": True},
        {"src": np.True_, "dst": 3, "at": 1.0}, {"src": 1, "dst": 3, "at": np.True_},
    ]  # fmt: skip
    first = {"x": torch.ones(4, 3), "edge_index": torch.ones(2, 1, dtype=torch.int64)}
    first["edge_time"] = torch.zeros(1)
    schema = Schema(time="at", edge_data={"edge_time": "at"})
    for size in (1, 100):
        with Stream(
            GraphConv(3, 2).eval(), IterableSource(events), schema, first=first, max_size=size,
            window=Window(5.0),
        ) as stream:  # fmt: skip
            stream.drain()
            assert [letter.position for letter in stream.dead_letters] == [2, 3, 4]


class Closed:
    """A row of a driver that can be read no more."""

    def __init__(self, error):
        self.error = error

    def __getitem__(self, name):
        raise self.error


def test_what_cannot_be_read_does_not_stop_a_stream():
    """Whatever it raises; but a connection that is lost may be there again."""
    first = torch.ones(4, 3), torch.ones(2, 1, dtype=torch.int64)
    events = [Closed(RuntimeError("closed")), {"src": 1, "dst": 2}]
    stream = Stream(GraphConv(3, 2).eval(), IterableSource(events), first=first)
    assert stream.step() == 2
    assert [letter.reason for letter in stream.dead_letters] == ["RuntimeError: closed"]
    lost = Closed(ConnectionError("lost"))
    stream = Stream(GraphConv(3, 2).eval(), IterableSource([lost]), first=first)
    with pytest.raises(ConnectionError):
        stream.step()
    lost.error = RuntimeError("closed")
    assert stream.step() == 1


def test_integers_of_numpy_are_integers():
    """As ids of nodes, as names, and as names of events."""
    named = [("a", np.int64(7)), (np.str_("a"), 7), (np.int32(7), "a")]
    events = [{"src": src, "dst": dst, "id": np.int64(n % 2)} for n, (src, dst) in enumerate(named)]
    first = {"x": torch.ones(2, 3), "edge_index": torch.ones(2, 1, dtype=torch.int64)}
    first["node_ids"] = ["a", 7]
    for size in (1, 100):
        schema = Schema(event_id="id")
        model = GraphConv(3, 2).eval()
        with Stream(model, IterableSource(events), schema, first=first, max_size=size) as stream:
            stream.drain()
            assert stream.inc.graph.to_edge_index().t().tolist() == [[1, 1], [0, 1], [0, 1]]
            assert (stream.stats.repeated, stream.stats.dead) == (1, 0)
    del first["node_ids"]
    ids = [(np.uint64(0), 1), (0, np.uint8(1)), (2**63, 1), (np.uint64(2**63), 1), (-1, 1)]
    events = [{"src": src, "dst": dst} for src, dst in ids]
    for size in (1, 100):
        with Stream(model, IterableSource(events), first=first, max_size=size) as stream:
            stream.drain()
            assert stream.inc.graph.to_edge_index().t().tolist() == [[1, 1], [0, 1], [0, 1]]
            assert [letter.position for letter in stream.dead_letters] == [3, 4, 5]
