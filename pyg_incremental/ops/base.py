"""What every aggregation has in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import Edges
from pyg_incremental.kernels.address import address_of
from pyg_incremental.kernels.compiled import choice
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.ops.operator import At, Operator
from pyg_incremental.program.steps import Over, Step, Value
from pyg_incremental.rows import AT_ONCE, Cell, Context, Ids, Rows
from pyg_incremental.typing import DRIFT_LIMIT, Array

_pull_pays = getattr(choice.pull_pays, "py_func", choice.pull_pays)  # itself without the JIT

Loops = Literal["keep", "drop", "only"]
LOOPS: dict[Loops, int] = {"keep": 0, "drop": 1, "only": 2}
"""How kernels are told which edges count."""


@dataclass(frozen=True, eq=False)
class Aggregate(Step):
    """Row `i` gathers over the in-edges of node `i`.

    Attributes:
        loops: Which edges count: all, all but self-loops, or self-loops only.
        reverse: Gather over out-edges instead (`flow='target_to_source'`).
        graph: Name of the graph whose edges these are.
        messages_at_once: How many messages it computes at a time; zero if they are stored rows.
    """

    hops: ClassVar[int] = 1
    messages_at_once: ClassVar[int] = 0
    loops: Loops
    reverse: bool
    graph: str = field(default="", kw_only=True)

    @property
    def over(self) -> Over:
        """Its edges."""
        return self.graph, self.reverse

    @property
    def sets_loops_apart(self) -> bool:
        """Whether it leaves self-loops out, or all other edges."""
        return self.loops != "keep"

    def along(self, graph: str) -> "Aggregate":
        """The same over the edges of another graph."""
        return replace(self, graph=graph)

    @property
    def messages(self) -> tuple[Value, ...]:
        """The node values whose OLD rows are retracted."""
        return ()

    @property
    @abstractmethod
    def gathered(self) -> tuple[Value, ...]:
        """What it reads where an edge comes from."""

    @abstractmethod
    def bind(self, cell: Callable[[Value], Cell], context: Context) -> "Aggregator":
        """The executor of this step over stored rows."""


def aggregations(steps: Iterable[Step]) -> list[Aggregate]:
    """The aggregations among some steps."""
    return [s for s in steps if isinstance(s, Aggregate)]


@dataclass(slots=True)
class Touched:
    """The rows that a running update touches at one aggregation; they stand in `Scratch.touched`.

    Attributes:
        count: How many there are so far.
        afresh: The first so many are made afresh, whatever comes along their in-edges.
        events: How many edges left, came or changed.
        epoch: Their mark.
    """

    count: int
    afresh: int
    events: int
    epoch: int


class Aggregator(Operator, ABC):
    """Keeps the rows of one aggregation current.

    Every kind makes all rows (`full`), of a graph as of a block of one (`blocks`), and follows what
    happened to edges (`edges_changed`) and to rows (`rows_changed`). Those that add messages and
    take them back say how they `push`, `settle` and `pull`; `Retracting` does the rest. The others
    compare what a row was with what it is.

    Attributes:
        pulls: Whether it needs no OLD messages if most have changed.
        takes_edges: Whether `edges_changed` does anything.
        tells_old: Whether the machine writes down what stood in its rows.
        most: The part of all messages from which on it makes rows afresh, whatever that costs, and
            their OLD rows are not kept.
        reads_of_a_push: What a push along an edge costs; see `kernels.compiled.choice`.
        accumulate_dtype: The dtype of sums, or None for that of the messages.
        extra: Rows beyond those of the output that belong to the state, by name.
        is_followed: Whether updates come. A block's rows are made once, and nothing is kept that
            only updates read.
        heads: How many heads it has if its rows are a softmax with its references; else zero.
        read: What its messages are made of; None if the machine does not know this kind.
        edge_rows: The values of edges that go with stored messages, if there are any.
        may_be_wide: Whether the machine knows it in float64 where other rows are of float32.
        scale: For each channel one over the typical size of its messages, `[channels]`; the drift
            bound is measured in these. Empty for a kind that has none.
    """

    pulls: ClassVar[bool] = False
    gathers: ClassVar[bool] = True
    small_way: ClassVar[str] = "push"
    takes_edges: ClassVar[bool] = True
    tells_old: ClassVar[bool] = False
    heads: int = 0
    read: list[Cell] | None = None
    edge_rows: Cell | None = None
    may_be_wide: bool = False
    most: ClassVar[float] = 0.9
    reads_of_a_push: float = choice.SUM

    def __init__(self, step: Aggregate, out: Cell, context: Context) -> None:
        super().__init__(step, out, context)
        self.drop = step.loops == "drop"
        self.accumulate_dtype: torch.dtype | None = None
        self.extra: dict[str, Rows] = {}
        self.is_followed = True
        self.scale = Rows(context.backend)

    @abstractmethod
    def edges_changed(self) -> None:
        """Retract the removed edges and insert the added ones.

        All of them count with the OLD messages of their sources.
        """

    @abstractmethod
    def rows_changed(self) -> None:
        """Take the changed messages and settle the rows touched.

        These become the changed rows of the output.
        """

    @abstractmethod
    def pull(self, ids: Ids) -> int:
        """Make some rows afresh of all messages along their in-edges.

        Args:
            ids: The rows, int64 `[k]`.

        Returns:
            The number of edges read.
        """

    def led_to(self, edges: Edges) -> Array:
        """The rows that some event edges lead to, int64 `[k]`."""
        return self._ends(edges)[1]

    @property
    def lists(self) -> tuple[Array, Array]:
        """Neighbour lists along which messages are pushed, and over which rows are read."""
        return self._lists()

    def restored(self) -> None:
        """The stored rows were replaced by those of a saved state."""

    def grow(self) -> None:
        """See that what is kept beyond the output has room for all nodes."""
        for extra in self.extra.values():
            extra.grow(self.context.capacity)

    def all_rows(self) -> list[Rows]:
        """Everything that is kept for each node."""
        return [self.out, *self.extra.values()]

    def of_other_edges(self) -> Array:
        """Rows, int64 `[k]`, that hold what an edge sent which leads elsewhere: there are none."""
        return np.empty(0, np.int64)

    @property
    def unwrapped(self) -> "Aggregator":
        """The aggregator itself, without what watches it."""
        return self

    # For the machine -----------------------------------------------------------------------------

    def unknown(self, graph: DynamicGraph, dtype: torch.dtype, wide: torch.dtype) -> str:
        """The machine goes over one graph, and reads rows of one dtype."""
        if self.step.loops == "only":
            return "this kind of step is not known"
        if self.context.graph is not graph:
            return "it goes over another graph"
        kept = self.out.tensor.dtype
        known = (dtype, wide) if self.may_be_wide else (dtype,)
        if self.out.out_dtype is not None or kept not in known:
            return "its state is kept in another dtype"
        if self.out.keeps_old and not self.tells_old:
            return "its old rows are retracted"
        if self.read is None:
            return "this kind of aggregation is not known"
        if any(cell.rows is None or cell.rows.dtype != kept for cell in self.read):
            return "its messages are of another dtype"
        return ""

    def lay_out(self, row: Array, numbers: Array, at: At, wide: bool) -> None:
        """What all kinds have in common, int64 `[columns]` and floats `[2]`."""
        super().lay_out(row, numbers, at, wide)
        row[m.DROP], row[m.REVERSE] = self.drop, self.step.reverse
        if self.function is not None:
            source, loop = self.function.source, self.function.loop
            row[m.SOURCE] = -1 if source is None else at(source)
            row[m.HEADS], row[m.LOOP] = self.heads, -1 if loop is None else 0
            row[m.MESSAGE] = self.out.tensor.shape[1:].numel() - self.heads

    def locate(self, row: Array) -> None:
        """Write where its rows are now into its row of the table of steps, int64 `[columns]`."""
        if self.edge_rows is not None:
            array = self.edge_rows.array
            row[m.WEIGHT], row[m.SLOTS] = address_of(array), array.shape[0]

    # What the kinds share ------------------------------------------------------------------------

    def _lists(self) -> tuple[Array, Array]:
        """Neighbour lists along which messages are pushed, and over which rows are read."""
        out, inn = self.context.lists
        return (inn, out) if self.step.reverse else (out, inn)

    def _ends(self, edges: Edges) -> tuple[Array, Array]:
        """Where the messages of event edges come from and where they go."""
        if self.step.loops == "only":
            own = edges.src == edges.dst
            return edges.src[own], edges.dst[own]
        return (edges.dst, edges.src) if self.step.reverse else (edges.src, edges.dst)

    def _collect(self, with_changed: bool, first: tuple[Ids, ...] = ()) -> Touched:
        """Start collecting touched rows: `first`, those to settle, and the targets of event edges.

        Args:
            with_changed: Whether edges count whose data changed.
            first: Rows to be made afresh, each int64 `[k]`.
        """
        context = self.context
        scratch, kernels = context.scratch, context.kernels
        touched, stamp, epoch, count = scratch.touched, scratch.stamp, scratch.next(), 0
        events = 0
        for ids in first:
            count = kernels.unite(ids.array, touched, count, stamp, epoch)
        afresh = count
        if context.settle.count:
            count = kernels.unite(context.settle.array, touched, count, stamp, epoch)
        if context.num_events:
            removed, added, changed, _ = context.events
            for edges in (removed, added, changed) if with_changed else (removed, added):
                if len(edges.slots):
                    src, dst = self._ends(edges)
                    events += len(dst)
                    count = kernels.unite_ends(src, dst, self.drop, touched, count, stamp, epoch)
        return Touched(count, afresh, events, epoch)

    def _as_targets(self, source: Cell) -> Ids | None:
        """The changed rows of a source that are also targets, or None if none changed.

        A self-loop reads them there. Both ends of such an edge have one id, and sources behind the
        last target (copies of nodes that belong elsewhere) have no row here.
        """
        ids, context = source.ids, self.context
        if ids is None or source.nodes is context.nodes:
            return ids
        return context.backend.ids_from(ids.array[ids.array < context.num_nodes])

    def _expand(self, ids: Ids, lists: Array) -> tuple[Array, Array, Array]:
        """Position in `ids`, neighbour and slot of every entry of their lists that counts."""
        context = self.context
        size = entries(lists, ids)
        arrays = [context.backend.room(size) for _ in range(3)]
        count = context.kernels.expand(ids.array, lists, LOOPS[self.step.loops], *arrays)
        index, neighbor, slot = (array[:count] for array in arrays)
        return index, neighbor, slot

    def _parts(self, ids: Ids, lists: Array, size: int = 0) -> Iterator[tuple[int, Ids]]:
        """`ids` in parts of at most `size` rows and edges, each with the position of its first.

        By default `AT_ONCE`. A row with more edges is a part of its own.
        """
        size = size or AT_ONCE
        ends = np.cumsum(np.asarray(lists.degree[ids.array]), dtype=np.int64)
        if ids.count and max(ids.count, ends[-1]) <= size:
            yield 0, ids
            return
        first = done = 0
        while first < ids.count:
            last = int(np.searchsorted(ends, done + size, "right"))
            last = max(first + 1, min(last, first + size))
            yield first, self.context.backend.ids_from(ids.array[first:last])
            first, done = last, int(ends[last - 1])

    def _pulls(self, source: Cell, read: int | None = None) -> bool:
        """Whether so much changed that making the rows which that reaches afresh costs less.

        Args:
            source: The messages.
            read: In-edges of all rows reached; all edges if that is not known.
        """
        ids = source.ids
        if ids is None or source.nodes is None:
            return False
        if source.has_lost_old:
            return True
        num_edges = self.context.graph.num_edges
        if num_edges <= choice.LEAST:  # nothing is chosen, and so nothing need be counted
            return False
        pushed, inn = self._lists()
        own = max((entries(inn, of) for of in self._own() if of is not None), default=0)
        read = num_edges if read is None else read
        pays: bool = _pull_pays(entries(pushed, ids), own, read, self.reads_of_a_push)
        return pays

    def _own(self) -> list[Ids | None]:
        """The sets of rows whose own part of the messages changed."""
        return []

    def _reach(self, source: Cell, count: int, epoch: int) -> int:
        """Collect the rows that changed messages reach behind `count` rows; returns how many.

        All of them stand in ascending order then, in which they are made afresh soonest.
        """
        context, (pushed, inn) = self.context, self._lists()
        scratch, kernels = context.scratch, context.kernels
        reached: int
        assert source.ids is not None
        assert source.nodes is not None
        if source.ids.count == source.nodes.num_nodes:  # all rows with an in-edge
            ids = torch.as_tensor(inn.degree[: context.num_nodes]).nonzero().flatten()
            rows = context.backend.ids(ids).array
            reached = kernels.unite(rows, scratch.touched, count, scratch.stamp, epoch)
        else:
            reached, _ = kernels.reach(
                source.ids.array, pushed, self.drop, scratch.touched, count, scratch.stamp, epoch
            )
        scratch.touched[:reached] = context.backend.sorted(scratch.touched[:reached])
        return reached

    def _report(self, rows: int, changed: int, edges: int, reread: int, way: str = "push") -> None:
        if rows:
            name, kind = self.step.output.name, self.step.kind
            self.context.stats.append(
                (name, kind, rows, changed, edges, reread, 0, 0, 0, 0, 0, way)
            )


def entries(lists: Array, ids: Ids) -> int:
    """How many entries the neighbour lists of some rows have; `ids` are int64 `[k]`."""
    return int(lists.degree[ids.array].sum())


def channel_scale(rows: Tensor) -> Tensor:
    """One over the typical size of each channel of some messages, `[channels]`.

    Typical is the median of what is neither zero nor infinite in a sample of the rows: one huge
    value among them does not move it.
    """
    step = -(-rows.shape[0] // 512) or 1
    sample = rows[::step].abs()
    sample = sample.masked_fill((sample == 0) | ~sample.isfinite(), torch.nan)
    if not sample.shape[0]:
        return rows.new_ones(rows.shape[1])
    typical = sample.nanmedian(0).values.nan_to_num(nan=1.0)
    bound = torch.finfo(rows.dtype).max ** 0.3  # so that no product overflows
    return 1 / typical.clamp(1 / bound, bound)


def drift_limit(dtype: torch.dtype, state_dtype: torch.dtype) -> float:
    """How much magnitude may move through a row, in units of its own.

    The row is kept in `state_dtype` and used in `dtype`.
    """
    if dtype == state_dtype:
        return DRIFT_LIMIT.get(dtype, 2.0**4)
    return torch.finfo(dtype).eps / torch.finfo(state_dtype).eps
