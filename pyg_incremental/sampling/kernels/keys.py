"""The key of an edge: where it stands in the sample of its target, the largest first.

A key depends on nothing but the edge's id, its weight or time, and a seed. So the sample of a node
is a function of the edges that are there, whatever the order of the events that led to them.
"""

import numpy as np

from pyg_incremental.kernels.jit import njit


@njit(cache=True)
def _mixed(word):  # type: ignore[no-untyped-def]
    """A bijection of 64 bits after which all of them look drawn (Steele et al. 2014, SplitMix)."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@njit(cache=True)
def _drawn(edge, start):  # type: ignore[no-untyped-def]
    """64 bits for an edge id; `start` is made of the seed."""
    return _mixed(_mixed(start + np.uint64(edge)) + start)


@njit(cache=True)
def start_of(seed, turn):  # type: ignore[no-untyped-def]
    """What draws begin with, uint64: another one for each seed and each time of sampling anew."""
    return _mixed(_mixed(np.uint64(seed)) + np.uint64(turn) * np.uint64(0x9E3779B97F4A7C15))


@njit(counted=False)
def uniform_keys(edges, start, keys):  # type: ignore[no-untyped-def]
    """Keys `[k]` in [0, 2^63), so that the first ones of a node are a uniform subset."""
    for i in range(edges.size):
        keys[i] = np.int64(_drawn(edges[i], start) >> np.uint64(1))


@njit(counted=False)
def waiting_times(edges, weights, start, times):  # type: ignore[no-untyped-def]
    """Exponential times `[k]` of the rates `weights`: who comes first is drawn by weight.

    Efraimidis and Spirakis 2006, algorithm A-Res, with -log of their key u^(1/w), which does not
    underflow for small weights.
    """
    for i in range(edges.size):
        u = (np.float64(_drawn(edges[i], start) >> np.uint64(11)) + 1.0) * 2.0**-53
        times[i] = -np.log(u) / weights[i]
