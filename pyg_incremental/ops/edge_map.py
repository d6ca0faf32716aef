"""Rows of edges, or of pairs of nodes, as a function of the rows at both ends.

An edge is computed again where the row at one of its ends changed, where its own data did, and
where it is new: a link predictor scores the pairs that an update reaches, and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.ops.operator import Operator
from pyg_incremental.program.messages import Message
from pyg_incremental.program.steps import Domain, Step, Value
from pyg_incremental.rows import AT_ONCE, Cell, Context, Ids


@dataclass(frozen=True, eq=False)
class EdgeMap(Step):
    """`out[e] = f(x[source of e], x[target of e], data of e)`, `[num_edges, ...]`.

    The data may be ids of further nodes, whose rows are read as well.
    """

    kind: ClassVar[str] = "edge map"
    takes_all: ClassVar[bool] = True
    brings_executor: ClassVar[bool] = True
    message: Message

    def executor(self, inputs: list[Cell], out: Cell, context: Context) -> EdgeMapExecutor:
        """What keeps it current."""
        return EdgeMapExecutor(self, inputs, out, context)

    def on_edges(
        self,
        source: Callable[[Value], Any],
        target: Callable[[Value], Any],
        picked: Callable[[Value, Value], Any],
        edge: Callable[[Value], Any],
    ) -> Any:
        """Its rows at some edges, `[k, ...]`; see `Step.on_edges`."""
        return self.message.fn(
            *map(source, self.message.source),
            *map(target, self.message.target),
            *(picked(*pair) for pair in self.message.picked),
            *map(edge, self.message.edges),
        )


class EdgeMapExecutor(Operator):
    """Keeps the rows of all edges of a graph, by slot."""

    takes_values: ClassVar[bool] = True

    def __init__(self, step: EdgeMap, inputs: list[Cell], out: Cell, context: Context) -> None:
        super().__init__(step, out, context)
        self.inputs = inputs
        message, rest = step.message, list(inputs)
        self.source, rest = rest[: len(message.source)], rest[len(message.source) :]
        self.target, rest = rest[: len(message.target)], rest[len(message.target) :]
        count = len(message.picked)
        rows, ids, self.edges = rest[:count], rest[count : 2 * count], rest[2 * count :]
        self.picked = [PickedByEdges(*pair, context) for pair in zip(rows, ids, strict=True)]

    def full(self) -> None:
        """Compute the rows of all edges."""
        for picked in self.picked:
            picked.forget()
        graph, backend = self.context.graph, self.context.backend
        slots = graph.slots_in_order()
        first = self._rows(slots[:AT_ONCE])
        rows = backend.zeros(first, graph.slot_capacity, *first.shape[1:])
        rows[self._at(slots[:AT_ONCE])] = first
        for begin in range(AT_ONCE, slots.size, AT_ONCE):
            some = slots[begin : begin + AT_ONCE]
            rows[self._at(some)] = self._rows(some)
        self.out.hold(rows)

    def rows_changed(self) -> None:
        """Compute the rows of edges that came, and of those at whose ends something changed."""
        context, out = self.context, self.out
        added, touched = self._touched()
        slots = np.concatenate([added, touched])
        if not slots.size:
            return
        changed = [added]
        for begin in range(0, slots.size, AT_ONCE):
            some = slots[begin : begin + AT_ONCE]
            at, new = self._at(some), self._rows(some)
            moved = differ(out.read(at), new).cpu().numpy()
            moved[: max(0, added.size - begin)] = False  # they count as changed in any case
            out.tensor.index_copy_(0, at, new)
            changed.append(some[moved])
        ids = np.concatenate(changed)
        if ids.size:
            out.ids = context.backend.ids(torch.from_numpy(ids))
        name, kind = self.step.output.name, self.step.kind
        context.stats.append((name, kind, slots.size, ids.size, slots.size, 0))

    def _touched(self) -> tuple[Any, Any]:
        """Slots of the edges that came, and of others that may have other rows now."""
        context = self.context
        added = np.asarray(context.events.added.slots)
        found = [picked.touched() for picked in self.picked]
        if any(c.old_changed is not None for c in self.edges):
            found.append(np.asarray(context.events.changed.slots))
        out, inn = context.lists
        for cells, lists in ((self.source, out), (self.target, inn)):
            for cell in cells:
                if cell.ids is not None:
                    found.append(self._slots_at(cell.ids, lists))
        if any(c.dirty for c in self.edges):
            found.append(context.graph.slots_in_order())
        if not found:
            return added, np.empty(0, np.int64)
        return added, self._distinct(np.concatenate(found), added)

    def _distinct(self, slots: Any, added: Any) -> Any:
        """Each slot once, ascending, without those of the edges that came."""
        slots = np.sort(slots)  # so they are read in order
        is_first = np.ones(slots.size, np.bool_)
        np.not_equal(slots[1:], slots[:-1], out=is_first[1:])
        came = np.sort(added)
        at = np.searchsorted(slots, came)  # the first of the same, which is_first alone keeps
        is_there = at < slots.size
        is_there[is_there] = slots[at[is_there]] == came[is_there]
        is_first[at[is_there]] = False
        return slots[is_first]

    def _slots_at(self, ids: Ids, lists: Any) -> Any:
        """The edges in the lists of some nodes."""
        context = self.context
        size = int(lists.degree[ids.array].sum())
        index, neighbor, slot = (context.backend.room(size) for _ in range(3))
        context.kernels.expand(ids.array, lists, 0, index, neighbor, slot)
        return np.asarray(slot[:size])

    def _rows(self, slots: Any) -> Tensor:
        """Rows of the edges in some slots, `[k, ...]`, of what is stored now."""
        edges, at = self.context.graph.slots, torch.from_numpy(slots)
        src, dst = (torch.from_numpy(end[slots].astype(np.int64)) for end in (edges.src, edges.dst))
        made: Tensor = self.step.message.fn(
            *(c.read(src) for c in self.source), *(c.read(dst) for c in self.target),
            *(picked.read(at) for picked in self.picked),
            *(c.content if c.domain is Domain.WHOLE else c.read(at) for c in self.edges),
        )  # fmt: skip
        return made

    def _at(self, slots: Any) -> Tensor:
        return torch.from_numpy(slots).to(self.context.backend.like.device)


class PickedByEdges:
    """Rows of the nodes whose ids edges hold, and which edges hold the id of a node.

    Where an id stands is looked up in a list that is sorted when an update asks for it first, and
    again once many edges have come since; those that have are looked at one by one.

    Args:
        rows: Rows of nodes.
        ids: Rows of edges: the ids, integers `[num_edges, ...]`; negative ones count from the end.
        context: What the steps over these edges share.
    """

    def __init__(self, rows: Cell, ids: Cell, context: Context) -> None:
        self.rows, self.ids, self._context = rows, ids, context
        self.forget()

    def forget(self) -> None:
        """Other edges are there, or other ids."""
        self._sorted: tuple[Any, Any] | None = None
        self._since: list[Any] = []
        self._seen = (0, 0)

    def read(self, slots: Tensor) -> Tensor:
        """The rows at the edges in some slots, int64 `[k]`: `[k, ..., width]`.

        Raises:
            InvalidDeltaError: If an id is that of no node.
        """
        assert self.rows.nodes is not None
        ids, count = self.ids.read(slots).long().cpu(), self.rows.nodes.num_nodes
        ids = torch.where(ids < 0, ids + count, ids)
        low, high = map(int, torch.aminmax(ids)) if ids.numel() else (0, -1)
        if low < 0 or high >= count:
            wrong = high if high >= count else low - count
            raise InvalidDeltaError(
                f"'{self.ids.value}' is to pick rows of nodes: expected ids in [0, {count}) (got "
                f"{wrong}); ask for nodes that are there, or let them come first"
            )
        rows = self.rows.read(ids.flatten())
        return rows.view(*ids.shape, *rows.shape[1:])

    def touched(self) -> Any:
        """Slots of the edges, int64 `[k]`, with other ids now, or with ids of changed rows."""
        events, found = self._context.events, np.empty(0, np.int64)
        if len(events.changed.slots):
            self.forget()
            found = np.asarray(events.changed.slots)
        if self._sorted is not None and len(events.added.slots):
            self._since.append(np.asarray(events.added.slots))
        if self.rows.ids is None:
            return found
        return np.concatenate([found, self._holding(np.asarray(self.rows.ids.array))])

    def _holding(self, nodes: Any) -> Any:
        """Slots of the edges that may hold one of some ids, int64 `[k]`."""
        graph = self._context.graph
        came = sum(map(len, self._since))
        seen = graph.times_counted, graph.next_order - came
        if self._sorted is None or seen != self._seen or 4 * came > graph.num_edges:
            slots = graph.slots_in_order()
            held = self.ids.read(torch.from_numpy(slots)).reshape(len(slots), -1).cpu().numpy()
            order = np.argsort(held, axis=None, kind="stable")
            self._sorted = held.ravel()[order], slots[order // max(1, held.shape[1])]
            self._since, self._seen = [], (graph.times_counted, graph.next_order)
        ids, slots = self._sorted
        ends = np.searchsorted(ids, nodes), np.searchsorted(ids, nodes, "right")
        found = [slots[first:last] for first, last in zip(*ends, strict=True) if last > first]
        from_the_end = slots[: np.searchsorted(ids, 0)]
        every = np.concatenate([from_the_end, *found, *self._since])
        return every[graph.slots.in_at[every] >= 0]  # those of edges that are there


def differ(old: Tensor, new: Tensor) -> Tensor:
    """Which rows came out different, bool `[k]`; NaN is like NaN."""
    differ, is_nan = old != new, new != new
    if bool(is_nan.any()):
        differ &= ~(is_nan & (old != old))
    return differ.reshape(len(new), -1).any(1)
