"""Sums of messages, with an optional weight per edge: what mean, degree and count are made of.

Retract, insert and push are additions, as in RIPPLE (delta messages for linear aggregations). How
far additions may blur a row is bounded by the drift rule of `kernels.compiled.sum_settle`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_incremental.graph.edge_store import Edges
from pyg_incremental.kernels.address import address_of
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.ops.base import Aggregate, Touched
from pyg_incremental.ops.operator import At
from pyg_incremental.ops.retracting import Retracting
from pyg_incremental.program.steps import Step, Value
from pyg_incremental.rows import Cell, Context, Ids
from pyg_incremental.typing import Array

EXACT = 1.0
"""How often a message counts in the drift that is taken back as it was added, bit by bit."""


@dataclass(frozen=True, eq=False)
class Sum(Aggregate):
    """`out[i] = own[i] + factor[i] * sum over in-edges (j, i) of weight[j, i] * source[j]`.

    The sum is zero where there is no in-edge; if there is a loop, `loop * source[i]` is part of it.
    What a row adds to it, and what it is multiplied with, are the neighbourhood's context
    (NeutronRT): a message goes to the finished row, which is all that is stored.

    Attributes:
        source: Node value `[num_nodes, channels]`.
        weight: Edge value `[num_edges]`, or None for weight one.
        own: Node value `[num_nodes, channels]` other than the source, or None for zero.
        factor: Node value `[num_nodes, 1]`, or None for one.
        loop: What stands for `own` where a row sends itself what it sends to others, or None.
    """

    kind: ClassVar[str] = "sum"
    is_local: ClassVar[bool] = True
    source: Value
    weight: Value | None
    own: Value | None = field(default=None, kw_only=True)
    factor: Value | None = field(default=None, kw_only=True)
    loop: "OwnMessage | None" = field(default=None, kw_only=True)

    @property
    def messages(self) -> tuple[Value, ...]:
        """The source, and the terms of each row."""
        return (self.source, *(v for v in (self.own, self.factor) if v is not None))

    @property
    def gathered(self) -> tuple[Value, ...]:
        """The source."""
        return (self.source,)

    @property
    def changes_throughout(self) -> bool:
        """Where what others send is added to something else."""
        return bool(self.own or self.loop)

    def row_like(self, like: Callable[[Value], Tensor]) -> Tensor:
        """One of the source, `[1, channels]`."""
        return like(self.source)[:1]

    def bind(self, cell: Callable[[Value], Cell], context: Context) -> "SumState":
        """The executor: it keeps the sum and the drift of every row."""
        return SumState(self, cell, context)


def plain_sum(step: Step | None) -> Sum | None:
    """A step, if it is a sum of rows that nothing is part of yet."""
    if not isinstance(step, Sum) or (step.own or step.factor or step.loop) is not None:
        return None
    return step


def divided(total: Tensor, count: Tensor) -> Tensor:
    """A mean from a sum, `[k, ..., channels]`, and a number, `[k, ..., 1]`; zero for none.

    Where nobody else reads the sum, an engine makes it part of that: `factor` (see `engine.terms`).
    """
    return total / count.clamp_min(1)


def scaled(total: Tensor, factor: Tensor) -> Tensor:
    """A sum, `[k, channels]`, and what each of its rows is multiplied with, `[k, 1]`.

    Where nobody else reads the sum, an engine makes it part of that: `factor`.
    """
    return total * factor


def added(aggregated: Tensor, own: Tensor) -> Tensor:
    """A sum, `scaled` or not, or a mean, and another row of each node.

    Both are `[k, channels]`, and of one dtype.

    Where nobody else reads the sum, an engine makes it part of that: `own`.
    """
    return aggregated + own


@dataclass(frozen=True)
class OwnMessage:
    """What a row sends to itself, `[k, channels]`, perhaps `scaled` like the rest, and a bias.

    Where nobody else reads it, an engine makes it part of the sum: `loop`.

    Attributes:
        weight: Gives the weight of what is sent, a number or a tensor with one.
        bias: Gives the bias, `[channels]`, or None.
    """

    weight: Callable[[], float | Tensor] = lambda: 1.0
    bias: Callable[[], Tensor | None] = lambda: None

    def __call__(self, sent: Tensor, factor: Tensor | None = None) -> Tensor:
        """The rows, from what is sent, `[k, channels]`, and the factors, `[k, 1]`."""
        rows, bias = self.weight() * sent, self.bias()
        rows = rows if factor is None else rows * factor
        return rows if bias is None else rows + bias


@dataclass(frozen=True)
class Biased:
    """Rows, `[k, channels]`, and a bias.

    Attributes:
        bias: Gives the bias, `[channels]`.
    """

    bias: Callable[[], Tensor]

    def __call__(self, rows: Tensor) -> Tensor:
        """Their sum."""
        return rows + self.bias()


@dataclass(frozen=True)
class Linear:
    """A linear layer, which reads its parameters when it runs.

    Attributes:
        weight: Gives the weight, `[out, in]`.
        bias: Gives the bias, `[out]`; None for none.
    """

    weight: Callable[[], Tensor]
    bias: Callable[[], Tensor] | None

    def __call__(self, rows: Tensor) -> Tensor:
        """Of rows `[k, in]`, rows `[k, out]`."""
        return F.linear(rows, self.weight(), None if self.bias is None else self.bias())


class Summing(Retracting):
    """What all sums have in common: when a row is made afresh."""

    def settle(self, touched: Touched) -> Ids:
        """Rows are judged by what moved through them and what is left."""
        backend, again = self.context.backend, self.context.backend.room(touched.count)
        count = self.context.kernels.sum_settle(
            self.out.array, self.low.array, self.drift.array, self.limit, self.scale.array,
            self._lists()[1], self.context.scratch.touched, touched.count, again,
        )  # fmt: skip
        return backend.ids_from(again[:count])


class SumState(Summing):
    """Keeps sums current.

    Attributes:
        own: The rows that are added, if any.
        factor: The factors, if any.
        terms: Both.
        is_closed: Whether each row is among its own in-neighbours.
        is_finished: Whether rows are more than sums over in-edges.
        loop: The weight of every row in its own sum, `[1]`, or nothing.
        bias: The row that is added to all then, `[1, channels]`, or None.
    """

    kernels = ("sum", "large_sum", "sums")

    pulls = True
    source: Cell

    def __init__(self, step: Sum, cell: Callable[[Value], Cell], context: Context) -> None:
        super().__init__(step, cell, context)
        self.source = cell(step.source)
        self.weight = None if step.weight is None else cell(step.weight)
        self.own = None if step.own is None else cell(step.own)
        self.factor = None if step.factor is None else cell(step.factor)
        self.terms = [c for c in (self.own, self.factor) if c is not None]
        self._own_message = step.loop
        self.is_closed = step.loop is not None
        self.is_finished = bool(self.terms) or self.is_closed
        self.edge_rows, self.may_be_wide = self.weight, self.weight is None and not self.is_finished
        self.read = [self.source, *self.terms, *([] if self.weight is None else [self.weight])]
        self.loop: Array = None
        self.bias: Array = None
        self._noted: list[tuple[Tensor, Array]] = []
        self._nothing: Array = None
        self._again: Array = None

    def full(self) -> None:
        """Sum all rows."""
        self._hold_no_sums(self.source.current())
        self._nothing = self.context.backend.array(self.source.tensor.new_empty(0))
        self._look_at_loop(self.out.tensor)
        self.pull(self.context.all_nodes)
        self._hold_scale((self.out if self.is_finished else self.source).current())

    def pull(self, ids: Ids) -> int:
        """Sum some rows, int64 `[k]`, afresh; returns the number of edges read."""
        read: int = self.context.kernels.sum_rows(
            ids.array, self.out.array, self.low.array, self.drift.array, self.source.array,
            self._weight(), *self._own_and_factor(), self._lists()[1], self.drop, self.loop,
        )  # fmt: skip
        return read

    @property
    def compares(self) -> bool:
        """Whether somebody is told which rows changed, and not only which were touched."""
        return self.is_finished and self.out.compares_values

    def lay_out(self, row: Array, numbers: Array, at: At, wide: bool) -> None:
        """With its terms, int64 `[columns]` and floats `[2]`."""
        super().lay_out(row, numbers, at, wide)
        plain = self.out.tensor.dtype == self.context.backend.like.dtype
        row[m.KIND], row[m.SOURCE] = m.TOTAL if plain else m.WIDE_TOTAL, at(self.source)
        row[m.ADDED], row[m.FACTOR] = (-1 if c is None else at(c) for c in (self.own, self.factor))

    def locate(self, row: Array) -> None:
        """And its loop; int64 `[columns]`."""
        super().locate(row)
        if self.is_closed:
            row[m.OF_LOOP] = address_of(self.loop)
            row[m.BIAS] = 0 if self.bias is None else address_of(self.bias)

    def _look_at_loop(self, like: Tensor) -> None:
        """Hold its weight and its bias, which may be parameters, in the dtype of `like`."""
        array, message = self.context.backend.array, self._own_message
        self.loop = self._nothing
        if message is not None:
            self.loop = array(
                torch.as_tensor(message.weight()).detach().to(like).reshape(1).clone()
            )
            bias = message.bias()
            if bias is not None:
                row = bias.detach().to(like).expand(like.shape[1:]).reshape(1, -1)
                self.bias = array(row.contiguous().clone())

    def _own_and_factor(self) -> tuple[Array, Array]:
        own = self.source.array[:0] if self.bias is None else self.bias
        if self.own is not None:
            own = self.own.array
        return own, self._nothing if self.factor is None else self.factor.array.reshape(-1)

    def _weight(self) -> Array:
        return self._nothing if self.weight is None else self.weight.array.reshape(-1)

    @property
    def _edges_differ(self) -> bool:
        return self.weight is not None and self.weight.old_changed is not None

    def _add(self, edges: Edges, sign: int, before: bool) -> None:
        src, dst = self._ends(edges)
        weights = (
            self._nothing if self.weight is None else self._weights(self.weight, edges, before)
        )
        self.context.kernels.sum_edges(
            self.out.array, self.low.array, self.drift.array, self.scale.array, self.source.array,
            src, dst, weights, self._own_and_factor()[1], sign, self.drop, EXACT,
        )  # fmt: skip

    def _weights(self, weight: Cell, edges: Edges, before: bool) -> Array:
        """The weights of some edges, `[k]`."""
        if before and weight.old_changed is not None:
            return self.context.backend.array(weight.old_changed.reshape(-1))
        return weight.array.reshape(-1)[edges.slots]

    def push(self, touched: Touched) -> int:
        """Add how much changed messages differ from what they were.

        The kernel settles rows as well, as long as they are in the cache.
        """
        source, scratch, (pushed, inn) = self.source, self.context.scratch, self._lists()
        if self.is_finished:
            self._renew()
        ids, old = scratch.touched[:0], source.array[:0]
        if source.ids is not None:
            ids, old = source.ids.array, source.old
        touched.count, edges, self._again = self.context.kernels.sum_push(
            self.out.array, self.low.array, self.drift.array, self.limit, self.scale.array,
            source.array, self._weight(), *self._own_and_factor(), ids, old, pushed, inn, self.drop,
            self.loop, scratch.touched, touched.count, scratch.stamp, touched.epoch,
        )  # fmt: skip
        return edges

    def edges_changed(self) -> None:
        """As for all of them; what stands where the edges lead is noted before."""
        if self.compares:
            targets = (self._ends(edges)[1] for edges in self.context.events[:3])
            self.note(*((dst, self.out.array[dst]) for dst in targets if len(dst)))
        super().edges_changed()

    def note(self, *noted: tuple[Array, Array]) -> None:
        """Say what stood in rows before the running update: ids `[k]` and `[k, channels]` each."""
        self._noted = [(self.context.backend.ids_from(ids).tensor, rows) for ids, rows in noted]

    def rows_changed(self) -> None:
        """As for all of them; then the rows that came out as they were are left out."""
        if not self.compares:
            super().rows_changed()
            return
        context = self.context
        first = () if context.renew_ids is None else (context.renew_ids,)
        touched = self._collect(self._edges_differ, first)
        count = touched.count
        if self.source.ids is not None:
            count = self._reach(self.source, count, touched.epoch)
        else:
            rows = context.scratch.touched[:count]
            rows[:] = context.backend.sorted(rows)
        ids = context.scratch.taken(count)
        before = self.out.stored_rows(ids)
        for of, noted in self._noted if context.num_events and count else []:
            at = torch.searchsorted(ids.tensor, of).clamp_max(count - 1)
            found = ids.tensor[at] == of
            rows = context.backend.tensor(before)
            rows[at[found]] = context.backend.tensor(noted)[found]
        self._noted = []
        super().rows_changed()
        self._leave_out(ids, before)

    def _leave_out(self, ids: Ids, before: Array) -> None:
        """Leave the rows out that are what they were, `before`, among `ids`, which ascend."""
        touched, backend = self.out.ids, self.context.backend
        if touched is None:
            return
        if touched.count < ids.count or not torch.equal(touched.tensor, ids.tensor):
            before = before[backend.array(torch.searchsorted(ids.tensor, touched.tensor))]
        places = backend.array(torch.arange(touched.count))
        changed, where = backend.room(touched.count), backend.room(touched.count)
        n = self.context.kernels.commit(
            before, places, self.out.stored_rows(touched), before[:0], touched.count, changed, where
        )
        differs = backend.tensor(where[:n])
        if self.context.first_new < self.context.num_nodes:
            arrived = (touched.tensor >= self.context.first_new).nonzero().flatten()
            differs = torch.cat([differs, arrived]).unique()
            n = len(differs)
        if n < touched.count:
            self.out.ids = backend.ids(touched.tensor[differs]) if n else None
        *first, _, edges, reread, a, b, c, d, e, way = self.context.stats[-1]
        self.context.stats[-1] = (*first, n, edges, reread, a, b, c, d, e, way)

    def _collect(self, with_changed: bool, first: tuple[Ids, ...] = ()) -> Touched:
        """The rows whose own terms changed are touched too."""
        touched, scratch = super()._collect(with_changed, first), self.context.scratch
        for ids in (cell.ids for cell in self.terms if cell.ids is not None):
            touched.count = self.context.kernels.unite(
                ids.array, scratch.touched, touched.count, scratch.stamp, touched.epoch
            )
        return touched

    def _reach(self, source: Cell, count: int, epoch: int) -> int:
        """A row of a closed sum is reached by what it sends itself, too."""
        if self.is_closed and source.ids is not None:
            scratch = self.context.scratch
            count = self.context.kernels.unite(
                source.ids.array, scratch.touched, count, scratch.stamp, epoch
            )
        return super()._reach(source, count, epoch)

    def _takes_all(self) -> bool:
        return super()._takes_all() or any(cell.has_lost_old for cell in self.terms)

    def _reached(self, touched: Touched) -> Ids:
        if self.source.ids is not None:
            return super()._reached(touched)
        scratch, rows = self.context.scratch, self.context.scratch.touched[: touched.count]
        rows[:] = self.context.backend.sorted(rows)
        return scratch.taken(touched.count)

    def _renew(self) -> None:
        """Let the rows follow their own terms."""
        context, (own, factor) = self.context, self._own_and_factor()
        own_ids, own_old = self._change_of(self.own)
        factor_ids, factor_old = self._change_of(self.factor)
        context.kernels.sum_renew(
            self.out.array, self.low.array, self.drift.array, self.scale.array, own, own_ids,
            own_old, factor, factor_ids, factor_old, context.first_new, context.num_nodes, 0,
            context.num_nodes,
        )  # fmt: skip

    def _change_of(self, cell: Cell | None) -> tuple[Array, Array]:
        """Which rows of a term changed, and what they were."""
        if cell is None or cell.ids is None:
            return self.context.scratch.touched[:0], self.source.array[:0]
        return cell.ids.array, cell.old

    def settle(self, touched: Touched) -> Ids:
        """What the kernel has found when it pushed."""
        again, self._again = self._again, None
        return self.context.backend.ids_from(again)
