"""Orders in which blocks of consecutive nodes share their neighbours.

A block reads each neighbour once, however many of its edges lead there, so blocks of nodes with
common neighbours read less. DGI (Section 4.2) takes the nodes by reverse Cuthill-McKee. Where
nodes form groups, taking them group by group reads less still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from pyg_incremental.call.roles import Roles
from pyg_incremental.errors import InvalidDeltaError

Ids = NDArray[np.int64]
ORDERS = ("rcm", "communities", "degree")
PER_EDGE = 40
"""Bytes for each edge while the graph is turned into a matrix that leads both ways."""
AT_ONCE = 1 << 22
"""Edges that are looked at together."""
PASSES = 64
"""Breadth-first levels that are looked for on a graph that is not in memory."""
ROUNDS = 5
"""How often every node chooses its group."""
GROUPS = (64, 32, 16, 8, 4)
"""Levels of groups: the larger ones serve large blocks, those in them small ones."""


def orders_of(order: Any, roles: Roles, memory: int) -> dict[str, Ids]:
    """In which order the nodes of each kind are taken.

    Args:
        order: `'rcm'`, `'communities'`, `'degree'`, ids, int64 `[num_nodes]`, a dict of these by
            kind, or None for the order as it is.
        roles: The graphs; over several, and several kinds of nodes, one order is found for all.
        memory: Bytes that may be taken meanwhile.

    Returns:
        the nodes of each kind, each once

    Raises:
        InvalidDeltaError: If the order is none of these.
        MemoryError: If communities are asked for, and the graph does not fit.
    """
    if order is None:
        return {}
    if not isinstance(order, str):
        return _checked(order, roles)
    if order not in ORDERS:
        raise InvalidDeltaError(
            f"evaluate: order must be one of {', '.join(ORDERS)}, or ids of nodes (got '{order}')"
        )
    first, count = {}, 0
    for kind, several in roles.num_nodes.items():
        first[kind], count = count, count + several

    def edges() -> Iterator[tuple[Ids, Ids]]:
        for r in roles.relations:
            held = roles.edge_index[r.graph]
            for at in range(0, held.shape[1], AT_ONCE):
                src, dst = held[:, at : at + AT_ONCE].numpy()
                yield src + first[r.source], dst + first[r.target]

    if order == "degree":
        found = by_degree(edges, count)
    else:
        num_edges = sum(held.shape[1] for held in roles.edge_index.values())
        fits = PER_EDGE * num_edges <= memory
        if order == "communities" and not fits:
            raise MemoryError(
                f"evaluate: order='communities' needs {PER_EDGE * num_edges:,} bytes (got memory="
                f"{memory:,}); give more, or take order='rcm', which reads the edges in passes"
            )
        if fits:
            graph = _both_ways(edges, count)
            found = by_cuthill_mckee(graph) if order == "rcm" else by_communities(graph)
        else:
            found = by_passes(edges, count)
    return {
        kind: found[(found >= first[kind]) & (found < first[kind] + several)] - first[kind]
        for kind, several in roles.num_nodes.items()
    }


Edges = Callable[[], Iterator[tuple[Ids, Ids]]]
"""Reads all edges from the first on, some at a time: their sources and targets, each `[k]`."""


def by_degree(edges: Edges, count: int) -> Ids:
    """All nodes, those with the most edges that lead to them first."""
    degree = np.zeros(count, np.int64)
    for _, dst in edges():
        degree += np.bincount(dst, minlength=count)
    return np.argsort(-degree, kind="stable")


def by_cuthill_mckee(graph: sparse.csr_matrix) -> Ids:
    """All nodes in reverse Cuthill-McKee order (Chan and George, BIT 1980), by SciPy.

    Args:
        graph: The edges, both ways, `[num_nodes, num_nodes]`.
    """
    found: NDArray[np.int32] = reverse_cuthill_mckee(graph, symmetric_mode=True)
    return found.astype(np.int64)


def by_passes(edges: Edges, count: int, passes: int = PASSES) -> Ids:
    """All nodes in reverse Cuthill-McKee order, where only nodes and not edges are in memory.

    Each pass over the edges finds a level: the nodes next to those of the level before. They are
    taken by the first of their neighbours that was taken, and then by degree. Parts of the graph
    that are not reached within so many passes come in the order of their ids.
    """
    degree = np.zeros(count, np.int64)
    for src, dst in edges():
        degree += np.bincount(src, minlength=count) + np.bincount(dst, minlength=count)
    starts = iter(np.argsort(degree, kind="stable"))
    never = np.iinfo(np.int64).max
    rank = np.full(count, never)
    taken: Ids = np.full(count, -1)
    done, level = 0, np.empty(0, np.int64)
    alone = np.flatnonzero(degree == 0)
    taken[: len(alone)], rank[alone], done = alone, np.arange(len(alone)), len(alone)
    while done < count and passes > 0:
        if not len(level):
            level = np.array([next(v for v in starts if rank[v] == never)])
            rank[level], taken[done], done = done, level[0], done + 1
        passes -= 1
        before = np.full(count, never)  # of each node that is found the first neighbour
        for src, dst in edges():
            for near, far in ((src, dst), (dst, src)):
                leads = (rank[near] >= rank[level[0]]) & (rank[near] < done) & (rank[far] == never)
                np.minimum.at(before, far[leads], rank[near[leads]])
        level = np.flatnonzero(before < never)
        level = level[np.lexsort((degree[level], before[level]))]
        rank[level] = np.arange(done, done + len(level))
        taken[done : done + len(level)] = level
        done += len(level)
    taken[done:] = np.flatnonzero(rank == never)
    return np.ascontiguousarray(taken[::-1])


def by_communities(
    graph: sparse.csr_matrix, groups: Sequence[int] = GROUPS, rounds: int = ROUNDS
) -> Ids:
    """All nodes, group by group, where a group is what has many edges inside.

    Every node joins the group of most of its neighbours, a part of the nodes after the other
    (label propagation: Raghavan et al., Phys. Rev. E 2007). A group is the less welcome the fuller
    it is, as in the streaming partitioner LDG (Stanton and Kliot, KDD 2012). Groups then join to
    larger ones in the same way, and so on. Groups within a group, and the nodes in the smallest,
    follow each other in reverse Cuthill-McKee order.

    Args:
        graph: The edges, both ways, `[num_nodes, num_nodes]`.
        groups: Of each level of groups, the smallest ones first: a group has at most one of so
            many parts of the nodes.
        rounds: How often every node, or group, chooses.
    """
    count = graph.shape[0]
    by_nodes = np.empty(count, np.int64)
    by_nodes[by_cuthill_mckee(graph)] = np.arange(count)
    keys, group, weight = [by_nodes], np.arange(count), np.ones(count)
    for parts in groups:
        joined = _joined(graph, weight, max(count / parts, 2.0), rounds)
        group, number = joined[group], int(joined.max(initial=-1)) + 1
        weight = np.bincount(joined, weights=weight, minlength=number)
        members = _members(joined, number)
        graph = (members.T @ graph @ members).tocsr()
        graph = (graph - sparse.diags(graph.diagonal())).tocsr()  # only what leads elsewhere
        first = np.bincount(group, weights=by_nodes, minlength=number)
        keys.append((first / np.bincount(group, minlength=number))[group])
    place = np.empty(graph.shape[0], np.int64)
    place[by_cuthill_mckee(graph)] = np.arange(len(place))
    found: Ids = np.lexsort((*keys, place[group]))
    return found


def _joined(graph: sparse.csr_matrix, weight: NDArray[np.float64], most: float, rounds: int) -> Ids:
    """The group of each node, int64 `[num_nodes]`, numbered from zero.

    Args:
        graph: The edges, both ways, `[num_nodes, num_nodes]`.
        weight: What each node counts in a group.
        most: What the nodes of a group may count together.
        rounds: How often every node chooses.
    """
    count = graph.shape[0]
    group, size = np.arange(count), weight
    parts = min(max(8, -(-graph.nnz // AT_ONCE)), max(count, 1))
    borders = np.linspace(0, count, parts + 1).astype(np.int64)
    for _ in range(rounds):
        for low, high in pairwise(borders):
            votes = (graph[low:high] @ _members(group, count)).tocsr()
            own = group[low:high]
            node = np.repeat(np.arange(high - low), np.diff(votes.indptr))
            there = size[votes.indices] - weight[low:high][node] * (votes.indices == own[node])
            score = votes.data * (1 - there / most)
            best = np.zeros(high - low)
            np.maximum.at(best, node, score)
            wins = np.flatnonzero((score == best[node]) & (score > 0))[::-1]  # the first one wins
            own[node[wins]] = votes.indices[wins]
            size = np.bincount(group, weight, count).astype(np.float64)
    numbers: Ids = np.unique(group, return_inverse=True)[1]
    return numbers


def _members(group: Ids, number: int) -> sparse.csr_matrix:
    """Which node is in which group, `[num_nodes, number]`."""
    count = len(group)
    ones = np.ones(count, np.float32)
    return sparse.csr_matrix((ones, group, np.arange(count + 1)), (count, number))


def _both_ways(edges: Edges, count: int) -> sparse.csr_matrix:
    """The edges as a matrix, each in both directions, `[count, count]`."""
    parts = [np.empty((2, 0), np.int32)]
    parts += [np.stack(some).astype(np.int32) for some in edges()]
    src, dst = np.concatenate(parts, axis=1)
    graph = sparse.coo_matrix((np.ones(len(src), np.bool_), (dst, src)), (count, count)).tocsr()
    return (graph + graph.T).tocsr()


def _checked(order: Any, roles: Roles) -> dict[str, Ids]:
    """Ids as a user has handed them in, by kind."""
    given = order if isinstance(order, Mapping) else dict.fromkeys(roles.num_nodes, order)
    if not isinstance(order, Mapping) and len(roles.num_nodes) > 1:
        raise InvalidDeltaError(
            f"evaluate: order must be a dict by kind, of {sorted(roles.num_nodes)}"
        )
    found = {}
    for kind, ids in given.items():
        count = roles.num_nodes.get(kind, 0)
        at = np.ascontiguousarray(ids.detach().cpu() if isinstance(ids, torch.Tensor) else ids)
        is_one = at.shape == (count,) and at.dtype.kind in "iu"
        if not is_one or not np.array_equal(np.sort(at), np.arange(count)):
            raise InvalidDeltaError(
                f"evaluate: order must name each of the {count} nodes{f' of {kind}' * bool(kind)} "
                f"once (got {at.dtype} {list(at.shape)})"
            )
        found[kind] = at.astype(np.int64)
    return found
