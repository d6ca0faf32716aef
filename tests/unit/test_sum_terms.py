"""Sums that are kept as finished rows: `own + factor * sum`, of a row's own message too."""

import copy

import numpy as np
import pytest
import torch
from torch_geometric.nn import (
    GCN,
    GIN,
    GCNConv,
    GINConv,
    GraphConv,
    GraphSAGE,
    Linear,
    SAGEConv,
    SGConv,
    global_add_pool,
)
from torch_geometric.utils import to_torch_csr_tensor

from pyg_incremental import load, to_incremental
from pyg_incremental.kernels import compiled, reference
from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.kernels.reference.sums import GROWS
from pyg_incremental.ops import Sum
from tests.strategies import generator

NODES, CHANNELS = 30, 5
LAST = "SAGEConv.scatter_add_1.sum"
MOVED = f"{LAST}_lin_l"  # the layer stands in front of it


def wrapped(model, seed, **options):
    rng = generator(seed)
    inc = to_incremental(model.double().eval(), **options)
    x = torch.from_numpy(rng.standard_normal((NODES, CHANNELS)))
    inc(x, torch.from_numpy(rng.integers(0, NODES, (2, 4 * NODES))))
    return inc, rng


def sums_of(inc):
    steps = (a.step for a in inc._session.engine.aggregators)
    return {s.output.name: (s.own is not None, s.factor is not None) for s in steps}


class ReadTwice(torch.nn.Module):
    """What a layer without an own row gives is added to one's own row, and read once more."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(CHANNELS, CHANNELS, root_weight=False, bias=False)

    def forward(self, x, edge_index):
        rows = self.conv(x, edge_index)
        return rows + x, rows


@pytest.mark.parametrize(
    ("model", "options", "sums"),
    [
        (GraphSAGE(CHANNELS, 4, 2), {}, {"convs.0.add": (True, True), "convs.1.add": (True, True)}),
        (SAGEConv(CHANNELS, 4, aggr="sum"), {}, {"SAGEConv.add": (True, False)}),
        (GraphConv(CHANNELS, 4, aggr="mean"), {}, {"GraphConv.add": (True, True)}),
        (SAGEConv(CHANNELS, 4, root_weight=False), {}, {MOVED: (False, False)}),
        (SAGEConv(CHANNELS, 4, normalize=True), {}, {"SAGEConv.add": (True, True)}),
        (SAGEConv(CHANNELS, 40), {}, {LAST: (False, False)}),  # the product is last
        (ReadTwice(), {}, {"conv.scatter_add_1.sum_conv.lin_l": (False, False)}),
        (SAGEConv(CHANNELS, 4), {"store": "minimal"}, {MOVED: (False, False)}),
        (
            SAGEConv(CHANNELS, 4), {"accumulate_dtype": torch.float64},
            {MOVED: (False, False)},
        ),
    ],
    ids=["layers", "sum", "mean", "no own", "normalised", "wide", "read twice", "minimal", "wider"],
)  # fmt: skip
def test_what_becomes_part_of_a_sum(model, options, sums, seed):
    inc, _ = wrapped(copy.deepcopy(model), seed, **options)
    found = sums_of(inc)
    found.pop("degree", None)
    assert found == sums
    assert inc.verify() < 1e-12


def test_what_is_traced_runs_no_more_maps_than_a_program_by_hand(seed):
    """A mean reads the number of in-edges, and the bias of one layer is that of another one."""
    inc, _ = wrapped(GraphSAGE(CHANNELS, 4, 2), seed)
    maps = {
        e.out.value.name: [c.value.name for c in e.inputs]
        for e in inc._session.engine.executors
        if e.step.kind == "map"
    }
    rows = {0: ["x"], 1: ["convs.0.add"]}
    layers = {
        f"convs.{n}.{name}": read
        for n, read in rows.items()
        for name in ("lin_l_first", "lin_r_biased")
    }
    assert maps == {"degree_inverse": ["degree"], **layers}
    (biased,) = (s for s in inc.program.steps if s.output.name == "convs.0.lin_r_biased")
    assert torch.equal(biased.fn.bias(), inc.model.convs[0].lin_l.bias)


class WeightedMean(torch.nn.Module):
    """What a row is divided by is a sum of weights, clamped in place, and leaves as well."""

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(CHANNELS, 4)

    def forward(self, x, edge_index, edge_weight):
        src, dst = edge_index
        total = torch.zeros_like(x).index_add(0, dst, x[src] * edge_weight[:, None])
        share = torch.zeros(x.size(0), dtype=x.dtype).scatter_add_(0, dst, edge_weight)
        share = share.clamp_(min=1)
        return self.lin(total / share.view(-1, 1).expand_as(total)), share


def test_a_mean_by_weights_below_one(seed):
    rng, model = generator(seed), WeightedMean().double().eval()
    inc, x = to_incremental(model), torch.from_numpy(rng.standard_normal((NODES, CHANNELS)))
    edges = torch.from_numpy(rng.integers(0, NODES, (2, 4 * NODES)))
    weight = torch.from_numpy(rng.random(4 * NODES)) / 2
    inc(x, edges, weight)
    for _ in range(8):
        more, its = (
            torch.from_numpy(rng.integers(0, NODES, (2, 3))),
            torch.from_numpy(rng.random(3)),
        )
        inc.apply_delta(edge_index_add=more, edge_weight_add=its)
        edges, weight = torch.cat([edges, more], 1), torch.cat([weight, its])
        for out, wanted in zip(inc.out, model(x, edges, weight), strict=True):
            torch.testing.assert_close(out, wanted, atol=1e-12, rtol=1e-12)
    assert inc.mode == "incremental"


@pytest.mark.parametrize(
    ("model", "loops"),
    [
        (GCN(CHANNELS, 4, 2), 2), (GCNConv(CHANNELS, 4, bias=False), 1), (SGConv(CHANNELS, 4), 1),
        (GIN(CHANNELS, 4, 2, eps=0.5), 2), (GINConv(Linear(CHANNELS, 4), eps=-1.0), 1),
    ],
    ids=["layers", "no bias", "simple", "sums", "of weight zero"],
)  # fmt: skip
def test_a_row_is_among_its_own_neighbours(model, loops, seed):
    """Nothing is stored for its message to itself, which is that to the others."""
    inc, _ = wrapped(copy.deepcopy(model), seed)
    steps = [a.step for a in inc._session.engine.aggregators if a.step.loop is not None]
    assert len(steps) == loops
    assert all(step.own is None for step in steps)
    assert not any(p.name.endswith("_own") for p in inc.memory_report().parts)
    assert inc.verify() < 1e-12


@pytest.mark.parametrize("compile_after", [1, None])
def test_a_loop_may_have_another_weight_than_edges(compile_after, seed):
    conv = GCNConv(CHANNELS, 4, improved=True).double().eval()
    inc = to_incremental(conv, compile_after=compile_after)
    rng = generator(seed)
    edges = torch.from_numpy(rng.integers(0, NODES, (2, 4 * NODES)))
    weight = torch.from_numpy(rng.random(edges.shape[1]))
    matrix = to_torch_csr_tensor(edges, weight, size=(NODES, NODES))
    inc(torch.from_numpy(rng.standard_normal((NODES, CHANNELS))), matrix)
    (step,) = [a.step for a in inc._session.engine.aggregators if a.step.loop is not None]
    assert (step.loop.weight(), step.weight is not None) == (2, True)
    for node in range(3):
        inc.apply_delta(x_changes=([node], torch.ones(1, CHANNELS).double()))
        inc.apply_delta(torch.tensor([[node], [4]]), edge_weight_add=torch.ones(1).double())
        assert inc.verify() < 1e-12


@pytest.mark.parametrize(("make", "name"), [(GCN, "hop_out"), (GIN, "nn.lins.0")])
@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("compile_after", [1, None])
def test_a_row_that_only_neighbours_itself(make, name, backend, compile_after, seed):
    """It has no in-edge, moves with its features, and stays in bounds when edges come and go."""
    if backend == "reference" and compile_after:
        pytest.skip("nothing is compiled")
    inc, rng = wrapped(make(CHANNELS, 4, 2), seed, backend=backend, compile_after=compile_after)
    for turn in range(6):
        edges = inc.graph.to_edge_index()
        new = torch.from_numpy(rng.standard_normal((1, CHANNELS)))
        inc.apply_delta(edge_index_del=edges[:, edges[1] == 3], x_changes=([3], new))
        own = inc.apply_delta(x_changes=([3], -new)).stats
        assert own[f"convs.0.{name}"].rows == 1 + len(set(edges[1, edges[0] == 3].tolist()) - {3})
        inc.apply_delta(edge_index_add=torch.tensor([[turn, 7], [3, 3]]))
        assert inc.verify() < 1e-12
        assert not inc.check()


@pytest.mark.parametrize("compile_after", [1, None])
@pytest.mark.parametrize(
    ("make", "changed"),
    [(GCN, lambda conv: conv.bias), (GIN, lambda conv: conv.eps)],
    ids=["bias", "eps"],
)
def test_a_term_that_was_changed_counts_after_refresh(make, changed, compile_after, seed):
    inc, _ = wrapped(make(CHANNELS, 4, 2), seed, compile_after=compile_after)
    inc.apply_delta(torch.tensor([[1], [2]]))
    with torch.no_grad():
        changed(inc.model.convs[0]).add_(1)
    inc.refresh()
    inc.apply_delta(torch.tensor([[2], [1]]))
    assert inc.verify() < 1e-12


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("compile_after", [1, None])
def test_a_hub_that_loses_its_edges_is_summed_afresh(backend, compile_after, seed):
    """One over the degree becomes much larger, and so would what was lost in the row."""
    if backend == "reference" and compile_after:
        pytest.skip("nothing is compiled")
    inc, rng = wrapped(SAGEConv(CHANNELS, 4), seed, backend=backend, compile_after=compile_after)
    many = torch.stack([torch.arange(NODES).repeat(2), torch.zeros(2 * NODES, dtype=torch.int64)])
    inc.apply_delta(edge_index_add=many)
    new = torch.from_numpy(rng.standard_normal((1, CHANNELS)))
    inc.apply_delta(x_changes=([4], new))
    into = inc.graph.to_edge_index()
    into = into[:, into[1] == 0]
    assert into.shape[1] > 2 * GROWS
    update = inc.apply_delta(edge_index_del=into[:, 1:])
    assert update.stats["SAGEConv.add"].reread >= 1
    assert inc.verify() < 1e-12
    update = inc.apply_delta(edge_index_del=into[:, :1])  # nothing is left but its own row
    lin = inc.model.lin_r(inc.x[0]) + inc.model.lin_l.bias
    torch.testing.assert_close(inc.out[0], lin, rtol=1e-14, atol=1e-16)
    assert update.stats["SAGEConv.add"].reread == 0
    assert inc.verify() < 1e-12


@pytest.mark.parametrize("compile_after", [1, None])
def test_work_is_that_of_what_changed(compile_after, seed):
    """A row whose own features change is moved, not read again over its in-edges."""
    inc, rng = wrapped(GraphConv(CHANNELS, 4), seed, compile_after=compile_after)
    for node in range(6):
        x = torch.from_numpy(rng.standard_normal((1, CHANNELS)))
        step = inc.apply_delta(x_changes=([node], x)).stats["GraphConv.add"]
        out = inc.graph.to_edge_index()
        targets = {node, *out[1, out[0] == node].tolist()}
        assert (step.rows, step.edges, step.reread) == (
            len(targets),
            int((out[0] == node).sum()),
            0,
        )
    assert inc.verify() < 1e-12


@pytest.mark.parametrize("make", [GraphSAGE, GCN, GIN])
@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_what_is_not_finite_leaves_no_trace(make, backend, seed):
    inc, rng = wrapped(make(CHANNELS, 6, 2, 4), seed, backend=backend)
    for bad in (torch.nan, torch.inf, 1e300):
        rows = torch.from_numpy(rng.standard_normal((2, CHANNELS)))
        inc.apply_delta(x_changes=([3, 7], torch.full_like(rows, bad)))
        inc.apply_delta(x_changes=([3, 7], rows))
        assert inc.verify() < 1e-12, bad


def test_both_sets_of_kernels_take_rows_to_new_terms(seed):
    rng = np.random.default_rng(seed)
    state, own = rng.normal(size=(NODES, 3)), rng.normal(size=(NODES, 3))
    factor = np.exp2(rng.integers(-6, 7, NODES))
    changed, those = rng.permutation(NODES)[:12], rng.permutation(NODES)[:12]
    old, before = rng.normal(size=(12, 3)), np.exp2(rng.integers(-6, 7, (12, 1)))
    before[:2] = 0
    drift, scale, bounds = rng.random(NODES), np.ones(3), (NODES - 4, NODES - 1, 2, NODES)
    found = []
    for kernels, made in ((compiled, np.array), (reference, torch.tensor)):
        rows, moved = made(state), made(drift)
        kernels.sum_renew(
            rows, rows[:0], moved, made(scale), made(own), made(changed), made(old), made(factor),
            made(those), made(before), *bounds,
        )  # fmt: skip
        found.append((np.asarray(rows), np.asarray(moved)))
    sound = np.isfinite(found[0][1])
    np.testing.assert_array_equal(np.isfinite(found[1][1]), sound)
    grown = factor[those] > GROWS * before[:, 0]
    assert set(np.flatnonzero(~sound)) == {
        *those[grown & (those >= 2) & (those < NODES - 4)], *range(NODES - 4, NODES - 1),
    }  # fmt: skip
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one[sound], other[sound], rtol=1e-12)
    total = rng.normal(size=(NODES, 3))
    state = own.copy()
    state[changed] = old
    by = factor.copy()
    by[those] = before[:, 0]
    state += by[:, None] * total
    drift[:] = 0
    compiled.sum_renew(
        state, state[:0], drift, scale, own, changed, old, factor, those, before, NODES, NODES, 0,
        NODES,
    )  # fmt: skip
    np.testing.assert_allclose(
        state[np.isfinite(drift)], (own + factor[:, None] * total)[np.isfinite(drift)], rtol=1e-9,
        atol=1e-9,
    )  # fmt: skip


@pytest.mark.kernels
@pytest.mark.parametrize(("loops", "owns"), [(0, NODES), (1, 1), (1, 0)])
def test_both_sets_of_kernels_sum_rows_with_terms(loops, owns, seed):
    rng = np.random.default_rng(seed)
    neighbor = rng.integers(0, NODES, 3 * NODES, np.int32)
    inn = Adjacency(
        3 * np.arange(NODES), np.full(NODES, 3, np.int32), np.full(NODES, 3, np.int32), neighbor,
        np.arange(3 * NODES, dtype=np.int32),
    )  # fmt: skip
    message, own, factor = (
        rng.normal(size=(NODES, 3)),
        rng.normal(size=(owns, 3)),
        rng.random(NODES),
    )
    ids, none = np.arange(0, NODES, 2), np.empty(0)
    want = message[neighbor].reshape(NODES, 3, 3).sum(1) + (1.5 * message if loops else 0)
    want = factor[:, None] * want + (own if owns else 0)
    for kernels, made in ((compiled, np.array), (reference, torch.tensor)):
        state, drift = made(np.zeros((NODES, 3))), made(np.ones(NODES))
        lists = Adjacency(*map(made, inn)) if made is torch.tensor else inn
        read = kernels.sum_rows(
            made(ids),
            state,
            state[:0],
            drift,
            made(message),
            made(none),
            made(own),
            made(factor),
            lists,
            False,
            made(np.full(loops, 1.5)),
        )
        assert read == 3 * ids.size
        np.testing.assert_allclose(np.asarray(state)[ids], want[ids], rtol=1e-12)
        assert not np.asarray(state)[1::2].any()
        assert not np.asarray(drift)[ids].any()


class Pooled(torch.nn.Module):
    """A sum that leaves, and is read by another one: its rows are copied."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(CHANNELS, 4, aggr="sum")

    def forward(self, x, edge_index):
        rows = self.conv(x, edge_index)
        return rows, global_add_pool(rows, None)


@pytest.mark.parametrize(
    "make",
    [lambda: GraphSAGE(CHANNELS, 6, 2, 4), lambda: GCN(CHANNELS, 6, 2, 4), Pooled],
    ids=["sage", "gcn", "pool"],
)
@pytest.mark.parametrize("compile_after", [1, None])
def test_saved_and_loaded(make, compile_after, seed, tmp_path):
    """One over the degree is stored, and so are sums that are copied: no values of the program."""
    inc, _ = wrapped(make(), seed, compile_after=compile_after)
    inc.save(tmp_path / "state")
    again = load(tmp_path / "state", inc.model)
    for model in (inc, again):
        model.apply_delta(
            torch.tensor([[1], [2]]), x_changes=([3], torch.ones(1, CHANNELS).double())
        )
    torch.testing.assert_close(again.out, inc.out, rtol=1e-12, atol=1e-13)
    assert again.verify() < 1e-12


def test_a_sum_says_what_it_is_made_of(seed):
    inc, _ = wrapped(SAGEConv(CHANNELS, 4), seed)
    step = next(a.step for a in inc._session.engine.aggregators if a.step.output.name != "degree")
    assert type(step) is Sum
    assert step.messages == (step.source, step.own, step.factor)


class ReadByTwo(torch.nn.Module):
    """An activation that writes to its input, and is part of two maps that read it."""

    def __init__(self):
        super().__init__()
        self.conv, self.lin = GCNConv(CHANNELS, 4), Linear(4, 4)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index).tanh_()
        return self.lin(h) + h


@pytest.mark.parametrize("compile_after", [1, None])
def test_an_activation_in_place_that_two_maps_compute(compile_after, seed):
    inc, rng = wrapped(ReadByTwo(), seed, compile_after=compile_after)
    assert len([p for p in inc.memory_report().parts if p.what == "rows" and "conv" in p.name]) == 2
    for node in range(5):
        x = torch.from_numpy(rng.standard_normal((1, CHANNELS)))
        inc.apply_delta(torch.tensor([[node], [9]]), x_changes=([node], x))
        assert inc.verify() < 1e-12
