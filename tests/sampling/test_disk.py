"""A cache that keeps to a number of bytes holds the rest on disk, and answers the same."""

import builtins
import gc
import tracemalloc

import numpy as np
import pytest
import torch

from pyg_incremental.sampling import SampleCache, StreamingSampler
from pyg_incremental.sampling.slot_map import Overflow, PlacedRows
from pyg_incremental.sampling.tables import SampleTable
from tests.sampling.test_cache import FANOUTS, check
from tests.sampling.test_streams import STRATEGIES, made, random_delta

try:
    from pyg_incremental.sampling.disk_table import DiskTable

    DiskTable().close()
except ImportError:
    pytest.skip("rocksdict is not installed (the `disk` extra)", allow_module_level=True)


def test_a_round_without_new_nodes_copies_nothing():
    """Of what is known of each node, which is more than all else in a large graph."""
    spill = DiskTable()
    table = SampleTable(100_000, 4, Overflow(1000, spill, 0))
    kept = table._heads, table.store._on_disk, table.store.places.of
    tracemalloc.start()
    for _ in range(3):
        table.grow(100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    spill.close()
    assert peak < 10_000
    now = table._heads, table.store._on_disk, table.store.places.of
    assert all(a is b for a, b in zip(now, kept, strict=True))
    table.grow(100_001)
    table.put(np.array([100_000]), np.array([1]), np.array([[7, 8, 9]]))
    assert table.read(np.array([100_000]))[1].tolist() == [[7, 8, 9]]


@pytest.mark.parametrize("memory", [0, 900])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_any_stream(strategy, memory, seed, tmp_path):
    """Subscriptions, changes and queries at random, held against the definition every time."""
    rng = np.random.default_rng(seed)
    sampler, naive = made(strategy, seed, rng, FANOUTS)
    x = torch.randn(12, 4)
    cache, seeds = SampleCache(sampler, x, memory=memory, directory=tmp_path), []
    for turn in range(30):
        if turn % 3 == 0:
            more = rng.integers(0, sampler.num_nodes, 2).tolist()
            cache.subscribe(torch.tensor(more))
            seeds += more
        elif turn % 3 == 1 and turn > 10:
            seeds, gone = seeds[1:], seeds[:1]
            cache.unsubscribe(torch.tensor(gone))
        fields = random_delta(sampler, naive, strategy, rng)
        if "x_add" in fields:
            fields["x_add"] = torch.randn(len(fields["x_add"]), 4)
            x = torch.cat([x, fields["x_add"]])
        fields["x_changes"] = (torch.tensor([turn % len(x)]), torch.randn(1, 4))
        x[turn % len(x)] = fields["x_changes"][1]
        x[fields["nodes_del"]] = 0
        cache.apply_delta(**fields)
        check(cache, naive, seeds, x)
        for one in seeds[:2]:  # so that other rows are sent to the disk
            batch = cache.query(torch.tensor([one]))
            assert torch.equal(batch.x, x[batch.n_id])
    traffic = cache.stats.disk
    assert traffic.rows_read > 0
    assert traffic.rows_written > 0
    cache.unsubscribe(torch.tensor(seeds))
    check(cache, naive, [], x)
    assert cache.stats.bytes_on_disk == 0


def test_bytes_in_memory_and_on_disk():
    """What is held is either in memory, within the limit, or on disk; nothing is lost or double."""
    nodes, k, d, limit = 2_000, 4, 8, 40_000
    edges = torch.randint(nodes, (2, 20 * nodes), generator=torch.Generator().manual_seed(0))
    x = torch.randn(nodes, d)
    sampler = StreamingSampler(edges, nodes, [k, k])
    free, bound = SampleCache(sampler, x), SampleCache(sampler, x, memory=limit)
    seeds = torch.arange(600)
    for cache in (free, bound):
        cache.subscribe(seeds)
    sample, features = k * 3 * 8, d * 4
    every = sum(free.stats.samples) * sample + free.stats.features * features
    assert free.stats.bytes_on_disk == 0
    stores = [*(table.store for table in bound._hops), bound._features.store]
    in_memory = [store.places.count * store.row_bytes for store in stores]
    assert [store.row_bytes for store in stores] == [sample, sample, features]
    assert bound.stats.bytes_on_disk == every - sum(in_memory)
    limits = [limit // 4, limit // 4, limit // 2]
    for store, held, most in zip(stores, in_memory, limits, strict=True):
        assert most // 2 < held <= store.rows.nbytes <= most
    sent = bound.stats.disk
    assert sent.bytes_written >= bound.stats.bytes_on_disk > every / 2
    for first in range(0, 600, 20):
        few = seeds[first : first + 20]
        a, b = free.query(few), bound.query(few)
        for name in ("x", "edge_index", "n_id", "e_id"):
            assert torch.equal(a[name], b[name])
    for store, most in zip(stores, limits, strict=True):
        assert store.rows.nbytes <= most  # twenty seeds need less
    before = bound.stats.disk
    for _ in range(3):  # what was asked for last is in memory
        bound.query(few)
    assert bound.stats.disk == before
    bound.query(seeds)  # all of it at once: samples are in memory together
    assert limits[1] < stores[1].rows.nbytes <= bound.stats.samples[1] * sample
    assert stores[2].rows.nbytes <= limits[2]


def test_a_row_that_did_not_change_is_written_once():
    disk = DiskTable()
    rows = PlacedRows(10, torch.empty(0, 2), Overflow(16, disk, 0))  # two rows
    for node in range(4):
        at = torch.from_numpy(rows.place(np.array([node])))
        rows.rows[at] = torch.tensor([[node, -node]]).float()
    assert (disk.traffic.rows_written, disk.traffic.bytes_written) == (2, 16)
    for _ in range(3):
        for node in range(4):
            at = torch.from_numpy(rows.bring(np.array([node])))
            assert rows.rows[at].tolist() == [[node, -node]]
    assert disk.traffic.rows_written == 4
    assert disk.traffic.bytes_read == 8 * disk.traffic.rows_read > 0
    rows.rows[torch.from_numpy(rows.place(np.array([0])))] = 7.0  # the copy on disk is old now
    rows.bring(np.array([1]))
    rows.bring(np.array([2, 3]))
    assert rows.rows[torch.from_numpy(rows.bring(np.array([0])))].tolist() == [[7, 7]]
    rows.drop(np.array([0, 2]))
    assert (rows.count, rows.has(np.arange(4)).tolist()) == (2, [False, True, False, True])
    assert rows.rows.nbytes == 16


def test_the_folder_goes_with_the_cache(tmp_path):
    sampler = StreamingSampler(torch.randint(20, (2, 60)), 20, [2])
    cache = SampleCache(sampler, torch.randn(20, 3), memory=0, directory=tmp_path)
    cache.subscribe(torch.arange(20))
    assert len(list(tmp_path.iterdir())) == 1
    del cache
    gc.collect()
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="number of bytes"):
        SampleCache(sampler, torch.randn(20, 3), memory=-1)


def test_without_rocksdict(monkeypatch):
    def refuse(name, *rest):
        if name == "rocksdict":
            raise ImportError(name)
        return load(name, *rest)

    load = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", refuse)
    sampler = StreamingSampler(torch.randint(20, (2, 60)), 20, [2])
    with pytest.raises(ImportError, match=r"pyg-incremental\[disk\]"):
        SampleCache(sampler, torch.randn(20, 3), memory=1000)
