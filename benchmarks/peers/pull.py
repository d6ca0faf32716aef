"""Rows aggregated over their whole in-neighbourhood, for each kind of aggregation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.peers.adjacency import Neighbours
from benchmarks.peers.changes import Ids
from benchmarks.peers.layers import Aggr, Layer

MEAN, GCN = int(Aggr.MEAN), int(Aggr.GCN)
Rows = NDArray[Any]


def pull(layer: Layer, sent: Rows, scale: Rows, ids: Ids, inn: Neighbours) -> Rows:
    """The aggregated rows of some nodes."""
    edges = ids, inn.start, inn.degree, inn.pool
    if layer.aggr is Aggr.MAX:
        out = np.empty((len(ids), sent.shape[1]), sent.dtype)
        pull_max(sent, *edges, out)
    elif layer.aggr is Aggr.ATTENTION:
        out = np.empty((len(ids), sent.shape[1] - 2 * layer.heads), sent.dtype)
        pull_attention(layer.heads, layer.slope, sent, *edges, out)
    else:
        out = np.empty((len(ids), sent.shape[1]), sent.dtype)
        pull_sum(int(layer.aggr), sent, scale, *edges, out)
    return out


@njit(cache=True, fastmath=True)
def pull_sum(mode, sent, scale, ids, start, degree, pool, out):
    """Sum, mean or GCN's sum; `scale` weighs the messages by source, or is empty."""
    width = sent.shape[1]
    for i in range(ids.size):
        v = ids[i]
        for f in range(width):
            out[i, f] = 0
        for k in range(start[v], start[v] + degree[v]):
            u = pool[k]
            if scale.size:
                for f in range(width):
                    out[i, f] += scale[u] * sent[u, f]
            else:
                for f in range(width):
                    out[i, f] += sent[u, f]
        if mode == MEAN:
            part = sent.dtype.type(1 / max(1, degree[v]))
            for f in range(width):
                out[i, f] *= part
        elif mode == GCN:
            for f in range(width):
                out[i, f] = scale[v] * (out[i, f] + scale[v] * sent[v, f])


@njit(cache=True, fastmath=True)
def pull_max(sent, ids, start, degree, pool, out):
    """The maximum in each channel, zero where there is no in-edge."""
    width = sent.shape[1]
    for i in range(ids.size):
        v = ids[i]
        if degree[v] == 0:
            for f in range(width):
                out[i, f] = 0
            continue
        u = pool[start[v]]
        for f in range(width):
            out[i, f] = sent[u, f]
        for k in range(start[v] + 1, start[v] + degree[v]):
            u = pool[k]
            for f in range(width):
                out[i, f] = max(out[i, f], sent[u, f])


@njit(cache=True, fastmath=True)
def pull_attention(heads, slope, sent, ids, start, degree, pool, out):
    """Softmax-weighted values over the in-edges and a self-loop."""
    kind = sent.dtype.type
    width = out.shape[1] // heads
    top, mass = np.empty(heads, sent.dtype), np.empty(heads, sent.dtype)
    for i in range(ids.size):
        v = ids[i]
        for h in range(heads):
            # the leaky ReLU is monotonic, so the largest logit is that of the largest source part
            largest = sent[v, h]
            for k in range(start[v], start[v] + degree[v]):
                largest = max(largest, sent[pool[k], h])
            logit = largest + sent[v, heads + h]
            top[h] = logit if logit > 0 else kind(slope) * logit
            mass[h] = 0
        out[i] = 0
        for k in range(start[v] - 1, start[v] + degree[v]):
            u = v if k < start[v] else np.int64(pool[k])
            for h in range(heads):
                logit = sent[u, h] + sent[v, heads + h]
                logit = logit if logit > 0 else kind(slope) * logit
                w = np.exp(logit - top[h])
                mass[h] += w
                for f in range(np.uint64(h * width), np.uint64((h + 1) * width)):
                    out[i, f] += w * sent[u, 2 * heads + f]
        for h in range(heads):
            for f in range(np.uint64(h * width), np.uint64((h + 1) * width)):
                out[i, f] /= mass[h]
