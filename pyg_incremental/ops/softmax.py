"""Sums weighted by a softmax over the in-edges: attention.

Per row and head three things are kept: a reference, the mass `sum exp(logit - reference)` and the
numerator `sum exp(logit - reference) * value` (the neighbourhood context of NeutronRT, Section 4).
A source that changed is retracted with its old logit and value and inserted with its new ones. A
row whose own term of the logits changed is made afresh, and so is one in which cancellation has
cost too many bits (see `kernels.compiled.softmax_settle`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pyg_incremental.graph.edge_store import Edges
from pyg_incremental.kernels.compiled import choice
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.ops.base import Aggregate, Touched, channel_scale, drift_limit
from pyg_incremental.ops.operator import At
from pyg_incremental.ops.retracting import Retracting
from pyg_incremental.ops.sum import EXACT
from pyg_incremental.program.steps import Value
from pyg_incremental.rows import Cell, Context, Ids
from pyg_incremental.typing import Array


@dataclass(frozen=True, eq=False)
class SoftmaxSum(Aggregate):
    """`out[i]` stands for `sum_j softmax_j(leaky_relu(logit[j, i])) * value[j]`, per head.

    It holds `[numerator, mass, reference]` of that sum. The logit of an edge is
    `source part + target part + edge part`.

    Attributes:
        source: Node value `[num_nodes, heads * channels + heads]`: the values, then the source's
            logit parts.
        target: Node value `[num_nodes, heads]`: the target's logit parts.
        edge: Edge value `[num_edges, heads]`, or None.
        loop: Node value `[num_nodes, heads]`: logits (before leaky ReLU) of a self-loop that every
            node has, or None.
        slope: Negative slope of the leaky ReLU.
    """

    kind: ClassVar[str] = "softmax"
    is_local: ClassVar[bool] = True
    changes_throughout: ClassVar[bool] = True
    source: Value
    target: Value
    edge: Value | None
    loop: Value | None
    slope: float

    @property
    def messages(self) -> tuple[Value, ...]:
        """The source: its values and logit parts are retracted together."""
        return (self.source,)

    @property
    def gathered(self) -> tuple[Value, ...]:
        """The source."""
        return (self.source,)

    @property
    def own_part(self) -> tuple[Value, ...]:
        """The target, and what a loop of its own is made of."""
        return (self.target, *(() if self.loop is None else (self.loop, self.source)))

    def row_like(self, like: Callable[[Value], Tensor]) -> Tensor:
        """Values and logits of a source, and a reference, `[1, heads * channels + 2 * heads]`."""
        source, heads = like(self.source)[:1], like(self.target).shape[1]
        return torch.cat([source, source[:, :heads]], 1)

    def bind(self, cell: Callable[[Value], Cell], context: Context) -> "SoftmaxState":
        """The executor: it keeps numerator, mass and reference of every row."""
        return SoftmaxState(self, cell, context)


def softmax_result(state: Tensor, heads: int) -> Tensor:
    """Numerator over mass of state rows, `[k, heads * channels]`; zero in a row without edges.

    Of such a row the numerator is zero, too. One division a head, as it takes as long as some
    twenty multiplications.
    """
    channels = state.shape[1] // heads - 2
    numerator = state[:, : heads * channels].view(-1, heads, channels)
    mass = state[:, heads * channels : heads * channels + heads]
    return (numerator * torch.where(mass == 0, 1.0, mass).reciprocal().unsqueeze(-1)).flatten(1)


class SoftmaxRows(Retracting):
    """What all softmaxes have in common: when a row is made afresh.

    `drift` is what has moved through each row's mass and through its numerator.

    Attributes:
        heads: The number of heads.
        has_loops: Whether every row gathers over a self-loop of its own, too.
    """

    has_loops: bool

    def _hold_no_terms(self, values: Tensor, heads: int) -> None:
        """Make room for sums of such values, `[k, heads * channels]`; nothing has drifted."""
        context, self.heads = self.context, heads
        self.limit = drift_limit(values.dtype, values.dtype)
        width = values.shape[1] + 2 * heads
        self.out.hold(context.backend.zeros(values, context.capacity, width))
        self.drift.hold(context.backend.zeros(values, context.capacity, 2))
        self._hold_low()
        self.scale.hold(channel_scale(values))

    def settle(self, touched: Touched) -> Ids:
        """Rows are judged by the head that has lost most."""
        backend, again = self.context.backend, self.context.backend.room(touched.count)
        count = self.context.kernels.softmax_settle(
            self.out.array, self.low.array, self.drift.array, self.limit, self.scale.array,
            self.heads, self._lists()[1], self.has_loops, self.context.scratch.touched,
            touched.count, again,
        )  # fmt: skip
        return backend.ids_from(again[:count])


class SoftmaxState(SoftmaxRows):
    """Keeps softmax-weighted sums current."""

    kernels = ("softmax", "softmaxes")

    pulls = True
    kind_of_row = m.SOFTMAX
    reads_of_a_push = choice.SOFTMAX
    source: Cell

    def __init__(self, step: SoftmaxSum, cell: Callable[[Value], Cell], context: Context) -> None:
        super().__init__(step, cell, context)
        self.source = cell(step.source)
        self.target = cell(step.target)
        self.edge = None if step.edge is None else cell(step.edge)
        self.loop = None if step.loop is None else cell(step.loop)
        self.slope, self.edge_rows = step.slope, self.edge
        rest = (c for c in (self.loop, self.edge) if c is not None)
        self.read = [self.source, self.target, *rest]
        self.has_loops = self.loop is not None

    def full(self) -> None:
        """Sum all rows, each with its largest logit as reference."""
        context, heads = self.context, self.target.tensor.shape[1]
        rows = self.source.current()
        self._hold_no_terms(rows[:, : rows.shape[1] - heads], heads)
        self._nothing: Array = context.backend.array(rows.new_empty(0, 1))
        self.pull(context.all_nodes)

    def pull(self, ids: Ids) -> int:
        """Sum some rows, int64 `[k]`, afresh; returns the number of edges read."""
        read: int = self.context.kernels.softmax_rows(
            ids.array, self.out.array, self.low.array, self.drift.array, self.source.array,
            self.target.array, self._rows_of(self.edge), self._rows_of(self.loop), self.slope,
            self._lists()[1], self.drop,
        )  # fmt: skip
        return read

    def lay_out(self, row: Array, numbers: Array, at: At, wide: bool) -> None:
        """With the parts of logits, int64 `[columns]` and floats `[2]`."""
        super().lay_out(row, numbers, at, wide)
        row[m.SOURCE], row[m.TARGET] = at(self.source), at(self.target)
        row[m.LOOP] = -1 if self.loop is None else at(self.loop)
        numbers[m.SLOPE] = self.slope

    def _rows_of(self, cell: Cell | None) -> Array:
        return self._nothing if cell is None else cell.array

    @property
    def _edges_differ(self) -> bool:
        return self.edge is not None and self.edge.old_changed is not None

    def _add(self, edges: Edges, sign: int, before: bool) -> None:
        src, dst = self._ends(edges)
        rows = self._nothing
        if self.edge is not None:
            rows = self.edge.array[edges.slots]
            if before and self.edge.old_changed is not None:
                rows = self.context.backend.array(self.edge.old_changed)
        self.context.kernels.softmax_edges(
            self.out.array, self.low.array, self.drift.array, self.scale.array, self.source.array,
            self.target.array, src, dst, rows, self.slope, sign, self.drop, EXACT,
        )  # fmt: skip

    def _own(self) -> list[Ids | None]:
        if self.loop is None:
            return [self.target.ids]
        return [self.target.ids, self.loop.ids, self._as_targets(self.source)]

    def push(self, touched: Touched) -> int:
        """Replace the terms of changed sources."""
        source, scratch = self.source, self.context.scratch
        if source.ids is None:
            return 0
        touched.count, edges = self.context.kernels.softmax_push(
            self.out.array, self.low.array, self.drift.array, self.scale.array, source.array,
            self.target.array, self._rows_of(self.edge), self.slope, source.ids.array, source.old,
            self._lists()[0], self.drop, scratch.touched, touched.count, scratch.stamp,
            touched.epoch,
        )  # fmt: skip
        return edges
