"""What a step with operations reads, as rows of the machine's table of inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyg_incremental.fused.registers import RowOps
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.rows import Cell


def inputs_of(e: Any, ops: RowOps, at: Callable[[Cell], int]) -> list[tuple[int, ...]]:
    """The rows of the table for a map, or for messages that are functions of edges.

    Args:
        e: The executor of the step.
        ops: Its operations.
        at: Where each cell stands in the table of cells.
    """
    function, ends, own = e.function, list[int](), list[int]()
    if function is None:
        return [(at(c), register, 0, -1) for c, register in zip(e.rowed, ops.inputs, strict=True)]
    if function.source is not None:
        ends.append(m.AT_SOURCE)
    ends += [m.AT_TARGET] * len(function.target) + [m.ON_EDGE] * len(function.edges)
    own += [-1] * (len(ends) - len(function.edges))
    own += [-1] * len(function.edges) if function.loop is None else map(at, function.loop)
    return [*zip(map(at, function.cells), ops.inputs, ends, own, strict=True)]
