"""Who needs whose samples and features: counted subscriptions of serving workers (Helios, 5.3)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.sampling.edges import SampledEdges
from pyg_incremental.sampling.kernels.rows import EDGE, PLACE
from pyg_incremental.sampling.read import EdgeType, NodeType, ends_of
from pyg_incremental.sampling.tables import FeatureTable, SampleTable
from pyg_incremental.sampling.workers.messages import (
    NO_COUNTS,
    Counts,
    HopRows,
    NodeRows,
    Publication,
    SampleQuery,
    TypedCounts,
    summed_by_type,
)
from pyg_incremental.sampling.workers.owners import SAMPLING, split

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
        query: What is sampled.
        num_nodes: Number of nodes of each type, of all workers.
        servers: Number of serving workers.
    """

    def __init__(self, query: SampleQuery, num_nodes: Mapping[NodeType, int], servers: int) -> None:
        self._hops, self._servers, self._routes = query.num_hops, servers, query.routes
        self._needs = {
            kind: _Needs(count, servers, query.num_hops) for kind, count in num_nodes.items()
        }
        self._tables = {
            kind: [SampleTable(num_nodes[ends_of(kind)[1]], fanout) for fanout in fanouts]
            for kind, fanouts in query.num_neighbors.items()
        }

    @property
    def subscriptions(self) -> list[int]:
        """How many nodes of this worker each serving worker has samples of, over all hops."""
        return [
            sum(int(np.count_nonzero(needs.counts[server, :-1])) for needs in self._needs.values())
            for server in range(self._servers)
        ]

    def needed(self, kind: NodeType) -> NDArray[np.int32]:
        """How often nodes of a type are needed, int32 `[servers, hops + 1, room for nodes]`."""
        return self._needs[kind].counts

    def begin(self, changed: Mapping[EdgeType, Ids], num_nodes: Mapping[NodeType, int]) -> None:
        """Begin a round.

        Args:
            changed: The nodes whose samples have changed, int64 `[k]`, ascending.
            num_nodes: Number of nodes.
        """
        for name, needs in self._needs.items():
            needs.begin(num_nodes[name])
        for kind, tables in self._tables.items():
            for table in tables:
                table.grow(num_nodes[ends_of(kind)[1]])
        self._changed, self._num_nodes = changed, num_nodes
        self._found: list[dict[EdgeType, list[HopRows]]] = [
            {kind: [] for kind in self._tables} for _ in range(self._servers)
        ]

    def hop(
        self, hop: int, counts: list[TypedCounts], edges: Mapping[EdgeType, SampledEdges]
    ) -> list[TypedCounts]:
        """Settle the samples of one hop.

        Args:
            hop: Which one.
            counts: For each serving worker, what is added to how often nodes are needed.
            edges: The samples.

        Returns:
            The same for the sources, which are needed in the next hop, of all workers.
        """
        turned = {kind: needs.turn(hop, counts, kind) for kind, needs in self._needs.items()}
        more: list[list[TypedCounts]] = [[] for _ in range(self._servers)]
        for kind, tables in self._tables.items():
            source, target = ends_of(kind)
            now = self._settle(tables[hop], kind, hop, turned[target], edges[kind])
            for own, found in zip(more, now, strict=True):
                own.append({source: found})
        return [summed_by_type(own) for own in more]

    def _settle(
        self, table: SampleTable, kind: EdgeType, hop: int, turned: list[Ids], edges: SampledEdges
    ) -> list[Counts]:
        """The same for the edges of one type."""
        needed = self._needs[ends_of(kind)[1]].counts
        changed = self._changed[kind]
        again = changed[table.store.has(changed)]
        nodes = np.unique(np.concatenate([again, *turned]))
        had = table.store.has(nodes)
        held, found = table.read(nodes[had])
        route = self._routes[kind]
        before = _Samples(nodes.size, had, held, route.found(found))
        now = np.count_nonzero(needed[:, hop, nodes], axis=0) > 0
        table.drop(nodes[had & ~now])
        table.copy(nodes[now], edges.rows)
        held, found = table.read(nodes[now])
        after = _Samples(nodes.size, now, held, route.found(found))
        differ = np.isin(nodes, again, assume_unique=True)
        every = []
        for server, own in enumerate(turned):
            turns = np.isin(nodes, own, assume_unique=True)
            change = _Change(nodes, differ, turns, needed[server, hop, nodes] > 0)
            rows, counts = change.of(before, after)
            self._found[server][kind].append(rows)
            every.append(counts)
        return every

    def features(
        self,
        counts: list[TypedCounts],
        changed: Mapping[NodeType, Ids],
        tables: Mapping[NodeType, FeatureTable],
    ) -> list[Publication]:
        """End the round: what each serving worker is sent.

        Args:
            counts: What is added to how often nodes are needed behind the last hop.
            changed: Nodes whose features have changed, int64 `[k]`.
            tables: The features.
        """
        rows: list[dict[NodeType, NodeRows]] = [{} for _ in range(self._servers)]
        for kind, needs in self._needs.items():
            needs.turn(self._hops, counts, kind)
            for server, own in enumerate(rows):
                new, gone = needs.sent_now(server, changed[kind])
                x = tables[kind].rows(new)
                own[kind] = NodeRows(new, x, gone, self._num_nodes[kind])
        return [Publication(e, n) for e, n in zip(self._found, rows, strict=True)]


class _Needs:
    """Which nodes of one type each serving worker needs.

    Attributes:
        counts: How often, int32 `[servers, hops + 1, room for nodes]`.
    """

    def __init__(self, num_nodes: int, servers: int, hops: int) -> None:
        self.counts = np.zeros((servers, hops + 1, num_nodes), np.int32)
        self._sent = np.zeros((servers, num_nodes), np.bool_)  # features

    def begin(self, num_nodes: int) -> None:
        """Begin a round with so many nodes."""
        if num_nodes > self._sent.shape[1]:
            more = max(num_nodes, 3 * num_nodes // 2) - self._sent.shape[1]
            self.counts = np.pad(self.counts, ((0, 0), (0, 0), (0, more)))
            self._sent = np.pad(self._sent, ((0, 0), (0, more)))
        self._turned: list[list[Ids]] = [[] for _ in self._sent]

    def turn(self, hop: int, counts: list[TypedCounts], kind: NodeType) -> list[Ids]:
        """Add to counts of distinct nodes; those that each worker begins or ceases to need."""
        found = []
        for server, said in enumerate(counts):
            ids, more = said.get(kind, NO_COUNTS)
            needed = self.counts[server, hop]
            before = needed[ids] > 0
            needed[ids] += more.astype(np.int32)
            turned: Ids = ids[before != (needed[ids] > 0)]
            self._turned[server].append(turned)
            found.append(turned)
        return found

    def sent_now(self, server: int, changed: Ids) -> tuple[Ids, Ids]:
        """Nodes whose features a worker is sent now, and those whose features it may forget."""
        nodes, sent = np.unique(np.concatenate(self._turned[server])), self._sent[server]
        needed, has = self.counts[server][:, nodes].any(0), sent[nodes]
        new, gone = nodes[needed & ~has], nodes[has & ~needed]
        sent[new], sent[gone] = True, False
        return np.union1d(new, changed[sent[changed]]), gone


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


class _Change:
    """What a round does to the samples of some nodes that a serving worker has.

    Args:
        nodes: The nodes, int64 `[k]`.
        differ: Whether the sample of each is another one, bool `[k]`.
        turns: Whether the worker begins or ceases to need it.
        is_now: Whether it needs it now.
    """

    def __init__(self, nodes: Ids, differ: Bools, turns: Bools, is_now: Bools) -> None:
        self._nodes, self._was, self._is = nodes, is_now ^ turns, is_now
        self._matters = differ | turns

    def of(self, before: _Samples, after: _Samples) -> tuple[HopRows, Counts]:
        """What the worker is sent, and what is added to how often it needs the sources."""
        sent = self._matters & self._is
        held, edges = after.of(sent)
        rows = HopRows(self._nodes[sent], held, edges[:, _SENT], self._nodes[self._was & ~self._is])
        old = before.of(self._matters & self._was)[1][:, PLACE]
        ids, at = np.unique(np.concatenate([old, edges[:, PLACE]]), return_inverse=True)
        more = np.bincount(at[old.size :], minlength=ids.size)
        more -= np.bincount(at[: old.size], minlength=ids.size)
        return rows, (ids[more != 0], more[more != 0])


def by_owner(counts: list[TypedCounts], query: SampleQuery, parts: int) -> list[list[TypedCounts]]:
    """Counts of each serving worker, by the sampling workers that own the nodes.

    Args:
        counts: Of each serving worker.
        query: Says who owns what.
        parts: Number of sampling workers.
    """
    found: list[list[TypedCounts]] = [[{} for _ in counts] for _ in range(parts)]
    for server, said in enumerate(counts):
        for kind, (ids, more) in said.items():
            owned = split(ids, parts, SAMPLING, query.owners_of(kind))
            for to, at in enumerate(owned):
                found[to][server][kind] = ids[at], more[at]
    return found
