"""Updates that touch few rows, in one call of compiled code.

The executors of an engine are interpreted: each step is a handful of Python calls, which cost more
than the work of a small update. The plan is therefore also laid out in tables that one compiled
function goes through (see `kernels.compiled.machine`). That needs row maps as lists of operations
(`row_ops`), and aggregations whose messages are stored rows. Where a plan has something else, or an
update reaches many rows, the executors go on from the step at which the machine stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from pyg_incremental.aggregate import Aggregator
from pyg_incremental.edge_store import EdgeEvents
from pyg_incremental.fast_path.tables import Tables
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.kernels.compiled import machine
from pyg_incremental.executors import InputExecutor
from pyg_incremental.store import Backend, NodeSet
from pyg_incremental.update import Work

_NO_IDS = np.empty(0, np.int64)
_INT = np.empty(1, np.int32)


class FastPath:
    """The compiled plan of one engine.

    Args:
        executors: Those of node values, in order.
        nodes: The only kind of nodes.
        graph: The only graph.
        backend: Its arrays; compiled.

    Attributes:
        aggregators: Those that the machine does not run; they have to retract and insert edges
            before it does.
    """

    is_possible: ClassVar[bool] = True  # XXX

    def __init__(
        self, executors: Sequence[Any], nodes: NodeSet, graph: DynamicGraph, backend: Backend
    ) -> None:
        self._nodes, self._graph, self._backend = nodes, graph, backend
        self._executors = executors
        self.tables = t = Tables(executors, backend.like.dtype)
        known = t.executors
        self.is_worth_it = any(isinstance(e, Aggregator) for e in known)
        self.aggregators = [e for e in executors[t.known :] if isinstance(e, Aggregator)]
        self._inputs = {
            e.out.value.name: at for at, e in enumerate(known) if t.steps[at, machine.KIND] == machine.INPUT
        }
        self._names = [(e.out.value.name, _kind_of(e)) for e in known]
        self._where = np.empty(machine.ROOM, np.int64)
        self._no_rows = np.empty((0, 1), t.space.dtype)
        self._out = self._inn = None
        self._moves = -1

    def takes(self, events: EdgeEvents, rows: Mapping[str, tuple[Tensor, Tensor]]) -> bool:
        """Whether an update is small and plain enough to begin with."""
        if len(events.changed.slots) or len(rows) > 1:
            return False
        for name, (ids, _) in rows.items():
            if name not in self._inputs or ids.shape[0] > machine.ROOM:
                return False
        return True

    def run(
        self, events: EdgeEvents, rows: Mapping[str, tuple[Tensor, Tensor]], stats: Work
    ) -> int:
        """Run the steps, as far as the machine can.

        Returns:
            The first step that is left to the executors.
        """
        tables, graph, nodes = self.tables, self._graph, self._nodes
        if self._moves != self._backend.moves:
            tables.locate()
            self._moves = self._backend.moves
        if graph.out is not self._out or graph.inn is not self._inn:
            self._out, self._inn = graph.out, graph.inn
            tables.locate_graph((graph.out, graph.inn))
        given, given_ids, given_rows = -1, _NO_IDS, self._no_rows
        for name, (ids, new) in rows.items():
            given = int(tables.steps[self._inputs[name], machine.OUT])
            given_ids = ids.numpy()
            given_rows = new.contiguous().view(len(given_ids), -1).numpy()
        scratch = nodes.scratch
        removed, added = events.removed, events.added
        tables.stats[:] = 0
        done: int = machine.run(
            tables.space, tables.bits, tables.ops, tables.index, tables.cells, tables.steps,
            tables.numbers, tables.inputs, tables.graph, scratch.stamp, scratch.touched,
            scratch.epoch, nodes.num_nodes,
            (removed.src, removed.dst, removed.slots, added.src, added.dst, added.slots),
            given, given_ids, given_rows, self._where, tables.stats, _INT,
        )  # fmt: skip
        scratch.epoch += 4 * (tables.known + 1)
        stats.append((self._names, tables.stats.copy()))
        return done

    def hand_over(self, cells: Sequence[Any]) -> None:
        """Tell cells what the machine has done to them."""
        touched = self._nodes.scratch.touched
        for cell in cells:
            self.tables.hand_over(cell, touched)


def _kind_of(executor: Any) -> str:
    """How the work of a step is called."""
    if isinstance(executor, Aggregator):
        return executor.step.kind
    return "input" if isinstance(executor, InputExecutor) else "map"
