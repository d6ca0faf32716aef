"""What happened to the edges of a graph, as compiled code takes it and as executors do."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyg_incremental.graph.edge_store import EdgeEvents, Edges
from pyg_incremental.rows import NO_EDGES

Ends = tuple[Any, Any, Any]
"""Edges that come, and that leave, `[2, k]` each, and their slots, see `graph_at.accept_now`."""


def edges_of(events: EdgeEvents) -> Ends:
    """What happened to the edges, as the machine takes it."""
    removed, added = events.removed, events.added
    slots = np.empty((2, 1 + max(removed.slots.size, added.slots.size)), np.int64)
    slots[0, 1 : 1 + removed.slots.size] = removed.slots
    slots[1, 1 : 1 + added.slots.size] = added.slots
    return np.stack([added.src, added.dst]), np.stack([removed.src, removed.dst]), slots


def ends_of(edges: Ends) -> tuple[Any, ...]:
    """Sources, targets and slots of the edges that left, and of those that came."""
    added, gone, (left, taken) = edges[0], edges[1], edges[2][:, 1:]
    return *gone, left[: gone.shape[1]], *added, taken[: added.shape[1]]


def events_of(ends: tuple[Any, ...]) -> EdgeEvents:
    """The same as executors take it."""
    removed_src, removed_dst, left, src, dst, taken = ends
    return EdgeEvents(
        Edges(left.copy(), removed_src, removed_dst), Edges(taken.copy(), src, dst), NO_EDGES, {}
    )
