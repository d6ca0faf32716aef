"""What belongs to edges that come, written before the machine takes them into the graph."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch

from pyg_incremental.delta.resolve.plain import PlainDelta
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.kernels.threads import Alone
from pyg_incremental.telemetry.work import Work


class EdgeValues:
    """The values of the edges of one graph.

    Args:
        executors: Those of edge values, in order; some may be of other graphs.
        graph: The graph.
        machine_maps: Those that the machine computes.

    Attributes:
        are_there: Whether there are any.
        steps: Which of them are computed here.
    """

    def __init__(
        self, executors: Sequence[Any], graph: DynamicGraph, machine_maps: Collection[Any]
    ) -> None:
        self._graph = graph
        own = [(s, e) for s, e in enumerate(executors) if e.context.graph is graph]
        maps = [(s, e) for s, e in own if e.computes and e not in machine_maps]
        self._maps, self.steps = [e for _, e in maps], [s for s, _ in maps]
        self._alone = Alone()
        self.are_there = bool(own)

    def write_ahead(self, delta: PlainDelta, ready: tuple[Any, int, int, int], stats: Work) -> None:
        """Write them to the slots that the edges of a delta will have.

        There nobody looks before the graph takes the edges, so nothing has changed if it does not.

        Args:
            delta: The delta.
            ready: See `EdgeStore.ready_for`.
            stats: Takes the work.
        """
        free, num_free, end, _ = ready
        comes = delta.added.shape[1]
        reused = min(comes, num_free)
        slots = free[num_free - reused : num_free]
        if reused < comes:
            slots = np.concatenate([slots, np.arange(end, end + comes - reused)])
        self._graph.write(slots, delta.data)
        if self._maps:
            at = torch.from_numpy(slots)
            with torch.no_grad(), self._alone:
                for e in self._maps:
                    e.compute_edges(at, stats)
