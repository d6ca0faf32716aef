"""Memory that is lent again, but never while somebody looks at what is in it."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphSAGE

from pyg_incremental import to_incremental
from pyg_incremental.kernels import lent, threads
from pyg_incremental.kernels.lent import Lent
from pyg_incremental.kernels.threads import take
from tests.strategies import generator


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_when_nobody_holds_the_result():
    memory = Lent()
    first = memory.array(np.float32, 100, 4)
    at = address(first)
    assert first.shape == (100, 4)
    assert at % 64 == 0
    del first
    assert address(memory.array(np.float64, 50, 4)) == at


def test_who_asks_for_the_next_result_may_still_hold_the_last_one():
    memory = Lent()
    seen = set()
    result = memory.array(np.float32, 100, 4)
    for _ in range(6):
        result[:] = 1
        result = memory.array(np.float32, 100, 4)
        seen.add(address(result))
    assert len(seen) == 2
    assert sum(kept.nbytes for kept in memory._kept) < 4 * result.nbytes


@pytest.mark.parametrize(
    "hold",
    [
        lambda a: a,
        lambda a: a[3:5],
        lambda a: a.reshape(-1)[7:],
        lambda a: torch.from_numpy(a),
        lambda a: torch.from_numpy(a)[2],
        lambda a: memoryview(a),
    ],
    ids=["array", "slice", "view", "tensor", "row of a tensor", "buffer"],
)
def test_what_somebody_holds_is_not_written_to(hold):
    memory = Lent()
    array = memory.array(np.float32, 100, 4)
    array[:] = 1
    held = hold(array)
    del array
    memory.array(np.float32, 100, 4)[:] = 2
    assert (np.asarray(held) == 1).all()


def test_very_much_is_not_kept(monkeypatch):
    monkeypatch.setattr(lent, "KEPT", 1000)
    memory = Lent()
    memory.array(np.float32, 1000)[:] = 1
    assert not memory._kept


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_])
@pytest.mark.parametrize("tail", [(), (3,), (2, 5), (0,)])
@pytest.mark.parametrize("few", [1, threads.MANY])
def test_rows_are_those_of_numpy(dtype, tail, few, seed, monkeypatch):
    monkeypatch.setattr(threads, "MANY", few)
    rng = generator(seed)
    rows = (10 * rng.standard_normal((50, *tail))).astype(dtype)
    for ids in (rng.permutation(50)[:20], np.empty(0, np.int64)):
        got = take(rows, ids, Lent())
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, rows[ids])


def test_results_of_earlier_updates_stay_as_they_were(seed, monkeypatch):
    monkeypatch.setattr(threads, "MANY", 1)
    rng = generator(seed)
    torch.manual_seed(0)
    inc = to_incremental(GraphSAGE(8, 16, 2, 5).double().eval(), compile_after=1)
    x = torch.from_numpy(rng.standard_normal((200, 8)))
    inc(x, torch.from_numpy(rng.integers(0, 200, (2, 600))))
    kept = []
    for turn in range(12):
        at = torch.from_numpy(rng.permutation(200)[:20])
        up = inc.apply_delta(x_changes=(at, torch.from_numpy(rng.standard_normal((20, 8)))))
        if turn % 3:  # the memory of every third one is lent again
            kept.append((up.out if turn % 2 else up.out[1:3], up.out.clone(), turn))
        assert torch.equal(up.out, inc.out[up.changed])
        del up
    for out, copy, turn in kept:
        assert torch.equal(out, copy if turn % 2 else copy[1:3]), turn
    assert inc.verify() < 1e-12


def test_results_may_be_the_next_features(seed, monkeypatch):
    """Also in another order: they are read while the next ones are made."""
    monkeypatch.setattr(threads, "MANY", 1)
    rng = generator(seed)
    torch.manual_seed(0)
    inc = to_incremental(GraphSAGE(8, 16, 2, 8).double().eval(), compile_after=1)
    x = torch.from_numpy(rng.standard_normal((200, 8)))
    inc(x, torch.from_numpy(rng.integers(0, 200, (2, 600))))
    up = inc.apply_delta(x_changes=(torch.arange(20), x[20:40]))
    for _ in range(4):
        at, rows = up.changed.flip(0), up.out.clone()
        up = inc.apply_delta(x_changes=(at, up.out))
        assert torch.equal(inc.x[at], rows)
        assert torch.equal(up.out, inc.out[up.changed])
        assert inc.verify() < 1e-12
