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
        before, digest = inc.out.clone(), inc.state_digest()
        fields = world.delta()
        foreseen = inc.preview(**fields)
        assert (inc.state_digest(), inc.version) == (digest, turn)
        assert torch.equal(inc.out, before)
        assert not inc.check()
        up = inc.apply_delta(**fields, old=True)
        assert torch.equal(foreseen.changed, up.changed)
        assert_close(foreseen.out, up.out)
        assert_close(foreseen.old, up.old)
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
        with pytest.raises(InvalidDeltaError, match=r"values|edge_index_del"):
            inc.preview(**fields)
        assert (inc.state_digest(), inc.version) == (digest, version)
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


class Late(Fading):
    """Only the last of its steps read the value; before them is what may fail."""

    def forward(self, x, edge_index, now):
        h = self.then(self.conv(x, edge_index).relu(), edge_index)
        return (h * now).logsumexp(1, keepdim=True) / now


@pytest.mark.parametrize("store", ["fast", "minimal"])
def test_only_what_reads_a_value_runs_again(seed, store):
    """Also behind compiled updates, whose rows and free slots of edges stay in use."""
    world = World(np.random.default_rng(seed), None)
    model = Late().double().eval()
    inc = to_incremental(model, compile_after=1, store=store)
    now = torch.tensor(2.0).double()
    inc(world.x, world.edges, now)
    aggregations = {s.output.name for s in inc.program.steps if s.hops}
    for turn in range(8):
        now = torch.tensor(1.0 + turn).double()
        up = inc.apply_delta(values={"now": now})
        if store == "fast":
            ran = {s.name for s in up.stats.steps}
            assert ran
            assert not ran & aggregations
        pair, gone = torch.tensor([[turn], [3]]), world.edges[:, turn : turn + 1]
        inc.apply_delta(edge_index_add=pair, edge_index_del=gone)
        with torch.no_grad():
            assert_close(inc.out, model(world.x, inc.graph.to_edge_index(), now))
        assert not inc.check()


def test_a_step_that_fails_with_a_value_leaves_all_as_it_was(seed):
    class Strict(Fading):
        def forward(self, x, edge_index, edge_time, now):
            h = super().forward(x, edge_index, edge_time, now)
            return torch.linalg.cholesky(now.reshape(1, 1)) * h

    world = World(np.random.default_rng(seed), torch.tensor(2.0).double())
    inc = to_incremental(Strict().double().eval(), compile_after=1)
    inc(world.x, world.edges, world.time, world.now)
    inc.apply_delta(edge_index_add=[[0], [1]], edge_data_add={"edge_time": torch.rand(1).double()})
    before, digest = inc.out.clone(), inc.state_digest()
    for run in (inc.apply_delta, inc.preview):
        with pytest.raises(torch.linalg.LinAlgError):
            run(values={"now": torch.tensor(-1.0).double()})
        assert inc.state_digest() == digest
        assert torch.equal(inc.out, before)
        assert not inc.check()
        assert inc.verify().is_fine
    inc.apply_delta(x_changes=([2], world.rows(1)))
    assert inc.verify().is_fine


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


class Seen(torch.nn.Module):
    """Nodes that were seen before now; of few of them that changes."""

    def __init__(self, by_edges=False):
        super().__init__()
        self.conv, self.then, self.by_edges = GraphConv(CHANNELS, 4), GraphConv(4, 2), by_edges

    def forward(self, x, edge_index, edge_time, seen, now):
        weight = (edge_time < now).to(x.dtype) if self.by_edges else None
        x = x if self.by_edges else x * (seen < now).to(x.dtype)[:, None]
        h = self.conv(x, edge_index, weight).relu()
        return self.then(h, edge_index, weight) / (2 + 0 * now)


class Scores(torch.nn.Module):
    """Pairs, with a temperature."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(CHANNELS, 4)

    def forward(self, x, edge_index, users, items, temperature):
        h = self.conv(x, edge_index)
        return ((h[users] * h[items]).sum(-1) / temperature).sigmoid()


def test_a_temperature_of_scores_runs_the_scores_again_and_nothing_else(seed):
    x = torch.randn(NODES, CHANNELS).double()
    edges, (users, items) = torch.randint(NODES, (2, EDGES)), torch.randint(NODES, (2, 20))
    model, cold = Scores().double().eval(), torch.tensor(2.0).double()
    inc = to_incremental(model)
    inc(x, edges, users, items, cold)
    assert inc.mode == "incremental"
    for step in range(4):
        cold = cold / 2
        up = inc.apply_delta(values={"temperature": cold})
        assert [(s.kind, s.rows) for s in up.stats] == [("edge map", 20)]
        assert_close(inc.out, model(x, edges, users, items, cold))
        edges = torch.cat([edges, torch.tensor([[step], [5]])], 1)
        inc.apply_delta(edge_index_add=edges[:, -1:])
        assert_close(inc.out, model(x, edges, users, items, cold))
    assert_close(inc.query(items, users), model(x, edges, items, users, cold))


@pytest.mark.parametrize("by_edges", [False, True])
def test_rows_that_a_value_does_not_change_lead_nowhere(by_edges, seed):
    count, rng = 300, torch.Generator().manual_seed(seed)
    x = torch.randn(count, CHANNELS, generator=rng).double()
    edges = torch.randint(count, (2, 900), generator=rng)
    time, seen = torch.arange(900).double(), torch.arange(count).double()
    model = Seen(by_edges).double().eval()
    inc = to_incremental(model, compile_after=1, roles={"seen": "node"})
    inc(x, edges, time, seen, torch.tensor(100.5).double())
    for step, now in enumerate((102.5, 101.5, 103.5, 103.5, 40.0, 299.0, 120.5)):
        now = torch.tensor(now).double()
        before = inc.out.clone()
        foreseen = inc.preview(values={"now": now})
        assert torch.equal(inc.out, before)
        up = inc.apply_delta(values={"now": now})
        assert_close(inc.out, model(x, edges, time, seen, now))
        assert torch.equal(foreseen.changed, up.changed)
        assert up.changed.tolist() == (before != inc.out).any(1).nonzero().flatten().tolist()
        if step < 4:
            ran = {s.name: s.rows for s in up.stats if s.kind != "map"}
            assert max(ran.values(), default=0) < 60
        gone, edges = edges[:, :1], edges[:, 1:]
        new = torch.randint(count, (2, 1), generator=rng)
        edges, time = torch.cat([edges, new], 1), torch.cat([time[1:], time[:1]])
        inc.apply_delta(
            edge_index_del=gone,
            edge_data_del={"edge_time": time[-1:]},
            edge_index_add=new,
            edge_data_add={"edge_time": time[-1:]},
        )
        assert_close(inc.out, model(x, edges, time, seen, now))
    assert not inc.check()
