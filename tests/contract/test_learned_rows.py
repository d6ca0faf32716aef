"""Models that have learned one row for each node: their rows are followed, and stay as many."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import LINKX, GCNConv, LightGCN, SAGEConv

from pyg_incremental import (
    GraphDelta,
    InvalidDeltaError,
    UnsupportedModelError,
    load,
    to_incremental,
)
from pyg_incremental.program.steps import Learned
from tests.closeness import assert_close
from tests.side_by_side import SideBySide, clone
from tests.strategies import DELTAS, journey
from tests.zoo import CHANNELS, WEIGHT, Case

NODES = 12  # as many as a world has
GROWING = (
    "new_isolated_nodes", "new_nodes_with_edges", "new_node_changed_and_removed", "mixed",
)  # fmt: skip
FORMATS = ("coo", "edge_index_by_col", "csr")


# Models ###########################################################################################


class Embeddings(nn.Module):
    """What LightGCN ranks by: the embedding of every node."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, edge_index, edge_weight=None):
        return self.model.get_embedding(edge_index, edge_weight)


class Added(nn.Module):
    """Learned rows beside the features; as many nodes as there are channels within."""

    def __init__(self):
        super().__init__()
        self.own = nn.Parameter(torch.randn(NODES, CHANNELS))
        self.first, self.second = GCNConv(CHANNELS, NODES), SAGEConv(NODES, 4)
        self.register_buffer("shift", torch.randn(NODES, 4))

    def forward(self, x, edge_index):
        return self.second(self.first(x + self.own, edge_index).relu(), edge_index) * self.shift


class Alone(nn.Module):
    """An embedding and a conv, and nothing that says how many nodes there are but its size."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(NODES, 6)
        self.conv = SAGEConv(6, 4, aggr="max")

    def forward(self, edge_index):
        return self.conv(self.embedding.weight, edge_index)


def without_x(model, inputs):
    inputs = dict(inputs)
    del inputs["x"]
    return model(inputs.pop("edge_index"), **inputs)


def no_x_but_none(model, inputs):
    return model(None, inputs["edge_index"])


PAIRS = torch.tensor([[0, 1, 2, 5, 11, 0, 3], [4, 1, 7, 5, 0, 4, 8]])


def ranked(model, inputs):
    return model(inputs["edge_index"], edge_label_index=PAIRS)


CASES = [
    Case("linkx", lambda: LINKX(NODES, CHANNELS, 6, 4, num_layers=2), formats=FORMATS),
    Case(
        "linkx-deep",
        lambda: LINKX(NODES, CHANNELS, NODES, 4, 2, num_edge_layers=2, num_node_layers=2),
        WEIGHT,
        formats=FORMATS,
    ),
    Case("added", Added),
]
BARE_CASES = [
    Case("alone", Alone, formats=FORMATS[:2], call=without_x),
    Case("linkx-bare", lambda: LINKX(NODES, 3, 6, 4, num_layers=1), call=no_x_but_none),
    Case(
        "embeddings", lambda: Embeddings(LightGCN(NODES, 4, 3)), call=without_x, formats=FORMATS[:2]
    ),
    Case("embeddings-weighted", lambda: Embeddings(LightGCN(NODES, 4, 2)), WEIGHT, call=without_x),
    Case("light-gcn", lambda: LightGCN(NODES, 4, 2), call=without_x),
    Case("light-gcn-weighted", lambda: LightGCN(NODES, 4, 2), WEIGHT, call=without_x),
    Case("light-gcn-pairs", lambda: LightGCN(NODES, 4, 2), call=ranked),
]


class Bare(SideBySide):
    """A model without features: changes of features say nothing to it."""

    def step(self, delta, name="delta"):
        return super().step({k: v for k, v in delta.items() if k != "x_changes"}, name)

    def check_all(self):
        assert_close(self.inc.out, self.full(), what=self.where())
        assert self.inc.num_nodes == NODES
        assert self.inc.stale is None


def steps(sides):
    return [name for name in journey(sides.rng) if name not in GROWING]


def runs(cases):
    return [pytest.param(case, fmt, id=f"{case}-{fmt}") for case in cases for fmt in case.formats]


@pytest.mark.parametrize(("case", "fmt"), runs(CASES))
def test_exact_in_float64(case, fmt, seed):
    sides = SideBySide(case, fmt, seed=seed, backend="compiled")
    assert sides.inc.mode == "incremental", sides.inc
    assert any(isinstance(s, Learned) for s in sides.inc.program.steps)
    sides.walk(steps(sides))


@pytest.mark.parametrize(("case", "fmt"), runs(BARE_CASES))
def test_exact_without_features(case, fmt, seed):
    sides = Bare(case, fmt, seed=seed, backend="compiled")
    assert sides.inc.mode in case.mode, sides.inc
    assert any(isinstance(s, Learned) for s in sides.inc.program.steps)
    sides.walk(steps(sides))


@pytest.mark.parametrize("case", [*CASES, *BARE_CASES], ids=str)
def test_exact_on_reference_kernels(case, seed):
    sides = (SideBySide if case in CASES else Bare)(case, seed=seed + 1, backend="reference")
    sides.walk(steps(sides))


@pytest.mark.parametrize("case", [*CASES, *BARE_CASES], ids=str)
def test_close_in_float32(case, seed):
    sides = (SideBySide if case in CASES else Bare)(case, dtype=torch.float32, seed=seed + 2)
    sides.walk(steps(sides))


# Ways of use ######################################################################################

EVERY = {str(case): case for case in (*CASES, *BARE_CASES)}
WALK = ("add_edges", "delete_edges", "remove_nodes", "duplicate_edges")


def sides_of(name, seed=0, **options):
    case = EVERY[name]
    return (SideBySide if case in CASES else Bare)(case, seed=seed, **options)


@pytest.mark.parametrize("name", ["linkx-deep", "added", "embeddings-weighted", "linkx-bare"])
def test_saved_and_loaded(name, seed, tmp_path):
    sides = sides_of(name, seed)
    sides.walk(WALK)
    parameters = clone(list(sides.inc.model.state_dict().values()))
    sides.inc.save(tmp_path / "state.pt")
    loaded = load(tmp_path / "state.pt", sides.inc.model)
    assert loaded.stale is None
    assert loaded.state_digest() == sides.inc.state_digest()
    assert all(map(torch.equal, parameters, sides.inc.model.state_dict().values()))
    sides.inc = loaded
    sides.walk(WALK)


@pytest.mark.parametrize("name", ["linkx-deep", "added", "embeddings", "light-gcn", "linkx-bare"])
def test_parameters_are_read_when_they_are_refreshed(name, seed):
    sides = sides_of(name, seed, scrub_rows=2)
    digest = sides.inc.state_digest()
    for model in (sides.inc.model, sides.twin):
        with torch.no_grad():
            for value in model.state_dict().values():
                if value.is_floating_point():
                    value.mul_(0.5)
    assert sides.inc.stale
    sides.inc.refresh()
    assert sides.inc.state_digest() != digest
    sides.out = clone(sides.inc.out)
    sides.check_all()
    sides.walk(WALK)
    sides.inc.refresh(nodes=[0, 5])
    assert sides.inc.verify() < 1e-9
    assert sides.inc.verify(num_nodes=3) < 1e-9  # on all: the model runs on no other number


@pytest.mark.parametrize("name", ["linkx-deep", "embeddings-weighted", "light-gcn-pairs"])
def test_a_delta_and_its_inverse_give_the_start(name, seed):
    sides = sides_of(name, seed)
    before = clone(sides.inc.out)
    for kind in ("delete_edges", "add_edges", "isolate_node"):
        delta = DELTAS[kind](sides.world, sides.rng)
        back = sides.inc.inverse(GraphDelta(**delta))
        sides.inc.apply_delta(**delta)
        sides.inc.apply_delta(back)
        assert_close(sides.inc.out, before)


def test_pairs_to_be_ranked_may_change_too(seed):
    sides = sides_of("light-gcn-pairs", seed)
    edges = sides.world.edge_index()
    up = sides.inc.apply_delta(edge_index_add={"edge_label_index": [[3], [3]]})
    assert up.changed.tolist() == [7]
    sides.inc.apply_delta(edge_index_add=[[3], [4]])  # without a name it is an edge
    want = torch.cat([edges, torch.tensor([[3], [4]])], 1)
    pairs = torch.cat([PAIRS, torch.tensor([[3], [3]])], 1)
    with torch.no_grad():
        assert_close(sides.inc.out, sides.twin(want, pairs))


def test_ranks_stay_in_the_order_of_their_pairs():
    """Also where the first of them happened to be sorted by their second node."""
    model = LightGCN(NODES, 4, 1).double().eval()
    inc = to_incremental(model)
    edges, pairs = torch.randint(NODES, (2, 30)), torch.tensor([[5, 6, 7], [1, 2, 3]])
    inc(edges, pairs)
    inc.apply_delta(edge_index_add={"edge_label_index": [[8], [0]]})
    with torch.no_grad():
        want = model(edges, torch.cat([pairs, torch.tensor([[8], [0]])], 1))
    assert_close(inc.out, want)


def test_a_parameter_or_the_graph_says_how_many_nodes_there_are(seed):
    class Weights(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.conv = nn.Parameter(torch.randn(NODES, 3)), SAGEConv(3, 2)

        def forward(self, edge_index):
            return self.conv(self.rows, edge_index)

    torch.manual_seed(seed)
    model = Weights().double().eval()
    edges = torch.randint(NODES, (2, 20))
    inc = to_incremental(model)
    for given in (edges, EdgeIndex(edges, sparse_size=(NODES, NODES))):
        inc(given)
        assert (inc.mode, inc.num_nodes) == ("incremental", NODES)
        inc.apply_delta(edge_index_add=[[0], [1]])
        assert inc.verify() < 1e-9
    with pytest.raises(UnsupportedModelError, match="no parameter with 11 rows"):
        inc(EdgeIndex(edges % 11, sparse_size=(11, 11)))


def test_a_large_number_of_nodes_is_tried_on_few_edges():
    model = LINKX(5000, 3, 4, 2, num_layers=1).double().eval()
    inc = to_incremental(model)
    inc(torch.randn(5000, 3).double(), torch.randint(5000, (2, 9000)))
    up = inc.apply_delta(edge_index_add=[[4999], [0]])
    assert inc.mode == "incremental"
    assert up.changed.tolist() == [0]
    assert all(s.rows == 1 for s in up.stats.steps)


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_very_few_nodes(nodes, seed):
    torch.manual_seed(seed)
    model = LINKX(nodes, 3, 4, 2, num_layers=1).double().eval()
    twin, x = copy.deepcopy(model), torch.randn(nodes, 3).double()
    inc = to_incremental(model)
    edges = torch.randint(nodes, (2, 3))
    inc(x, edges)
    assert inc.mode == "incremental"
    inc.apply_delta(edge_index_add=edges[:, :1], x_changes=([0], 2 * x[:1]))
    with torch.no_grad():
        x[0] *= 2
        assert_close(inc.out, twin(x, torch.cat([edges, edges[:, :1]], 1)))


def test_a_width_that_equals_the_number_of_nodes_fixes_nothing(seed):
    """Only a model that does not run on other numbers has learned rows of its nodes."""
    torch.manual_seed(seed)
    model = SAGEConv(CHANNELS, NODES).double().eval()
    inc = to_incremental(model)
    inc(torch.randn(NODES, CHANNELS).double(), torch.randint(NODES, (2, 20)))
    inc.apply_delta(x_add=torch.randn(1, CHANNELS).double(), edge_index_add=[[NODES], [0]])
    assert inc.verify() < 1e-9


# What is refused ##################################################################################

X = torch.zeros(1, CHANNELS, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "delta", "match"),
    [
        ("linkx", {"x_add": X}, r"x_add: expected no new nodes \(got 1\), as .*'edge_lin.weight'"),
        ("added", {"x_add": X}, r"one row for each of its 12 nodes \('own'\); make a model"),
        ("linkx", {"edge_index_add": [[0], [12]]}, r"\(0, 12\).*lie in \[0, 12\); there can be no"),
        ("linkx", {"nodes_del": [12]}, "node id 12 .*there can be no more"),
        ("linkx", {"x_changes": ([12], X)}, "node id 12 .*there can be no more"),
        ("embeddings", {"x_changes": ([0], X)}, r"x_changes: .*without node features \(got tuple"),
        ("embeddings", {"x_add": X}, "x_add: .*'model.embedding.weight'.*call refresh"),
        ("embeddings", {"edge_index_add": [[12], [0]]}, "there can be no more"),
        ("light-gcn", {"x_changes": {"x": ([0], X)}}, "x_changes: there is no 'x'"),
    ],
)  # fmt: skip
def test_what_is_refused(name, delta, match):
    sides = sides_of(name)
    digest = sides.inc.state_digest()
    with pytest.raises(InvalidDeltaError, match=match):
        sides.inc.apply_delta(**delta)
    assert sides.inc.state_digest() == digest
    sides.walk(("add_edges",))


def test_features_that_are_not_there_cannot_be_read():
    with pytest.raises(KeyError, match="no node features"):
        _ = sides_of("embeddings").inc.x


def test_a_call_without_nodes_says_what_to_do():
    with pytest.raises(
        UnsupportedModelError, match=r"3 or 4 or 7 nodes.*pass features, or pass the"
    ):
        to_incremental(OnlyEdges().eval())(torch.zeros(2, 1, dtype=torch.int64))


class OnlyEdges(nn.Module):
    """Two embeddings of different sizes."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Embedding(3, 2), nn.Embedding(4, 2)

    def forward(self, edge_index):
        return self.a.weight.sum() + self.b.weight.sum()
