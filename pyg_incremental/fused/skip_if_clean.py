"""When a step that the machine does not know has something to do.

Each time the machine leaves such a step to its executor costs more than a small step itself. So it
is told what the step follows, and goes by where none of that has changed: the weight of a self-loop
that another edge does not touch, or types of nodes that are made of features that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.program.steps import Value
from pyg_incremental.rows import Cell

Wakes = tuple[int, list[int]]
"""What wakes a step besides rows, see `layout.BY_ANYTHING`, and the cells whose rows do."""


class SkipIfClean:
    """What the unknown steps of one plan follow.

    Args:
        executors: Those of node values.
        edge_executors: Those of edge values, which change with the edges and at no other time.
        constants: Values that never change.
        graph: The graph whose edges change.
        known: Where the machine has a cell, or None if it neither reads nor makes it.
    """

    def __init__(
        self,
        executors: Sequence[Any],
        edge_executors: Iterable[Any],
        constants: Collection[Cell],
        graph: DynamicGraph,
        known: Callable[[Cell], int | None],
    ) -> None:
        self._cells: dict[Value, Cell] = {e.out.value: e.out for e in executors}
        edges = {e.out.value for e in edge_executors}
        self._fixed = {c.value for c in constants} | edges
        self._given = {e.out.value for e in executors if e.is_given and not e.is_graph}
        self._graph, self._known = graph, known
        self._found: dict[Value, Wakes] = {}

    def of(self, e: Any) -> Wakes:
        """What wakes an unknown step; all unknown ones before it were asked for already."""
        found = self._found[e.out.value] = self._of(e)
        return found

    def _of(self, e: Any) -> Wakes:
        level, cells = m.BY_ANYTHING, set[int]()
        if e.gathers:
            loops = m.BY_LOOPS if e.step.loops == "only" else m.BY_EDGES
            level = loops if e.context.graph is self._graph else m.BY_ROWS
        elif e.computes:
            level = m.BY_ROWS
        for value in e.step.inputs:
            cell = self._cells.get(value)
            at = None if cell is None else self._known(cell)
            if value in self._fixed or (at is None and value in self._given):
                continue  # the machine takes no update that changes what it knows no input of
            if at is None:  # what an unknown step makes stays where that step has nothing to do
                wakes, more = self._found.get(value, (m.BY_ANYTHING, []))
            else:
                wakes, more = m.BY_ROWS, [at]
            if m.BY_ANYTHING in (level, wakes):
                return m.BY_ANYTHING, []
            level = max(level, wakes)
            cells.update(more)
        return level, sorted(cells)
