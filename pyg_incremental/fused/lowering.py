"""Which steps the machine knows, and the operations of those that compute something.

Row maps and the functions of edges that messages are have to be translated; what is not stored, or
of another dtype, the machine cannot read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.fused.registers import RowOps, Space, UntranslatableError
from pyg_incremental.fused.row_ops import translate
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.ops.maps import MapExecutor
from pyg_incremental.ops.message import BoundFunction
from pyg_incremental.program.steps import Domain
from pyg_incremental.rows import Cell

SAMPLE = 8
"""Rows on which translated functions are tried."""


class Lowering:
    """What is known of the steps of one plan.

    Args:
        graph: That whose edges change.
        dtype: That of all rows.

    Attributes:
        space: Registers and constants of what was translated.
        wide_space: The same of maps in float64, where rows are of float32.
        samples: Rows of values that are not stored.
        constants: Values that depend on nothing that changes, such as a weight and its transpose.
    """

    def __init__(self, graph: DynamicGraph, dtype: torch.dtype) -> None:
        self._graph = graph
        self.space, self.wide_space = Space(), Space()
        self.samples: dict[Cell, Tensor] = {}
        self.constants: set[Cell] = set()
        self._dtype = dtype

    def operations(self, e: Any) -> RowOps | None:
        """The operations of a step; None for one that has none.

        Raises:
            UntranslatableError: If the machine does not know the step.
        """
        if e.computes:
            return self._of_map(e)
        why = e.unknown(self._graph, self._dtype, self._wide)
        if why:
            raise UntranslatableError(why)
        return None if e.function is None else self._of_messages(e.function)

    def _of_map(self, e: MapExecutor) -> RowOps | None:
        if e.out.domain is Domain.WHOLE and self.constants.issuperset(e.inputs):
            self.constants.add(e.out)
            return None
        fixed = [c for c in e.inputs if c.domain is Domain.WHOLE]
        if e.out.domain is not Domain.NODE or any(c.domain is Domain.EDGE for c in e.inputs):
            raise UntranslatableError("not all of its inputs are node rows")
        if not self.constants.issuperset(fixed):
            raise UntranslatableError("it reads what is no row")
        rows = []
        for cell in e.rowed:
            if cell.out_dtype is not None:
                raise UntranslatableError("sums are kept in another dtype")
            if not cell.stored and cell not in self.samples:
                raise UntranslatableError(f"'{cell.value}' is not stored")
            rows.append(cell.tensor[:SAMPLE] if cell.stored else self.samples[cell])
            if rows[-1].dtype not in (self._dtype, self._wide):
                raise UntranslatableError(f"'{cell.value}' is of another dtype")
        fn = _with_contents(e.fn, e.inputs) if fixed else e.fn
        sample = _tried(fn, rows)
        if sample.dtype not in (self._dtype, self._wide):  # it would be written as one of these
            raise UntranslatableError("its rows are of another dtype")
        wide = any(r.dtype != self._dtype for r in (*rows, sample))
        found = translate(fn, rows, self.wide_space if wide else self.space, wide)
        if not e.out.stored:
            self.samples[e.out] = sample
        return found

    @property
    def _wide(self) -> torch.dtype:
        """Of which dtype some sums of rows may be kept, and what is computed of these."""
        return torch.float64 if self._dtype == torch.float32 else self._dtype

    def of_edge_map(self, e: MapExecutor) -> RowOps:
        """The operations of a map of rows of edges.

        Raises:
            UntranslatableError: If the machine does not know it.
        """
        if any(c.domain is not Domain.EDGE or not c.stored for c in (e.out, *e.inputs)):
            raise UntranslatableError("not all of its inputs are edge rows")
        if e.context.graph is not self._graph:
            raise UntranslatableError("it is of another graph")
        if e.out.tensor.dtype != self._dtype:
            raise UntranslatableError("its rows are of another dtype")
        return translate(e.fn, [c.tensor[:SAMPLE] for c in e.inputs], self.space)

    def _of_messages(self, messages: BoundFunction) -> RowOps:
        rows = [cell.tensor[:SAMPLE] for cell in messages.cells]
        count = min(map(len, rows), default=0)
        if not count:
            raise UntranslatableError("its messages are functions of nothing")
        return translate(messages.rows, [r[:count] for r in rows], self.space)


def _tried(fn: Callable[..., Any], rows: Sequence[Tensor]) -> Tensor:
    """What a function makes of copies of some rows, to which it may write.

    Raises:
        UntranslatableError: If that is no tensor.
    """
    try:
        made = fn(*(r.clone() for r in rows))
    except Exception as error:
        raise UntranslatableError(f"{type(error).__name__}: {error}") from error
    if not isinstance(made, Tensor):
        raise UntranslatableError("the result is no tensor")
    return made


def _with_contents(fn: Callable[..., Any], inputs: Sequence[Cell]) -> Callable[..., Any]:
    """A map of rows alone: what is no row is the same for all of them."""

    def run(*rows: Tensor) -> Any:
        left = iter(rows)
        return fn(*(c.content if c.domain is Domain.WHOLE else next(left) for c in inputs))

    return run
