"""What the machine of `kernels.compiled.machine` reads: cells, steps, and where their rows are.

The columns are those of `kernels.compiled.layout`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch

from pyg_incremental.fused.inputs import inputs_of
from pyg_incremental.fused.lowering import Lowering
from pyg_incremental.fused.registers import RowOps, UntranslatableError
from pyg_incremental.fused.saved_rows import SavedRows
from pyg_incremental.fused.skip_if_clean import SkipIfClean
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.kernels.address import address_of
from pyg_incremental.kernels.by_address import address_for
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.kernels.compiled.kinds import KERNELS, KINDS
from pyg_incremental.kernels.compiled.row_ops import BLOCK, COLUMNS, run_rows
from pyg_incremental.program.steps import Domain
from pyg_incremental.rows import Cell, Ids, NodeSet
from pyg_incremental.rows.weakly import weakly

_ONE_THREAD = m.EDGE_MAP, m.WIDE_TOTAL, m.FUNCTION_TOTAL, m.FUNCTION_SOFTMAX, m.FUNCTION_EXTREMUM
MOST = 1 << 24
"""Elements at most of the rows that are kept of one value: those that changed, or their ids."""


class Tables:
    """The plan of one engine, laid out for the machine.

    Args:
        executors: Those of node values, in order.
        edge_executors: Those of edge values, which come before.
        kinds: Their nodes. Ids of one kind and of another may be equal; marks are per step.
        graph: That whose edges change.
        dtype: That of all rows.

    Attributes:
        nodes: Those with most room for ids.
        executors: All of them, in order; a step for each.
        known: How many of them the machine knows; those of the others run between its calls.
        saved_rows: What stood where edges lead that left or came.
        at: The place of each value that the machine reads or makes.
        ids: Room for the rows of each that changed, int64, by its place.
        edge_maps: Those of edge values that it computes; other values are there before it runs.
        lacks_large: Whether the code for large sums, which comes last, is not written down yet.
        is_for_one_thread: Whether there is a step that threads may not begin with.
        why: What the first unknown one is, or an empty string.
    """

    def __init__(
        self,
        executors: Sequence[Any],
        edge_executors: Sequence[Any],
        kinds: Sequence[NodeSet],
        graph: DynamicGraph,
        dtype: torch.dtype,
    ) -> None:
        self._kinds = kinds
        self.nodes = self._widest()
        self._dtype = dtype
        self._zeros = graph.storage.zeros
        self.at: dict[Cell, int] = {}
        self.ids: list[Any] = []
        self._rooms: dict[Cell, tuple[Any, Any, Any]] = {}
        self._shared: list[Ids] = []
        self.why, self.lacks_large = "", False
        lowering, found = Lowering(graph, dtype), dict[int, RowOps]()
        self._samples = lowering.samples
        self.executors: list[Any] = []
        self.edge_maps = self._take_edge_maps(lowering, edge_executors, found)
        unknown: set[int] = set()
        for e in executors:
            try:
                ops = lowering.operations(e)
            except UntranslatableError as error:
                self.why = self.why or f"{e.out.value}: {error}"
                unknown.add(len(self.executors))
            else:
                if ops is not None:
                    found[len(self.executors)] = ops
            self.executors.append(e)
        self.known = len(self.executors) - len(unknown)
        self._constants = lowering.constants
        self.space, self.index = lowering.space.arrays(dtype)
        self.wide_space, self.wide_index = lowering.wide_space.arrays(torch.float64)
        skips = SkipIfClean(executors, edge_executors, self._constants, graph, self.at.get)
        self._lay_out(found, unknown, skips)
        if any(self.executors[s].takes_edges for s in unknown):  # which read edge values first
            self.edge_maps = set()
            self.steps[self.steps[:, m.KIND] == m.EDGE_MAP, m.KIND] = m.NOTHING
        kinds_of_step = {*self.steps[:, m.KIND].tolist()}
        self.is_for_one_thread = not kinds_of_step.isdisjoint(_ONE_THREAD)

    def _take_edge_maps(
        self, lowering: Lowering, executors: Sequence[Any], found: dict[int, RowOps]
    ) -> set[Any]:
        """The values of edges that come which the machine computes; they are the first steps."""
        self.executors += executors
        taken, ahead = set[Any](), set[Cell]()  # others, and what these read, are there before
        for at, e in reversed([*enumerate(executors)]):
            if not e.computes:
                continue
            try:
                if e.out in ahead:
                    raise UntranslatableError("it is read before")
                found[at] = lowering.of_edge_map(e)
                taken.add(e)
            except UntranslatableError:
                ahead.update(e.inputs)
        return taken

    def _widest(self) -> NodeSet:
        return max(self._kinds, key=lambda nodes: nodes.scratch.size)

    # Layout --------------------------------------------------------------------------------------

    def _lay_out(
        self, maps: dict[int, RowOps], unknown: Collection[int], skips: SkipIfClean
    ) -> None:
        every = len(self.executors)
        self.steps = np.zeros((every, m.STEP_COLUMNS), np.int64)
        self.numbers = np.zeros((every, 2))
        self.stats = np.zeros((every, m.STAT_COLUMNS), np.int64)
        inputs: list[tuple[int, ...]] = []
        ops: list[Any] = [np.empty((0, COLUMNS), np.int64)]
        count = 0
        for s, e in enumerate(self.executors):
            step, found = self.steps[s], maps.get(s)
            if self._never_runs(e) and s not in unknown:
                continue
            step[m.FIRST_INPUT] = len(inputs)
            if s in unknown:
                step[m.KIND], (step[m.WAKES], read) = m.OTHER, skips.of(e)
                inputs += [(cell, 0, 0, -1) for cell in read]
                step[m.LAST_INPUT] = len(inputs)
                continue
            if found is not None:
                step[m.FIRST_OP], count = count, count + len(found.ops)
                step[m.LAST_OP], step[m.RESULT] = count, found.output
                ops.append(found.ops)
                inputs += inputs_of(e, found, self._cell)
            elif e.computes:
                continue
            step[m.LAST_INPUT] = len(inputs)
            step[m.SOURCE] = step[m.LOOP] = step[m.ADDED] = step[m.FACTOR] = -1
            e.lay_out(step, self.numbers[s], self._cell, found is not None and found.wide)
            step[m.OUT] = self._cell(e.out)
        self.inputs = np.array(inputs, np.int64).reshape(-1, m.INPUT_COLUMNS)
        self._inputs_of = [
            frozenset(self.inputs[s[m.FIRST_INPUT] : s[m.LAST_INPUT], m.CELL].tolist())
            for s in self.steps
        ]
        self.ops = np.concatenate(ops)
        self.cells = np.zeros((len(self.at), m.CELL_COLUMNS), np.int64)
        for cell, at in self.at.items():
            self._give_room(cell, self.cells[at])
        self._of_kind = [
            (nodes, np.array([cell.nodes is nodes for cell in self.at], np.bool_))
            for nodes in self._kinds
        ]
        for step, e in zip(self.steps, self.executors, strict=True):
            if step[m.KIND] == m.EXCHANGE:
                self._share_room(e)
        self.where = self._zeros(np.int64, max(self.nodes.scratch.size, BLOCK))
        self.saved_rows = SavedRows(self.executors, self.steps, weakly(self.width_of), self._zeros)
        self.plan = np.zeros(m.PLAN_SIZE, np.int64)
        for table, at, size in (
            (self.space, m.SPACE, m.SPACE_SIZE), (self.ops, m.OPS, m.NUM_OPS),
            (self.index, m.INDEX, m.INDEX_SIZE), (self.cells, m.CELLS, m.NUM_CELLS),
            (self.steps, m.STEPS, m.NUM_STEPS), (self.inputs, m.INPUTS, m.NUM_INPUTS),
            (self.where, m.WHERE, m.WHERE_SIZE),
            (self.wide_space, m.WIDE_SPACE, m.WIDE_SPACE_SIZE),
            (self.wide_index, m.WIDE_INDEX, m.WIDE_INDEX_SIZE),
        ):  # fmt: skip
            self.plan[at], self.plan[size] = address_of(table), len(table)
        self.plan[m.NUMBERS], self.plan[m.STATS] = address_of(self.numbers), address_of(self.stats)

    @property
    def kernels(self) -> set[str]:
        """The kinds of kernels that its steps need."""
        return {KINDS[kind] for kind in self.steps[:, m.KIND].tolist() if kind in KINDS}

    def put_code(self) -> None:
        """Write down where the code for each kind of step is."""
        for step in self.steps:
            kind = KINDS.get(int(step[m.KIND]))
            if kind is not None:
                step[m.CODE] = self._code_of(kind)
        self.lacks_large = "sum" in self.kernels
        for space, index, at in (
            (self.space, self.index, m.RUN), (self.wide_space, self.wide_index, m.RUN_WIDE),
        ):  # fmt: skip
            if len(space):
                self.plan[at] = address_for(run_rows, space, self.ops, 0, 0, index, 0)

    def put_large_code(self) -> None:
        """The same for what sums call where they push along many edges."""
        self.plan[m.LARGE_SUM], self.lacks_large = self._code_of("large_sum"), False

    def _code_of(self, kind: str) -> int:
        zero = self.space.dtype.type(0)
        bits = np.int32(0) if self.space.itemsize == 4 else np.int64(0)
        return address_for(KERNELS[kind], 0, 0, 0, 0, 0, zero, bits)

    def _never_runs(self, e: Any) -> bool:
        """Whether the machine has nothing to do at a step, whatever changes."""
        if e.is_given:
            return e.out.domain is not Domain.NODE or e.out.tensor.dtype != self._dtype
        return e.out in self._constants

    def _cell(self, cell: Cell) -> int:
        return self.at.setdefault(cell, len(self.at))

    def _give_room(self, cell: Cell, row: Any) -> None:
        """Room for what changes in a cell. It costs nothing before it is used."""
        sample = cell.rows if cell.stored else self._samples.get(cell)
        width = 0 if sample is None else sample.shape[1:].numel()
        row[m.WIDE] = sample is not None and sample.dtype == torch.float64 != self._dtype
        dtype, fresh, old = (self.wide_space if row[m.WIDE] else self.space).dtype, None, None
        has_fresh = not cell.stored and sample is not None
        kept = max(width * (cell.keeps_old + has_fresh), 1)
        room = min(self.nodes.scratch.size, max(MOST // kept, 1))
        ids = self._zeros(np.int64, room)
        row[m.WIDTH], row[m.BY_VALUE], row[m.ROOM] = width, cell.compares_values, room
        row[m.IDS] = address_of(ids)
        if cell.keeps_old:
            old = self._zeros(dtype, room, width)
            row[m.OLD] = address_of(old)
        if has_fresh:
            fresh = self._zeros(dtype, room, width)
            row[m.FRESH] = address_of(fresh)
        self._rooms[cell] = ids, old, fresh
        self.ids.append(ids)

    def _share_room(self, e: Any) -> None:
        """What other processes send comes behind what changed in the value that is exchanged."""
        source, out = self.at[e.source], self.at[e.out]
        self._rooms[e.source], self.ids[source] = self._rooms[e.out], self.ids[out]
        for column in (m.ROOM, m.IDS, m.OLD):
            self.cells[source, column] = self.cells[out, column]

    # Where rows are ------------------------------------------------------------------------------

    def locate(self) -> None:
        """Write down where the rows of all cells and aggregations are now."""
        self.nodes = self._widest()
        scratch = self.nodes.scratch
        if self.where.size < scratch.size:
            self.where = self._zeros(np.int64, scratch.size)
            self.plan[m.WHERE], self.plan[m.WHERE_SIZE] = address_of(self.where), self.where.size
        self.plan[m.STAMP], self.plan[m.NUM_ROWS] = address_of(scratch.stamp), scratch.size
        self.plan[m.TOUCHED] = address_of(scratch.touched)
        for cell, at in self.at.items():
            row = self.cells[at]
            if cell.stored and cell.array is not None:
                row[m.ROWS], row[m.CAPACITY] = address_of(cell.array), cell.array.shape[0]
        for step, e in zip(self.steps, self.executors, strict=True):
            if e.gathers:
                e.locate(step)

    def count_nodes(self) -> None:
        """Write down how many nodes there are now, and which are new."""
        counts = self.cells[:, m.NODES : m.FIRST_NEW + 1]
        for nodes, cells in self._of_kind:
            np.copyto(counts, (nodes.num_nodes, nodes.first_new), where=cells[:, None])

    def room_of(self, step: int) -> int:
        """Rows that may change of what a step computes."""
        return int(self.cells[self.steps[step, m.OUT], m.ROOM])

    def width_of(self, step: int) -> int:
        """Elements of a row of what a step computes."""
        return int(self.cells[self.steps[step, m.OUT], m.WIDTH])

    def inputs_of(self, step: int) -> frozenset[int]:
        """The cells that a map reads; none of any other step."""
        return self._inputs_of[step]

    def reads_fresh(self, step: int) -> bool:
        """Whether a map reads rows that are not stored, and stand in the order of their ids."""
        return any(self.cells[c, m.FRESH] for c in self._inputs_of[step])

    def fresh_of(self, cell: Cell) -> torch.Tensor:
        """Room for the new rows of a value that is not stored."""
        fresh = self._rooms[cell][2]
        return torch.from_numpy(fresh).view(len(fresh), *self._samples[cell].shape[1:])

    # What threads have done ----------------------------------------------------------------------

    def hold_ids(self, step: int, rows: Any) -> bool:
        """Say which rows of a step changed; returns whether there is room for them."""
        at = int(self.steps[step, m.OUT])
        fits = len(rows) <= self.room_of(step)
        room = self.ids[at] if fits else self.nodes.scratch.touched
        room[: len(rows)] = rows
        self.cells[at, m.COUNT] = len(rows) if fits else -len(rows)
        return fits

    def close_gaps(self, step: int, first: Sequence[int], changed: Sequence[int]) -> None:
        """Move up what stands from `first[p]` on, `changed[p]` rows of a step for each thread."""
        at = int(self.steps[step, m.OUT])
        cell = next(c for c, place in self.at.items() if place == at)
        count = changed[0]
        for begin, more in zip(first[1:], changed[1:], strict=False):
            for rows in self._rooms[cell]:
                if rows is not None and count < begin:
                    rows[count : count + more] = rows[begin : begin + more].copy()
            count += more
        self.cells[at, m.COUNT] = count

    # Results -------------------------------------------------------------------------------------

    def changed(self, cell: Cell) -> tuple[Any, Any, Any]:
        """Ids, OLD rows and new rows of a cell; the last two only where the machine has them."""
        at = self.at.get(cell)
        count = 0 if at is None else int(self.cells[at, m.COUNT])
        if not count:
            return None, None, None
        if count < 0:
            return self.nodes.scratch.touched[:-count], None, None
        ids, old, fresh = self._rooms[cell]
        new = None if fresh is None else self.fresh_of(cell)[:count]
        return ids[:count], None if old is None else old[:count], new

    def take(self, cell: Cell) -> bool:
        """Take what an executor has done to a cell; returns whether there is room for it."""
        at, ids = self.at.get(cell), cell.ids
        if at is None or ids is None:
            return True
        count, (room, old, _) = ids.count, self._rooms[cell]
        width = cell.array.shape[-1] if cell.array.ndim > 1 else 1
        if count > len(room) or cell.has_lost_old or width != self.cells[at, m.WIDTH]:
            return False
        room[:count] = ids.array
        if old is not None:
            old[:count] = cell.old[:count]
        self.cells[at, m.COUNT] = count
        return True

    def hand_over(self, cells: Sequence[Cell]) -> None:
        """Tell cells what the machine has done to them.

        Rows that are not stored are known by the object that says which they are, so those of the
        same nodes share one, as they do where no machine runs.
        """
        for cell in cells:
            if cell.ids is not None:  # an executor has said so, or it was handed over before
                continue
            ids, old, fresh = self.changed(cell)
            if ids is None:
                continue
            cell.ids = cell.backend.ids_from(ids.copy())
            cell.old = cell.old if old is None else old
            cell.fresh = fresh
            if not cell.stored:
                same = (known for known in self._shared if np.array_equal(known.array, ids))
                cell.ids = next(same, cell.ids)
                self._shared.append(cell.ids)

    def begin(self) -> None:
        """Another update begins."""
        if self._shared:
            self._shared = []
