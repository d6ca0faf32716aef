"""NeutronRT's order of operations for GAT (Wang, Lv, Zhang, Wong and He, ICDE 2026).

A layer is taken apart: the messages, the context of a neighbourhood (the softmax denominator) and
the aggregation without its context (the numerator). Denominator and numerator are kept per row, and
both are updated by the messages that go and come; one division then gives the row. GAT is one of
the constrained models: a row whose own embedding changed has other logits on all of its in-edges,
so it is made afresh over its in-neighbourhood.

Exponentials are taken relative to the largest logit at the time when the row was made. A row is
also made afresh when a logit exceeds that by far, or when what goes is nearly all of the
denominator: the difference would have few bits left.

Indices of the inner loops are unsigned, so that these run on vectors, as those of C++ would.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from torch import Tensor, nn

from benchmarks.peers.changes import Changes, Ids
from benchmarks.peers.layers import Aggr
from benchmarks.peers.layerwise import LayerWise
from benchmarks.peers.protocol import Skipped
from benchmarks.peers.pull import Rows

FAR = 8.0  # a logit that much above the row's reference
LITTLE = 1 / 32  # a denominator that is only this part of what it was at most


class NeutronRT(LayerWise):
    """GAT."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        if not all(layer.aggr is Aggr.ATTENTION for layer in self.layers):
            raise Skipped("here for GAT only")
        self.total: list[Rows] = []
        self.mass: list[Rows] = []

    def bootstrap(self, x: Tensor, edge_index: Tensor) -> None:
        self.total, self.mass = [], []
        self.stale = np.zeros(len(x), np.bool_)
        super().bootstrap(x, edge_index)

    def start_rows(self, at: int, ids: Ids) -> Rows:
        layer, sent, inn = self.layers[at], self.arrays[at], self.graph.inn
        nodes, heads = len(sent), layer.heads
        if at == len(self.total):
            self.total.append(np.empty((nodes, sent.shape[1] - 2 * heads), sent.dtype))
            self.mass.append(np.empty((nodes, 3 * heads), sent.dtype))
        afresh(layer.slope, sent, self.total[at], self.mass[at], ids, inn.start, inn.degree,
               inn.pool, self.stale, True)  # fmt: skip
        return self._settled(at, ids)

    def _settled(self, at: int, ids: Ids) -> Rows:
        total = self.total[at]
        out = np.empty((len(ids), total.shape[1]), total.dtype)
        divide(total, self.mass[at], ids, out)
        return out

    def update(
        self, at: int, ids: Ids, rows: Tensor, changes: Changes, rescaled: Ids
    ) -> tuple[Ids, Tensor]:
        layer, sent, found = self.layers[at], self.arrays[at], self.touched
        out, inn = self.graph.out, self.graph.inn
        found.clear()
        found.count = exchange(
            layer.slope, sent, self.total[at], self.mass[at],
            ids, self.messages(at, rows).numpy(), changes.deleted, changes.added,
            out.start, out.degree, out.pool, self.stale, found.stamp, found.epoch, found.found,
        )  # fmt: skip
        reached = found.ids()
        afresh(layer.slope, sent, self.total[at], self.mass[at], reached, inn.start, inn.degree,
               inn.pool, self.stale, False)  # fmt: skip
        return reached, self.finish(at, reached, self._settled(at, reached))


@njit(cache=True, fastmath=True)
def _leaky(logit, slope):
    return logit if logit > 0 else slope * logit


@njit(cache=True, fastmath=True)
def _add(sign, slope, message, own, total, mass, heads):
    """Add a message to a row or take it away. Returns whether the row has to be made afresh.

    `message` and `own` are rows of what is sent: source parts of the logits, target parts, values.
    `mass` holds references, denominators and the largest denominators that there were.
    """
    width = total.size // heads
    unsound = False
    for h in range(heads):
        above = _leaky(message[h] + own[heads + h], slope) - mass[h]
        if above > FAR:
            return True
        w = sign * np.exp(above)
        mass[heads + h] += w
        mass[2 * heads + h] = max(mass[2 * heads + h], mass[heads + h])
        unsound |= mass[heads + h] < LITTLE * mass[2 * heads + h]
        values = np.uint64(2 * heads)
        for f in range(np.uint64(h * width), np.uint64((h + 1) * width)):
            total[f] += w * message[values + f]
    return unsound


@njit(cache=True, fastmath=True)
def exchange(
    slope, sent, total, mass, ids, new, deleted, added, start, degree, pool, stale, stamp, epoch,
    found,
):  # fmt: skip
    """Take the messages that go out of the rows and put those that come in.

    Rows in `ids` and rows that are not sound any more are only marked as stale. Returns how many
    rows are touched.
    """
    kind = sent.dtype.type
    heads, count = mass.shape[1] // 3, 0
    slope_, one = kind(slope), kind(1)
    for i in range(ids.size):
        u = ids[i]
        stale[u] = True
        stamp[u] = epoch
        found[count] = u
        count += 1
    for edges, sign in ((deleted, -one), (added, one)):
        for i in range(edges.shape[1]):
            u, v = edges[0, i], edges[1, i]
            if stamp[v] != epoch:
                stamp[v] = epoch
                found[count] = v
                count += 1
            if not stale[v]:
                stale[v] = _add(sign, slope_, sent[u], sent[v], total[v], mass[v], heads)
    for i in range(ids.size):
        u = ids[i]
        for k in range(start[u], start[u] + degree[u]):
            v = pool[k]
            if stamp[v] != epoch:
                stamp[v] = epoch
                found[count] = v
                count += 1
            if not stale[v]:
                # in before out, so that the denominator is not small for a moment
                stale[v] = _add(one, slope_, new[i], sent[v], total[v], mass[v], heads)
            if not stale[v]:
                stale[v] = _add(-one, slope_, sent[u], sent[v], total[v], mass[v], heads)
        for f in range(sent.shape[1]):
            sent[u, f] = new[i, f]
    return count


@njit(cache=True, fastmath=True)
def afresh(slope, sent, total, mass, ids, start, degree, pool, stale, all_rows):
    """Make rows over the in-edges and a self-loop: the stale ones of `ids`, or all of them."""
    kind = sent.dtype.type
    heads = mass.shape[1] // 3
    for i in range(ids.size):
        v = ids[i]
        if not (all_rows or stale[v]):
            continue
        stale[v] = False
        for h in range(heads):
            largest = sent[v, h]
            for k in range(start[v], start[v] + degree[v]):
                largest = max(largest, sent[pool[k], h])
            mass[v, h] = _leaky(largest + sent[v, heads + h], kind(slope))
            mass[v, heads + h] = 0
            mass[v, 2 * heads + h] = 0
        total[v] = 0
        for k in range(start[v] - 1, start[v] + degree[v]):
            u = v if k < start[v] else np.int64(pool[k])
            _add(kind(1), kind(slope), sent[u], sent[v], total[v], mass[v], heads)


@njit(cache=True, fastmath=True)
def divide(total, mass, ids, out):
    heads = mass.shape[1] // 3
    width = total.shape[1] // heads
    for i in range(ids.size):
        v = ids[i]
        for h in range(heads):
            part = 1 / mass[v, heads + h]
            for f in range(np.uint64(h * width), np.uint64((h + 1) * width)):
                out[i, f] = part * total[v, f]
