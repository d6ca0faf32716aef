"""A cache holds what its seeds need, nothing else, and answers as the sampler does."""

import gc
from collections import Counter

import numpy as np
import pytest
import torch

from pyg_incremental import InvalidDeltaError, StaleStateError
from pyg_incremental.sampling import SampleCache, StreamingSampler
from tests.sampling.test_streams import STRATEGIES, made, random_delta

FANOUTS = (3, 2)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def needed_by(naive, seeds, fanouts):
    """How often each node is needed in each hop, by the definition."""
    hops = [Counter(seeds)]
    for k in fanouts:
        # A sample is held once for a hop, however often it is needed there.
        hops.append(Counter(u for node in hops[-1] for u, _ in naive.sampled(node, k)))
    return hops


def check(cache, naive, seeds, x, fanouts=FANOUTS):
    hops = needed_by(naive, seeds, fanouts)
    for hop, needed in enumerate(hops):
        assert dict(enumerate(cache._needed[hop])) == {
            v: needed.get(v, 0) for v in range(cache._needed.shape[1])
        }
    assert cache.stats.samples == [len(needed) for needed in hops[:-1]]
    assert cache.stats.features == len(set().union(*hops))
    if not seeds:
        return
    before = cache.stats
    batch = cache.query(torch.tensor(seeds))
    out = cache.sampler.sample(torch.tensor(seeds))
    assert torch.equal(batch.n_id, out.node)
    assert torch.equal(batch.edge_index, torch.stack([out.row, out.col]))
    assert torch.equal(batch.e_id, out.edge)
    assert batch.num_sampled_nodes == out.num_sampled_nodes
    assert batch.num_sampled_edges == out.num_sampled_edges
    assert torch.equal(batch.x, x[out.node])
    after, limit = cache.stats, len(seeds)
    assert after.misses == before.misses
    reached = limit * np.cumprod([1, *fanouts])  # by each hop, at most
    assert 0 < after.sample_lookups - before.sample_lookups <= reached[:-1].sum()
    assert 0 < after.feature_lookups - before.feature_lookups <= reached.sum()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_any_stream(strategy, seed):
    rng = np.random.default_rng(seed)
    sampler, naive = made(strategy, seed, rng, FANOUTS)
    x = torch.randn(12, 4)
    cache, seeds = SampleCache(sampler, x), []
    for turn in range(60):
        if turn % 3 == 0 and rng.random() < 0.7:
            more = rng.integers(0, sampler.num_nodes, 2).tolist()
            cache.subscribe(torch.tensor(more))
            seeds += more
        elif turn % 3 == 1 and seeds:
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
    copied = cache.stats.samples_copied
    sampler.resample()
    naive.turn += 1
    check(cache, naive, seeds, x)
    assert cache.stats.samples_copied > copied
    cache.unsubscribe(torch.tensor(seeds))
    check(cache, naive, [], x)
    assert cache.stats.features == 0
    assert cache.stats.samples == [0, 0]


def test_three_hops_and_disjoint_seeds(seed):
    rng = np.random.default_rng(seed)
    sampler, naive = made("random", seed, rng, (2, 2, 2), disjoint=True)
    x = torch.randn(12, 4)
    cache = SampleCache(sampler, x)
    cache.subscribe(torch.tensor([4, 1]))
    check(cache, naive, [4, 1], x, (2, 2, 2))
    batch = cache.query(torch.tensor([4, 1]))
    assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])
    assert batch.batch_size == 2


def test_only_what_changed_is_copied():
    """A record that reaches no seed costs nothing; one that does copies the samples it changed."""
    path = torch.stack([torch.arange(99), torch.arange(1, 100)])  # 0 -> 1 -> ... -> 99
    sampler = StreamingSampler(path, 100, [2, 2])
    cache = SampleCache(sampler, torch.randn(100, 3))
    cache.subscribe(torch.tensor([50]))
    assert cache.stats.samples_copied == 2  # of 50 and of 49
    assert cache.stats.features_copied == 3
    sampler.apply_delta(edge_index_add=torch.tensor([[7], [20]]))
    assert cache.stats.samples_copied == 2
    sampler.apply_delta(edge_index_add=torch.tensor([[7], [50]]))
    assert cache.stats.samples_copied == 4  # of 50, and that of 7, which came into it
    assert cache.stats.features_copied == 5  # 7 and 6
    cache.apply_delta(x_changes=(torch.tensor([7, 80]), torch.zeros(2, 3)))
    assert cache.stats.features_copied == 6
    sampler.apply_delta(edge_index_del=torch.tensor([[49], [50]]))
    assert cache.stats.samples == [1, 1]
    assert cache.query(torch.tensor([50])).n_id.tolist() == [50, 7, 6]


def test_seeds_that_nobody_asks_for_are_let_go():
    clock = Clock()
    sampler = StreamingSampler(torch.randint(20, (2, 60)), 20, [2])
    cache = SampleCache(sampler, torch.randn(20, 3), ttl=10, clock=clock)
    cache.subscribe(torch.tensor([1, 1, 2]))
    clock.now = 6
    cache.query(torch.tensor([2, 3]))
    assert (cache.stats.seeds, cache.stats.queries, cache.stats.misses) == (3, 2, 1)
    clock.now = 12  # 1 was last heard of at 0, the others at 6
    cache.tick()
    assert cache.stats.seeds == 2
    clock.now = 17
    cache.query(torch.tensor([4]))
    assert cache.stats.seeds == 1
    cache.unsubscribe(torch.tensor([4]))
    assert (cache.stats.seeds, cache.stats.features) == (0, 0)
    with pytest.raises(ValueError, match="cannot be taken back"):
        cache.unsubscribe(torch.tensor([4]))


def test_old_edges_are_let_go():
    clock = Clock()
    times = torch.arange(10.0)
    edges = torch.stack([torch.arange(10), torch.full((10,), 10)])
    sampler = StreamingSampler(edges, 11, [3], strategy="topk", edge_time=times)
    cache = SampleCache(sampler, torch.randn(11, 3), data_ttl=5, clock=clock)
    clock.now = 13
    cache.subscribe(torch.tensor([10]))
    assert cache.query(torch.tensor([10])).e_id.tolist() == [9, 8, 7]
    cache.tick()  # all edges before 8
    assert cache.query(torch.tensor([10])).e_id.tolist() == [9, 8]
    assert sampler.num_edges == 2


def test_a_cache_may_be_thrown_away():
    sampler = StreamingSampler(torch.randint(20, (2, 60)), 20, [2])
    cache = SampleCache(sampler, torch.randn(20, 3))
    other = SampleCache(sampler, torch.randn(20, 3))
    other.subscribe(torch.arange(20))
    del cache
    gc.collect()
    sampler.apply_delta(edge_index_add=torch.tensor([[1, 2], [3, 4]]))
    assert len(sampler._watchers) == 1
    assert torch.equal(other.query(torch.arange(20)).e_id, sampler.sample(torch.arange(20)).edge)


def test_what_does_not_fit_is_refused():
    edges = torch.randint(20, (2, 60))
    sampler = StreamingSampler(edges, 20, [2])
    x = torch.randn(20, 3)
    with pytest.raises(ValueError, match="limit for every hop"):
        SampleCache(StreamingSampler(edges, 20, [-1]), x)
    with pytest.raises(ValueError, match="no times"):
        SampleCache(sampler, x, data_ttl=3)
    with pytest.raises(ValueError, match="a row for each of 20 nodes"):
        SampleCache(sampler, x[:5])
    cache = SampleCache(sampler, x)
    with pytest.raises(ValueError, match="node id 20"):
        cache.query(torch.tensor([20]))
    for fields in (
        {"x_changes": (torch.tensor([20]), torch.zeros(1, 3))},
        {"x_add": torch.zeros(1, 4)},
        {"edge_index_add": torch.tensor([[0], [20]]), "x_changes": (torch.tensor([0]), x[:1])},
    ):
        with pytest.raises(InvalidDeltaError):
            cache.apply_delta(**fields)
    assert torch.equal(cache.query(torch.tensor([0])).x[0], x[0])
    assert "1 seeds" in repr(cache)


def test_nothing_is_answered_after_an_interrupt(monkeypatch):
    """Ctrl-C in the middle of a change; of the cache alone, and of both."""

    def interrupted(*args):
        raise KeyboardInterrupt

    edges = torch.randint(20, (2, 60))
    sampler = StreamingSampler(edges, 20, [2])
    cache = SampleCache(sampler, torch.randn(20, 3))
    with monkeypatch.context() as patch:
        patch.setattr(cache._hops[0], "copy", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.subscribe(torch.tensor([3]))
    with pytest.raises(StaleStateError, match="this cache was interrupted"):
        cache.query(torch.tensor([3]))
    with pytest.raises(StaleStateError, match="this cache was interrupted"):
        cache.subscribe(torch.tensor([3]))
    assert sampler.sample(torch.tensor([3])).node[0] == 3
    del cache
    gc.collect()
    with monkeypatch.context() as patch:
        patch.setattr(sampler.edges_of().rows, "enter", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sampler.apply_delta(edge_index_add=edges[:, :2])
    for method in (sampler.resample, sampler.apply_delta, lambda: sampler.sample(edges[0])):
        with pytest.raises(StaleStateError, match="this sampler was interrupted"):
            method()
