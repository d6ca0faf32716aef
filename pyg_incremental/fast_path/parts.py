"""Large steps of the compiled plan, shared by threads.

A map is split by the rows it computes. A sum is split twice: by the changed messages, of which each
thread writes down by how much some have changed and along which edges that goes, and then by the
rows that it writes to. So no two threads write to one row, and the same number of threads gives the
same bits again. (Another number may not: it finds the changed rows in another order, in which the
next step then adds them up.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyg_incremental.fast_path.tables import Tables
from pyg_incremental.kernels.address import address_of, zeros
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.kernels.compiled.machine import (
    SPARE,
    begin_part,
    map_of_part,
    shares_of_parts,
    spread_of_part,
    total_of_part,
)
from pyg_incremental.kernels.threads import (
    MANY,
    TURNS,
    in_parts,
    in_turns,
    number_of_threads,
    shares,
)
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
        self._rows = self._moved = np.empty(0, tables.space.dtype)
        self._edges = np.empty(0, np.int32)
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
        self, others: Sequence[Callable[[], Any]], places: Any, num_nodes: int,
        ends: tuple[Any, ...],
    ) -> list[Any]:  # fmt: skip
        """`begin`, beside other jobs, which touch no rows; returns what these do."""
        plan, kind, count = self._tables.plan, self._kind, self.count

        def job(j: int, _: int) -> Any:
            if j < count:
                return begin_part(plan, places, num_nodes, ends, j, count - 1, *kind)
            return others[j - count]()

        return in_turns(count, count + len(others), job)[count:]

    def total(self, step: int, places: Any, num_nodes: int, ends: tuple[Any, ...]) -> bool:
        """Push what changed in the messages of a sum; returns whether there is room for it."""
        tables, scratch, mask = self._tables, self._scratch, self.count - 1
        plan, stats, kind = tables.plan, tables.stats[step], self._kind
        epoch = scratch.epoch + 1
        scratch.epoch += SPARE
        turns = TURNS * self.count
        bounds = shares_of_parts(plan, places, step, num_nodes, ends, turns, *kind)
        touched, room = self._room_for(step, *bounds[-1])

        def spread(p: int, _: int) -> tuple[int, int]:
            (first, begin), (last, _) = bounds[p : p + 2]
            end: tuple[int, int] = spread_of_part(
                plan, places, step, num_nodes, ends, first, last, *room, begin, *kind
            )
            return end

        spreads = np.array(in_turns(self.count, turns, spread))
        begins, behind = np.ascontiguousarray(bounds[:-1, 1]), np.ascontiguousarray(spreads[:, 0])

        def total(p: int) -> tuple[int, int, int]:
            done: tuple[int, int, int] = total_of_part(
                plan, places, step, epoch, num_nodes, ends, touched[p], p, mask, *room, begins,
                behind, *kind,
            )  # fmt: skip
            return done

        counts, reread, read = np.array(in_parts(self.count, total)).T
        rows = np.concatenate([t[:c] for t, c in zip(touched, counts, strict=True)])
        edges = spreads[:, 1].sum() + read.sum() + ends[0].size + ends[3].size
        stats[:4] = rows.size, rows.size, edges, reread.sum()
        return tables.hold_ids(step, rows, scratch)

    def _room_for(self, step: int, messages: int, edges: int) -> tuple[Any, tuple[Any, Any, Any]]:
        """Room for the rows that a sum touches, and for what `spread_of_part` writes down."""
        tables, scratch = self._tables, self._scratch
        if len(self._touched) < self.count or self._touched[0].size < scratch.size:
            self._touched = [np.empty(scratch.size, np.int64) for _ in range(self.count)]
        width, columns = tables.width_of(step), 3 if tables.steps[step, m.WEIGHT] else 2
        if len(self._moved) < messages:
            self._moved = zeros(tables.space.dtype, 2 * messages)
        if len(self._rows) < messages * width:
            self._rows = zeros(tables.space.dtype, 2 * messages * width)
        if len(self._edges) < edges * columns:
            self._edges = zeros(np.int32, 2 * edges * columns)
        rows = self._rows[: messages * width].reshape(messages, width)
        return self._touched[: self.count], (
            rows, self._moved, self._edges[: edges * columns].reshape(edges, columns),
        )  # fmt: skip

    def compute(
        self, step: int, places: Any, num_nodes: int, ids: Any, product: Product | None
    ) -> None:
        """Compute the rows `ids` of a map, by `product` if it is given, and put them.

        They are shared by the threads, or by nobody if there is one.
        """
        tables, count = self._tables, self.count
        ends = (ids[:0],) * 6
        bounds = shares(len(ids), count)
        if product is not None:
            size = min(ROWS, bounds[1] + 1)
            bounds = [*range(0, len(ids), size), len(ids)]
        plans = [self._plan(p) for p in range(count)]
        none = np.empty((0, 1), tables.space.dtype)

        def part(p: int, thread: int) -> int:
            first, last = bounds[p : p + 2]
            rows = none if product is None else product(slice(first, last))
            changed: int = map_of_part(
                plans[thread], places, step, num_nodes, ends, ids, rows, first, last, first,
                *self._kind,
            )  # fmt: skip
            return changed

        changed = in_turns(count, len(bounds) - 1, part)
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
