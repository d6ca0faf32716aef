"""The smallest deltas, on a plan that compiled code begins with.

What `FastPath.run_at_once` asks of a delta costs as much as the work of one change. Here it is not
asked again: while nothing has moved since an update that went that way, one call takes the next.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import get_num_threads

from pyg_incremental.delta.resolve.plain import PlainDelta
from pyg_incremental.fused.edge_values import EdgeValues
from pyg_incremental.fused.parts import NEVER, Parts
from pyg_incremental.fused.tables import Tables
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.kernels.compiled.layout import COUNT
from pyg_incremental.kernels.compiled.machine import GRAPH, MANY, SPARE, update
from pyg_incremental.rows import Backend, Cell, NodeSet

FEW = 64
"""Edges that come, edges that leave, and rows that change at most."""


class FewChanges:
    """What a compiled plan does with few changes; see `FastPath`."""

    tables: Tables
    executors: list[Any]
    aggregators: list[Any]
    kinds: Sequence[NodeSet]
    graph: DynamicGraph
    _backend: Backend
    _edge_values: EdgeValues
    inputs: dict[str, int]
    _names: list[tuple[str, str, str]]
    _parts: Parts
    _exchanges: list[Any]
    slots: Any
    _no_rows: Any
    _zero: Any
    _bits: Any
    _placed: tuple[Any, ...]
    _takes_few: bool
    _few_rows: dict[str, int]

    def _rows_at_most(self) -> dict[str, int]:
        """How many rows of each input `run_few` takes."""
        return {name: min(FEW, self.tables.room_of(s)) for name, s in self.inputs.items()}

    @property
    def _num_nodes(self) -> int:
        """All ids are smaller."""
        return max(nodes.num_nodes for nodes in self.kinds)

    @property
    def _begins(self) -> bool:
        """Whether nobody has a part in an update before the machine; executors may stand behind."""
        return not self.aggregators and not self._exchanges

    def takes_few(self, delta: PlainDelta) -> bool:
        """Whether `run_few` may be asked: little changes, and nothing has moved.

        Nodes of the update before are no new ones any more.
        """
        added, gone, name, ids, _, more, data, leave = delta
        if not self._takes_few or leave:
            return False
        if bool(data) != (self._edge_values.are_there and added.shape[1] > 0):
            return False  # what belongs to edges that nobody reads is written on the longer way
        if added.shape[1] > FEW or gone.shape[1] > FEW or len(ids) > self._few_rows.get(name, 0):
            return False
        kinds, moves = self.kinds, self._backend.moves
        if len(kinds) > 1:
            counts = [(nodes.num_nodes,) * 2 for nodes in kinds]
            placed = moves, *[nodes.scratch.size for nodes in kinds], *counts
            return not more and self._placed == placed
        nodes = kinds[0]
        if more:
            return True  # room is made for them, and everything located, see `locate`
        count = nodes.num_nodes, nodes.num_nodes
        if self._placed and self._placed[2] != count:
            nodes.begin_plain()
            self.locate()
        return self._placed == (moves, nodes.scratch.size, count)

    def run_few(self, delta: PlainDelta) -> tuple[int, int] | None:
        """Take a delta that was not looked at yet, in one call, where `takes_few` says so.

        For new nodes there is room, and they begin here.

        Returns:
            The first step that was not done, and why, as `machine.update` says it; None if the
            delta is not valid, or something has to grow. Nothing was changed then.
        """
        added, gone, name, ids, rows, more, *_ = delta
        comes, leaves, graph = added.shape[1], gone.shape[1], self.graph
        scratch, kinds = self.tables.nodes.scratch, self.kinds
        count = kinds[0].num_nodes if len(kinds) == 1 else self._num_nodes
        ready = graph.ready_for(comes, leaves)
        if ready is None:
            return None
        if delta.data:
            self._edge_values.write_ahead(delta, ready, [])
        many = NEVER if more or get_num_threads() == 1 else self._parts.many()
        step, why, used = update(
            self.tables.plan, graph.places(), added, gone, *ready, self.slots, scratch.epoch,
            count, -1 if rows is None else self.inputs[name], ids,
            self._no_rows if rows is None else self.flat(rows), self._zero, self._bits,
            many, GRAPH,
        )  # fmt: skip
        if step < 0:
            return None
        if delta.data:
            self.tables.stats[self._edge_values.steps, :2] = comes
        if more:
            graph.num_nodes += more
        scratch.epoch += SPARE * (len(self.executors) + 1)
        graph.changed(comes, leaves, used)
        return step, why

    @property
    def moves(self) -> int:
        """How often rows were put elsewhere."""
        return self._backend.moves

    def fits(self, delta: PlainDelta) -> bool:
        """Whether there is room for what a delta says, as far as that is not asked of the graph."""
        edges = max(delta.added.shape[1], delta.gone.shape[1])
        given = None if delta.rows is None else self.inputs.get(delta.name, -1)
        if edges >= self.slots.shape[1] or given == -1:
            return False
        return given is None or len(delta.ids) <= self.tables.room_of(given)

    @property
    def kind(self) -> tuple[Any, Any]:
        """A zero of the dtype of rows, and an integer one as wide."""
        return self._zero, self._bits

    @property
    def computes_edge_values(self) -> bool:
        """Whether values of edges that come are computed ahead, which the machine does not do."""
        return bool(self._edge_values.steps)

    @property
    def names(self) -> list[tuple[str, str, str]]:
        """What the work of each step is reported as."""
        return self._names

    @abstractmethod
    def locate(self) -> None:
        """See that the machine knows where everything is."""

    def forget(self) -> None:
        """What was accepted before is none of this update's."""
        self.slots[0, 0] = 0

    def changed_few(self, step: int, cell: Cell) -> Ids | None:
        """The rows of a cell that `run_few` has changed, int64 `[k]` in any order, as a copy.

        None if it did not come to the end but to a step, or if they are many.
        """
        tables = self.tables
        at = tables.at.get(cell)
        if step < len(self.executors) or at is None:
            return None
        count = int(tables.cells[at, COUNT])
        return tables.ids[at][:count].copy() if 0 <= count < MANY else None

    def flat(self, rows: Any) -> Any:
        """Rows as the kernels take them."""
        if rows.dim() != 2:
            rows = rows.reshape(rows.shape[0], rows.shape[1:].numel())
        return rows.contiguous().numpy()

    @property
    def work(self) -> tuple[Any, ...]:
        """What all steps did in an update that the machine has carried to its end."""
        return self._names, self.tables.stats.copy()


def named(executor: Any) -> tuple[str, str, str]:
    """What the work of a step is reported as: its value, its kind, and the way it is done here."""
    name: str = executor.out.value.name
    return name, executor.step.kind, executor.small_way
