"""Sums of messages that are not stored, and aggregations that remember what stood in their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.graph.edge_store import Edges
from pyg_incremental.kernels.reference.sums import wide
from pyg_incremental.ops import Aggregate, Aggregator
from pyg_incremental.ops.base import Touched
from pyg_incremental.ops.sum import EXACT, Sum, Summing
from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.rows import AT_ONCE, Cell, Context, Ids
from pyg_incremental.typing import Array


@dataclass(frozen=True, eq=False)
class RecomputedSum(Sum):
    """A `Sum` whose source is not stored."""

    @property
    def messages(self) -> tuple[Value, ...]:
        """None: OLD rows are computed."""
        return ()

    def bind(  # type: ignore[override]
        self, cell: Callable[[Value], Cell], context: Context
    ) -> RecomputedSumState:
        """The executor: it keeps the sum and the drift of every row."""
        return RecomputedSumState(self, cell, context)


class RecomputedSumState(Summing):
    """Keeps sums current, like `SumState`.

    `drift` means the same: what is taken back is what was added, bit by bit (see `Blocks`), so a
    row drifts by the rounding of additions only. Another number of threads may round otherwise, so
    all rows are summed afresh then; and so they are where most messages changed.
    """

    kernels = ("sums",)

    pulls = True
    reads_of_a_push = 2.0  # messages are computed as they were and as they are
    way = "all"
    source: Cell

    def __init__(self, step: Sum, cell: Callable[[Value], Cell], context: Context) -> None:
        super().__init__(step, cell, context)
        self.source = cell(step.source)
        self.weight = None if step.weight is None else cell(step.weight)
        self._nothing: Array = None

    # All rows ------------------------------------------------------------------------------------

    def full(self) -> None:
        """Sum all rows, by going through the sources."""
        backend, count = self.context.backend, self._num_sources
        some = torch.arange(0, count, max(1, count // 4096))
        rows = self._messages(backend.ids(some))
        self._hold_no_sums(rows)
        self._hold_scale(rows)
        self._tail = rows.shape[1:]
        self._nothing = backend.array(rows.new_empty(0))
        self._fill()

    @property
    def _num_sources(self) -> int:
        assert self.source.nodes is not None
        return self.source.nodes.num_nodes

    def _fill(self) -> int:
        """Sum all rows afresh; returns the number of edges."""
        backend = self.context.backend
        self._threads = torch.get_num_threads()
        self._clear(slice(self.context.num_nodes))
        read = 0
        for ids in self._some(backend.ids(torch.arange(self._num_sources))):
            read += self._push(ids, self._rows(ids, before=False))[0]
        self.drift.tensor[: self.context.num_nodes] = 0
        return read

    # Messages ------------------------------------------------------------------------------------

    def _messages(self, ids: Ids, before: bool = False) -> Tensor:
        source = self.source
        assert source.maker is not None
        assert source.nodes is not None
        rows = source.maker.exactly(ids, before)
        if not before:
            return rows
        new = torch.from_numpy(np.asarray(ids.array) >= source.nodes.first_new)
        rows[new.to(rows.device)] = 0  # there was nothing
        return rows

    def _rows(self, ids: Ids, before: bool) -> Array:
        """Messages as kernels take them, `[k, channels]`."""
        rows = self._messages(ids, before)
        return self.context.backend.array(rows.reshape(ids.count, -1).contiguous())

    def _weight(self) -> Array:
        return self._nothing if self.weight is None else self.weight.array.reshape(-1)

    def _weight_of(self, slots: Array) -> Array:
        return self._nothing if self.weight is None else self._weight()[slots]

    # Updates -------------------------------------------------------------------------------------

    @property
    def _edges_differ(self) -> bool:
        return self.weight is not None and self.weight.old_changed is not None

    def edges_changed(self) -> None:
        """Nothing yet: what was there before is known later too."""

    def push(self, touched: Touched) -> int:
        """Take events, all with OLD messages; then push what changed in the messages."""
        super().edges_changed()
        scratch, edges = self.context.scratch, 0
        for ids in () if self.source.ids is None else self._some(self.source.ids):
            more, targets = self._push(*self._moved(ids))
            edges += more
            for dst in targets:
                touched.count = self.context.kernels.unite(
                    dst, scratch.touched, touched.count, scratch.stamp, touched.epoch
                )
        return edges

    def _takes_all(self) -> bool:
        return super()._takes_all() or self._threads != torch.get_num_threads()

    def _reached(self, touched: Touched) -> Ids:
        return self.context.all_nodes

    def _some(self, ids: Ids) -> Iterator[Ids]:
        """`ids` in parts of so many that their messages take little memory."""
        for first in range(0, ids.count, AT_ONCE):
            yield self.context.backend.ids_from(ids.array[first : first + AT_ONCE])

    def _moved(self, ids: Ids) -> tuple[Ids, Array]:
        """The messages among `ids` that differ from what they were, and by how much."""
        backend = self.context.backend
        old, new = (wide(self._messages(ids, b), self.out.tensor) for b in (True, False))
        by = (new - old).flatten(1)  # as in the kernel `sum_push`
        moving = (by != 0).any(1).nonzero().flatten()
        return backend.ids(ids.tensor[moving.cpu()]), backend.array(by[moving].contiguous())

    def _add(self, edges: Edges, sign: int, before: bool) -> None:
        src, dst = self._ends(edges)
        if not len(src):
            return
        factor = self._weight_of(edges.slots)
        if before and self.weight is not None and self.weight.old_changed is not None:
            factor = self.context.backend.array(self.weight.old_changed.reshape(-1))
        ids, index = self._distinct(src)
        rows = self._rows(ids, before=True)
        if self.drop:
            kept = src != dst
            index, dst = index[kept], dst[kept]
            factor = factor[kept] if len(factor) else factor
        self._add_along(rows, index, dst, factor, sign)

    def _distinct(self, ids: Array) -> tuple[Ids, Array]:
        """The distinct ones of some ids, and the place of each among them."""
        found, index = np.unique(np.asarray(ids), return_inverse=True)
        host = self.context.backend.host
        return self.context.backend.ids_from(host(found)), host(index)

    def _add_along(self, rows: Array, index: Array, dst: Array, factor: Array, sign: int) -> None:
        self.context.kernels.sum_edges(
            self.out.array, self.low.array, self.drift.array, self.scale.array, rows, index, dst,
            factor, self._nothing, sign, False, EXACT,
        )  # fmt: skip

    def _push(self, ids: Ids, rows: Array) -> tuple[int, list[Array]]:
        """Add `rows` of the sources `ids` along their out-edges.

        Returns:
            The number of these edges, and where they lead.
        """
        edges, targets = 0, []
        for first, some in self._parts(ids, self._lists()[0]):
            index, dst, slot = self._expand(some, self._lists()[0])
            self._add_along(rows[first : first + some.count], index, dst, self._weight_of(slot), 1)
            edges += len(index)
            targets.append(dst)
        return edges, targets

    def pull(self, ids: Ids) -> int:
        """Sum some rows, int64 `[k]`, afresh: all of them by going through the sources."""
        if ids is self.context.all_nodes:
            return self._fill()
        inn = self._lists()[1]
        read = 0
        for _, some in self._parts(ids, inn):
            index, src, slot = self._expand(some, inn)
            self._clear(some.tensor)
            if len(index):
                distinct, place = self._distinct(src)
                rows = self._rows(distinct, before=False)
                self._add_along(rows, place, some.array[index], self._weight_of(slot), 1)
            self.drift.tensor[some.tensor] = 0
            read += len(index)
        return read


@dataclass(frozen=True, eq=False)
class Remembered(Aggregate):
    """An aggregation whose OLD rows are read by what computes messages from before an update."""

    step: Aggregate

    @property
    def gathered(self) -> tuple[Value, ...]:
        """As that of `step`."""
        return self.step.gathered

    def bind(self, cell: Callable[[Value], Cell], context: Context) -> RememberedState:
        """The executor: that of `step`, which is watched."""
        read = [cell(v) for v in self.step.inputs if v.domain is Domain.NODE]
        return RememberedState(self.step.bind(cell, context), read)


class RememberedState(Aggregator):
    """Takes note of the rows of another aggregator before it touches them.

    Args:
        inner: That aggregator.
        read: The node rows that it reads.
    """

    def __init__(self, inner: Aggregator, read: list[Cell]) -> None:
        self.inner = inner
        super().__init__(inner.step, inner.out, inner.context)
        self.extra, self.scale = inner.extra, inner.scale
        self._read = read

    @property
    def accumulate_dtype(self) -> torch.dtype | None:
        """That of the other."""
        return self.inner.accumulate_dtype

    @accumulate_dtype.setter
    def accumulate_dtype(self, dtype: torch.dtype | None) -> None:
        self.inner.accumulate_dtype = dtype

    @property
    def unwrapped(self) -> Aggregator:
        """The other."""
        return self.inner.unwrapped

    def full(self) -> None:
        """As the other does."""
        self.inner.full()

    def pull(self, ids: Ids) -> int:
        """Make some rows, int64 `[k]`, afresh, as the other does."""
        return self.inner.pull(ids)

    def restored(self) -> None:
        """As the other does."""
        self.inner.restored()

    def edges_changed(self) -> None:
        """Edges that came, left or changed touch the rows that they lead to."""
        removed, added, changed, _ = self.context.events
        ends = [np.asarray(self._ends(e)[1]) for e in (removed, added, changed) if len(e.slots)]
        if ends:
            ids = self.context.backend.host(np.unique(np.concatenate(ends)))
            self.out.remember(self.context.backend.ids_from(ids))
        self.inner.edges_changed()

    def rows_changed(self) -> None:
        """Changed rows touch those to which their out-edges lead, and maybe themselves."""
        context = self.context
        scratch, kernels = context.scratch, context.kernels
        touched, stamp, epoch = scratch.touched, scratch.stamp, scratch.next()
        count = kernels.unite(context.settle.array, touched, 0, stamp, epoch)
        for cell in self._read:
            if cell.ids is None:
                continue
            ids = cell.ids.array
            if cell.nodes is context.nodes:
                count = kernels.unite(ids, touched, count, stamp, epoch)
            pushed = self._lists()[0]
            count, _ = kernels.reach(ids, pushed, False, touched, count, stamp, epoch)
        if count:
            self.out.remember(scratch.taken(count))
        self.inner.rows_changed()
