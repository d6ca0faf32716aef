"""Steps that compiled code does not know are left alone while nothing happens that they follow."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, HEATConv, SAGEConv, SignedConv

from pyg_incremental import to_incremental
from pyg_incremental.fused.torch_steps import TorchSteps
from pyg_incremental.ops.rows import NeighborhoodRowsState
from tests.closeness import assert_close
from tests.strategies import generator, index

N, CHANNELS = 80, 6


def drawn(rng, *shape):
    return torch.from_numpy(rng.standard_normal(shape))


@pytest.fixture
def woken(monkeypatch):
    """How often compiled code has stopped for steps that it does not know."""
    seen, run = [], TorchSteps.run

    def counted(self, step, *given):
        seen.append(step)
        return run(self, step, *given)

    monkeypatch.setattr(TorchSteps, "run", counted)
    return seen


class Weighted(nn.Module):
    """The weights of self-loops are picked out of all edges."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(CHANNELS, 8), GCNConv(8, 4)])

    def forward(self, x, edge_index, edge_weight):
        for conv in self.convs:
            x = conv(x, edge_index, edge_weight).relu()
        return x


class Typed(nn.Module):
    """Types of nodes that are read off their features."""

    def __init__(self):
        super().__init__()
        self.conv = HEATConv(CHANNELS, 4, 2, 3, 3, 2, 3, heads=2)

    def forward(self, x, edge_index, edge_attr, edge_type):
        return self.conv(x, edge_index, (x[:, 0] > 0).long(), edge_type, edge_attr)


class Medians(nn.Module):
    """What is read again over all in-edges, behind what is not."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(CHANNELS, 8), SAGEConv(8, 4, aggr="median")])

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


def weighted(rng, count):
    return {"edge_weight": drawn(rng, count).abs()}


def typed(rng, count):
    kinds = torch.from_numpy(rng.integers(0, 3, count))
    return {"edge_attr": drawn(rng, count, 2), "edge_type": kinds}


MODELS = {
    "weighted": (Weighted, weighted),
    "typed": (Typed, typed),
    "medians": (Medians, lambda rng, count: {}),
}


class Sides:
    """A model and its incremental twin, at which plans are laid out already."""

    def __init__(self, name, seed):
        make, self.data = MODELS[name]
        torch.manual_seed(seed)
        self.rng, self.model = generator(seed), make().double().eval()
        edges = torch.from_numpy(self.rng.integers(0, N, (2, 3 * N)))
        edges = edges[:, edges[0] != edges[1]]
        self.inc = to_incremental(self.model, compile_after=1, backend="compiled")
        self.inc(drawn(self.rng, N, CHANNELS), edges, **self.data(self.rng, edges.shape[1]))
        for _ in range(2):
            self.change(edge_index_add=index([(1, 2)]))

    def change(self, **delta):
        more = {}
        if "edge_index_add" in delta:
            more = self.data(self.rng, delta["edge_index_add"].shape[1])
        update = self.inc.apply_delta(**delta, **({"edge_data_add": more} if more else {}))
        given = self.inc.graph.state()
        assert_close(self.inc.out, self.model(self.inc.x, given.pop("edge_index"), **given))
        assert torch.equal(update.out, self.inc.out[update.changed])
        return update

    def features(self):
        return {"x_changes": (torch.tensor([3]), drawn(self.rng, 1, CHANNELS))}


WHAT = {
    "an edge": lambda s: {"edge_index_add": index([(4, 5)])},
    "it leaves": lambda s: {"edge_index_del": index([(1, 2)])},
    "a loop": lambda s: {"edge_index_add": index([(7, 7)])},
    "features": Sides.features,
    "a node": lambda s: {"x_add": drawn(s.rng, 1, CHANNELS)},
}
WAKES = {
    "weighted": {"a loop", "a node"},
    "typed": {"features", "a node"},
    "medians": {"an edge", "it leaves", "a loop", "features", "a node"},
}


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("name", MODELS)
def test_what_wakes_a_step(name, what, seed, woken):
    sides = Sides(name, seed)
    woken.clear()
    sides.change(**WHAT[what](sides))
    assert bool(woken) == (what in WAKES[name])
    assert not sides.inc.check()


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("name", MODELS)
def test_steps_that_sleep_and_wake_in_turns(name, seed, woken):
    """Whatever was left from the last time that they were awake is gone."""
    sides = Sides(name, seed)
    for _ in range(4):
        for what in sides.rng.permutation([*WHAT]):
            if what != "it leaves":
                sides.change(**WHAT[what](sides))
        at = torch.from_numpy(sides.rng.permutation(sides.inc.num_edges)[:2])
        sides.change(edge_index_del=sides.inc.graph.to_edge_index()[:, at], **sides.features())
    sides.change(edge_index_del=index([(7, 7)]))
    assert woken
    assert not sides.inc.check()


def test_a_loop_that_fails_is_taken_back(seed, monkeypatch):
    """On the short way, which has begun in compiled code."""
    sides = Sides("weighted", seed)
    out, version = sides.inc.out.clone(), sides.inc.version

    def fail(self):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(NeighborhoodRowsState, "rows_changed", fail)
        sides.change(edge_index_add=index([(4, 5)]))  # nobody asks it
        sides.change(edge_index_del=index([(4, 5)]))
        with pytest.raises(MemoryError):
            sides.change(edge_index_add=index([(7, 7)]))
    assert sides.inc.version == version + 2
    assert_close(sides.inc.out, out)
    sides.change(edge_index_add=index([(7, 7)]))
    assert not sides.inc.check()


def test_sums_over_a_graph_that_stays(seed, woken):
    rng = generator(seed)
    model = SignedConv(CHANNELS, 4, True).double().eval()
    inc = to_incremental(model, compile_after=1, backend="compiled")
    edges = [torch.from_numpy(rng.integers(0, N, (2, 3 * N))) for _ in range(2)]
    inc(drawn(rng, N, CHANNELS), *edges)
    for turn in range(4):
        woken.clear()
        new = torch.from_numpy(rng.integers(0, N, (2, 2)))
        inc.apply_delta(edge_index_add={"pos_edge_index": new})
        edges[0] = torch.cat([edges[0], new], 1)
        assert_close(inc.out, model(inc.x, *edges))
        if turn:
            assert not woken
    inc.apply_delta(x_changes=(torch.tensor([1]), drawn(rng, 1, CHANNELS)))
    assert woken
    assert_close(inc.out, model(inc.x, *edges))
    new = torch.from_numpy(rng.integers(0, N, (2, 2)))
    inc.apply_delta(edge_index_add={"neg_edge_index": new})
    edges[1] = torch.cat([edges[1], new], 1)
    assert_close(inc.out, model(inc.x, *edges))
    assert not inc.check()
