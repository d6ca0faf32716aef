"""Some random calls, and what users call their models with, by hand."""

import copy

import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData, TemporalData
from torch_geometric.nn import GraphConv, HeteroConv, SAGEConv, global_add_pool

from pyg_incremental import load, to_incremental
from pyg_incremental.errors import InvalidDeltaError, UnsupportedModelError
from tests.fuzz.calls.report import Report
from tests.fuzz.calls.trial import difference, run

CALLS = 12  # about five seconds
WRITES, REV = ("user", "writes", "post"), ("post", "rev", "user")


def test_random_calls_are_answered_as_by_the_model(seed):
    report = Report()
    for number in range(CALLS):
        report.take(number, run(1_000_000 * (seed + 1) + number))
    assert not report.wrong, report
    assert report.kinds["right"] > 0.8 * CALLS, report
    assert report.deltas > 2 * CALLS


def shop():
    """Two types of nodes, with times; edges with ratings; seeds."""
    g = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["user"].x = torch.randn(30, 3, generator=g, dtype=torch.float64)
    data["post"].x = torch.randn(20, 5, generator=g, dtype=torch.float64)
    for kind, count in (("user", 30), ("post", 20)):
        data[kind].time = torch.rand(count, generator=g, dtype=torch.float64)
    data["post"].batch_size = 6
    ends = [torch.randint(n, (60,), generator=g) for n in (30, 20)]
    data[WRITES].edge_index = torch.stack(ends)
    data[REV].edge_index = data[WRITES].edge_index.flip(0)
    data[WRITES].rating = torch.rand(60, generator=g, dtype=torch.float64)
    return data


def graph(**more):
    g = torch.Generator().manual_seed(1)
    return Data(
        x=torch.randn(30, 3, generator=g, dtype=torch.float64),
        edge_index=torch.randint(30, (2, 60), generator=g),
        time=torch.rand(30, generator=g, dtype=torch.float64),
        **more,
    )


class Times(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = HeteroConv({WRITES: SAGEConv((3, 5), 4), REV: SAGEConv((5, 3), 4)})

    def forward(self, data):
        x = dict(data.x_dict)
        for kind in x:
            if "time" in data[kind]:
                x[kind] = x[kind] * data[kind].time.view(-1, 1)
        return self.conv(x, data.edge_index_dict)["post"]


class Rating(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GraphConv((3, 5), 4)

    def forward(self, data):
        store = data[WRITES]
        x = data["user"].x, data["post"].x
        return self.conv(x, store.edge_index, store.get("rating"))


class Seeds(Rating):
    def forward(self, data):
        return super().forward(data)[: data["post"].get("batch_size")]


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(3, 4)

    def forward(self, data):
        time = data.get("time")
        x = data.x if time is None else data.x * time.view(-1, 1)
        return self.conv(x, data.edge_index) * getattr(data, "scale", 1.0)


class Named(Scaled):
    def forward(self, batch):
        return super().forward(batch)


class Hinted(Scaled):
    def forward(self, x: Data):
        return super().forward(x)


def start(model, *args, **kwargs):
    torch.manual_seed(2)
    model = model().double().eval()
    inc = to_incremental(model)
    out = inc(*args, **kwargs)
    data = [*args, *kwargs.values()][0]
    with torch.no_grad():
        assert difference(out, model(copy.copy(data))) < 1e-12
    return inc, model


@pytest.mark.parametrize("model", [Times, Rating, Seeds])
@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")  # a slice of rows
def test_fields_of_types_reach_the_model(model):
    data = shop()
    inc, original = start(model, data)
    assert inc.mode == "incremental"
    new = torch.tensor([[0, 1], [2, 3]])
    rating = torch.rand(2, dtype=torch.float64)
    inc.apply_delta(
        edge_index_add={WRITES: new},
        edge_data_add={WRITES: {"rating": rating}},
        x_changes={"post": {"time": ([4], torch.tensor([7.0], dtype=torch.float64))}},
    )
    data[WRITES].edge_index = torch.cat([data[WRITES].edge_index, new], 1)
    data[WRITES].rating = torch.cat([data[WRITES].rating, rating])
    data["post"].time[4] = 7.0
    with torch.no_grad():
        assert difference(inc.out, original(data)) < 1e-12
    assert inc.verify() < 1e-12


@pytest.mark.parametrize("model", [Scaled, Named, Hinted])
@pytest.mark.parametrize("by_name", [False, True])
def test_an_object_goes_by_any_name(model, by_name):
    data = graph(scale=3.0, y=torch.arange(30))
    name = {Scaled: "data", Named: "batch", Hinted: "x"}[model]
    inc, original = start(model, **{name: data}) if by_name else start(model, data)
    assert inc.mode == "incremental"
    data.x[3] = 1.0
    inc.apply_delta(x_changes={"x": ([3], torch.ones(1, 3, dtype=torch.float64))})
    assert difference(inc.out, original(data).detach()) < 1e-12


def test_a_field_that_is_read_is_needed_for_new_nodes_and_no_other():
    inc, _ = start(Scaled, graph(y=torch.arange(30)))
    row, time = torch.ones(1, 3, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    with pytest.raises(InvalidDeltaError, match=r"new nodes would need rows of \['time'\]"):
        inc.apply_delta(x_add={"x": row})
    inc.apply_delta(x_add={"x": row, "time": time})
    inc.apply_delta(x_add={"x": row, "time": time, "y": torch.tensor([1])})
    inc.apply_delta(x_changes={"y": ([0], torch.tensor([5]))})
    assert inc.out.shape[0] == 32
    assert inc.verify() < 1e-12


class Aside(Scaled):
    def forward(self, data):
        return self.conv(data.x, data.edge_index), data.time.exp()


def test_where_there_are_as_many_edges_as_nodes_the_model_tells_or_the_user():
    data = graph()
    data.edge_index = data.edge_index[:, :30]
    inc, original = start(Scaled, data)
    assert str(inc.roles["time"]) == "node"
    inc.apply_delta(edge_index_del=data.edge_index[:, -1:])
    data.edge_index = data.edge_index[:, :-1]
    assert difference(inc.out, original(data).detach()) < 1e-12
    data = graph()
    data.edge_index = data.edge_index[:, :30]
    with pytest.raises(InvalidDeltaError, match=r"'time' has 30 rows.*roles={'time': 'edge'}"):
        to_incremental(Aside().double().eval())(data)
    inc = to_incremental(Aside().double().eval(), roles={"time": "node"})
    inc(data)
    inc.apply_delta(edge_index_del=data.edge_index[:, -1:])
    assert inc.out[1].shape == (30,)


class Passed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(3, 4)

    def forward(self, batch):
        batch.x = self.conv(batch.x, batch.edge_index)
        return batch


def test_a_batch_in_is_the_same_batch_out():
    data = graph(y=torch.arange(30), name="g")
    inc, original = start(Passed, data)
    assert inc.mode == "incremental"
    inc.apply_delta(edge_index_del=data.edge_index[:, -1:])
    data.edge_index = data.edge_index[:, :-1]
    with torch.no_grad():
        expected = original(copy.copy(data))
    for out in (inc.out, inc.read().out):
        assert list(out.keys()) == list(expected.keys())
        assert difference(out, expected) < 1e-12
    assert data.x.shape == (30, 3), "the user's object is not touched"


class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(3, 4)

    def forward(self, data):
        return global_add_pool(self.conv(data.x, data.edge_index), data.batch, data.num_graphs)


def test_the_number_of_graphs_follows_them():
    inc, _ = start(Pooled, Batch.from_data_list([graph(), graph()]))
    assert inc.mode == "incremental"
    inc.apply_delta(x_add={"x": torch.ones(1, 3, dtype=torch.float64), "batch": torch.tensor([2])})
    assert inc.out.shape == (3, 4)
    assert inc.verify() < 1e-12


class Doubtful(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(3, 4)

    def forward(self, data):
        x = data.x * data.time.view(-1, 1) if data.edge_index.shape[1] > 80 else data.x
        return self.conv(x, data.edge_index)


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
def test_a_field_that_is_read_later_is_no_old_value():
    inc, _ = start(Doubtful, graph())
    before = inc.out.clone()
    with pytest.raises(UnsupportedModelError, match=r"reads 'time' of its object on this graph"):
        inc.apply_delta(edge_index_add=torch.randint(30, (2, 30)))
    assert torch.equal(inc.out, before)


def test_a_saved_state_holds_the_object(tmp_path):
    data = graph(scale=3.0, y=torch.arange(30))
    inc, original = start(Scaled, data)
    inc.save(tmp_path / "state")
    again = load(tmp_path / "state", original)
    again.apply_delta(edge_index_del=data.edge_index[:, :1])
    inc.apply_delta(edge_index_del=data.edge_index[:, :1])
    assert difference(again.out, inc.out) == 0.0
    assert again.verify() < 1e-12


class Own(Data):
    pass


def test_a_class_of_the_users_own_is_not_saved(tmp_path):
    data = Own(**graph().to_dict())
    inc, _ = start(Scaled, data)
    with pytest.raises(UnsupportedModelError, match="cannot be saved without code"):
        inc.save(tmp_path / "state")


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(3, 4)

    def forward(self, one, other):
        return self.conv(one.x, one.edge_index), self.conv(other.x, other.edge_index)


def test_two_objects_are_two_sets_of_nodes():
    one, other = graph(), graph()
    other.x = other.x[:20]
    other.edge_index = other.edge_index % 20
    model = Two().double().eval()
    inc = to_incremental(model)
    inc(one, other)
    inc.apply_delta(x_changes={"other": ([0], torch.ones(1, 3, dtype=torch.float64))})
    other.x[0] = 1.0
    with torch.no_grad():
        assert difference(inc.out, model(one, other)) < 1e-12


class Events(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GraphConv(3, 4)

    def forward(self, x, events):
        return self.conv(x, events.edge_index, events.t)


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")  # a stack
def test_events_are_edges():
    g = torch.Generator().manual_seed(3)
    src, dst = torch.randint(10, (2, 20), generator=g)
    t = torch.rand(20, dtype=torch.float64)
    x = torch.randn(10, 3, dtype=torch.float64)
    model = Events().double().eval()
    inc = to_incremental(model)
    inc(x, TemporalData(src=src, dst=dst, t=t))
    inc.apply_delta(edge_index_add=torch.tensor([[1], [2]]), edge_data_add={"t": t[:1]})
    src, dst = torch.cat([src, torch.tensor([1])]), torch.cat([dst, torch.tensor([2])])
    now = TemporalData(src=src, dst=dst, t=torch.cat([t, t[:1]]))
    with torch.no_grad():
        assert difference(inc.out, model(x, now)) < 1e-12
