"""Who needs whose samples and features: counted subscriptions of serving workers (Helios, 5.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.sampling.kernels.rows import EDGE, PLACE
from pyg_incremental.sampling.reservoirs import Reservoirs
from pyg_incremental.sampling.tables import FeatureTable, SampleTable
from pyg_incremental.sampling.workers.messages import NO_IDS, Counts, HopRows, Publication

Ids = NDArray[np.int64]
Bools = NDArray[np.bool_]
_SENT = [EDGE, PLACE]


class Publisher:
    """What a sampling worker has published of its nodes, and to whom.

    For every serving worker, hop and node it counts how many samples that the former has lead to
    the latter, and in hop zero how often it is a seed. When a sample changes, or a count turns to
    or from zero, the counts of the sources in it follow: they belong to the next hop, and to the
    owners of the sources. So one round goes hop by hop, with the counts handed on in between.

    Args:
        fanouts: How many in-edges are sampled in each hop.
        num_nodes: Number of nodes, of all workers.
        servers: Number of serving workers.
    """

    def __init__(self, fanouts: list[int], num_nodes: int, servers: int) -> None:
        self._tables = [SampleTable(num_nodes, fanout) for fanout in fanouts]
        self._needed = np.zeros((servers, len(fanouts) + 1, num_nodes), np.int32)
        self._sent = np.zeros((servers, num_nodes), np.bool_)  # features
        self.begin(NO_IDS, num_nodes)

    @property
    def subscriptions(self) -> list[int]:
        """How many samples of this worker each serving worker has, of all hops."""
        return [int(np.count_nonzero(own[:-1])) for own in self._needed]

    def begin(self, changed: Ids, num_nodes: int) -> None:
        """Begin a round in which the samples of some nodes have changed, int64 `[k]`, ascending."""
        if num_nodes > self._sent.shape[1]:
            more = max(num_nodes, 3 * num_nodes // 2) - self._sent.shape[1]
            self._needed = np.pad(self._needed, ((0, 0), (0, 0), (0, more)))
            self._sent = np.pad(self._sent, ((0, 0), (0, more)))
            for table in self._tables:
                table.grow(num_nodes)
        self._changed, self._num_nodes = changed, num_nodes
        self._turned: list[list[Ids]] = [[] for _ in self._sent]
        self._hops: list[list[HopRows]] = [[] for _ in self._sent]

    def hop(self, hop: int, counts: list[Counts], rows: Reservoirs) -> list[Counts]:
        """Settle the samples of one hop.

        Args:
            hop: Which one.
            counts: For each serving worker, what is added to how often nodes are needed.
            rows: The samples.

        Returns:
            The same for the sources, which are needed in the next hop, of all workers.
        """
        table = self._tables[hop]
        turned = [self._add(server, hop, *count) for server, count in enumerate(counts)]
        again = self._changed[table.store.has(self._changed)]
        nodes = np.unique(np.concatenate([again, *turned]))
        had = table.store.has(nodes)
        before = _Samples(nodes.size, had, *table.read(nodes[had]))
        now = np.count_nonzero(self._needed[:, hop, nodes], axis=0) > 0
        table.drop(nodes[had & ~now])
        table.copy(nodes[now], rows)
        after = _Samples(nodes.size, now, *table.read(nodes[now]))
        changed = np.isin(nodes, again, assume_unique=True)
        return [
            self._publish(server, hop, nodes, changed, (before, after))
            for server in range(len(counts))
        ]

    def _publish(
        self, server: int, hop: int, nodes: Ids, changed: Bools, samples: tuple[_Samples, _Samples]
    ) -> Counts:
        """Note what a serving worker is sent of a hop; the counts that follow for the sources."""
        before, after = samples
        is_now = self._needed[server, hop, nodes] > 0
        turns = np.isin(nodes, self._turned[server][-1], assume_unique=True)
        was, matters = is_now ^ turns, changed | turns
        sent = matters & is_now
        held, edges = after.of(sent)
        self._hops[server].append(HopRows(nodes[sent], held, edges[:, _SENT], nodes[was & ~is_now]))
        old = before.of(matters & was)[1][:, PLACE]
        ids, at = np.unique(np.concatenate([old, edges[:, PLACE]]), return_inverse=True)
        more = np.bincount(at[old.size :], minlength=ids.size)
        more -= np.bincount(at[: old.size], minlength=ids.size)
        return ids[more != 0], more[more != 0]

    def features(
        self, counts: list[Counts], changed: Ids, table: FeatureTable, like: Tensor
    ) -> list[Publication]:
        """End the round: what each serving worker is sent.

        Args:
            counts: What is added to how often nodes are needed behind the last hop.
            changed: Nodes whose features have changed, int64 `[k]`.
            table: The features.
            like: Rows of their kind.
        """
        found = []
        for server, (ids, more) in enumerate(counts):
            self._add(server, len(self._tables), ids, more)
            nodes, sent = np.unique(np.concatenate(self._turned[server])), self._sent[server]
            needed, has = self._needed[server][:, nodes].any(0), sent[nodes]
            new, gone = nodes[needed & ~has], nodes[has & ~needed]
            sent[new], sent[gone] = True, False
            new = np.union1d(new, changed[sent[changed]])
            x = table.rows(new) if new.size else like[:0]
            found.append(Publication(self._hops[server], new, x, gone, self._num_nodes))
        return found

    def _add(self, server: int, hop: int, ids: Ids, more: Ids) -> Ids:
        """Add to counts of distinct nodes; those that a worker begins or ceases to need."""
        needed = self._needed[server, hop]
        before = needed[ids] > 0
        needed[ids] += more.astype(np.int32)
        turned: Ids = ids[before != (needed[ids] > 0)]
        self._turned[server].append(turned)
        return turned


class _Samples:
    """The samples of those of some nodes that have one."""

    def __init__(self, count: int, have: Bools, held: Ids, edges: Ids) -> None:
        self._held = np.zeros(count, np.int64)
        self._held[have] = held
        self._edges = edges
        self._node = np.repeat(np.flatnonzero(have), held)

    def of(self, chosen: Bools) -> tuple[Ids, Ids]:
        """How many edges each of the chosen ones has, and the edges, `[e, 3]`."""
        if chosen.all():
            return self._held, self._edges
        return self._held[chosen], self._edges[chosen[self._node]]


def split_counts(counts: list[Counts], parts: list[list[Ids]]) -> list[list[Counts]]:
    """Counts of each serving worker, by the sampling workers that own the nodes.

    Args:
        counts: Of each serving worker.
        parts: For each of them, where the nodes of each sampling worker stand.
    """
    return [
        [(ids[own[to]], more[own[to]]) for (ids, more), own in zip(counts, parts, strict=True)]
        for to in range(len(parts[0]))
    ]
