"""What is too old leaves, as deletions that the oracle knows, too."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphConv, SAGEConv

from pyg_incremental import InvalidDeltaError, to_incremental
from tests.closeness import assert_close

NODES, CHANNELS = 10, 3


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv(CHANNELS, 4), SAGEConv(4, 2)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Timed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GraphConv(CHANNELS, 4)

    def forward(self, x, edge_index, edge_time):
        return self.conv(x, edge_index, (-edge_time).exp())


@pytest.mark.parametrize("named", [False, True], ids=["rows", "names"])
@pytest.mark.parametrize("make", [Plain, Timed])
def test_edges_of_a_window(seed, make, named, tmp_path):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    x = torch.from_numpy(rng.standard_normal((NODES, CHANNELS)))
    edges = torch.from_numpy(rng.integers(NODES, size=(2, 40)))
    times = torch.from_numpy(rng.integers(0, 6, 40) / 2)  # many are equal
    model = make().double().eval()
    inc = to_incremental(model, compile_after=2)
    names = np.array([f"n{i}" for i in range(NODES)], object)
    inc(x, edges, edge_time=times, **({"node_ids": names} if named else {}))

    def want():
        return model(x, edges, *([times] if make is Timed else []))

    for turn in range(12):
        new = torch.from_numpy(rng.integers(NODES, size=(2, 4)))
        when = torch.from_numpy(turn / 2 + rng.integers(0, 6, 4) / 2)
        edges, times = torch.cat([edges, new], 1), torch.cat([times, when])
        given = names[new.numpy()] if named else new
        inc.apply_delta(edge_index_add=given, edge_data_add={"edge_time": when})
        before = inc.out.clone()
        if turn % 2:
            up, stays = inc.expire(keep=2.0, old=True), times >= times.max() - 2
        else:
            up, stays = inc.expire(before=turn / 2, undo=True), times >= turn / 2
            inc.apply_delta(up.undo)
            assert_close(inc.out, want())
            inc.expire(turn / 2)
        assert up.stats.edges_deleted == int((~stays).sum())
        edges, times = edges[:, stays], times[stays]
        assert_close(inc.out, want())
        assert inc.num_edges == edges.shape[1]
        rows = torch.arange(NODES) if up.changed.size == 0 else up.rows if named else up.changed
        same = torch.ones(NODES, dtype=torch.bool)
        same[rows] = False
        if turn % 2:
            assert torch.equal(inc.out[same], before[same])
        assert not inc.check()
    assert inc.mode == "incremental"
    assert inc.verify().is_fine
    version = inc.version
    inc.save(tmp_path / "state")
    again = type(inc).load(tmp_path / "state", model)
    again.expire(before=1e9)
    assert again.num_edges == 0
    assert inc.expire(before=-1).stats.edges_deleted == 0
    assert inc.version == version + 1
    inc.refresh()
    inc.compact()
    assert len(inc.edge_data("edge_time")) == inc.num_edges


@pytest.mark.parametrize("named", [False, True], ids=["rows", "names"])
def test_nodes_with_a_time(seed, named):
    torch.manual_seed(seed)
    model = Plain().double().eval()
    x, times = torch.randn(NODES, CHANNELS).double(), torch.arange(1, NODES + 1)
    edges = torch.stack([torch.arange(NODES), (torch.arange(NODES) + 1) % NODES])
    inc = to_incremental(model)
    names = {"node_ids": [f"n{i}" for i in range(NODES)]} if named else {}
    inc(x, edges, node_time=times, **names)
    inc.expire(before=4, by="node_time")
    kept = edges[:, (edges >= 3).all(0)]
    assert_close(inc.out, model(torch.where(times[:, None] < 4, 0.0, x), kept))
    for _ in range(2):
        assert inc.expire(before=4, by="node_time").stats.edges_deleted == 0
    row, name = torch.randn(1, CHANNELS).double(), {"node_ids": ["new"]} if named else {}
    inc.apply_delta(x_add={"x": row, "node_time": torch.tensor([20])}, **name)
    assert inc.num_nodes == (NODES if named else NODES + 1)
    inc.expire(keep=10, by="node_time")
    assert inc.num_edges == 0
    assert inc.verify().is_fine


def test_types(seed):
    class Typed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv((2, CHANNELS), 4)

        def forward(self, x_dict, edge_index_dict):
            return self.conv((x_dict["a"], x_dict["b"]), edge_index_dict["a", "to", "b"])

    key = ("a", "to", "b")
    x = {"a": torch.randn(3, 2), "b": torch.randn(2, CHANNELS)}
    edges, times = torch.tensor([[0, 1, 2], [1, 1, 0]]), torch.tensor([1.0, 2.0, 3.0])
    model = Typed().eval()
    inc = to_incremental(model)
    inc(x, {key: edges}, edge_time={key: times})
    inc.expire(before=2.5)
    assert_close(inc.out, model(x, {key: edges[:, 2:]}))


def test_what_is_asked_for_is_said(seed):
    inc = to_incremental(Plain().eval())
    inc(torch.randn(4, CHANNELS), torch.tensor([[0, 1], [1, 2]]))
    for fields, text in (
        ({}, "either a time"),
        ({"before": 1, "keep": 2}, "either a time"),
        ({"before": 1}, "there is no 'edge_time'"),
        ({"before": 1, "by": "x"}, "one number each"),
    ):
        with pytest.raises(InvalidDeltaError, match=text):
            inc.expire(**fields)
