"""Largest and smallest messages: only channels that are left exposed are read again.

The idea, and the four classes of rows that `StepStats` counts, are those of InkStream (Wu, Li and
Mitra, "InkStream: Real-time GNN Inference on Streaming Graphs via Incremental Update", 2023): a row
is resilient, needs no reset, has its reset covered, or is exposed. InkStream compares the values of
retracted messages with the stored extremum. Here every channel knows the edge that owns it, and a
retraction exposes a channel only if that edge goes: an equal message of another edge (a zero behind
a ReLU) costs nothing. Nothing OLD is needed for that: what stands in a channel is the message that
its owner had.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.graph.edge_store import Edges
from pyg_incremental.kernels.address import address_of
from pyg_incremental.kernels.compiled import choice
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.kernels.compiled.extremum import EMPTY, WIDE
from pyg_incremental.ops.base import Aggregate, Aggregator, entries
from pyg_incremental.ops.message import BoundFunction, EdgeFunction
from pyg_incremental.ops.operator import At
from pyg_incremental.program.steps import Value
from pyg_incremental.rows import Cell, Context, Ids, Rows
from pyg_incremental.typing import Array


@dataclass(frozen=True, eq=False)
class Extremum(Aggregate):
    """`out[i] = max (or min) over in-edges (j, i)` of each channel of their messages.

    It is zero where there is no in-edge. As in `torch.amax` and `torch.amin` a NaN makes its
    channel NaN. A message is `weight[j, i] * source[j]` or what an edge function gives, in floats.

    Attributes:
        largest: Whether the largest is sought; else the smallest.
        source: Node value `[num_nodes, ...]`, of whose shape the output is; None if there is an
            edge function.
        weight: Edge value `[num_edges]`, or None for weight one.
        message: An edge function; the output has its results as flat rows `[num_nodes, channels]`.

    Raises:
        ValueError: If there are both a source or weight and an edge function, or neither.
    """

    is_local: ClassVar[bool] = True
    largest: bool
    source: Value | None
    weight: Value | None
    message: EdgeFunction | None

    def __post_init__(self) -> None:
        given = self.source is not None, self.weight is not None, self.message is not None
        if given not in ((True, False, False), (True, True, False), (False, False, True)):
            raise ValueError(
                f"'{self.output}' takes the extremum of a source, with or without a weight, or of "
                f"an edge function (got source={self.source}, weight={self.weight}, "
                f"message={self.message})"
            )

    @property
    def kind(self) -> str:  # type: ignore[override]
        """`'max'` or `'min'`."""
        return "max" if self.largest else "min"

    @property
    def gathered(self) -> tuple[Value, ...]:
        """The source, or that of the function."""
        if self.message is not None:
            return self.message.source
        assert self.source is not None
        return (self.source,)

    @property
    def own_part(self) -> tuple[Value, ...]:
        """What the function reads there."""
        return () if self.message is None else self.message.target

    def row_like(self, like: Callable[[Value], Tensor]) -> Tensor | None:
        """One of the source, `[1, ...]`, or what the function gives, `[1, channels]`."""
        if self.source is not None:
            return like(self.source)[:1]
        return None if self.message is None else self.message.row_like(like)

    @property
    def messages_at_once(self) -> int:  # type: ignore[override]
        """Where they are what an edge function gives, as many as are offered at a time."""
        return 0 if self.message is None else CHUNK

    def bind(self, cell: Callable[[Value], Cell], context: Context) -> "ExtremumState":
        """The executor: it keeps the extremum of every row and whose it is."""
        messages: StoredMessages | ComputedMessages
        if self.source is not None:
            messages = StoredMessages(
                cell(self.source), None if self.weight is None else cell(self.weight)
            )
        elif self.message is not None:
            messages = ComputedMessages(self.message, cell, context)
        return ExtremumState(self, cell(self.output), messages, context)


CHUNK = 1 << 17
"""Edges whose messages are offered at a time, which bounds the memory for these. With an eighth as
many a change of 10,000 took 1.4 times as long."""
CACHED = 1 << 13
"""Edges whose rows are read, written and compared while they are in the cache, about: half of what
PyTorch computes at a time, as there are twice as many rows here."""


class _Listed(NamedTuple):
    """Some edges: where their messages come from, where they go, and their slots; `[k]` each."""

    src: Array
    dst: Array
    slot: Array

    def where(self, kept: Array) -> "_Listed":
        """Those of them for which `kept` holds."""
        return _Listed(*(ids[kept] for ids in self))


@dataclass
class _Done:
    """What an update has done so far.

    Attributes:
        read: Rows, channels and edges that were read again.
        classes: Of the other rows, how many are resilient, need no reset, have theirs covered.
        changed: Rows that changed, in parts.
        before: What stood there, in the same parts; only where somebody retracts it.
    """

    read: Array
    classes: Array
    changed: list[Array]
    before: list[Array]


class StoredMessages:
    """Messages that are source rows, times a weight."""

    own: ClassVar[tuple[Ids, ...]] = ()

    def __init__(self, source: Cell, weight: Cell | None) -> None:
        self.source = source
        self.weight = weight
        self.cells = [source, *([] if weight is None else [weight])]

    @property
    def edges_differ(self) -> bool:
        """Whether the running update has changed a weight."""
        return self.weight is not None and self.weight.old_changed is not None

    def begin(self, edge: _Listed) -> Tensor:
        """No messages, in their shape and dtype."""
        rows = self.source.tensor[:0]
        if self.weight is not None:
            rows = rows.to(torch.result_type(rows, self.weight.tensor))
        self._nothing = self.source.backend.array(rows.new_empty(0))
        return rows

    def of(self, edges: _Listed) -> tuple[Array, Array, Array]:
        """Message rows, which of them each edge has, and weights by slot."""
        weight = self._nothing if self.weight is None else self.weight.array.reshape(-1)
        return self.source.array, edges.src, weight


class ComputedMessages(BoundFunction):
    """Messages that an edge function makes when they are needed."""

    weight: ClassVar[Cell | None] = None

    def __init__(
        self, message: EdgeFunction, cell: Callable[[Value], Cell], context: Context
    ) -> None:
        super().__init__(message, cell)
        self._backend = context.backend

    def begin(self, edge: _Listed) -> Tensor:
        """No messages, in their shape and dtype, learnt from one edge if there is one."""
        self._none = rows = self._rows(edge)[:0]
        self._nothing = self._backend.array(rows.new_empty(0))
        return rows

    def of(self, edges: _Listed) -> tuple[Array, Array, Array]:
        """Message rows, which of them each edge has, and no weights."""
        rows = self._rows(edges) if len(edges.slot) else self._none
        if rows.dtype is not self._none.dtype or rows.shape[1] != self._none.shape[1]:
            raise UnsupportedModelError(
                f"an edge function made messages of {rows.dtype} [{rows.shape[1]}], but of "
                f"{self._none.dtype} [{self._none.shape[1]}] in the first pass; the model behaves "
                "differently on fewer edges"
            )
        array = self._backend.array
        return array(rows), array(torch.arange(len(rows))), self._nothing

    def _rows(self, edges: _Listed) -> Tensor:
        rows: Tensor = self.now(*(self._backend.ids_from(ids).tensor for ids in edges))
        return rows.reshape(len(rows), prod(rows.shape[1:])).contiguous()


class ExtremumState(Aggregator):
    """Keeps extrema current.

    `owner` is, for every channel of every row, the slot of the edge whose message stands there. It
    is not part of a saved state, because slots are not.
    """

    kernels = ("extremum", "extrema")

    tells_old: ClassVar[bool] = True
    kind_of_row: ClassVar[int] = m.FUNCTION_EXTREMUM

    def __init__(
        self,
        step: Extremum,
        out: Cell,
        messages: StoredMessages | ComputedMessages,
        context: Context,
    ) -> None:
        super().__init__(step, out, context)
        self.largest = step.largest
        self.messages = messages
        self.owner = Rows(context.backend)
        self.function = messages if isinstance(messages, ComputedMessages) else None
        self.read, self.edge_rows = messages.cells, messages.weight

    def lay_out(self, row: Array, numbers: Array, at: At, wide: bool) -> None:
        """As for all of them, int64 `[columns]` and floats `[2]`."""
        super().lay_out(row, numbers, at, wide)
        row[m.LARGEST] = self.largest
        if self.function is None:
            assert self.messages.source is not None
            row[m.KIND], row[m.SOURCE] = m.EXTREMUM, at(self.messages.source)

    def locate(self, row: Array) -> None:
        """And owners; int64 `[columns]`."""
        super().locate(row)
        row[m.OWNER] = address_of(self.owner.array)

    def full(self) -> None:
        """Find all extrema."""
        context = self.context
        like = self.messages.begin(self._some_edge())
        if not like.dtype.is_floating_point:
            raise UnsupportedModelError(
                f"step '{self.step.output}' takes the {self.step.kind} of messages of "
                f"{like.dtype}; expected floats"
            )
        capacity, count = context.capacity, context.num_nodes
        self.out.hold(context.backend.zeros(like, capacity, *like.shape[1:], unread=count))
        is_wide = self.out.array.shape[1] >= WIDE
        self.reads_of_a_push = choice.WIDE_EXTREMUM if is_wide else choice.EXTREMUM
        self.owner.rows = None
        self._make_room()
        self.pull(context.all_nodes)

    def all_rows(self) -> list[Rows]:
        """The output and its owners."""
        return [*super().all_rows(), self.owner]

    def of_other_edges(self) -> Array:
        """Rows, int64 `[k]`, with a channel whose owner leads elsewhere, or is not there."""
        graph = self.context.graph
        owner = self.owner.tensor[: self.context.num_nodes].cpu().numpy()
        row, channel = np.nonzero(owner >= 0)
        slots = owner[row, channel].astype(np.int64)
        at = slots % graph.slot_capacity
        ends = graph.slots.src if self.step.reverse else graph.slots.dst
        wrong = (slots != at) | (graph.slots.in_at[at] < 0) | (ends[at] != row)
        return np.unique(row[wrong])

    def restored(self) -> None:
        """The stored rows were replaced by those of a file: find out again who owns them."""
        rows = self.out.tensor
        self.full()
        self.out.hold(rows)

    def grow(self) -> None:
        """Likewise, and owners."""
        super().grow()
        if self.owner.rows is not None and self.owner.rows.shape[0] < self.context.capacity:
            self._make_room()

    def _make_room(self) -> None:
        """See that every node that there is room for has owners, those that there are now later."""
        before, context = self.owner.rows, self.context
        capacity, width = context.capacity, self.out.array.shape[1]
        rows = context.backend.zeros(
            self.out.tensor, capacity, width, dtype=torch.int32, unread=capacity
        )
        count = context.num_nodes if before is None else before.shape[0]
        rows[count:] = EMPTY
        if before is not None:
            rows[:count] = before
        self.owner.hold(rows)

    def edges_changed(self) -> None:
        """Nothing to do yet: the new messages are not known, and no OLD ones are needed."""

    def rows_changed(self) -> None:
        """Retract, insert, and read again what is left exposed."""
        context, source = self.context, self.messages.source
        scratch, kernels, backend = context.scratch, context.kernels, context.backend
        stamp, epoch = scratch.stamp, scratch.next()
        sources = None if source is None else source.ids
        count, pulls = 0, False
        if source is not None and self._pulls(source, 0):  # enough is pushed for a choice
            count = self._reach(source, 0, epoch)
            reached = backend.ids_from(scratch.touched[:count])
            pulls = self._pulls(source, entries(self._lists()[1], reached))
            if not pulls:
                epoch, count = scratch.next(), 0
        for ids in (*self.messages.own, context.renew_ids):
            if ids is not None:
                count = kernels.unite(ids.array, scratch.touched, count, stamp, epoch)
        afresh = count

        removed, added, changed, _ = context.events
        gone, new = self._listed(removed), self._listed(added)
        again = [self._listed(changed)] if self.messages.edges_differ else []
        if sources is not None and not pulls:
            again.append(self._pushed(sources))
        leaving, coming = [gone, *again], [new, *again]
        if afresh:  # nothing is to be offered to rows that are made afresh
            leaving, coming = (
                [listed.where(stamp[listed.dst] != epoch) for listed in lists]
                for lists in (leaving, coming)
            )
        for dst in (context.settle.array, *(listed.dst for listed in (*leaving, *coming))):
            if len(dst):
                count = kernels.unite(dst, scratch.touched, count, stamp, epoch)
        if not count:
            return
        if self.owner.tensor.shape[0] < context.capacity:
            self._make_room()

        lost, read = scratch.next(), scratch.next()
        done = _Done(np.zeros(3, np.int64), np.zeros(3, np.int64), [], [])
        rows, owner = scratch.taken(count).array, self.owner.array
        for _, part in self._parts(backend.ids_from(rows[:afresh]), self._lists()[1], CACHED):
            before = self._as_it_is(part)
            done.read += self._fill(part, read, afresh=True)
            self._settle(part.array, before, lost, read, done)
        rest = rows[afresh:]
        if len(rest):
            before = self._as_it_is(backend.ids_from(rest))
            for listed in leaving:
                kernels.extremum_retract(owner, listed.dst, listed.slot, stamp, lost)
            for listed in coming:
                self._insert(listed)
            found = backend.room(len(rest))
            left = kernels.extremum_exposed(owner, rest, stamp, lost, found)
            done.read += self._fill(backend.ids_from(found[:left]), read, afresh=False)
            self._settle(rest, before, lost, read, done)

        edges = sum(len(listed.slot) for listed in (gone, new, *again))
        self._tell(done, count, edges, pulls)

    def _tell(self, done: _Done, count: int, edges: int, pulls: bool) -> None:
        """Say which rows came out different, and what that took.

        Args:
            done: What was done.
            count: The number of rows looked at.
            edges: The number of edges that came, left or were pushed along.
            pulls: Whether changed messages were read rather than pushed.
        """
        context, out, backend = self.context, self.out, self.context.backend
        n = sum(map(len, done.changed))
        if n:
            out.ids = backend.ids_from(backend.joined(done.changed))
            if out.keeps_old:
                out.old = backend.joined(done.before).view(out.array.dtype)
        exposed, channels, read = done.read.tolist()
        context.stats.append(
            (
                self.step.output.name, self.step.kind, count, n, edges + read, exposed, channels,
                *done.classes.tolist(), exposed, "pull" if pulls else "push",
            )
        )  # fmt: skip

    def _as_it_is(self, ids: Ids) -> Array:
        """What stands in some rows, `[k, channels]` as integers."""
        rows = self.context.backend.array(self.out.gather(ids))
        return rows.reshape(ids.count, -1).view(self.out.bits.dtype)

    def _settle(self, rows: Array, before: Array, lost: int, read: int, done: _Done) -> None:
        """See which of some rows differ from what stood there, `[k, channels]` as integers."""
        context, out = self.context, self.out
        differing = context.backend.room(len(rows))
        n, *classes = context.kernels.extremum_settle(
            out.bits, before, rows, context.first_new, context.scratch.stamp, lost, read, differing
        )
        done.classes += classes
        done.changed.append(differing[:n])
        if out.keeps_old:
            done.before.append(before[:n])

    # Edges ---------------------------------------------------------------------------------------

    def _listed(self, edges: Edges) -> _Listed:
        """Event edges as messages travel, those left out that do not count."""
        src, dst = (edges.dst, edges.src) if self.step.reverse else (edges.src, edges.dst)
        listed = _Listed(src, dst, edges.slots)
        if self.step.loops == "keep" or not len(src):
            return listed
        kept = (src == dst) == (self.step.loops == "only")
        return listed.where(kept)

    def _some_edge(self) -> _Listed:
        """One edge, if there is one."""
        graph = self.context.graph
        slots = np.flatnonzero(graph.slots.in_at >= 0)[:1]
        edges = Edges(*(self.context.backend.host(ids) for ids in graph.edges(slots)))
        src, dst = (edges.dst, edges.src) if self.step.reverse else (edges.src, edges.dst)
        return _Listed(src, dst, edges.slots)

    def _pushed(self, ids: Ids) -> _Listed:
        """The edges along which the messages of some sources travel."""
        index, dst, slot = self._expand(ids, self._lists()[0])
        return _Listed(ids.array[index], dst, slot)

    def _insert(self, edges: _Listed) -> None:
        """Offer the messages of some edges to their targets."""
        size = len(edges.slot)
        for begin in range(0, size, CHUNK):
            if size > CHUNK:
                part = _Listed(*(ids[begin : begin + CHUNK] for ids in edges))
            else:
                part = edges
            self.context.kernels.extremum_insert(
                self.out.array, self.owner.array, *self.messages.of(part), part.dst, part.slot,
                self.largest,
            )  # fmt: skip

    def pull(self, ids: Ids) -> int:
        """Read all channels of some rows, int64 `[k]`, again; returns the number of edges."""
        return self._fill(ids, self.context.scratch.next(), afresh=True)[2]

    def _fill(self, ids: Ids, read: int, afresh: bool) -> tuple[int, int, int]:
        """Make the exposed channels, or all, of some rows afresh; those read get the stamp `read`.

        Returns:
            (rows, channels, edges) that were read
        """
        context, inn = self.context, self._lists()[1]
        num_rows = num_channels = num_edges = 0
        for _, part in self._parts(ids, inn):
            index, src, slot = self._expand(part, inn)
            messages = self.messages.of(_Listed(src, part.array[index], slot))
            rows, channels = context.kernels.extremum_fill(
                self.out.array, self.owner.array, *messages, part.array, index, slot, self.largest,
                context.scratch.stamp, read, afresh,
            )  # fmt: skip
            num_rows += rows
            num_channels += channels
            num_edges += len(slot)
        return num_rows, num_channels, num_edges
