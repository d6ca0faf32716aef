"""Sums along so many edges that their rows are written one by one: the same bits."""

import numpy as np
import pytest
import torch
from numba import config, njit
from torch_geometric.nn import GraphConv, GraphSAGE

from pyg_incremental import to_incremental
from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.kernels.compiled import grouped, pushes, sums
from pyg_incremental.ops import base

ROWS, WIDTH = 40_000, 64


def drawn(sources, degree, seed, rows=ROWS):
    """Arguments of `sum_push` that its callers share, float64, and where sources send to."""
    draw = np.random.default_rng(seed)
    ids = draw.permutation(rows)[:sources].astype(np.int64)
    out = Adjacency(
        np.zeros(rows, np.int64), np.zeros(rows, np.int32), np.zeros(rows, np.int32),
        draw.integers(0, rows, sources * degree, np.int32),
        np.arange(sources * degree, dtype=np.int32),
    )  # fmt: skip
    out.start[ids], out.degree[ids] = degree * np.arange(sources), degree
    message, old = draw.normal(size=(rows, WIDTH)), draw.normal(size=(sources, WIDTH))
    return ids, out, message, old


def push(parts, ids, out, message, old, weight, factor, drop, loop):
    """State, magnitudes moved and rows touched after pushing in so many calls."""
    state, drift = np.zeros((ROWS, WIDTH)), np.zeros(ROWS)
    inn = out._replace(degree=np.ones(ROWS, np.int32))
    stamp, found, edges = np.zeros(ROWS, np.int64), [], 0
    for part in np.array_split(np.arange(ids.size), parts):
        touched = np.full(ROWS, -1)
        count, pushed, again = pushes.sum_push(
            state, state[:0], drift, 1e300, np.zeros(WIDTH), message, weight, message[:0], factor,
            ids[part], old[part], out, inn, drop, loop, touched, 0, stamp, len(found) + 1,
        )  # fmt: skip
        assert not again.size
        assert (touched[count:] == -1).all() or parts > 1  # what lies behind is no row
        found.append(touched[:count])
        edges += pushed
    return state, drift, np.unique(np.concatenate(found)), edges


@pytest.mark.parametrize(
    ("has_weight", "has_factor", "closed"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, False)],
)
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize(
    ("sources", "degree"), [(1_000, 50), (2_000, 2_200)], ids=["at once", "in chunks"]
)
def test_rows_get_the_bits_of_a_push_in_order(
    sources, degree, drop, has_weight, has_factor, closed
):
    ids, out, message, old = drawn(sources, degree, seed=3)
    out.neighbor[out.start[ids]] = ids  # a loop each
    draw = np.random.default_rng(4)
    weight = draw.normal(size=ids.size * degree if has_weight else 0)
    factor = draw.normal(size=ROWS if has_factor else 0)
    assert ROWS * WIDTH * 8 > pushes.LARGE
    assert ids.size * degree > ROWS
    assert degree < 100 or ids.size * degree > pushes.AT_ONCE
    loop = np.full(int(closed), 1.5)
    given = ids, out, message, old, weight, factor, drop, loop
    wide, narrow = push(1, *given), push(-(-ids.size // 200), *given)
    assert pushes.FEW_SOURCES > 200  # so few sources never are wide
    for one, other in zip(wide, narrow, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not closed or np.isin(ids, wide[2]).all()
    assert (np.diff(wide[2]) > 0).all()


@pytest.mark.kernels
@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("rows", [1, 60, 5_000, 3_000_000])
@pytest.mark.parametrize("size", [0, grouped.FEW, grouped.FEW + 1, grouped.MANY + 1])
def test_edges_are_sorted_by_row_and_keep_their_order(size, rows, columns):
    draw = np.random.default_rng(7)
    edges = draw.integers(0, rows, (size, columns), np.int32)
    edges[:, 0] = np.arange(size)
    want = edges[edges[:, 1].argsort(kind="stable")]
    np.testing.assert_array_equal(sorted_by_row(edges, rows), want)


@njit
def sorted_by_row(edges, rows):
    return grouped.sorted_by_row(edges, rows)


@pytest.mark.kernels
def test_rows_that_drifted_too_far_are_summed_afresh_one_by_one(monkeypatch):
    size, sources = (2_000, 300) if config.DISABLE_JIT else (ROWS, 1_000)
    monkeypatch.setattr(pushes, "LARGE", pushes.LARGE * size // ROWS)  # where it is not compiled
    ids, out, message, old = drawn(sources, 50, 5, size)
    state, drift, stamp = np.ones((size, WIDTH)), np.full(size, np.inf), np.zeros(size, np.int64)
    inn = out._replace(
        start=np.zeros(size, np.int64),
        degree=np.ones(size, np.int32),
        neighbor=ids.astype(np.int32),
    )
    touched = np.empty(size, np.int64)
    count, _, again = pushes.sum_push(
        state, state[:0], drift, 1e3, np.ones(WIDTH), message, np.empty(0), message[:0],
        np.empty(0), ids, old, out, inn, False, np.empty(0), touched, 0, stamp, 1,
    )  # fmt: skip
    rows = touched[:count]
    np.testing.assert_array_equal(again, rows)
    none = message[:0], np.empty(0)
    read = sums.sum_rows(
        again, state, state[:0], drift, message, np.empty(0), *none, inn, False, none[1]
    )
    np.testing.assert_array_equal(rows, np.unique(out.neighbor))
    assert read == count
    assert (state[rows] == message[ids[0]]).all()
    assert (drift[rows] == 0).all()
    assert (np.delete(state, rows, 0) == 1).all()


# Any two of them are together in one.
@pytest.mark.parametrize(
    ("threads", "weighted", "changes"),
    [
        (1, True, 18_000),
        (2, False, 18_000),
        pytest.param(1, False, 3_000, marks=pytest.mark.more),
        pytest.param(2, True, 3_000, marks=pytest.mark.more),
    ],
)
def test_updates_that_push_so_much_are_exact(threads, weighted, changes, monkeypatch):
    """And name exactly the rows that differ."""
    monkeypatch.setattr(base, "_pull_pays", lambda *_: False)  # it would, with one thread
    draw = torch.Generator().manual_seed(7)
    model = (
        GraphConv(WIDTH, WIDTH, aggr="add") if weighted else GraphSAGE(WIDTH, WIDTH, num_layers=2)
    )
    model = model.double().eval()
    x = torch.randn(ROWS, WIDTH, generator=draw, dtype=torch.float64)
    edges = torch.randint(ROWS, (2, 16 * ROWS), generator=draw)
    edges[1] //= 2  # the others are reached by nothing
    weight = torch.rand(edges.shape[1], generator=draw, dtype=torch.float64) if weighted else None
    was = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        inc = to_incremental(model, compile_after=1)
        before = inc(x, edges, *([weight] if weighted else [])).clone()
        for turn in range(2):
            ids = torch.randperm(ROWS, generator=draw)[: changes + turn]
            added = torch.randint(ROWS, (2, 500), generator=draw)
            update = inc.apply_delta(
                added, edges[:, 400 * turn : 400 * (turn + 1)],
                (ids, torch.randn(ids.numel(), WIDTH, generator=draw, dtype=torch.float64)),
                **({"edge_weight_add": torch.rand(500, dtype=torch.float64)} if weighted else {}),
                which="oldest",
            )  # fmt: skip
            pushed = max(s.edges for s in update.stats.steps if s.kind == "sum" and s.way == "push")
            assert pushed * pushes.COMPARED > ROWS
            assert changes < 10_000 or pushed > pushes.PART
            after = inc.out.clone()
            differ = (after != before).any(1).nonzero().squeeze(1)
            assert 0 < differ.numel() < ROWS
            assert torch.equal(update.changed.sort().values, differ)
            before = after
            assert inc.verify() < 1e-9
    finally:
        torch.set_num_threads(was)
