"""Sums of messages, with an optional weight per edge: what mean, degree and count are made of.

Retract, insert and push are additions, as in RIPPLE (delta messages for linear aggregations). How
far additions may blur a row is bounded by the drift rule of `kernels.compiled.sum_settle`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from pyg_incremental.aggregate.base import Aggregate, Touched
from pyg_incremental.aggregate.retracting import Retracting
from pyg_incremental.graph.edge_store import Edges
from pyg_incremental.program.steps import Value
from pyg_incremental.rows import Cell, Context, Ids
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


class Summing(Retracting):
    """What all sums have in common: when a row is made afresh."""

    def settle(self, touched: Touched) -> Ids:
        """Rows are judged by what moved through them and what is left."""
        backend, again = self.context.backend, self.context.backend.room(touched.count)
        count = self.context.kernels.sum_settle(
            self.out.array, self.drift.array, self.limit, self.scale.array, self._lists()[1],
            self.context.scratch.touched, touched.count, again,
        )  # fmt: skip
        return backend.ids_from(again[:count])


class SumState(Summing):
    """Keeps sums current."""

    pulls = True
    most = 0.9  # a push along an edge takes little more than a read
    source: Cell

    def __init__(self, step: Sum, cell: Callable[[Value], Cell], context: Context) -> None:
        super().__init__(step, cell, context)
        self.source = cell(step.source)
        self.weight = None if step.weight is None else cell(step.weight)
        self._nothing: Array = None
        self._again: Array = None

    def full(self) -> None:
        """Sum all rows."""
        self.limit = self._hold_no_sums(self.source.current(), self.drift)
        self._nothing = self.context.backend.array(self.source.tensor.new_empty(0))
        self.pull(self.context.all_nodes)

    def pull(self, ids: Ids) -> int:
        """Sum some rows, int64 `[k]`, afresh; returns the number of edges read."""
        read: int = self.context.kernels.sum_rows(
            ids.array, self.out.array, self.drift.array, self.source.array, self._weight(),
            self._lists()[1], self.drop,
        )  # fmt: skip
        return read

    def _weight(self) -> Array:
        return self._nothing if self.weight is None else self.weight.array.reshape(-1)

    @property
    def _edges_differ(self) -> bool:
        return self.weight is not None and self.weight.old_changed is not None

    def _add(self, edges: Edges, sign: int, before: bool) -> None:
        src, dst = self._ends(edges)
        factor = self._nothing if self.weight is None else self._factor(self.weight, edges, before)
        self.context.kernels.sum_edges(
            self.out.array, self.drift.array, self.scale.array, self.source.array, src, dst, factor,
            sign, self.drop,
        )  # fmt: skip

    def _factor(self, weight: Cell, edges: Edges, before: bool) -> Array:
        """The weights of some edges, `[k]`."""
        if before and weight.old_changed is not None:
            return self.context.backend.array(weight.old_changed.reshape(-1))
        return weight.array.reshape(-1)[edges.slots]

    def push(self, touched: Touched) -> int:
        """Add how much changed messages differ from what they were.

        The kernel settles rows as well, as long as they are in the cache.
        """
        source, scratch, (pushed, inn) = self.source, self.context.scratch, self._lists()
        ids, old = scratch.touched[:0], source.array[:0]
        if source.ids is not None:
            ids, old = source.ids.array, source.old
        touched.count, edges, self._again = self.context.kernels.sum_push(
            self.out.array, self.drift.array, self.limit, self.scale.array, source.array,
            self._weight(), ids, old, pushed, inn, self.drop, scratch.touched, touched.count,
            scratch.stamp, touched.epoch,
        )  # fmt: skip
        return edges

    def settle(self, touched: Touched) -> Ids:
        """What the kernel has found when it pushed."""
        again, self._again = self._again, None
        return self.context.backend.ids_from(again)
