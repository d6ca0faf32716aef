"""Hypergraphs: exact under every kind of delta, with hyperedges that come and go."""

import copy
import warnings
import zlib

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.data.hypergraph_data import HyperGraphData
from torch_geometric.nn import HypergraphConv

from pyg_incremental import (
    GraphDelta,
    IncrementalWarning,
    InvalidDeltaError,
    load,
    supported_layers,
    to_incremental,
)
from pyg_incremental.layers import IncrementalHypergraphConv
from pyg_incremental.trace.supported import scheme_of
from tests.closeness import assert_close, rows_that_differ
from tests.strategies import generator, index
from tests.zoo import CHANNELS, randomise
from tests.zoo_hypergraph import (
    HYPER_CASES,
    HYPER_DELTAS,
    NODES,
    OUT,
    WEIGHT,
    GraphAndHypergraph,
    hyper_journey,
    make_hyper,
)

CASES = {str(case): case for case in HYPER_CASES}


class HyperSides:
    """One case: the wrapped model, an independent copy of it, and the world of both."""

    def __init__(self, case, dtype=torch.float64, seed=0, **options):
        self.case = case
        self.rng = generator([seed, zlib.crc32(str(case).encode())])
        self.world = make_hyper(self.rng, case, dtype)
        torch.manual_seed(seed)
        model = randomise(case.make(), seed).to(dtype).eval()
        self.twin = copy.deepcopy(model)
        self.inc = to_incremental(model, **options)
        self.done = ["first pass"]
        self.out = self.world.call(self.inc)
        self.check_all()

    def walk(self, names=None):
        for name in names or hyper_journey(self.rng):
            self.step(HYPER_DELTAS[name](self.world, self.rng), name)

    def step(self, delta, name="delta"):
        self.done.append(name)
        update = self.inc.apply_delta(**as_written(delta))
        self.world.apply(**delta)
        now = self.inc.out.clone()
        assert update.changed.tolist() == rows_that_differ(self.out, now), self.where()
        assert_close(update.out, now[update.changed], 0, self.where())
        self.out = now
        self.check_all()
        return update

    def where(self):
        return f"{self.case}: after {', '.join(self.done)}"

    def check_all(self):
        assert_close(self.inc.out, self.world.call(self.twin), what=self.where())
        assert torch.equal(self.inc.graph.to_edge_index(), self.world.edge_index())
        assert_close(self.inc.x, self.world.x, 0, self.where())
        assert self.inc.num_nodes == len(self.world.x)
        assert self.inc.stale is None


def as_written(delta):
    """What is said of the nodes alone needs no name."""
    return {
        field: value["x"] if isinstance(value, dict) and list(value) == ["x"] else value
        for field, value in delta.items()
    }


@pytest.mark.parametrize("case", HYPER_CASES, ids=str)
def test_exact_in_float64(case, seed):
    sides = HyperSides(case, seed=seed, backend="compiled")
    assert sides.inc.mode == "incremental", sides.inc
    assert scheme_of(sides.inc.program) == case.scheme
    sides.walk()


@pytest.mark.parametrize("case", HYPER_CASES, ids=str)
def test_exact_on_reference_kernels(case, seed):
    HyperSides(case, seed=seed + 1, backend="reference").walk()


@pytest.mark.parametrize("case", HYPER_CASES, ids=str)
def test_close_in_float32(case, seed):
    HyperSides(case, torch.float32, seed + 2).walk()


def test_the_table_says_so():
    (layer,) = (layer for layer in supported_layers() if layer.name == "HypergraphConv")
    assert layer.scheme == CASES["plain"].scheme


# Ways of use ######################################################################################

WALK = ("mixed", "last_pair_leaves", "change_rows", "new_hyperedges", "remove_hyperedge", "add")
SOME = ("plain", "weighted", "attention-node-weighted", "attention-edge", "two-layers-weighted")


@pytest.mark.parametrize("name", SOME)
def test_saved_and_loaded(name, seed, tmp_path):
    sides = HyperSides(CASES[name], seed=seed)
    sides.walk(WALK)
    sides.inc.save(tmp_path / "state.pt")
    loaded = load(tmp_path / "state.pt", sides.inc.model)
    assert loaded.state_digest() == sides.inc.state_digest()
    sides.inc = loaded
    sides.walk(WALK)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("kind", ["mixed", "new_hyperedges", "remove_node", "change_rows"])
def test_a_delta_and_its_inverse_give_the_start(name, kind, seed):
    sides = HyperSides(CASES[name], seed=seed)
    before = sides.inc.out.clone()
    delta = as_written(HYPER_DELTAS[kind](sides.world, sides.rng))
    back = sides.inc.inverse(GraphDelta(**delta))
    sides.inc.apply_delta(**delta)
    sides.inc.apply_delta(back)
    assert_close(sides.inc.out[:NODES], before)
    assert sides.inc.verify() < 1e-9


@pytest.mark.parametrize("name", SOME)
def test_refreshed_scrubbed_and_verified(name, seed):
    sides = HyperSides(CASES[name], seed=seed, scrub_rows=3)
    sides.walk(WALK)
    with torch.no_grad():
        for model in (sides.inc.model, sides.twin):
            for parameter in model.parameters():
                parameter.mul_(0.5)
    assert sides.inc.stale
    sides.inc.refresh()
    sides.out = sides.inc.out.clone()
    sides.walk(WALK)
    sides.inc.refresh(nodes=[0, 1])
    sides.inc.refresh(nodes={"x": [2], "hyperedge": [0, 1]})
    assert sides.inc.verify() < 1e-9
    assert sides.inc.verify(num_nodes=3) < 1e-9
    assert "ones" in str(sides.inc.memory_report())


def test_beside_a_graph_of_the_nodes(seed):
    torch.manual_seed(seed)
    model = GraphAndHypergraph().double().eval()
    twin, x = copy.deepcopy(model), torch.randn(6, CHANNELS).double()
    edges, members = torch.randint(6, (2, 14)), torch.stack([torch.arange(6), torch.arange(6) * 2])
    inc = to_incremental(model)
    inc(x, edges, members)
    assert inc.mode == "incremental"
    more, joined = torch.tensor([[0], [6]]), torch.tensor([[6, 1], [3, 20]])
    x = torch.cat([x, x[:1]])
    inc.apply_delta(
        edge_index_add={"edge_index": more, "hyperedge_index": joined},
        edge_index_del={"hyperedge_index": members[:, 2:3]},
        x_add=x[6:],
    )
    members = torch.cat([members[:, [0, 1, 3, 4, 5]], joined], 1)
    with torch.no_grad():
        assert_close(inc.out, twin(x, torch.cat([edges, more], 1), members))
    assert list(inc.graph) == ["edge_index", "hyperedge_index"]


def test_a_data_object_and_a_drop_in(seed):
    class OnData(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = HypergraphConv(CHANNELS, OUT)

        def forward(self, data):
            return self.conv(data.x, data.hyperedge_index, data.hyperedge_weight)

    torch.manual_seed(seed)
    x, members, weight = torch.randn(4, CHANNELS), index([(0, 0), (1, 0), (2, 8)]), torch.rand(9)
    inc = to_incremental(OnData().eval())
    inc(Data(x=x, hyperedge_index=members, hyperedge_weight=weight, y=torch.zeros(4)))
    assert inc.mode == "incremental"
    conv = IncrementalHypergraphConv.from_conv(inc.model.conv)
    conv(x, members, weight)
    for wrapped in (inc, conv):
        wrapped.apply_delta(
            edge_index_add=[[3], [9]], x_add={WEIGHT: [0.5]}, x_changes={WEIGHT: ([0], [2.0])}
        )
    assert inc.verify() < 1e-6
    assert torch.equal(inc.out, conv.incremental.out)


@pytest.mark.parametrize("counted", [False, True])
def test_a_hypergraph_data_object(counted, seed, tmp_path):
    """It calls the incidences `edge_index` and the rows of the hyperedges `edge_attr`."""

    class OnHyperData(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = HypergraphConv(CHANNELS, OUT, use_attention=True)

        def forward(self, data):
            out = self.conv(data.x, data.edge_index, hyperedge_attr=data.edge_attr)
            return out * data.num_edges if counted else out

    torch.manual_seed(seed)
    x, attr = torch.randn(4, CHANNELS).double(), torch.randn(9, CHANNELS).double()
    members = index([(0, 0), (1, 0), (2, 8), (3, 1), (3, 3)])
    model = OnHyperData().double().eval()
    inc = to_incremental(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncrementalWarning)
        inc(HyperGraphData(x=x, edge_index=members, edge_attr=attr))
    assert inc.mode == ("full pass" if counted else "incremental")
    more = torch.randn(1, CHANNELS).double()
    inc.apply_delta(edge_index_add=[[3], [9]], x_add={"edge_attr": more})
    members, attr = torch.cat([members, torch.tensor([[3], [9]])], 1), torch.cat([attr, more])
    with torch.no_grad():
        assert_close(inc.out, model(HyperGraphData(x=x, edge_index=members, edge_attr=attr)))
    inc.save(tmp_path / "state.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncrementalWarning)
        loaded = load(tmp_path / "state.pt", model)
    loaded.apply_delta(edge_index_del=[[3], [9]])
    assert loaded.verify() < 1e-9


def test_a_fixed_number_of_hyperedges(seed):
    torch.manual_seed(seed)
    inc = to_incremental(HypergraphConv(CHANNELS, OUT).double().eval())
    inc(torch.randn(5, CHANNELS).double(), index([(0, 0), (1, 0), (4, 2)]), num_edges=7)
    assert inc.mode == "incremental"
    inc.apply_delta(edge_index_add=[[2], [6]])
    assert inc.verify() < 1e-9
    digest = inc.state_digest()
    with pytest.raises(InvalidDeltaError, match=r"\(2, 7\).*lie in \[0, 7\).*with num_edges=7"):
        inc.apply_delta(edge_index_add=[[2], [7]])
    assert inc.state_digest() == digest


# Work #############################################################################################


def test_a_change_costs_what_it_touches():
    """Hyperedge e holds the nodes 3e to 3e+2."""
    inc = to_incremental(HypergraphConv(CHANNELS, OUT).double().eval())
    inc(torch.randn(60, CHANNELS).double(), torch.stack([torch.arange(60), torch.arange(60) // 3]))
    up = inc.apply_delta(x_changes=([7], torch.randn(1, CHANNELS).double()))
    assert up.changed.tolist() == [6, 7, 8]
    sums = [(s.rows, s.edges, s.reread) for s in up.stats.steps if s.kind == "sum"]
    assert sums == [(1, 1, 0), (3, 3, 0)]
    up = inc.apply_delta(edge_index_add=[[7], [50]])  # alone in a hyperedge far away
    assert up.changed.tolist() == [7]


def test_the_weight_of_a_hyperedge_moves_its_nodes():
    inc = to_incremental(HypergraphConv(CHANNELS, OUT).double().eval())
    members = torch.stack([torch.arange(60), torch.arange(60) // 3])
    members = torch.cat([members, torch.tensor([[1], [5]])], 1)
    inc(torch.randn(60, CHANNELS).double(), members, torch.ones(20).double())
    up = inc.apply_delta(x_changes={WEIGHT: ([5], torch.tensor([3.0]).double())})
    assert up.changed.tolist() == [1, 15, 16, 17]
    assert sum(s.edges for s in up.stats.steps) == 4


# What is refused ##################################################################################

ROW = torch.zeros(1, CHANNELS, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "delta", "match"),
    [
        ("weighted", {"edge_index_add": [[0], [14]]}, r"ids of 'hyperedge' nodes lie in \[0, 14\)"),
        ("weighted", {"edge_index_add": [[9], [0]]}, r"node ids lie in \[0, 9\); add nodes"),
        ("plain", {"edge_index_add": [[9], [0]]}, r"node ids lie in \[0, 9\)"),
        ("plain", {"edge_index_add": [[0], [-1]]}, r"\(0, -1\)"),
        ("plain", {"edge_index_del": [[0], [99]]}, r"new ones come with the edges that name them"),
        ("plain", {"nodes_del": {"hyperedge": [99]}}, r"nodes_del\['hyperedge'\]: node id 99"),
        ("plain", {"nodes_del": {"hyper": [0]}}, r"no 'hyper'.*one of \['x', 'hyperedge'\]"),
        ("plain", {"x_add": {"hyperedge": [1.0]}}, r"x_add: there is no 'hyperedge'"),
        ("plain", {"edge_weight_add": [1.0], "edge_index_add": [[0], [0]]}, "without"),
        ("plain", {"undirected": True, "edge_index_add": [[0], [0]]}, "have one direction"),
        ("plain", {"x_changes": ([9], ROW)}, r"x_changes\[0\]: node id 9"),
        ("weighted", {"x_add": {WEIGHT: torch.ones(2, 2).double()}}, r"expected shape \[k\]"),
        ("attention-node-weighted", {"x_add": {WEIGHT: [1.0]}}, "need rows of .*hyperedge_attr"),
    ],
)  # fmt: skip
def test_what_is_refused(name, delta, match):
    sides = HyperSides(CASES[name])
    digest = sides.inc.state_digest()
    with pytest.raises(InvalidDeltaError, match=match):
        sides.inc.apply_delta(**delta)
    assert sides.inc.state_digest() == digest
    sides.walk(("mixed",))


def test_rows_that_do_not_fit_are_refused_at_once():
    conv, x = HypergraphConv(CHANNELS, OUT).eval(), torch.randn(3, CHANNELS)
    members = index([(0, 0), (2, 4)])
    with pytest.raises(InvalidDeltaError, match=r"names hyperedge 4, but ids lie in \[0, 3\)"):
        to_incremental(conv)(x, members, torch.ones(3))
    with pytest.raises(InvalidDeltaError, match=r"one number of hyperedges.*'num_edges': 6"):
        to_incremental(conv)(x, members, torch.ones(5), num_edges=6)
    with pytest.raises(InvalidDeltaError, match=r"names node 3, but ids lie in \[0, 3\)"):
        to_incremental(conv)(x, index([(3, 0)]))


def test_a_graph_with_ids_too_large_may_be_a_hypergraph():
    class Other(nn.Module):
        def forward(self, x, edge_index):
            return x

    with pytest.raises(InvalidDeltaError, match="call the argument 'hyperedge_index'"):
        to_incremental(Other().eval())(torch.randn(3, CHANNELS), index([(0, 5)]))
