"""Products of all rows of one kind with all rows of another, `a @ b.t()`: users times items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.ops.maps import WholeExecutor
from pyg_incremental.program.steps import Domain, Whole
from pyg_incremental.rows import Cell, Context


@dataclass(frozen=True, eq=False)
class Products(Whole):
    """`a @ b.t()`, `[rows of a, rows of b]`, of two values of domain `NODE` or `EDGE`.

    Where a row of `a` changed, a row of it is computed again, and a column for one of `b`.
    """

    kind: ClassVar[str] = "products"
    of_all: ClassVar[bool] = False
    brings_executor: ClassVar[bool] = True

    def executor(self, inputs: list[Cell], out: Cell, context: Context) -> ProductsExecutor:
        """What keeps it current."""
        return ProductsExecutor(self, inputs, out, context)


def all_with_all(a: Tensor, b: Tensor) -> Tensor:
    """The products of rows `[n, channels]` and `[m, channels]`: `[n, m]`."""
    return a @ b.t()


@dataclass(frozen=True)
class _Side:
    """The rows of one factor.

    Attributes:
        rows: All of them, `[n, channels]`, in the order of the model.
        kept: Those of before that are still there, which come first: a mask of the rows of before;
            None if that is not known.
        changed: Places of the others, and of those that changed, int64 `[k]`.
        slots: Those of edges, in their order; None for rows of nodes.
    """

    rows: Tensor
    kept: Any
    changed: Tensor
    slots: Any


class ProductsExecutor(WholeExecutor):
    """Keeps the products of all rows current."""

    def __init__(self, step: Products, inputs: list[Cell], out: Cell, context: Context) -> None:
        super().__init__(step, inputs, out, context)
        self._slots: list[Any] = [None, None]  # behind the products that stand in `_made`
        self._made: Any = None

    def full(self) -> None:
        """Compute all of them."""
        super().full()
        self._slots = [self._slots_now(cell) for cell in self.inputs]
        self._made = self.out.content

    def rows_changed(self) -> None:
        """Compute those again of which a row changed."""
        if not any(map(self._moved, self.inputs)):
            return
        out, first, second = self.out, *(self._side(i) for i in range(2))
        shape = len(first.rows), len(second.rows)
        if out.content is not self._made or first.kept is None or second.kept is None:
            made = all_with_all(first.rows, second.rows)
            done = made.numel()
        else:
            before = self._made[first.kept][:, second.kept]
            made = before.new_empty(shape)
            made[: before.shape[0], : before.shape[1]] = before
            made[first.changed] = all_with_all(first.rows[first.changed], second.rows)
            made[:, second.changed] = all_with_all(first.rows, second.rows[second.changed])
            done = len(first.changed) * shape[1] + len(second.changed) * shape[0]
        self._slots, self._made = [first.slots, second.slots], made
        out.content, out.dirty = made, True
        work = len(first.changed) + len(second.changed)
        self.context.stats.append((out.value.name, self.step.kind, work, work, 0, done))

    def _moved(self, cell: Cell) -> bool:
        """Whether rows of a factor have changed, come or gone."""
        over = self.edges.get(cell.value.kind) if cell.domain is Domain.EDGE else None
        return cell.ids is not None or (over is not None and bool(over.num_events))

    def _slots_now(self, cell: Cell) -> Any:
        """The slots of the edges that rows belong to; None for rows of nodes."""
        if cell.domain is Domain.NODE:
            return None
        return self.edges[cell.value.kind].graph.slots_for_model()

    def _side(self, which: int) -> _Side:
        cell, before, now = self.inputs[which], self._slots[which], None
        changed = np.empty(0, np.int64) if cell.ids is None else np.asarray(cell.ids.array)
        if cell.domain is Domain.NODE:
            nodes = cell.nodes
            assert nodes is not None
            kept: Any = np.ones(min(nodes.first_new, nodes.num_nodes), bool)
            return _Side(cell.current(), torch.from_numpy(kept), torch.from_numpy(changed), None)
        context = self.edges[cell.value.kind]
        now, events = context.graph.slots_for_model(), context.events
        kept = ~np.isin(before, np.asarray(events.removed.slots))
        stay = int(kept.sum())
        if not np.array_equal(before[kept], now[:stay]):
            kept = None
        moved = np.isin(now, np.concatenate([changed, np.asarray(events.changed.slots)]))
        moved[stay:] = True
        rows = cell.read(torch.from_numpy(now))
        at = torch.from_numpy(np.flatnonzero(moved))
        return _Side(rows, None if kept is None else torch.from_numpy(kept), at, now)
