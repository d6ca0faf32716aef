"""Linear reductions of messages that are computed edge by edge: `f(x_j, x_i, e)`.

A source that changed is retracted with its OLD row and inserted with its new one, along each of its
out-edges. A row whose own (target) part changed is made afresh over its in-edges: these are the
constrained models of NeutronRT (Section 4). Nothing is stored per edge.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pyg_incremental.graph.edge_store import Edges
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.kernels.compiled.sums import INEXACT
from pyg_incremental.kernels.threads import together
from pyg_incremental.ops.base import Aggregate, Touched
from pyg_incremental.ops.message import BoundFunction, EdgeFunction, flat
from pyg_incremental.ops.retracting import Retracting
from pyg_incremental.ops.sum import EXACT, Summing
from pyg_incremental.program.steps import Value
from pyg_incremental.rows import AT_ONCE, Cell, Context, Ids
from pyg_incremental.typing import Array

MANY_EDGES = 1 << 13
"""Edges whose functions all threads of PyTorch compute: half of `AT_ONCE`, so whole parts are."""


@dataclass(frozen=True, eq=False)
class OfFunction(Aggregate):
    """An aggregation of an edge function; the source's OLD rows are retracted.

    Attributes:
        message: The function; its results are `[k, ...]` at k edges.
    """

    messages_at_once: ClassVar[int] = AT_ONCE
    is_local: ClassVar[bool] = True
    message: EdgeFunction

    @property
    def gathered(self) -> tuple[Value, ...]:
        """The source of the function."""
        return self.message.source

    @property
    def messages(self) -> tuple[Value, ...]:
        """The source, whose OLD rows are retracted."""
        return self.message.source

    @property
    def own_part(self) -> tuple[Value, ...]:
        """What the function reads there."""
        return self.message.target


@dataclass(frozen=True, eq=False)
class FunctionSum(OfFunction):
    """`out[i] = sum over in-edges (j, i) of f(x_j, x_i, e_ji)`, `[num_nodes, channels]`.

    The results of `message` are taken as flat rows.
    """

    kind: ClassVar[str] = "sum"

    def row_like(self, like: Callable[[Value], Tensor]) -> Tensor:
        """What the function gives, `[1, channels]`."""
        return self.message.row_like(like)

    def bind(self, cell: Callable[[Value], Cell], context: Context) -> "FunctionSumState":
        """The executor: it keeps the sum and the drift of every row."""
        return FunctionSumState(self, cell, context)


class FunctionState(Retracting):
    """What sums of edge functions have in common: which edges are computed, and when."""

    function: BoundFunction

    def __init__(
        self,
        step: Aggregate,
        message: EdgeFunction,
        loop: Sequence[Cell] | None,
        cell: Callable[[Value], Cell],
        context: Context,
    ) -> None:
        super().__init__(step, cell, context)
        self.function = BoundFunction(message, cell, loop)
        self.source = self.function.source
        self.read = [*self.function.cells, *(loop or ())]

    # What a kind says ----------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, sample: Any) -> None:
        """Make room for the state, given some messages."""

    @abstractmethod
    def _apply(self, messages: Any, dst: Array, sign: int) -> None:
        """Add or retract the messages of some edges; `dst` is where they lead."""

    @abstractmethod
    def _renew(self, ids: Tensor, messages: Any, index: Tensor) -> None:
        """Make rows `ids` of all of their messages; `index` names the place in `ids` of each."""

    @property
    def unit(self) -> float:
        """How often a message counts in the drift: it is computed anew when it is taken back."""
        return INEXACT if "low" in self.extra else EXACT

    # Running -------------------------------------------------------------------------------------

    def full(self) -> None:
        """Compute all rows, some at a time."""
        nodes = self.context.all_nodes
        _, sample = next(self._parts(nodes, self._lists()[1]), (0, nodes))
        _, src, dst, slot, real = self._in_edges(sample)
        self._begin(self._messages(src, dst, slot, real))
        self.pull(nodes)

    @property
    def _edges_differ(self) -> bool:
        return self.function.edges_differ

    def _add(self, edges: Edges, sign: int, before: bool) -> None:
        """The same, with OLD target rows as well."""
        function, loops = self.function, self.step.loops
        src, dst, slots = map(self._tensor, (edges.src, edges.dst, edges.slots))
        if self.step.reverse:
            src, dst = dst, src
        edge_rows = (
            function.old_edge_rows(slots) if before else [c.read(slots) for c in function.edges]
        )
        if loops != "keep":
            kept = (src == dst) == (loops == "only")
            src, dst = src[kept], dst[kept]
            edge_rows = [r[kept.to(r.device)] for r in edge_rows]
        if len(dst):
            rows = [] if self.source is None else [self.source.read(src)]
            messages = function.given(rows, dst, edge_rows)
            self._apply(messages, self.context.backend.array(dst), sign)

    def _own(self) -> list[Ids | None]:
        own: list[Ids | None] = list(self.function.own)
        if self.function.loop is not None:
            own += [c.ids for c in self.function.loop]
            own.append(None if self.source is None else self._as_targets(self.source))
            own.append(self.context.settle)  # a new node has a loop, even if nothing is read at it
        return own

    def push(self, touched: Touched) -> int:
        """Along the out-edges of changed sources OLD messages leave and new ones come."""
        context, function, source = self.context, self.function, self.source
        if source is None or source.ids is None:
            return 0
        backend, scratch = context.backend, context.scratch
        out = self._lists()[0]
        device = backend.like.device
        edges = 0
        old = backend.tensor(source.old).reshape(-1, *source.tensor.shape[1:])
        for first, ids in self._parts(source.ids, out):
            arrays = self._expand(ids, out)
            edges += len(arrays[0])
            touched.count = context.kernels.unite(
                arrays[1], scratch.touched, touched.count, scratch.stamp, touched.epoch
            )
            index, target, slot = map(self._tensor, arrays)
            # A row that is made afresh anyway need not take part.
            near = self._is_sound(target)
            at = (index[near] + first).to(device)
            target, edge_rows = target[near], [c.read(slot[near]) for c in function.edges]
            dst = backend.array(target)
            if len(target):
                with together(len(target) > MANY_EDGES):
                    self._apply(function.given([old[at]], target, edge_rows), dst, -1)
                    new = source.read(self._tensor(source.ids.array)[index[near] + first])
                    self._apply(function.given([new], target, edge_rows), dst, 1)
        return edges

    def _is_sound(self, ids: Tensor) -> Tensor:
        drift = self.drift.tensor[ids.to(self.drift.tensor.device)]
        return ((drift if drift.dim() == 1 else drift[:, 0]) < torch.inf).cpu()

    def pull(self, ids: Ids) -> int:
        """Make rows, int64 `[k]`, of all of their messages, some at a time.

        Returns the number of edges read.
        """
        inn = self._lists()[1]
        read = 0
        for _, some in self._parts(ids, inn):
            index, src, dst, slot, real = self._in_edges(some)
            read += len(index)
            rows = some.tensor
            with together(len(index) > MANY_EDGES):
                self._renew(rows, self._messages(src, dst, slot, real), index)
            self.drift.tensor[rows.to(self.drift.tensor.device)] = 0
        return read

    def _in_edges(self, ids: Ids) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
        """The in-edges of some rows, and a loop at each if there are such.

        Returns:
            (position in `ids`, source, target, slot) of each edge, and how many stand before loops
        """
        index, src, slot = map(self._tensor, self._expand(ids, self._lists()[1]))
        rows, real = ids.tensor, len(index)
        if self.function.loop is not None:
            index = torch.cat([index, torch.arange(len(rows))])
            src = torch.cat([src, rows])
        return index, src, rows[index], slot, real

    def _messages(self, src: Tensor, dst: Tensor, slot: Tensor, real: int) -> Any:
        function = self.function
        rows = [] if function.source is None else [function.source.read(src)]
        edge_rows = [c.read(slot) for c in function.edges]
        if self.function.loop is not None:
            own = [c.read(dst[real:]) for c in self.function.loop]
            edge_rows = [torch.cat([e, o]) for e, o in zip(edge_rows, own, strict=True)]
        return function.given(rows, dst, edge_rows)

    def _tensor(self, array: Array) -> Tensor:
        return self.context.backend.ids_from(array).tensor


class FunctionSumState(Summing, FunctionState):
    """Keeps sums of edge functions current."""

    kernels = ("function", "sums")

    kind_of_row = m.FUNCTION_TOTAL

    def __init__(self, step: FunctionSum, cell: Callable[[Value], Cell], context: Context) -> None:
        FunctionState.__init__(self, step, step.message, None, cell, context)

    def _begin(self, sample: Tensor) -> None:
        rows = flat(sample)
        self._hold_no_sums(rows)
        self._hold_scale(rows)
        self._nothing = self.context.backend.array(sample.new_empty(0))

    def _apply(self, messages: Tensor, dst: Array, sign: int) -> None:
        rows = flat(messages)
        backend = self.context.backend
        every = backend.array(torch.arange(len(rows)))
        self.context.kernels.sum_edges(
            self.out.array, self.low.array, self.drift.array, self.scale.array,
            backend.array(rows), every, dst, self._nothing, self._nothing, sign, False, self.unit,
        )  # fmt: skip

    def _renew(self, ids: Tensor, messages: Tensor, index: Tensor) -> None:
        self._clear(ids)
        if len(index):
            self._apply(messages, self.context.backend.array(ids[index]), 1)
