"""Steps that compiled code does not know run between its calls: the same answers, the same work."""

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, logsigmoid
from torch_geometric.nn import (
    AntiSymmetricConv,
    FastRGCNConv,
    GATv2Conv,
    GCNConv,
    GraphConv,
    GraphSAGE,
    LEConv,
    RGATConv,
    RGCNConv,
    SAGEConv,
    Sequential,
    SignedConv,
)  # fmt: skip
from torch_geometric.nn.aggr import PowerMeanAggregation

from pyg_incremental import InvalidDeltaError, to_incremental
from pyg_incremental.conv import by_relation
from pyg_incremental.delta.resolve.resolver import Resolver
from pyg_incremental.fused import tables
from pyg_incremental.kernels.compiled.layout import KIND, OTHER
from tests.closeness import assert_close
from tests.strategies import generator, index

N, CHANNELS, KINDS = 120, 8, 3


class Between(nn.Module):
    """Known steps, one that is not, and known ones again."""

    def __init__(self, between):
        super().__init__()
        self.first, self.between, self.second = GraphSAGE(CHANNELS, 8, 1), between, GATv2Conv(8, 6)

    def forward(self, x, edge_index):
        return self.second(self.between(self.first(x, edge_index)), edge_index)


class Median(nn.Module):
    """An aggregation that is read again over in-edges, between two that are not."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            SAGEConv(CHANNELS, CHANNELS, aggr=aggr) for aggr in ("mean", "median", "max")
        )

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


class WeightedTwice(nn.Module):
    """The weights of loops are picked out of all edges, for two layers."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(CHANNELS, CHANNELS) for _ in range(2))

    def forward(self, x, edge_index, edge_weight):
        for conv in self.convs:
            x = conv(x, edge_index, edge_weight).relu()
        return x


def powers():
    """Sums in float64 of what is computed in float32."""
    first = LEConv(CHANNELS, CHANNELS, aggr=PowerMeanAggregation(p=1.5))
    layers = [(first, "x, edge_index -> x"), (SAGEConv(CHANNELS, 8), "x, edge_index -> x")]
    return Sequential("x, edge_index", layers)


MODELS = {
    "a map": lambda: Between(logsigmoid),
    "all rows": lambda: Between(lambda h: h - h.mean(0)),
    "rows": Median,
    "another dtype": powers,
    "loops": WeightedTwice,
}


IN_FLOAT32 = ("another dtype",)
"""Where no step is in another dtype in float64."""


def pair_of(name, seed):
    dtype = torch.float32 if name in IN_FLOAT32 else torch.float64
    return Pair(MODELS[name](), generator(seed), dtype)


def fast_of(inc):
    return inc._require().engine.fast


def drawn(rng, *shape):
    return torch.from_numpy(rng.standard_normal(shape))


class Pair:
    """A model with a fast path and without, on one graph, and the model itself."""

    def __init__(self, model, rng, dtype=torch.float64):
        torch.manual_seed(0)
        self.rng, self.dtype, self.model = rng, dtype, model.to(dtype).eval()
        self.weighted = isinstance(model, WeightedTwice)
        edges = torch.from_numpy(rng.integers(0, N, (2, 4 * N)))
        given = [drawn(rng, 4 * N).abs().to(dtype)] if self.weighted else []
        self.both = [to_incremental(self.model, compile_after=after) for after in (1, None)]
        for inc in self.both:
            inc(drawn(rng, N, CHANNELS).to(dtype), edges, *given)
        self.both[1].x.copy_(self.both[0].x)
        self.both[1].refresh()

    def delta(self, kind):
        inc, rng = self.both[0], self.rng
        if kind == "leaving":
            return {"nodes_del": torch.from_numpy(rng.permutation(inc.num_nodes)[:2])}
        added = torch.from_numpy(rng.integers(0, inc.num_nodes, (2, 3)))
        delta = {"edge_index_add": added}
        if kind == "edges":
            at = torch.from_numpy(rng.permutation(inc.num_edges)[:3])
            delta["edge_index_del"] = inc.graph.to_edge_index()[:, at]
            rows = drawn(rng, 2, CHANNELS).to(self.dtype)
            delta["x_changes"] = torch.from_numpy(rng.permutation(inc.num_nodes)[:2]), rows
        if kind == "loops":
            added[1] = added[0]
        if kind == "arrival":
            added[0] = inc.num_nodes
            delta["x_add"] = drawn(rng, 1, CHANNELS).to(self.dtype)
        if self.weighted:
            delta["edge_weight_add"] = drawn(rng, 3).abs().to(self.dtype)
        return delta

    def step(self, kind):
        """One delta on all sides; returns the work of both."""
        delta = self.delta(kind)
        one, other = (inc.apply_delta(**delta) for inc in self.both)
        fast = self.both[0]
        given = [fast.graph.state()["edge_weight"]] if self.weighted else []
        wanted = self.model(fast.x, fast.graph.to_edge_index(), *given)
        assert_close(fast.out, wanted)
        assert not fast.check()
        if self.dtype == torch.float64:
            assert torch.equal(one.changed, other.changed)
        return [s[:6] for s in one.stats.steps], [s[:6] for s in other.stats.steps]


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("kind", ["edges", "loops", "arrival", "leaving"])
@pytest.mark.parametrize("name", MODELS)
def test_the_same_answers_and_the_same_work(name, kind, seed):
    pair = pair_of(name, seed)
    for _ in range(6):
        one, other = pair.step(kind)
        if name in IN_FLOAT32:  # where rows may come out as they were on one side only
            assert [s[:3] for s in one] == [s[:3] for s in other]
        else:
            assert one == other
    kinds = fast_of(pair.both[0]).tables.steps[:, KIND].tolist()
    assert OTHER in kinds
    assert kinds[-1] != OTHER, "known steps follow"


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("most", [3, 9, 60])
@pytest.mark.parametrize("name", MODELS)
def test_executors_go_on_where_there_is_no_room(name, most, seed, monkeypatch):
    monkeypatch.setattr(tables, "MOST", most)
    pair = pair_of(name, seed)
    for kind in ("edges", "arrival", "edges", "leaving", "edges"):
        pair.step(kind)


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("name", MODELS)
def test_an_executor_that_fails_is_taken_back(name, seed, monkeypatch):
    pair = pair_of(name, seed)
    for _ in range(2):
        pair.step("edges")
    inc, delta = pair.both[0], pair.delta("arrival")
    fast = fast_of(inc)
    unknown = [e for s, e in enumerate(fast.executors) if fast.tables.steps[s, KIND] == OTHER]
    out = inc.out.clone()

    def fail(self):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(type(unknown[-1]), "rows_changed", fail)
        with pytest.raises(MemoryError):
            inc.apply_delta(**delta)
    assert_close(inc.out, out)
    inc.apply_delta(**delta)
    assert inc.verify() < (1e-12 if pair.dtype == torch.float64 else 1e-4)


# Constants ########################################################################################


def test_what_depends_on_no_row_is_a_constant(seed):
    """`W - W.T - gamma I` is made anew in every call of the model, and never differs."""
    pair = Pair(AntiSymmetricConv(CHANNELS, num_iters=2), generator(seed))
    for kind in ("edges", "arrival", "leaving"):
        pair.step(kind)
    fast = fast_of(pair.both[0])
    assert not fast.tables.why
    with torch.no_grad():
        pair.model.W.add_(0.1)
    for inc in pair.both:
        inc.refresh()
    for kind in ("edges", "arrival"):
        pair.step(kind)


def test_gelu_is_known(seed):
    pair = Pair(Between(gelu), generator(seed), torch.float32)
    for _ in range(3):
        pair.step("edges")
    assert not fast_of(pair.both[0]).tables.why


# Several graphs ###################################################################################


class BothSigns(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([SignedConv(CHANNELS, 6, True), SignedConv(6, 4, False)])

    def forward(self, x, pos_edge_index, neg_edge_index):
        for conv in self.convs:
            x = conv(x, pos_edge_index, neg_edge_index)
        return x


@pytest.mark.parametrize("sign", ["pos", "neg"])
def test_of_several_graphs_the_one_that_changes(sign, seed, monkeypatch):
    rng = generator(seed)
    model = BothSigns().double().eval()
    inc = to_incremental(model, compile_after=2)
    x = drawn(rng, N, CHANNELS)
    edges = {
        s: torch.from_numpy(rng.integers(0, N, (2, 3 * N))) for s in ("pos", "neg")
    }  # fmt: skip
    inc(x, edges["pos"], edges["neg"])

    def change(sign):
        new = torch.from_numpy(rng.integers(0, N, (2, 3)))
        inc.apply_delta(edge_index_add={f"{sign}_edge_index": new})
        edges[sign] = torch.cat([edges[sign], new], 1)
        assert_close(inc.out, model(inc.x, edges["pos"], edges["neg"]))

    inc.apply_delta(x_changes=(torch.tensor([1]), drawn(rng, 1, CHANNELS)))
    inc.apply_delta(x_changes=(torch.tensor([2]), drawn(rng, 1, CHANNELS)))
    assert fast_of(inc) is None  # no graph has changed so far
    change(sign)
    assert inc._require().engine.main == f"{sign}_edge_index"
    with monkeypatch.context() as patched:
        patched.setattr(Resolver, "resolve", refuse)
        change(sign)
        inc.apply_delta(x_changes=(torch.tensor([3]), drawn(rng, 1, CHANNELS)))
    for other in ("neg", "pos", "pos", "neg"):
        change(other)
    with pytest.raises(InvalidDeltaError):  # nobody says which graph
        inc.apply_delta(edge_index_add=index([(0, 1)]))
    assert inc.verify() < 1e-12
    assert not inc.check()


def refuse(*_):
    raise AssertionError("the delta was resolved step by step")


# Kinds of edges ###################################################################################

TYPED = {
    "rgcn": lambda **o: RGCNConv(CHANNELS, 5, KINDS, **o),
    "rgcn-sum": lambda **o: RGCNConv(CHANNELS, 5, KINDS, aggr="add", **o),
    "fast-rgcn": lambda **o: FastRGCNConv(CHANNELS, 5, KINDS, **o),
    "rgat": lambda **o: RGATConv(CHANNELS, 5, KINDS, **o),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", TYPED)
def test_kinds_of_edges_take_the_short_way(name, dtype, seed, monkeypatch):
    rng = generator(seed)
    model = TYPED[name]().to(dtype).eval()
    inc = to_incremental(model, compile_after=1)
    kinds = torch.from_numpy(rng.integers(0, KINDS, 4 * N))
    inc(drawn(rng, N, CHANNELS).to(dtype), torch.from_numpy(rng.integers(0, N, (2, 4 * N))), kinds)
    inc.apply_delta(nodes_del=[0])
    monkeypatch.setattr(Resolver, "resolve", refuse)
    bound = 1e-12 if dtype == torch.float64 else 1e-4
    for _ in range(4):
        new = torch.from_numpy(rng.integers(0, KINDS, 3))
        inc.apply_delta(
            torch.from_numpy(rng.integers(0, N, (2, 3))),
            inc.graph.to_edge_index()[:, 7:9],
            edge_data_add={"edge_type": new},
        )
        assert inc.verify() < bound
        assert not inc.check()
    assert not fast_of(inc).tables.why


@pytest.mark.parametrize("name", TYPED)
def test_a_kind_that_there_is_not_changes_nothing(name, seed):
    """Also where it was written before the edge was taken in."""
    rng = generator(seed)
    inc = to_incremental(TYPED[name]().double().eval(), compile_after=1)
    kinds = torch.from_numpy(rng.integers(0, KINDS, 4 * N))
    inc(drawn(rng, N, CHANNELS), torch.from_numpy(rng.integers(0, N, (2, 4 * N))), kinds)
    for _ in range(2):
        inc.apply_delta(index([(0, 1)]), edge_data_add={"edge_type": torch.tensor([1])})
    before, out = inc.graph.to_edge_index(), inc.out.clone()
    with pytest.raises(IndexError, match="names relation"):
        inc.apply_delta(index([(0, 3)]), edge_data_add={"edge_type": torch.tensor([KINDS])})
    assert torch.equal(inc.graph.to_edge_index(), before)
    assert_close(inc.out, out)
    inc.apply_delta(index([(0, 2)]), edge_data_add={"edge_type": torch.tensor([1])})
    inc.apply_delta(index([(0, 2)]), edge_data_add={"edge_type": torch.tensor([2])})
    digest = inc.state_digest()
    for bad in (index([(0, N)]), index([(-1, 0)])):
        with pytest.raises(InvalidDeltaError):
            inc.apply_delta(bad, edge_data_add={"edge_type": torch.tensor([0])})
    assert inc.state_digest() == digest
    inc.apply_delta(index([(0, 3)]), edge_data_add={"edge_type": torch.tensor([2])})
    assert inc.verify() < 1e-12


@pytest.mark.parametrize("rows", [torch.inf, torch.nan, 1.0])
def test_what_is_picked_is_the_same_for_few_and_many(rows, seed, monkeypatch):
    rng = generator(seed)
    each = drawn(rng, 40, KINDS * 4)
    each[::3] *= rows
    kinds = torch.from_numpy(rng.integers(-1, KINDS + 1, 40)).double()
    few = by_relation.picked(each, kinds, KINDS)
    monkeypatch.setattr(by_relation, "FEW", 0)
    many = by_relation.picked(each, kinds, KINDS)
    assert torch.equal(few.nan_to_num(9.0), many.nan_to_num(9.0))
    assert not few[(kinds < 0) | (kinds >= KINDS)].any()


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GraphConv(CHANNELS, 4)

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, edge_weight.real.abs())


def test_edge_data_that_pytorch_writes_takes_the_long_way(seed):
    """Such a write is counted, and must not be taken for somebody else's."""
    rng = generator(seed)
    inc = to_incremental(Turned().double().eval(), compile_after=1)
    weight = torch.complex(drawn(rng, 4 * N), drawn(rng, 4 * N))
    inc(drawn(rng, N, CHANNELS), torch.from_numpy(rng.integers(0, N, (2, 4 * N))), weight)
    for at in range(4):
        inc.apply_delta(index([(0, 1)]), edge_weight_add=weight[at : at + 1])
        assert inc.stale is None
        assert inc.verify() < 1e-12
