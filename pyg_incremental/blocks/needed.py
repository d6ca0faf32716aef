"""Which rows of each layer are needed for some rows of the output."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.blocks.budget import Lists
from pyg_incremental.blocks.in_edges import InEdges
from pyg_incremental.blocks.schedule import Schedule
from pyg_incremental.program.steps import Domain, Step

Ids = NDArray[np.int64]
Targets = list[dict[str, Ids | None]]
"""For each layer and kind of nodes the rows that are computed, ascending; None for all."""


def needed(
    schedule: Schedule,
    asked: Mapping[str, Ids] | None,
    num_nodes: Mapping[str, int],
    in_edges: Callable[[Lists], InEdges],
) -> Targets:
    """Walk back from the rows that are asked for, over in-edges, layer by layer.

    Once so many rows are needed that their in-edges are expected to reach all nodes, all are taken
    without looking (DGI, Section 3.3).

    Args:
        schedule: The layers.
        asked: Ids of the nodes whose output rows are wanted, int64 `[k]`, by kind; None for all.
        num_nodes: The number of nodes of each kind.
        in_edges: Returns some of the neighbour lists.
    """
    count = len(schedule.layers)
    if asked is None:
        return [dict.fromkeys(num_nodes, None) for _ in range(count)]
    found: list[dict[str, Ids | None]] = [
        {kind: np.empty(0, np.int64) for kind in num_nodes} for _ in range(count)
    ]

    def add(layer: int, kind: str, ids: Ids | None) -> None:
        before = found[layer][kind]
        if before is None or ids is None:
            found[layer][kind] = None
            return
        both = np.union1d(before, ids)
        found[layer][kind] = None if len(both) == num_nodes[kind] else both

    for v in schedule.program.outputs:
        if v.domain is Domain.NODE:
            add(schedule.layer_of[v], v.kind, asked.get(v.kind, np.empty(0, np.int64)))
    for i in reversed(range(count)):
        layer = schedule.layers[i]
        for s in layer.whole:
            for v in s.inputs:
                for w in schedule.behind(v):
                    if w.domain is Domain.NODE:
                        add(schedule.layer_of[w], w.kind, None)
        for kind, steps in layer.blocks.items():
            for s in steps:
                _walk(schedule, s, found[i][kind], num_nodes, in_edges, add)
    return found


def _walk(
    schedule: Schedule,
    step: Step,
    ids: Ids | None,
    num_nodes: Mapping[str, int],
    in_edges: Callable[[Lists], InEdges],
    add: Callable[[int, str, Ids | None], None],
) -> None:
    """Add what one step reads of earlier layers to make some rows."""
    if ids is not None and not len(ids):
        return
    far = set(step.gathered)
    reached: Ids | None = None
    for v in step.inputs:
        for w in schedule.read(v, step) if v.domain is Domain.NODE else ():
            if schedule.is_given(w):
                continue
            layer = schedule.layer_of[w]
            if v not in far or step.output.kind == w.kind:
                add(layer, w.kind, ids)
            if v in far:
                assert step.over is not None
                if reached is None and ids is not None:
                    reached = _reached(in_edges(step.over), ids, num_nodes[w.kind])
                add(layer, w.kind, reached)


def _reached(edges: InEdges, ids: Ids, num_sources: int) -> Ids | None:
    """The nodes at the other ends of the in-edges of some nodes; None if likely all."""
    mean = len(edges.neighbor) / max(len(edges.first) - 1, 1)
    if len(ids) * mean >= num_sources:
        return None
    return np.unique(edges.of(ids)[1]).astype(np.int64)
