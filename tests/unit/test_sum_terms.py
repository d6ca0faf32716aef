"""Sums that are kept as finished rows: `own + factor * sum`."""

import copy

import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphConv, GraphSAGE, SAGEConv, global_add_pool

from pyg_incremental import load, to_incremental
from pyg_incremental.aggregate import Sum
from pyg_incremental.kernels import compiled, reference
from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.kernels.reference.sums import GROWS
from tests.strategies import generator

NODES, CHANNELS = 30, 5


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
        (GraphSAGE(CHANNELS, 4, 2), {}, {"convs.0.out": (True, True), "convs.1.out": (True, True)}),
        (SAGEConv(CHANNELS, 4, aggr="sum"), {}, {"SAGEConv.out": (True, False)}),
        (GraphConv(CHANNELS, 4, aggr="mean"), {}, {"GraphConv.out": (True, True)}),
        (SAGEConv(CHANNELS, 4, root_weight=False), {}, {"SAGEConv.aggr_sum": (False, False)}),
        (SAGEConv(CHANNELS, 4, normalize=True), {}, {"SAGEConv.aggr_sum": (False, False)}),
        (SAGEConv(CHANNELS, 40), {}, {"SAGEConv.aggr_sum": (False, False)}),  # the product is last
        (ReadTwice(), {}, {"conv.aggr_sum": (False, False)}),
        (SAGEConv(CHANNELS, 4), {"store": "minimal"}, {"SAGEConv.aggr_sum": (False, False)}),
        (
            SAGEConv(CHANNELS, 4), {"accumulate_dtype": torch.float64},
            {"SAGEConv.aggr_sum": (False, False)},
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
    assert update.stats["SAGEConv.out"].reread >= 1
    assert inc.verify() < 1e-12
    update = inc.apply_delta(edge_index_del=into[:, :1])  # nothing is left but its own row
    lin = inc.model.lin_r(inc.x[0]) + inc.model.lin_l.bias
    torch.testing.assert_close(inc.out[0], lin, rtol=1e-14, atol=0)
    assert update.stats["SAGEConv.out"].reread == 0
    assert inc.verify() < 1e-12


@pytest.mark.parametrize("compile_after", [1, None])
def test_work_is_that_of_what_changed(compile_after, seed):
    """A row whose own features change is moved, not read again over its in-edges."""
    inc, rng = wrapped(GraphConv(CHANNELS, 4), seed, compile_after=compile_after)
    for node in range(6):
        x = torch.from_numpy(rng.standard_normal((1, CHANNELS)))
        step = inc.apply_delta(x_changes=([node], x)).stats["GraphConv.out"]
        out = inc.graph.to_edge_index()
        targets = {node, *out[1, out[0] == node].tolist()}
        assert (step.rows, step.edges, step.reread) == (
            len(targets),
            int((out[0] == node).sum()),
            0,
        )
    assert inc.verify() < 1e-12


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_what_is_not_finite_leaves_no_trace(backend, seed):
    inc, rng = wrapped(GraphSAGE(CHANNELS, 6, 2, 4), seed, backend=backend)
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
            rows, moved, made(scale), made(own), made(changed), made(old), made(factor),
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
        state, drift, scale, own, changed, old, factor, those, before, NODES, NODES, 0, NODES
    )
    np.testing.assert_allclose(
        state[np.isfinite(drift)], (own + factor[:, None] * total)[np.isfinite(drift)], rtol=1e-9,
        atol=1e-9,
    )  # fmt: skip


@pytest.mark.kernels
def test_both_sets_of_kernels_sum_rows_with_terms(seed):
    rng = np.random.default_rng(seed)
    neighbor = rng.integers(0, NODES, 3 * NODES, np.int32)
    inn = Adjacency(
        3 * np.arange(NODES), np.full(NODES, 3, np.int32), np.full(NODES, 3, np.int32), neighbor,
        np.arange(3 * NODES, dtype=np.int32),
    )  # fmt: skip
    message, own, factor = (
        rng.normal(size=(NODES, 3)),
        rng.normal(size=(NODES, 3)),
        rng.random(NODES),
    )
    ids, none = np.arange(0, NODES, 2), np.empty(0)
    want = own + factor[:, None] * message[neighbor].reshape(NODES, 3, 3).sum(1)
    for kernels, made in ((compiled, np.array), (reference, torch.tensor)):
        state, drift = made(np.zeros((NODES, 3))), made(np.ones(NODES))
        lists = Adjacency(*map(made, inn)) if made is torch.tensor else inn
        read = kernels.sum_rows(
            made(ids),
            state,
            drift,
            made(message),
            made(none),
            made(own),
            made(factor),
            lists,
            False,
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
    "make", [lambda: GraphSAGE(CHANNELS, 6, 2, 4), Pooled], ids=["sage", "pool"]
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
