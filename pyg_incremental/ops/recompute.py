"""Values that are never stored: their rows are computed whenever somebody reads them.

What a sum takes back is a message as it was before the update. It is computed again from the stored
rows behind it, which remember what stood in them (`Cell.rows_before`). For that to leave nothing
behind it has to come out bit by bit as it did when it was added, and a matrix product of few rows
does not round like one of many. So every such map runs on blocks of one size, and a row has the
same place in whatever block it stands: the same instructions then see the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.ops.operator import Operator
from pyg_incremental.program.steps import RowMap
from pyg_incremental.rows import Cell, Context, Ids
from pyg_incremental.telemetry.work import Work

BLOCK = 64
"""Rows of a block."""


class Blocks:
    """Some rows laid out in blocks: row `v` stands at place `v % BLOCK` of one of them.

    Places that nobody takes repeat the first row.

    Args:
        ids: The rows, int64 `[k]`.
        device: Where their values are.
    """

    def __init__(self, ids: Ids, device: torch.device) -> None:
        place = (np.asarray(ids.array) % BLOCK).astype(np.uint8)
        by_place = np.argsort(place, kind="stable")
        first = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=BLOCK))])
        turn = np.empty(ids.count, np.int64)
        turn[by_place] = np.arange(ids.count) - first[place[by_place]]
        at = turn * BLOCK + place
        self.size = BLOCK * (int(turn.max()) + 1) if ids.count else 0
        row = np.zeros(self.size, np.int64)
        row[at] = np.arange(ids.count)
        self._at, self._row = (torch.from_numpy(a).to(device) for a in (at, row))

    def run(self, fn: Callable[..., Tensor], rows: list[Tensor]) -> Tensor:
        """`fn(*rows)`, block by block; rows and result are `[k, ...]`."""
        if not self.size:
            return fn(*rows)
        laid = [r.index_select(0, self._row) for r in rows]
        parts = [fn(*(r[i : i + BLOCK] for r in laid)) for i in range(0, self.size, BLOCK)]
        return torch.cat(parts).index_select(0, self._at)


@dataclass(frozen=True, eq=False)
class Recomputed(RowMap):
    """A row map over nodes whose output is not stored."""

    brings_executor: ClassVar[bool] = True

    def executor(self, inputs: list[Cell], out: Cell, context: Context) -> RecomputeExecutor:
        """The executor of this step."""
        return RecomputeExecutor(self, inputs, out, context)


class RecomputeExecutor(Operator):
    """Says which rows are dirty, and computes those that are asked for, as they are or were."""

    def __init__(self, step: RowMap, inputs: list[Cell], out: Cell, context: Context) -> None:
        super().__init__(step, out, context)
        self.inputs = inputs
        self._stats: Work | None = None
        self._place = 0
        out.maker = self
        for cell in inputs:
            cell.keeps_old = True

    def full(self) -> None:
        """Nothing is kept."""

    def rows_changed(self) -> None:
        """A row is dirty where an input is; it is computed when it is read."""
        sets: list[Ids] = []
        for cell in self.inputs:
            if cell.ids is not None and cell.ids not in sets:
                sets.append(cell.ids)
        if sets:
            self.out.ids = ids = self.context.unite(sets)
            self._count(0, ids.count)

    def now(self, ids: Ids) -> Tensor:
        """The current rows `ids`, int64 `[k]`: `[k, ...]`."""
        return self._make(ids, False, None, {})

    def exactly(self, ids: Ids, before: bool) -> Tensor:
        """Like `now`, in blocks: rows of now, or rows from before the running update."""
        return self._make(ids, before, Blocks(ids, self.context.backend.like.device), {})

    def _make(
        self, ids: Ids, before: bool, blocks: Blocks | None, found: dict[Cell, Tensor]
    ) -> Tensor:
        """Rows of this value; `found` holds those of others, so that each is computed once."""
        for cell in self.inputs:
            if cell in found:
                continue
            if isinstance(cell.maker, RecomputeExecutor):
                found[cell] = cell.maker._make(ids, before, blocks, found)
            else:
                found[cell] = cell.rows_before(ids) if before else cell.gather(ids)
        args = [found[cell] for cell in self.inputs]
        rows: Tensor = self.step.fn(*args) if blocks is None else blocks.run(self.step.fn, args)
        self._count(ids.count, 0)
        return rows

    def _count(self, rows: int, changed: int) -> None:
        """Add to what is reported of this step in the running update."""
        stats = self.context.stats
        if self._stats is not stats:
            self._stats, self._place = stats, len(stats)
            stats.append((self.out.value.name, "map", 0, 0, 0, 0))
        name, kind, computed, differ, *_ = stats[self._place]
        stats[self._place] = (name, kind, computed + rows, differ + changed, 0, 0)
