"""What a delta reaches and what ranks send for it, counted from the graph and the owners alone.

For models like GraphSAGE, of layers `h'[v] = f(h[v], sum or mean over in-edges of message(h[u]))`.
A row counts as changed if anything that it is made of has changed; that its new value could happen
to equal the old one, so that nobody has to be told, is left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, empty

from benchmarks.peers.adjacency import Adjacency, Neighbours
from benchmarks.peers.changes import Changes, Ids, changes_of
from benchmarks.peers.touched import Touched
from pyg_incremental import GraphDelta

Owner = NDArray[np.int16]
Numbers = NDArray[np.int64]
NO_ROWS = empty(0)


class Reached(NamedTuple):
    """What one delta reaches.

    Attributes:
        changed: For each layer the nodes whose row in front of it has changed, and last those whose
            output has. All but the last are sources whose messages have changed.
        added: The edges that came, int64 `[2, k]`.
        deleted: The edges that went.
    """

    changed: list[Ids]
    added: Ids
    deleted: Ids


class Pushed(NamedTuple):
    """One aggregation of one delta, by rank, int64 `[ranks]` each.

    Attributes:
        rows: Changed messages that the rank computes: those of its own nodes.
        edges: Edges to its nodes along which a change arrives.
        sent: Rows that it sends: changed messages, each once for every other rank with an edge from
            there, and those at which a rank's first edge starts now.
        received: Rows that it is sent.
    """

    rows: Numbers
    edges: Numbers
    sent: Numbers
    received: Numbers


class Count:
    """A graph that takes deltas, and counts."""

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        self.graph = Adjacency(edge_index.numpy(), num_nodes)
        self.touched = Touched(num_nodes)
        self._pending: Changes | None = None

    def apply(self, delta: GraphDelta, layers: int) -> Reached:
        """Take a delta and follow it through the layers; the other methods are about this one."""
        if self._pending is not None:
            self.graph.settle(self._pending)
        changes = self._pending = changes_of(delta, NO_ROWS)
        self.graph.apply(changes)
        changed = [changes.nodes]
        for _ in range(layers):
            found = self.touched
            found.clear()
            found.add(changed[-1])
            found.add(changes.added[1])
            found.add(changes.deleted[1])
            found.add_targets(changed[-1], self.graph.out)
            changed.append(found.ids())
        return Reached(changed, changes.added, changes.deleted)

    def edges(self, reached: Reached) -> int:
        """Edges along which a change arrives, over all layers."""
        own = reached.added.shape[1] + reached.deleted.shape[1]
        sources = reached.changed[:-1]
        return sum(own + int(self.graph.out.degree[ids].sum()) for ids in sources)

    def pushed(self, reached: Reached, layer: int, owner: Owner, ranks: int) -> Pushed:
        """What each rank computes and sends if changed messages go to those who hold copies."""
        ids, out = reached.changed[layer], self.graph.out
        at = [np.zeros(ranks, np.int64) for _ in range(3)]
        push(ids, owner, out.start, out.degree, out.pool, *at)
        edges, sent, received = at
        for came_or_gone in (reached.added, reached.deleted):  # once with the message as it was
            edges += np.bincount(owner[came_or_gone[1]], minlength=ranks)
        source, target = reached.added[:, ~np.isin(reached.added[0], ids)]
        far = owner[source] != owner[target]
        pairs = np.unique(source[far] * ranks + owner[target[far]])
        push_new(pairs // ranks, pairs % ranks, owner, out.start, out.kept, out.pool, *at[1:])
        return Pushed(np.bincount(owner[ids], minlength=ranks), edges, sent, received)

    def mails(self, reached: Reached, layer: int, owner: Owner, ranks: int) -> int:
        """Rows sent if each rank sums what it has for each remote target, as RIPPLE does."""
        ids, out, found = reached.changed[layer], self.graph.out, self.touched
        edges = np.concatenate([reached.added, reached.deleted], 1)
        total = 0
        for rank in range(ranks):
            found.clear()
            own = edges[:, owner[edges[0]] == rank]
            found.add(own[1])
            found.add_targets(ids[owner[ids] == rank], out)
            total += int((owner[found.found[: found.count]] != rank).sum())
        return total

    def pulls(self, reached: Reached, layer: int, owner: Owner, ranks: int) -> tuple[int, int]:
        """Rows fetched if all reached rows are recomputed from their in-neighbours' rows.

        Returns:
            Remote in-neighbours, each once for every rank; and remote in-edges.
        """
        ids, inn = reached.changed[layer + 1], self.graph.inn
        once = edges = 0
        for rank in range(ranks):
            self.touched.clear()
            self.touched.add_targets(ids[owner[ids] == rank], inn)
            found = self.touched.found[: self.touched.count]
            once += int((owner[found] != rank).sum())
            edges += far_edges(ids[owner[ids] == rank], rank, owner, *_rows(inn))
        return once, edges


def _rows(of: Neighbours) -> tuple[Any, Any, Any]:
    return of.start, of.degree, of.pool


@njit(cache=True)
def push(ids, owner, start, degree, pool, edges, sent, received):
    seen = np.full(edges.size, -1, np.int64)
    for i in range(ids.size):
        u = ids[i]
        home = owner[u]
        for k in range(start[u], start[u] + degree[u]):
            rank = owner[pool[k]]
            edges[rank] += 1
            if rank != home and seen[rank] != u:
                seen[rank] = u
                sent[home] += 1
                received[rank] += 1


@njit(cache=True)
def push_new(nodes, ranks, owner, start, kept, pool, sent, received):
    """Rows of nodes at which a rank had no edge before it got one now."""
    for i in range(nodes.size):
        u, is_new = nodes[i], True
        for k in range(start[u], start[u] + kept[u]):
            if owner[pool[k]] == ranks[i]:
                is_new = False
                break
        if is_new:
            sent[owner[u]] += 1
            received[ranks[i]] += 1


@njit(cache=True)
def far_edges(ids, rank, owner, start, degree, pool):
    count = 0
    for i in range(ids.size):
        v = ids[i]
        for k in range(start[v], start[v] + degree[v]):
            count += owner[pool[k]] != rank
    return count
