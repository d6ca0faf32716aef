"""InkStream as its paper describes it (Wu, Li and Mitra, 2023), for a maximum.

Messages that go and messages that come are grouped per target, each group by the aggregation
itself. A channel in which what goes equals the stored maximum is reset. A target without resets
takes in what comes. One in which what comes covers every reset does the same (covered reset). Any
other target is read again over its whole in-neighbourhood (exposed reset). A row that comes out as
it was sends nothing.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from torch import Tensor, nn

from benchmarks.peers.changes import Changes, Ids
from benchmarks.peers.layers import Aggr
from benchmarks.peers.layerwise import LayerWise
from benchmarks.peers.protocol import Skipped
from benchmarks.peers.pull import Rows, pull_max
from pyg_incremental import GraphDelta


class InkStream(LayerWise):
    """Models with a maximum."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        if not all(layer.aggr is Aggr.MAX for layer in self.layers):
            raise Skipped("here for a maximum only")
        self.best: list[Rows] = []

    def bootstrap(self, x: Tensor, edge_index: Tensor) -> None:
        self.best = []
        super().bootstrap(x, edge_index)
        self.degree_before = self.graph.inn.degree.copy()
        self.is_new = np.zeros(len(x), np.bool_)

    def start_rows(self, at: int, ids: Ids) -> Rows:
        if at == len(self.best):
            self.best.append(np.empty_like(self.arrays[at]))
        self.best[at][ids] = self.pull(at, ids)
        return self.best[at][ids]

    def apply(self, delta: GraphDelta) -> None:
        super().apply(delta)
        for edges in (delta.edge_index_add, delta.edge_index_del):
            if edges is not None:
                target = edges[1].numpy()
                self.degree_before[target] = self.graph.inn.degree[target]

    def update(
        self, at: int, ids: Ids, rows: Tensor, changes: Changes, rescaled: Ids
    ) -> tuple[Ids, Tensor]:
        found, sent, best = self.touched, self.arrays[at], self.best[at]
        out, inn = self.graph.out, self.graph.inn
        own, old = ids, sent[ids]
        new = rows.numpy()
        differs = np.empty(len(ids), np.bool_)
        compare(old, new, differs)
        if not differs.all():
            own, old, new = ids[differs], old[differs], new[differs]
        found.clear()
        found.add(changes.deleted[1])
        found.add(changes.added[1])
        found.count = reach_kept(
            own, out.start, out.kept, out.pool, found.stamp, found.epoch, found.found, found.at,
            found.count,
        )  # fmt: skip
        shape = found.count, sent.shape[1]
        gone, came = np.empty(shape, sent.dtype), np.empty(shape, sent.dtype)
        has = np.zeros((found.count, 2), np.bool_)
        group(sent, own, old, new, changes.deleted, changes.added, out.start, out.kept, out.pool,
              found.at, gone, came, has)  # fmt: skip
        targets = found.ids()
        exposed = np.empty(len(targets), np.int64)
        status = np.empty(len(targets), np.bool_)
        count = decide(
            best, targets, gone, came, has, self.degree_before, inn.degree, status, exposed
        )
        if count:
            again = targets[exposed[:count]]
            read = np.empty((count, sent.shape[1]), sent.dtype)
            pull_max(sent, again, inn.start, inn.degree, inn.pool, read)
            take(best, again, read, exposed, status)
        found.clear()
        found.add(targets[status])
        found.add(own)
        reached = found.ids()
        return reached, self.finish(at, reached, best[reached])


@njit(cache=True)
def compare(old, new, differs):
    for i in range(old.shape[0]):
        same = True
        for f in range(old.shape[1]):
            same &= old[i, f] == new[i, f]
        differs[i] = not same


@njit(cache=True)
def reach_kept(ids, start, kept, pool, stamp, epoch, found, at, count):
    """Mark the targets of the edges that were there before and still are."""
    for i in range(ids.size):
        u = ids[i]
        for k in range(start[u], start[u] + kept[u]):
            v = pool[k]
            if stamp[v] != epoch:
                stamp[v] = epoch
                found[count], at[v] = v, count
                count += 1
    return count


@njit(cache=True, fastmath=True)
def _offer(group, has, which, place, row):
    """Let a message into the group of a target."""
    if has[place, which]:
        for f in range(row.size):
            group[place, f] = max(group[place, f], row[f])
    else:
        has[place, which] = True
        for f in range(row.size):
            group[place, f] = row[f]


@njit(cache=True, fastmath=True)
def group(sent, ids, old, new, deleted, added, start, kept, pool, at, gone, came, has):
    """Group what goes and what comes; leaves the new messages in `sent`."""
    for i in range(deleted.shape[1]):
        _offer(gone, has, 0, at[deleted[1, i]], sent[deleted[0, i]])
    for i in range(ids.size):
        u = ids[i]
        for f in range(sent.shape[1]):
            sent[u, f] = new[i, f]
        for k in range(start[u], start[u] + kept[u]):
            _offer(gone, has, 0, at[pool[k]], old[i])
            _offer(came, has, 1, at[pool[k]], new[i])
    for i in range(added.shape[1]):
        _offer(came, has, 1, at[added[1, i]], sent[added[0, i]])


@njit(cache=True, fastmath=True)
def decide(best, targets, gone, came, has, before, now, changed, exposed):
    """The new maximum of each target, or its place in `exposed`; returns how many these are."""
    width, count = best.shape[1], 0
    for i in range(targets.size):
        v = targets[i]
        changed[i] = False
        if now[v] == 0 or before[v] == 0:
            for f in range(width):
                value = came[i, f] if now[v] else best.dtype.type(0)
                changed[i] |= value != best[v, f]
                best[v, f] = value
            continue
        open_ = 0
        if has[i, 0]:
            for f in range(width):
                covered = has[i, 1] and came[i, f] >= best[v, f]
                open_ += gone[i, f] == best[v, f] and not covered
        if open_:
            exposed[count] = i
            count += 1
        elif has[i, 1]:
            for f in range(width):
                changed[i] |= came[i, f] > best[v, f]
                best[v, f] = max(best[v, f], came[i, f])
    return count


@njit(cache=True)
def take(best, ids, read, places, changed):
    """Write rows read again; says which of them differ."""
    for i in range(ids.size):
        v = ids[i]
        for f in range(best.shape[1]):
            changed[places[i]] |= read[i, f] != best[v, f]
            best[v, f] = read[i, f]
