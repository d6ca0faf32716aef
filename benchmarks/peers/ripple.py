"""RIPPLE as its paper describes it (Naman and Simmhan, ICDCS 2025).

Each node keeps the sum of its in-messages. What changed of a message is sent along the out-edges
and added to the sums there; an edge that comes or goes adds or takes away a whole message. Then the
rows of the nodes that got mail are computed, and what changed of them is sent in the next hop.

The paper leaves out GCN's normalisation. Here a message of GCN is the row over the root of its
degree, so a changed degree is a changed message. A message that came out as it was is not sent.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from benchmarks.peers.changes import Changes, Ids
from benchmarks.peers.layers import Aggr, Layer
from benchmarks.peers.layerwise import LayerWise
from benchmarks.peers.protocol import Skipped
from benchmarks.peers.pull import GCN, MEAN, Rows, pull_sum


class Ripple(LayerWise):
    """Models with a sum, a mean or GCN's normalised sum."""

    def __init__(self, model: nn.Module, products_first: bool = False) -> None:
        super().__init__(model, products_first)
        if not all(layer.aggr.linear for layer in self.layers):
            raise Skipped("for linear aggregations only")
        self.sums: list[Rows] = []

    def bootstrap(self, x: Tensor, edge_index: Tensor) -> None:
        self.sums = []
        super().bootstrap(x, edge_index)

    def start_rows(self, at: int, ids: Ids) -> Rows:
        sent, inn = self.arrays[at], self.graph.inn
        if at == len(self.sums):
            self.sums.append(np.empty_like(sent))
        part = self.sums[at][ids[0] : ids[-1] + 1]
        # GCN's sums are kept without the factor of the target, since its degree may change
        pull_sum(0, sent, self.scale, ids, inn.start, inn.degree, inn.pool, part)
        return self._settled(self.layers[at], at, ids)

    def _settled(self, layer: Layer, at: int, ids: Ids) -> Rows:
        sums, sent = self.sums[at], self.arrays[at]
        out = np.empty((len(ids), sums.shape[1]), sums.dtype)
        settle(int(layer.aggr), sums, sent, self.scale, self.graph.inn.degree, ids, out)
        return out

    def update(
        self, at: int, ids: Ids, rows: Tensor, changes: Changes, rescaled: Ids
    ) -> tuple[Ids, Tensor]:
        found, out, sent = self.touched, self.graph.out, self.sent[at]
        new = self.messages(at, rows)
        self.keep(at, ids, rows)
        if self.layers[at].aggr is Aggr.GCN:
            # a changed degree changes what a node sends even if its row is as it was
            found.clear()
            found.add(ids)
            found.add(rescaled)
            more = found.ids()
            new = torch.cat([new, sent[torch.from_numpy(more[len(ids) :])]])
            ids = more
        found.clear()
        found.count = push(
            self.sums[at], self.arrays[at], self.scale_before, self.scale, ids, new.numpy(),
            changes.deleted, changes.added, out.start, out.degree, out.pool,
            found.stamp, found.epoch, found.found,
        )  # fmt: skip
        reached = found.ids()
        return reached, self.finish(at, reached, self._settled(self.layers[at], at, reached))


@njit(cache=True, fastmath=True)
def push(
    sums, sent, before, now, ids, new, deleted, added, start, degree, pool, stamp, epoch, found
):
    """Take edges out and in with OLD messages, then send what changed of the messages `ids`.

    Returns how many nodes got mail, themselves included where their own message changed.
    """
    width, count = sums.shape[1], 0
    for edges, sign in ((deleted, -1), (added, 1)):
        for i in range(edges.shape[1]):
            u, v = edges[0, i], edges[1, i]
            part = sums.dtype.type(sign)
            if before.size:
                part *= before[u]
            for f in range(width):
                sums[v, f] += part * sent[u, f]
            if stamp[v] != epoch:
                stamp[v] = epoch
                found[count] = v
                count += 1
    diff = np.empty(width, sums.dtype)
    for i in range(ids.size):
        u = ids[i]
        differs = False
        if before.size:
            for f in range(width):
                diff[f] = now[u] * new[i, f] - before[u] * sent[u, f]
                differs |= diff[f] != 0
        else:
            for f in range(width):
                diff[f] = new[i, f] - sent[u, f]
                differs |= diff[f] != 0
        for f in range(width):
            sent[u, f] = new[i, f]
        if stamp[u] != epoch:
            stamp[u] = epoch
            found[count] = u
            count += 1
        if not differs:
            continue
        for k in range(start[u], start[u] + degree[u]):
            v = pool[k]
            for f in range(width):
                sums[v, f] += diff[f]
            if stamp[v] != epoch:
                stamp[v] = epoch
                found[count] = v
                count += 1
    return count


@njit(cache=True, fastmath=True)
def settle(mode, sums, sent, scale, degree, ids, out):
    """From sums to aggregated rows."""
    width = sums.shape[1]
    for i in range(ids.size):
        v = ids[i]
        if mode == MEAN:
            part = sums.dtype.type(1 / max(1, degree[v]))
            for f in range(width):
                out[i, f] = part * sums[v, f]
        elif mode == GCN:
            for f in range(width):
                out[i, f] = scale[v] * (sums[v, f] + scale[v] * sent[v, f])
        else:
            for f in range(width):
                out[i, f] = sums[v, f]
