"""Arguments that are neither of nodes nor of edges, and change: now, a temperature, a threshold."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, SAGEConv

from pyg_incremental import GraphDelta, IncrementalWarning, InvalidDeltaError, to_incremental
from tests.closeness import assert_close

NODES, EDGES, CHANNELS = 12, 30, 3


class Fading(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.then = GraphConv(CHANNELS, 4), SAGEConv(4, 2)

    def forward(self, x, edge_index, edge_time, now):
        h = self.conv(x, edge_index, torch.exp(edge_time - now)).relu()
        return self.then(h, edge_index)


class Branching(Fading):
    def forward(self, x, edge_index, edge_time, now):
        scale = 2.0 if float(now) > 3 else 1.0
        return super().forward(x, edge_index, edge_time, torch.as_tensor(now)) * scale


class Taking(Fading):
    def forward(self, data):
        return super().forward(data.x, data.edge_index, data.edge_time, data.now)


class World:
    """What the model is called with, as plain tensors."""

    def __init__(self, rng, now):
        self.rng, self.now = rng, now
        self.x = self.rows(NODES)
        self.edges = torch.from_numpy(rng.integers(NODES, size=(2, EDGES)))
        self.time = torch.from_numpy(rng.random(EDGES))

    def rows(self, count):
        return torch.from_numpy(self.rng.standard_normal((count, CHANNELS)))

    def delta(self):
        """A mixed delta, which is applied here, as fields."""
        rng, fields = self.rng, {}
        if rng.random() < 0.7:
            now = float(rng.random() * 6)
            self.now = torch.tensor(now).double() if isinstance(self.now, torch.Tensor) else now
            fields["values"] = {"now": self.now}
        if rng.random() < 0.5:
            self.x = torch.cat([self.x, new := self.rows(1)])
            fields["x_add"] = new
        if rng.random() < 0.5:
            pair, when = rng.integers(len(self.x), size=(2, 1)), torch.from_numpy(rng.random(1))
            self.edges = torch.cat([self.edges, torch.from_numpy(pair)], 1)
            self.time = torch.cat([self.time, when])
            fields |= {"edge_index_add": pair, "edge_data_add": {"edge_time": when}}
        if rng.random() < 0.5:
            node, row = int(rng.integers(NODES)), self.rows(1)
            self.x = self.x.clone()
            self.x[node] = row
            fields["x_changes"] = [node], row
        return fields


@pytest.mark.parametrize("kind", ["tensor", "number", "branch on a tensor", "in an object"])
def test_random_deltas(seed, kind):
    rng = np.random.default_rng(seed)
    world = World(rng, 2.0 if kind == "number" else torch.tensor(2.0).double())
    make = {"tensor": Fading, "in an object": Taking}.get(kind, Branching)
    torch.manual_seed(seed)
    model = make().double().eval()

    def call(run):
        given = (world.x, world.edges, world.time, world.now)
        if kind == "in an object":
            names = ("x", "edge_index", "edge_time", "now")
            return run(Data(**dict(zip(names, given, strict=True))))
        return run(*given)

    inc = to_incremental(model, compile_after=2)
    if kind == "branch on a tensor":
        with pytest.warns(IncrementalWarning, match="depends on the values of a tensor"):
            call(inc)
    else:
        call(inc)
    mode = inc.mode
    for turn in range(12):
        before = inc.out.clone()
        fields = world.delta()
        up = inc.apply_delta(**fields, old=True)
        want = call(model)
        assert_close(inc.out, want)
        assert inc.verify().is_fine
        assert inc.version == turn + 1
        there = up.changed < len(before)
        assert torch.equal(up.old[there], before[up.changed[there]])
        assert_close(up.out, want[up.changed])
        same = torch.ones(len(want), dtype=torch.bool)
        same[up.changed] = False
        assert torch.equal(inc.out[same], before[same[: len(before)]])
        assert not inc.check()
    assert inc.mode == mode
    assert inc.mode == "incremental" or kind == "branch on a tensor"


def test_a_refused_value_changes_nothing_and_undo(seed, tmp_path):
    world = World(np.random.default_rng(seed), torch.tensor(2.0).double())
    model = Fading().double().eval()
    inc = to_incremental(model, roles={"now": "value"})
    inc(world.x, world.edges, world.time, world.now)
    assert str(inc.roles["now"]) == "value"
    digest, version = inc.state_digest(), inc.version
    wrong = (
        {"values": {"then": 1.0}},
        {"values": {"x": world.x}},
        {"values": {"now": torch.ones(2)}},
        {"values": {"now": 1j}},
        {"values": 3.0},
        {"values": {"now": 3.0}, "edge_index_del": torch.tensor([[0], [99]])},
        {"x_changes": {"now": torch.tensor(11.0)}},
    )
    for fields in wrong:
        with pytest.raises(InvalidDeltaError, match=r"values|edge_index_del"):
            inc.apply_delta(**fields)
        assert (inc.state_digest(), inc.version) == (digest, version)
    with pytest.raises(InvalidDeltaError, match="values"):
        inc.preview(values={"now": 3.0})
    before = inc.out.clone()
    up = inc.apply_delta(values={"now": 4.0}, nodes_del=[3], delta_id="tick", undo=True)
    assert_close(up.undo.values["now"], world.now)
    assert inc.apply_delta(values={"now": 9.0}, delta_id="tick").repeated
    inc.save(tmp_path / "state")
    again = type(inc).load(tmp_path / "state", model)
    assert torch.equal(again.out, inc.out)
    inc.apply_delta(up.undo)
    assert_close(inc.out, before)
    later = GraphDelta(values={"now": 1.0}) + GraphDelta(values={"now": 5.0})
    inc.apply_delta(later)
    assert_close(inc.out, model(world.x, world.edges, world.time, torch.tensor(5.0).double()))


def test_names_and_values(seed):
    world = World(np.random.default_rng(seed), torch.tensor(2.0).double())
    model = Fading().double().eval()
    inc = to_incremental(model)
    names = [f"n{i}" for i in range(NODES)]
    inc(world.x, world.edges, world.time, world.now, node_ids=names)
    up = inc.apply_delta(values={"now": 4.0}, nodes_del=["n3"])
    assert {*up.changed} <= {*names}
    assert "n3" not in inc.node_ids
    inc.apply_delta(x_add=world.rows(1), node_ids="new")
    assert inc.num_nodes == NODES
    assert inc.verify().is_fine
