"""Steps that the machine does not know: their executors run between two of its calls."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pyg_incremental.fused.tables import Tables
from pyg_incremental.graph.edge_store import EdgeEvents
from pyg_incremental.kernels.compiled.layout import KIND, OTHER
from pyg_incremental.kernels.threads import Alone
from pyg_incremental.telemetry.work import Work

Begin = Callable[[EdgeEvents, Work], None]
"""Tells executors what happened to the edges, before the first of them runs."""


class TorchSteps:
    """The unknown steps of one plan.

    Args:
        tables: The plan.
        begin: See `Begin`.

    Attributes:
        has_begun: Whether executors know of the running update; false when one begins.
    """

    def __init__(self, tables: Tables, begin: Begin) -> None:
        self._tables, self._begin = tables, begin
        cells = {cell.value: cell for cell in tables.at}
        self._reads = {
            s: [cells[v] for v in e.step.inputs if v in cells]
            for s, e in enumerate(tables.executors)
            if tables.steps[s, KIND] == OTHER
        }
        self._alone = Alone()
        self.has_begun = False

    def run(self, step: int, events: EdgeEvents, stats: Work) -> tuple[int, bool]:
        """Carry out the unknown steps from `step` up to the next one that is known.

        Returns:
            That one, and whether the machine can go on there: it needs room for what changed.
        """
        if not self.has_begun:
            self._begin(events, stats)
            self.has_begun = True
        executors, fits = self._tables.executors, True
        with torch.no_grad(), self._alone:
            while fits and step in self._reads:
                executor = executors[step]
                self._tables.hand_over(self._reads[step])
                executor.rows_changed()
                fits = self._tables.take(executor.out)
                step += 1
        return step, fits
