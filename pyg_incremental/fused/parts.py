"""Large steps of the compiled plan, shared by threads.

A map is split by the rows it computes. A sum is split twice: by the changed messages, of which each
thread writes down by how much some have changed and along which edges that goes, ordered by blocks
of the rows that they lead to; and then by these blocks. So no two threads write to one row, and the
same number of threads gives the same bits again. (Another number may not: it finds the changed rows
in another order, in which the next step then adds them up.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyg_incremental.fused.chain import GIVEN, Chain
from pyg_incremental.fused.tables import Tables
from pyg_incremental.kernels.address import address_of, zeros
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.kernels.compiled.grouped import BLOCKS
from pyg_incremental.kernels.compiled.kinds import SPARE
from pyg_incremental.kernels.compiled.machine import (
    begin_part,
    chain_of_part,
    shares_of_parts,
    spread_of_part,
    tell_parts,
    total_of_part,
)
from pyg_incremental.kernels.compiled.rows import ALL
from pyg_incremental.kernels.threads import (
    MANY,
    TURNS,
    in_turns,
    number_of_threads,
    shares,
)
from pyg_incremental.ops.maps import PART
from pyg_incremental.rows import Backend

_KERNELS = ("threads",)
NEVER = 1 << 62
SEEN = 64
"""Targets of each list of edges that are looked at to see where most are: more would even out the
parts of threads a little better, and have to be sorted."""


class Parts:
    """Threads for the plan of one engine.

    Args:
        tables: The plan.
        backend: Its arrays.
        zero: A zero of the dtype of rows.
        bits: An integer zero as wide.

    Attributes:
        count: How many threads share the running update.
        widest: Elements of the widest row; an edge that comes or leaves moves so many.
    """

    def __init__(self, tables: Tables, backend: Backend, zero: Any, bits: Any) -> None:
        self._tables, self._backend, self._has_kernels = tables, backend, False
        self._kind = zero, bits
        self.widest = int(tables.cells[:, m.WIDTH].max(initial=0))
        self._spaces: list[Any] = []
        self._touched = np.empty(0, np.int64)
        self._rows, self._moved = np.empty(0), np.empty(0, tables.space.dtype)
        self._edges = np.empty(0, np.int32)
        self.count = 1

    def many(self) -> int:
        """From more elements on than these a step is one for threads."""
        self.count = number_of_threads()
        if self.count > 1 and not self._has_kernels:
            self._backend.ask_for(_KERNELS)
            self._has_kernels = self._backend.has(_KERNELS)
        return MANY if self.count > 1 and self._has_kernels else NEVER

    def begin(
        self, places: Any, num_nodes: int, ends: tuple[Any, ...],
        others: Sequence[Callable[[], Any]] = (),
    ) -> list[Any]:  # fmt: skip
        """Begin an update: retract and insert edges.

        Beside that other jobs are done, which touch no rows; returns what these do.
        """
        plan, kind, count = self._tables.plan, self._kind, self.count
        bounds = self._bounds(_some(ends[1]), _some(ends[4]))
        tell_parts(plan, places, num_nodes, ends)
        found: list[Any] = [None] * len(others)
        jobs: list[tuple[int, int]] = []  # of each thread: its rows, and its share of the others
        for p in range(count):
            jobs += [(p, -1), *((-1, other) for other in range(p, len(others), count))]

        def run(j: int, _: int) -> None:
            part, other = jobs[j]
            if other >= 0:
                found[other] = others[other]()
            else:
                low, high = bounds[part : part + 2]
                begin_part(plan, low, high, *kind)

        in_turns(count, len(jobs), run)
        return found

    def total(self, step: int, ends: tuple[Any, ...]) -> bool:
        """Push what changed in the messages of a sum; returns whether there is room for it."""
        tables, scratch = self._tables, self._tables.nodes.scratch
        plan, stats, kind = tables.plan, tables.stats[step], self._kind
        epoch = scratch.epoch + 1
        scratch.epoch += SPARE
        turns = TURNS * self.count
        bounds = shares_of_parts(plan, step, turns, *kind)
        room = self._room_for(step, *bounds[-1])
        begins, touched = np.empty((turns, BLOCKS + 1), np.int64), self._touched

        def spread(p: int, _: int) -> int:
            (first, begin), (last, _) = bounds[p : p + 2]
            pushed: int = spread_of_part(plan, step, first, last, *room, begin, begins[p], *kind)
            return pushed

        pushed = sum(in_turns(self.count, turns, spread))
        parts = self._blocks(begins)

        def total(p: int, _: int) -> tuple[int, ...]:
            done: tuple[int, ...] = total_of_part(
                plan, step, epoch, touched, *parts[p : p + 2], *room, begins, *kind
            )  # fmt: skip
            return done

        reached, counts, reread, read, lows = np.array(in_turns(self.count, turns, total)).T
        rows = np.concatenate([touched[low:][:c] for low, c in zip(lows, counts, strict=True)])
        edges = pushed + read.sum() + ends[0].size + ends[3].size
        stats[:4] = reached.sum(), rows.size, edges, reread.sum()
        return tables.hold_ids(step, rows)

    def _blocks(self, begins: Any) -> list[int]:
        """Bounds of parts of all blocks of rows, with about as many edges each."""
        before = (begins - begins[:, :1]).sum(0)
        shares = before[-1] * np.arange(1, len(begins)) // len(begins)
        return [0, *np.searchsorted(before, shares).tolist(), begins.shape[1] - 1]

    def _bounds(self, *seen: Any) -> list[int]:
        """Bounds of as many parts of all rows as there are threads.

        About as many of the targets of edges, some of which were `seen`, are in each.
        """
        some = np.sort(np.concatenate(seen))
        inner = (int(some[some.size * p // self.count]) for p in range(1, self.count))
        return [0, *(inner if some.size else [0] * (self.count - 1)), ALL]

    def _room_for(self, step: int, messages: int, edges: int) -> tuple[Any, Any, Any]:
        """Room for the rows that a sum touches, and for what `spread_of_part` writes down."""
        tables, scratch = self._tables, self._tables.nodes.scratch
        if len(self._touched) < scratch.size:
            self._touched = np.empty(scratch.size, np.int64)
        width, columns = tables.width_of(step), 3 if tables.steps[step, m.WEIGHT] else 2
        if len(self._moved) < messages:
            self._moved = zeros(tables.space.dtype, 2 * messages)
        if len(self._rows) < messages * width:
            self._rows = zeros(np.float64, 2 * messages * width)
        if len(self._edges) < edges * columns:
            self._edges = zeros(np.int32, 2 * edges * columns)
        rows = self._rows[: messages * width].reshape(messages, width)
        return rows, self._moved, self._edges[: edges * columns].reshape(edges, columns)

    def compute(self, chain: Chain, ids: Any, given: Any = None) -> None:
        """Compute the rows of some maps, the first one's at `ids`, and put them.

        The threads share them, and each goes through all maps with a part of the rows. Those of
        the first map may be `given`.
        """
        tables, steps = self._tables, np.array(chain)
        bounds = shares(len(ids), self.count)
        if len(chain) > 1:
            bounds = [*range(0, len(ids), min(PART, bounds[1] + 1)), len(ids)]
        plans = [self._plan(p) for p in range(min(self.count, len(bounds) - 1))]
        none = np.empty((0, 1), tables.space.dtype)

        def part(p: int, thread: int) -> Any:
            first, last = bounds[p : p + 2]
            rows = none if given is None else given[first:last]
            return chain_of_part(plans[thread], steps, ids, rows, first, last, *self._kind)

        parts = np.array(in_turns(self.count, len(bounds) - 1, part))
        for link, changed in zip(chain, parts.T.tolist(), strict=True):
            tables.close_gaps(link.step, bounds, changed)
            rows = len(ids) if link.source == GIVEN else tables.stats[chain[link.source].step, 1]
            tables.stats[link.step, :2] = rows, sum(changed)

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


def _some(targets: Any) -> Any:
    """Targets that tell where most of them are."""
    return targets[:: max(1, targets.size // SEEN)].copy()
