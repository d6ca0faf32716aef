"""Large steps of the compiled plan, shared by threads.

A sum is split by the rows it writes to: each thread looks at all changed messages, and pushes those
that reach its rows. A map is split by the rows it computes. So no two threads write to one row, and
the same number of threads gives the same bits again. (Another number may not: it finds the changed
rows in another order, in which the next step then adds them up.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyg_incremental.fast_path.tables import Tables
from pyg_incremental.kernels.address import address_of, zeros
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.kernels.compiled.machine import (
    SPARE,
    begin_part,
    map_of_part,
    total_of_part,
)
from pyg_incremental.kernels.threads import MANY, in_parts, number_of_threads
from pyg_incremental.store import Scratch

Product = Callable[[slice], Any]
"""New rows of a part of the dirty ones, as an array."""
ROWS = 2048
"""Rows of a product that are computed at a time: what is in memory once more stays small, and in
the cache."""
NEVER = 1 << 62


class Parts:
    """Threads for the plan of one engine.

    Args:
        tables: The plan.
        scratch: Marks and room for rows.
        zero: A zero of the dtype of rows.
        bits: An integer zero as wide.

    Attributes:
        count: How many threads share the running update.
        widest: Elements of the widest row; an edge that comes or leaves moves so many.
    """

    def __init__(self, tables: Tables, scratch: Scratch, zero: Any, bits: Any) -> None:
        self._tables, self._scratch = tables, scratch
        self._kind = zero, bits
        self.widest = int(tables.cells[:, m.WIDTH].max(initial=0))
        self._spaces: list[Any] = []
        self._touched: list[Any] = []
        self.count = 1

    def many(self) -> int:
        """From more elements on than these a step is one for threads."""
        self.count = number_of_threads()
        return MANY if self.count > 1 else NEVER

    def begin(self, places: Any, num_nodes: int, ends: tuple[Any, ...]) -> None:
        """Begin an update: retract and insert edges."""
        plan = self._tables.plan
        in_parts(
            self.count,
            lambda p: begin_part(plan, places, num_nodes, ends, p, self.count - 1, *self._kind),
        )

    def begin_beside(
        self, own: Callable[[], Any], other: Callable[[], int], places: Any, num_nodes: int,
        ends: tuple[Any, ...],
    ) -> int:  # fmt: skip
        """`begin`, and some `other` work, in one thread beside some work in this one.

        Returns what the other work does.
        """
        plan, kind = self._tables.plan, self._kind

        def part(p: int) -> int:
            if p == 0:
                own()
                return 0
            begin_part(plan, places, num_nodes, ends, 0, 0, *kind)
            return int(other())

        return in_parts(2, part)[1]

    def total(self, step: int, places: Any, num_nodes: int, ends: tuple[Any, ...]) -> bool:
        """Push what changed in the messages of a sum; returns whether there is room for it."""
        tables, scratch, mask = self._tables, self._scratch, self.count - 1
        epoch = scratch.epoch + 1
        scratch.epoch += SPARE
        if len(self._touched) < self.count or self._touched[0].size < scratch.size:
            self._touched = [np.empty(scratch.size, np.int64) for _ in range(self.count)]
        touched = self._touched
        done = in_parts(
            self.count,
            lambda p: total_of_part(
                tables.plan, places, step, epoch, num_nodes, ends, touched[p], p, mask, *self._kind
            ),
        )
        rows = np.concatenate([t[:c] for t, (c, *_) in zip(touched, done, strict=True)])
        count = rows.size
        edges = done[0][1]  # every thread looks at all of them
        reread, read = (sum(part[i] for part in done) for i in (2, 3))
        tables.stats[step, :4] = count, count, edges + read + ends[0].size + ends[3].size, reread
        return tables.hold_ids(step, rows, scratch)

    def compute(
        self, step: int, places: Any, num_nodes: int, ids: Any, product: Product | None
    ) -> None:
        """Compute the rows `ids` of a map, by `product` if it is given, and put them.

        They are shared by the threads, or by nobody if there is one.
        """
        tables, count = self._tables, self.count
        ends = (ids[:0],) * 6
        bounds = [len(ids) * p // count for p in range(count + 1)]
        plans = [self._plan(p) for p in range(count)]
        none = np.empty((0, 1), tables.space.dtype)

        def part(p: int) -> int:
            first, end = bounds[p], bounds[p + 1]
            size = max(end - first, 1) if product is None else ROWS
            done = first
            for begin in range(first, end, size):
                last = min(begin + size, end)
                rows = none if product is None else product(slice(begin, last))
                done += map_of_part(
                    plans[p], places, step, num_nodes, ends, ids, rows, begin, last, done,
                    *self._kind,
                )  # fmt: skip
            return done - first

        changed = in_parts(count, part)
        tables.close_gaps(step, bounds, changed)
        tables.stats[step, :2] = len(ids), sum(changed)

    def _plan(self, part: int) -> Any:
        """The plan with registers of its own."""
        if part == 0:
            return self._tables.plan
        while len(self._spaces) < part:
            space = self._tables.space
            self._spaces.append(zeros(space.dtype, space.size))
            self._spaces[-1][:] = space
        plan = self._tables.plan.copy()
        plan[m.SPACE] = address_of(self._spaces[part - 1])
        return plan
