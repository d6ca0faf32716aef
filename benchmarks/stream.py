"""Deltas of any size out of one workload, as many as are asked for."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers.changes import delta_of, net
from benchmarks.workload import ADD, CHANGE, DELETE, Workload
from pyg_incremental import GraphDelta


class Stream:
    """The updates of a workload forwards, then backwards, then forwards again.

    Backwards an addition is a deletion, a deletion an addition, and new features are the negative
    ones, so the stream never ends and the graph stays what it is. Within a delta no node is named
    twice, and no edge comes and goes: everybody gets the least that has the same effect.
    """

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.kind, self.a, self.b = (t.numpy() for t in (work.kind, work.a, work.b))
        self.row_of = torch.from_numpy(np.cumsum(self.kind == CHANGE) - 1)
        self._next, self._step = 0, 1

    def take(self, size: int) -> GraphDelta:
        """The next `size` updates as one delta."""
        if size > len(self.kind):
            raise ValueError(f"the workload has {len(self.kind)} updates, {size} were asked for")
        at, back = self._advance(size)
        kind, pair = self.kind[at], np.stack([self.a[at], self.b[at]])
        adds = kind == np.where(back, DELETE, ADD)
        deletes = kind == np.where(back, ADD, DELETE)
        changes = kind == CHANGE
        added, deleted = net(pair[:, adds], pair[:, deletes])
        if self.work.undirected:
            added, deleted = (np.concatenate([e, e[::-1]], 1) for e in (added, deleted))
        rows = self.work.rows[self.row_of[at[changes]]]
        rows[torch.from_numpy(back[changes])] *= -1
        return delta_of(added, deleted, pair[0, changes], rows)

    def _advance(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Places of the next updates, and which of them are taken backwards."""
        last = len(self.kind) - 1
        there = self._next + self._step * np.arange(size)
        at = np.where(there > last, 2 * last + 1 - there, np.where(there < 0, -1 - there, there))
        turned = (there > last) | (there < 0)
        back = turned ^ (self._step < 0)
        if turned[-1]:
            self._step = -self._step
        self._next = int(at[-1]) + self._step
        return at, back


def all_nodes(x: Tensor, seed: int) -> GraphDelta:
    """New features for every node."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    return GraphDelta(x_changes=(torch.arange(len(x)), rows))
