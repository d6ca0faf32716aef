"""Arrays that grow where they are, and the table of pairs that moves to a larger one."""

import copy

import numpy as np
import pytest
import torch

from pyg_incremental import DynamicGraph
from pyg_incremental.graph import room as module
from pyg_incremental.graph.room import AddressRoom
from pyg_incremental.kernels import pairs


@pytest.mark.parametrize("how", ["in place", "no pages", "no addresses"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_growing(how, dtype, monkeypatch):
    if how == "no pages":
        monkeypatch.setattr(module, "_PRIVATE", 0)
    if how == "no addresses":
        monkeypatch.setattr(module.mmap, "mmap", _refuse)
    room, array, where = AddressRoom(), np.arange(5, dtype=dtype), set()
    for count in (10, 300_000, 400_000, 900_000, 5_000_000):
        before = array
        dirt = np.full(count, 7, dtype)  # so that memory that nobody clears holds something
        del dirt
        array = room.longer(array, count)
        assert array.shape == (count,)
        assert array.dtype == dtype
        assert np.array_equal(array[: before.size], before)
        assert not array[before.size :].any()
        array[before.size :] = np.arange(before.size, count)
        assert np.array_equal(array[: before.size], before)  # which nobody has moved
        where.add(array.__array_interface__["data"][0])
    assert np.array_equal(array, np.arange(5_000_000))
    assert (len(where) < 5) == (how == "in place")
    other = copy.deepcopy(room)
    assert np.array_equal(other.longer(array, 5_000_001)[:-1], array)


def _refuse(*_, **__):
    raise OSError("no addresses")


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32, torch.int64])
@pytest.mark.parametrize("shape", [(), (3,), (0,)])
def test_rows_grow(dtype, shape):
    room, rows = AddressRoom(), torch.ones(7, *shape).to(dtype)
    for count in (9, 600_000, 700_000):
        dirt = torch.ones(count, *shape).to(dtype)
        del dirt
        longer = room.longer_rows(rows, count)
        assert longer.shape == (count, *shape)
        assert longer.dtype == dtype
        assert torch.equal(longer[: len(rows)], rows)
        assert not longer[len(rows) :].any()
        longer[len(rows) :] = 1
        rows = longer


def test_a_graph_that_grows_by_itself_and_its_copy(seed):
    """Past the size at which slots stay where they are, with edges that leave in between."""
    rng = np.random.default_rng(seed)
    graph = DynamicGraph(torch.empty(2, 0, dtype=torch.int64), 50_000, {"time": torch.empty(0)})
    expected, time = np.empty((2, 0), np.int64), 0
    for _ in range(6):
        edges = rng.integers(0, 50_000, (2, 80_000))
        times = torch.arange(time, time + 80_000, dtype=torch.float32)
        graph.add_edges(torch.from_numpy(edges), time=times)
        time += 80_000
        keys = edges[0] * 50_000 + edges[1]
        _, last = np.unique(keys[::-1], return_index=True)  # of a pair the last one leaves
        gone = 80_000 - 1 - last[:20_000]
        graph.delete_edges(torch.from_numpy(edges[:, gone]))
        expected = np.concatenate([expected, np.delete(edges, gone, 1)], 1)
    other = copy.deepcopy(graph)
    other.add_edges(torch.zeros(2, 400_000, dtype=torch.int64), time=torch.zeros(400_000))
    found = np.lexsort(graph.to_edge_index().numpy()), np.lexsort(expected)
    assert np.array_equal(graph.to_edge_index().numpy()[:, found[0]], expected[:, found[1]])
    assert graph.find(*expected).min() >= 0
    assert other.num_edges == graph.num_edges + 400_000


@pytest.mark.kernels
def test_a_table_moves_with_its_chains(seed):
    """Every pair leads to the edge that it led to, in a table of any size."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, 6, (2, 40))
    graph = DynamicGraph(torch.from_numpy(edges), 6)
    graph.remove(np.arange(0, 40, 5))
    older = graph.slots.older.copy()
    every = np.array([[u, v] for u in range(6) for v in range(6)]).T.copy()
    before = graph.find(*every)
    for size in (64, 1024):
        table = np.full(size, pairs.EMPTY, np.int32)
        assert pairs.move(graph._table, table, graph.slots) == (before >= 0).sum()
        graph._table = table
        assert np.array_equal(graph.find(*every), before)
        assert np.array_equal(graph.slots.older, older)
