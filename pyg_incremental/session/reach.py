"""Which rows a delta can touch, found from the graph alone, before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.delta.resolve.resolver import ResolvedDelta
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.program.steps import Domain, Step
from pyg_incremental.rows import Rows as Stored
from pyg_incremental.session.session import Session

MOST = 4
"""One in so many nodes is so much of a graph that all of it may be touched."""


def reach(session: Session, resolved: ResolvedDelta) -> dict[str, Ids] | None:
    """The nodes of each kind whose rows a delta may write to, ascending.

    They are those that it names, and what these reach in as many hops as there are aggregations on
    a path. Where that is much of the graph, rows may be made afresh elsewhere, too.

    Args:
        session: The running state.
        resolved: The delta, not carried out yet.

    Returns:
        The ids; None if any row may be written to, or it is not known which.
    """
    program = session.plan.program
    known = all(is_local(s, session) for s in program.steps)
    if not known or any(c.maker is not None for c in session.engine.cells.values()):
        return None
    reverse = program.goes_against_edges
    found = _named(session, resolved)
    for _ in range(program.depth):
        new, found = found, dict(found)
        for r in session.roles.relations:
            graph = session.graphs[r.graph]
            lists = [(r.source, r.target, graph.out)]
            lists += [(r.target, r.source, graph.inn)] if reverse else []
            for at, to, adjacency in lists:
                there = new[at][new[at] < graph.num_nodes]  # those that are new have no list yet
                near = listed(adjacency, adjacency.neighbor, there)
                found[to] = np.union1d(found[to], near)
        if any(MOST * ids.size > session.num_nodes[kind] for kind, ids in found.items()):
            return None
    return found


def is_local(step: Step, session: Session) -> bool:
    """Whether a step is known to write only to rows that its inputs reach over edges."""
    if step.over is not None:
        return step.is_local and step.over[0] in session.graphs
    # A map of edges reads edges alone, as no step here gathers; what is handed in reads nothing.
    return step.is_local and (not step.inputs or step.output.domain is not Domain.WHOLE)


def _named(session: Session, resolved: ResolvedDelta) -> dict[str, Ids]:
    """The nodes that a delta names, and both ends of all edges that it is about."""
    found: dict[str, list[Ids]] = {kind: [] for kind in session.num_nodes}
    for name, (ids, _) in resolved.rows.items():
        found[session.roles.nodes[name]].append(ids.numpy())
    for kind, count in resolved.new_nodes.items():
        first = session.num_nodes[kind]
        found[kind].append(np.arange(first, first + count))
    for r in session.roles.relations:
        changes = resolved.edges.get(r.graph)
        if changes is None:
            continue
        slots = np.concatenate([changes.removed, changes.changed])
        ends = np.concatenate([session.graphs[r.graph].ends_of(slots), changes.added], axis=1)
        found[r.source].append(ends[0])
        found[r.target].append(ends[1])
    none = np.empty(0, np.int64)
    return {kind: np.unique(np.concatenate([none, *ids])) for kind, ids in found.items()}


def listed(adjacency: Adjacency, entries: NDArray[np.int32], ids: Ids) -> Ids:
    """What stands in the lists of some nodes, int64 `[k]`, one list behind the other.

    Args:
        adjacency: The lists.
        entries: Its neighbours or its edges.
        ids: The nodes.
    """
    degree = adjacency.degree[ids].astype(np.int64)
    before = np.cumsum(degree) - degree
    at = np.arange(degree.sum()) + np.repeat(adjacency.start[ids] - before, degree)
    found: Ids = entries[at].astype(np.int64)
    return found


def rows_within(session: Session, nodes: Mapping[str, Ids]) -> dict[int, Ids]:
    """Which rows, int64 `[k]`, belong to some nodes, int64 `[n]`, by the address of the array."""
    engine = session.engine
    kept: list[tuple[Stored, str]] = [
        (c, c.value.kind) for c in engine.cells.values() if c.domain is Domain.NODE
    ]
    kept += [(rows, a.step.output.kind) for a in engine.aggregators for rows in a.all_rows()]
    found = {}
    for rows, kind in kept:
        if rows.rows is not None:
            ids = nodes[kind]
            found[rows.rows.data_ptr()] = ids[ids < len(rows.rows)]
    return found
