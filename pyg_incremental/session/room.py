"""Room for an update, made before it changes anything, where room may be missing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pyg_incremental.call.roles import Roles
from pyg_incremental.delta.resolve.resolver import ResolvedDelta
from pyg_incremental.engine.loop import Engine
from pyg_incremental.graph.dynamic import DynamicGraph

_NO_EDGES = np.empty((2, 0), np.int64)


def make_room(
    resolved: ResolvedDelta,
    roles: Roles,
    graphs: Mapping[str, DynamicGraph],
    num_nodes: Mapping[str, int],
    engine: Engine,
) -> None:
    """See that a delta finds all room that it needs in graphs and rows; what is there stays.

    Args:
        resolved: The delta.
        roles: What the tensors of the call are.
        graphs: The graphs by name.
        num_nodes: The number of nodes of each kind before it.
        engine: What holds the rows.

    Raises:
        MemoryError: If what may be taken in memory is full.
        OSError: If the disk is full.
    """
    counts = {k: n + resolved.new_nodes.get(k, 0) for k, n in num_nodes.items()}
    for r in roles.relations:
        edges, room = resolved.edges.get(r.graph), max(counts[r.source], counts[r.target])
        src, dst = _NO_EDGES if edges is None else edges.added
        gone = 0 if edges is None else edges.removed.size
        graphs[r.graph].make_room(room, src, dst, gone)
    engine.make_room(resolved.new_nodes)
