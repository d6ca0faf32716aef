"""Sums of messages, with an optional weight per edge: what mean, degree and count are made of.

Retract, insert and push are additions, as in RIPPLE (delta messages for linear aggregations). How
far additions may blur a row is bounded by the drift rule of `kernels.compiled.sum_push`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from pyg_incremental.aggregate.base import Aggregate, Aggregator
from pyg_incremental.graph.edge_store import Edges
from pyg_incremental.program.steps import Value
from pyg_incremental.rows import Cell, Context, Rows
from pyg_incremental.typing import Array


@dataclass(frozen=True, eq=False)
class Sum(Aggregate):
    """`out[i] = sum over in-edges (j, i) of weight[j, i] * source[j]`.

    It is zero where there is no in-edge.

    Attributes:
        source: Node value `[num_nodes, channels]`.
        weight: Edge value `[num_edges]`, or None for weight one.
    """

    kind: ClassVar[str] = "sum"
    source: Value
    weight: Value | None

    @property
    def messages(self) -> tuple[Value, ...]:
        """The source."""
        return (self.source,)

    def bind(self, cell: Callable[[Value], Cell], context: Context) -> "SumState":
        """The executor: it keeps the sum and the drift of every row."""
        return SumState(self, cell, context)


class SumState(Aggregator):
    """Keeps sums current.

    `drift` is the magnitude that has moved through each row since it was last summed afresh.
    """

    pulls = True
    most = 0.9  # a push along an edge takes little more than a read

    def __init__(self, step: Sum, cell: Callable[[Value], Cell], context: Context) -> None:
        super().__init__(step, cell(step.output), context)
        self.source = cell(step.source)
        self.weight = None if step.weight is None else cell(step.weight)
        self.drift = self.extra["drift"] = Rows(context.backend)
        self._nothing: Array = None

    def full(self) -> None:
        """Sum all rows."""
        context, rows = self.context, self.source.tensor
        self.limit = self._hold_no_sums(self.source.current(), self.drift)
        self._nothing = context.backend.array(rows.new_empty(0))
        context.kernels.sum_rows(
            context.all_nodes.array, self.out.array, self.drift.array, self.source.array,
            self._weight(), self._lists()[1], self.drop,
        )  # fmt: skip

    def _weight(self) -> Array:
        return self._nothing if self.weight is None else self.weight.array.reshape(-1)

    def edges_changed(self) -> None:
        """Subtract the messages of removed edges and add those of added ones, all OLD."""
        weight = self.weight
        removed, added, changed, _ = self.context.events
        for edges, sign in ((removed, -1), (added, 1)):
            if len(edges.slots):
                self._add(
                    edges, self._nothing if weight is None else self._weight()[edges.slots], sign
                )
        if weight is not None and weight.old_changed is not None and len(changed.slots):
            self._add(changed, self.context.backend.array(weight.old_changed.reshape(-1)), -1)
            self._add(changed, self._weight()[changed.slots], 1)

    def _add(self, edges: Edges, factor: Array, sign: int) -> None:
        src, dst = self._ends(edges)
        self.context.kernels.sum_edges(
            self.out.array, self.drift.array, self.scale.array, self.source.array, src, dst, factor,
            sign, self.drop,
        )  # fmt: skip

    def rows_changed(self) -> None:
        """Push what changed in the messages, and sum rows afresh that have drifted too far."""
        context, source, out = self.context, self.source, self.out
        scratch = context.scratch
        with_changed = self.weight is not None and self.weight.old_changed is not None
        count, _, events, epoch = self._collect(with_changed)
        if context.renew.shape[0]:
            self.drift.tensor[context.renew] = torch.inf
        if source.ids is None and not count:
            return
        pushed, inn = self._lists()
        if source.ids is not None and self._pulls(source):
            count = self._reach(source, count, epoch)
            everything = count == context.num_nodes
            out.ids = context.all_nodes if everything else scratch.taken(count)
            read = context.kernels.sum_rows(
                out.ids.array, out.array, self.drift.array, source.array, self._weight(), inn,
                self.drop,
            )  # fmt: skip
            self._report(count, count, events + read, count, "pull")
            return
        ids, old = (
            (scratch.touched[:0], source.array[:0])
            if source.ids is None
            else (source.ids.array, source.old)
        )
        count, edges, reread, read = context.kernels.sum_push(
            out.array, self.drift.array, self.limit, self.scale.array, source.array, self._weight(),
            ids, old, pushed, inn, self.drop, scratch.touched, count, scratch.stamp, epoch,
        )  # fmt: skip
        if count:
            out.ids = scratch.taken(count)
        self._report(count, count, events + edges + read, reread)
