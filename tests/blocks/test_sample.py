"""Which edges of a node are drawn: as many as asked, each choice as likely, in little memory."""

import itertools
import tracemalloc

import numpy as np
import pytest
from scipy.stats import chisquare

from pyg_incremental.blocks import sample
from pyg_incremental.blocks.sample import drawn


@pytest.mark.parametrize("at_once", [1, 7, 1 << 20])
def test_as_many_as_asked(at_once, seed, monkeypatch):
    """Of nodes with none, few and many edges, however many of these are read at a time."""
    monkeypatch.setattr(sample, "AT_ONCE", at_once)
    rng = np.random.default_rng(seed)
    node = (40 * rng.random(500) ** 3).astype(np.int64)
    degree = np.bincount(node, minlength=41)
    for most in (1, 5, degree.max() - 1, degree.max(), 1000):
        kept = drawn(node, 41, int(most), rng)
        assert (np.diff(kept) > 0).all()
        assert np.array_equal(np.bincount(node[kept], minlength=41), np.minimum(degree, most))
    assert not len(drawn(node[:0], 41, 3, rng))
    assert not len(drawn(node[:0], 0, 3, rng))


@pytest.mark.unmeasured
def test_every_choice_is_as_likely(seed):
    """Three of six edges, which stand between those of another node."""
    rng, times = np.random.default_rng(seed), 20 * 500
    node = np.tile(np.array([4, 1]), 6)
    seen = dict.fromkeys(itertools.combinations(range(0, 12, 2), 3), 0)
    for _ in range(times):
        kept = drawn(node, 5, 3, rng)
        seen[tuple(int(i) for i in kept[node[kept] == 4])] += 1
    assert len(seen) == 20
    assert chisquare([*seen.values()]).pvalue > 1e-4


@pytest.mark.unmeasured
def test_drawing_takes_little_beside_what_is_kept(seed):
    """The edges themselves may lie on a disk."""
    rng = np.random.default_rng(seed)
    node = rng.integers(0, 1000, 4_000_000)
    drawn(node[:10], 1000, 10, rng)  # compiled before it is counted
    tracemalloc.start()
    kept = drawn(node, 1000, 10, rng)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 10_000
    assert peak < 32 * sample.AT_ONCE + 3 * kept.nbytes
