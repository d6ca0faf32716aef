"""Kept samples have the distribution of samples drawn afresh, after insertions and deletions."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from pyg_incremental.sampling import StreamingSampler, reservoirs
from tests.sampling.naive import chance_by_weight

STREAMS, TARGETS, K = 200, 10, 2
SOURCES = 9  # in-edges of every target that ever were; some of them leave
WEIGHTS = {s: 1.0 + s % 4 for s in range(SOURCES)}


def samples(strategy, seed):
    """The samples of targets with equal histories, as sets of sources."""
    targets, sources = np.arange(TARGETS), np.arange(TARGETS, TARGETS + SOURCES)
    rng = np.random.default_rng(seed)

    def edges(of):
        pairs = [(sources[s], t) for t in targets for s in of]
        return torch.from_numpy(np.array(pairs).T)

    def data(of):
        weights = torch.tensor([WEIGHTS[s] for _ in targets for s in of])
        return weights, torch.from_numpy(rng.random(weights.numel()))

    def values(of):
        weight, time = data(of)
        return {"random": {}, "weight": {"edge_weight": weight}, "topk": {"time": time}}[strategy]

    first = values(range(4))
    if "time" in first:
        first["edge_time"] = first.pop("time")
    nodes = TARGETS + SOURCES
    sampler = StreamingSampler(edges(range(4)), nodes, [K], strategy=strategy, seed=seed, **first)
    for gone, come in (((0,), (4, 5, 6)), ((5, 2), (7,)), ((1,), (8, 0))):
        sampler.apply_delta(
            edge_index_del=edges(gone), edge_index_add=edges(come), edge_data_add=values(come)
        )
    out = sampler.sample(torch.arange(TARGETS))
    found = (out.node[out.row] - TARGETS).view(TARGETS, K)
    return [tuple(sorted(row)) for row in found.tolist()], (0, 3, 4, 6, 7, 8)


def p_value(strategy):
    counts = Counter()
    for seed in range(STREAMS):
        found, left = samples(strategy, seed)
        counts.update(found)
    subsets = list(combinations(left, K))
    assert set(counts) <= set(subsets)
    weights = {s: WEIGHTS[s] if strategy == "weight" else 1.0 for s in left}
    expected = np.array([chance_by_weight(subset, weights) for subset in subsets])
    assert expected.sum() == pytest.approx(1)
    observed = np.array([counts[subset] for subset in subsets])
    assert observed.sum() == STREAMS * TARGETS
    return chisquare(observed, expected * observed.sum()).pvalue


@pytest.mark.parametrize("strategy", ["random", "weight", "topk"])
def test_as_drawn_afresh(strategy):
    assert p_value(strategy) > 0.01


def test_a_biased_refill_is_caught(monkeypatch):
    """What takes the place of an edge that left is the oldest edge, not any of the others."""
    refill = reservoirs.kernel.refill

    def biased(first, nodes, anew, width, limit, heads, pool, top, lists, keys, edges, read):
        if not anew:
            keys = keys.copy()
            for v in nodes.tolist():
                start, held = heads[v, 0], heads[v, 1]
                kept = {int(p) >> 32 for p in pool[start : start + held, 2]}
                of_v = lists.edge[lists.start[v] : lists.start[v] + lists.degree[v]].tolist()
                for slot in sorted(set(of_v) - kept):
                    keys[slot] = -1 - int(edges[slot])
        return refill(first, nodes, anew, width, limit, heads, pool, top, lists, keys, edges, read)

    monkeypatch.setattr(reservoirs.kernel, "refill", biased)
    assert p_value("random") < 0.01


def test_a_biased_arrival_is_caught(monkeypatch):
    """One in eight edges that should come in is turned away."""
    enter = reservoirs.kernel.enter

    def biased(first, nodes, sources, slots, keys, edges, *rest):
        return enter(first, nodes, sources, slots, np.where(edges % 8, keys, -1), edges, *rest)

    monkeypatch.setattr(reservoirs.kernel, "enter", biased)
    assert p_value("random") < 0.01


def test_weights_that_are_passed_over_are_caught():
    """By weight is not uniform: the test above can tell the two apart."""
    uniform = Counter()
    for seed in range(STREAMS):
        uniform.update(samples("random", seed)[0])
    subsets = list(combinations((0, 3, 4, 6, 7, 8), K))
    weights = {s: WEIGHTS[s] for s in (0, 3, 4, 6, 7, 8)}
    expected = np.array([chance_by_weight(s, weights) for s in subsets]) * STREAMS * TARGETS
    assert chisquare([uniform[s] for s in subsets], expected).pvalue < 0.01


def test_two_hops_are_drawn_apart():
    """One row serves both hops; along a cycle, too, the hops are as if each had drawn its own."""
    # 0 has in-edges from 1, 2, 3; each of them from 0 and two more nodes, and 0 from each.
    edges = [(s, 0) for s in (1, 2, 3)] + [(s, t) for t in (1, 2, 3) for s in (0, 4, 5)]
    edge_index = torch.tensor(edges).t()
    counts = Counter()
    streams = 2_000
    for seed in range(streams):
        sampler = StreamingSampler(edge_index, 6, [2, 1], seed=seed)
        out = sampler.sample(torch.tensor([0]))
        source, target = out.node[out.row].tolist(), out.node[out.col].tolist()
        counts[tuple(sorted(zip(source, target, strict=True)))] += 1
    every = [
        tuple(sorted([(a, 0), (b, 0), (s, a), (t, b)]))
        for a, b in combinations((1, 2, 3), 2)
        for s in (0, 4, 5)
        for t in (0, 4, 5)
    ]
    assert set(counts) <= set(every)
    assert chisquare([counts[s] for s in every]).pvalue > 0.01
