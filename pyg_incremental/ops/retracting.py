"""The kinds of aggregation that add messages and take them back: sums, and softmaxes as sums.

A message that changed is taken back as it was and added as it is. Rounding errors stay behind, so
beside every row stands its `drift`: how much has moved through it since it was made afresh. A row
that has lost too many bits by that is made afresh, and so is one whose own (target) part of the
messages changed, the drift of which is made infinite.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.graph.edge_store import Edges
from pyg_incremental.kernels.address import address_of
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.ops.base import (
    Aggregate,
    Aggregator,
    Touched,
    channel_scale,
    drift_limit,
)
from pyg_incremental.ops.operator import At
from pyg_incremental.program.steps import Value
from pyg_incremental.rows import Cell, Context, Ids, Rows
from pyg_incremental.typing import Array


class Retracting(Aggregator):
    """Keeps the rows of such an aggregation current.

    Attributes:
        source: The rows of which messages are made, or None if they are made of edge data and
            targets alone.
        drift: The magnitude that has moved through each row since it was made afresh.
        low: What rows in float32 lose when they are rounded, `[num_nodes, channels]`; of others
            nothing. Only updates read it.
        limit: How large that may become.
        way: What `Update.stats` calls it if rows are made afresh because most messages changed.
    """

    source: Cell | None
    limit: float
    way: ClassVar[str] = "pull"

    def __init__(self, step: Aggregate, cell: Callable[[Value], Cell], context: Context) -> None:
        super().__init__(step, cell(step.output), context)
        self.drift = self.extra["drift"] = Rows(context.backend)
        self.low = Rows(context.backend)

    # What a kind says ----------------------------------------------------------------------------

    @property
    @abstractmethod
    def _edges_differ(self) -> bool:
        """Whether the running update has changed edge data of which messages are made."""

    @abstractmethod
    def _add(self, edges: Edges, sign: int, before: bool) -> None:
        """Add (`sign` 1) or take back (-1) the messages of listed edges, made of OLD rows.

        `before` says whether edge data count as they were, too; else as they are.
        """

    @abstractmethod
    def push(self, touched: Touched) -> int:
        """Take back the OLD messages of the sources that changed, and add their new ones.

        Args:
            touched: The rows touched; takes those that the messages reach.

        Returns:
            The number of edges along which they went.
        """

    @abstractmethod
    def settle(self, touched: Touched) -> Ids:
        """Look at the rows touched after messages came and went; which are to be made afresh.

        A row that gathers nothing becomes zero.
        """

    def _takes_all(self) -> bool:
        """Whether so many messages changed that all rows that they reach are made afresh."""
        return self.pulls and self.source is not None and self._pulls(self.source)

    # What they keep ------------------------------------------------------------------------------

    def _hold_no_sums(self, rows: Tensor) -> None:
        """Make room for sums of such messages, `[k, ...]`, and for how far they have drifted.

        The sums of all nodes have to be written before they are read; nothing has drifted.
        They are kept in the dtype asked for, but never in a coarser one than the messages.
        """
        if rows.is_complex():
            raise UnsupportedModelError(f"{self.out!r} would be a sum of complex messages")
        zeros, capacity = self.context.backend.zeros, self.context.capacity
        dtype = self.accumulate_dtype or rows.dtype
        if torch.finfo(dtype).eps > torch.finfo(rows.dtype).eps:
            dtype = rows.dtype
        self.out.out_dtype = rows.dtype if dtype != rows.dtype else None
        count = self.context.num_nodes
        self.out.hold(zeros(rows, capacity, *rows.shape[1:], dtype=dtype, unread=count))
        self.drift.hold(zeros(rows, capacity, dtype=dtype))
        self._hold_low()
        self.limit = drift_limit(rows.dtype, dtype)

    def _hold_scale(self, rows: Tensor) -> None:
        """Hold what moves against such rows, `[k, ...]`: messages, or sums that have more parts."""
        self.scale.hold(channel_scale(rows.flatten(1)).to(self.out.tensor.dtype))

    def _hold_low(self) -> None:
        """Make room for what the rows of the output lose, in the dtype they are kept in."""
        rows, width = self.out.tensor, self.out.tensor.shape[1:].numel()
        if rows.dtype == torch.float32 and self.is_followed:
            self.extra["low"] = self.low
            self.low.hold(self.context.backend.zeros(rows, len(rows), width))
        else:
            self.extra.pop("low", None)
            self.low.hold(rows.new_empty(0, width))

    def _clear(self, ids: Tensor | slice) -> None:
        """Make some rows, int64 `[k]`, zero."""
        at = ids.to(self.out.tensor.device) if isinstance(ids, Tensor) else ids
        self.out.tensor[at] = 0
        if "low" in self.extra:
            self.low.tensor[at] = 0

    def lay_out(self, row: Array, numbers: Array, at: At, wide: bool) -> None:
        """And how far rows may drift, int64 `[columns]` and floats `[2]`."""
        super().lay_out(row, numbers, at, wide)
        numbers[m.LIMIT] = self.limit

    def locate(self, row: Array) -> None:
        """And drift; int64 `[columns]`."""
        super().locate(row)
        row[m.DRIFT], row[m.SCALE] = address_of(self.drift.array), address_of(self.scale.array)
        row[m.LOW] = address_of(self.low.array) if self.low.array.size else 0

    # What they share -----------------------------------------------------------------------------

    def edges_changed(self) -> None:
        """Take back the messages of edges that left, and add those of edges that came, all OLD."""
        removed, added, changed, _ = self.context.events
        for edges, sign in ((removed, -1), (added, 1)):
            if len(edges.slots):
                self._add(edges, sign, before=False)
        if self._edges_differ and len(changed.slots):
            self._add(changed, -1, before=True)
            self._add(changed, 1, before=False)

    def rows_changed(self) -> None:
        """Push what changed in the messages, and make rows afresh where that is due."""
        context, scratch = self.context, self.context.scratch
        own = tuple(ids for ids in (*self._own(), context.renew_ids) if ids is not None)
        touched = self._collect(self._edges_differ, own)
        has_moved = self.source is not None and self.source.ids is not None
        if not has_moved and not touched.count:
            return
        if self._takes_all():
            self.out.ids = ids = self._reached(touched)
            read = self.pull(ids)
            self._report(ids.count, ids.count, touched.events + read, ids.count, self.way)
            return
        if touched.afresh:
            ids = context.backend.ids_from(scratch.touched[: touched.afresh])
            self.drift.tensor[ids.tensor.to(self.drift.tensor.device)] = torch.inf
        edges = self.push(touched)
        again = self.settle(touched)
        read = self.pull(again) if again.count else 0
        if touched.count:
            self.out.ids = scratch.taken(touched.count)
        self._report(touched.count, touched.count, touched.events + edges + read, again.count)

    def _reached(self, touched: Touched) -> Ids:
        """The rows touched and those that changed messages reach, in ascending order."""
        assert self.source is not None
        context = self.context
        count = self._reach(self.source, touched.count, touched.epoch)
        return context.all_nodes if count == context.num_nodes else context.scratch.taken(count)
