"""Which steps the machine knows, and the operations of those that compute something.

Row maps and the functions of edges that messages are have to be translated; what is not stored, or
of another dtype, the machine cannot read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_incremental.fused.registers import RowOps, Space, UntranslatableError
from pyg_incremental.fused.row_ops import translate
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.ops.attention import FunctionSoftmaxState
from pyg_incremental.ops.base import Aggregator
from pyg_incremental.ops.edge_function import FunctionState
from pyg_incremental.ops.extremum import ComputedMessages, ExtremumState, StoredMessages
from pyg_incremental.ops.maps import InputExecutor, MapExecutor, OnesExecutor
from pyg_incremental.ops.message import BoundFunction, flat
from pyg_incremental.ops.softmax import SoftmaxState
from pyg_incremental.ops.sum import SumState
from pyg_incremental.program.steps import Domain
from pyg_incremental.rows import Cell

SAMPLE = 8
"""Rows on which translated functions are tried."""


class Messages(NamedTuple):
    """Messages that are functions of edges.

    Attributes:
        function: What they are computed of.
        fn: The same function with flat rows `[k, width]` as result; of a softmax, the values and
            then the logits.
        heads: How many of the elements are logits.
        loop: The cells that a self-loop has in the place of edge values, or None for no such loop.
    """

    function: BoundFunction
    fn: Callable[..., Tensor]
    heads: int
    loop: Sequence[Cell] | None

    @property
    def cells(self) -> list[Cell]:
        """All that is read."""
        source = self.function.source
        read = [*([] if source is None else [source]), *self.function.target]
        return [*read, *self.function.edges]


def messages_of(e: Any) -> Messages | None:
    """The messages of an aggregation, if they are functions of edges."""
    function: BoundFunction
    if isinstance(e, FunctionState):
        function, heads, loop = e.function, 0, e.loop
        if isinstance(e, FunctionSoftmaxState):
            heads = e.heads
    elif isinstance(e, ExtremumState) and isinstance(e.messages, ComputedMessages):
        function, heads, loop = e.messages, 0, None
    else:
        return None

    def rows(*given: Tensor) -> Tensor:
        made = function.fn(*given)
        if not heads:
            return flat(made)
        logits, values = made
        return torch.cat([flat(values), logits], 1)

    return Messages(function, rows, heads, loop)


class Known:
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
        if isinstance(e, MapExecutor):
            return self._of_map(e)
        messages = messages_of(e)
        self._refuse(e, messages)
        return None if messages is None else self._of_messages(messages)

    def edge_maps(self, executors: Sequence[Any]) -> list[RowOps | None]:
        """The operations of values of edges, in order.

        Raises:
            UntranslatableError: If the machine does not know all of them.
        """
        return [self._of_edge_map(e) if isinstance(e, MapExecutor) else None for e in executors]

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

    def _of_edge_map(self, e: MapExecutor) -> RowOps:
        if any(c.domain is not Domain.EDGE or not c.stored for c in (e.out, *e.inputs)):
            raise UntranslatableError("not all of its inputs are edge rows")
        if e.context.graph is not self._graph:
            raise UntranslatableError("it is of another graph")
        if e.out.tensor.dtype != self._dtype:
            raise UntranslatableError("its rows are of another dtype")
        return translate(e.fn, [c.tensor[:SAMPLE] for c in e.inputs], self.space)

    def _of_messages(self, messages: Messages) -> RowOps:
        rows = [cell.tensor[:SAMPLE] for cell in messages.cells]
        count = min(map(len, rows), default=0)
        if not count:
            raise UntranslatableError("its messages are functions of nothing")
        return translate(messages.fn, [r[:count] for r in rows], self.space)

    def _refuse(self, e: Any, messages: Messages | None) -> None:
        """See that a step other than a map is known."""
        if isinstance(e, OnesExecutor):
            return
        if isinstance(e, InputExecutor):
            if e.out.domain is Domain.NODE and e.out.rows is None:
                raise UntranslatableError("it has no rows")
            return
        if e.step.kind == "exchange":
            if not e.is_shared:
                raise UntranslatableError("it has rows of its own")
            return
        if not isinstance(e, Aggregator) or e.step.loops == "only":
            raise UntranslatableError("this kind of step is not known")
        if e.context.graph is not self._graph:
            raise UntranslatableError("it goes over another graph")
        dtype = e.out.tensor.dtype
        may_be_wide = isinstance(e, SumState) and e.weight is None and not e.is_finished
        if e.out.out_dtype is not None or dtype not in (
            self._dtype,
            self._wide if may_be_wide else self._dtype,
        ):
            raise UntranslatableError("its state is kept in another dtype")
        if e.out.keeps_old and not isinstance(e, ExtremumState):
            raise UntranslatableError("its old rows are retracted")
        for cell in _read(e, messages):
            if cell.rows is None or cell.rows.dtype != dtype:
                raise UntranslatableError("its messages are of another dtype")


def takes_edges(e: Any) -> bool:
    """Whether an executor has to see the edges that come and go before anything else does."""
    return isinstance(e, Aggregator) and e.takes_edges


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


def _read(e: Aggregator, messages: Messages | None) -> list[Cell]:
    """What an aggregation reads."""
    edge, read = None, []
    if messages is not None:
        read = [*messages.cells, *(messages.loop or ())]
    elif isinstance(e, SumState):
        edge, read = e.weight, [e.source, *e.terms]
    elif isinstance(e, SoftmaxState):
        edge, read = e.edge, [e.source, e.target, *([] if e.loop is None else [e.loop])]
    elif isinstance(e, ExtremumState) and isinstance(e.messages, StoredMessages):
        edge, read = e.messages.weight, [e.messages.source]
    else:
        raise UntranslatableError("this kind of aggregation is not known")
    return [*read, *([] if edge is None else [edge])]
