"""Updates that touch few rows, in one call of compiled code.

The executors of an engine are interpreted: each step is a handful of Python calls, which cost more
than the work of a small update. The plan is therefore also laid out in tables that one compiled
function goes through (see `kernels.compiled.machine`). That needs row maps as lists of operations
(`row_ops`), and aggregations whose messages are stored rows. Where a plan has something else, or an
update reaches many rows, the executors go on from the step at which the machine stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.aggregate import Aggregator
from pyg_incremental.edge_store import EdgeEvents
from pyg_incremental.executors import InputExecutor, MapExecutor
from pyg_incremental.fast_path.tables import Tables
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.kernels.compiled.layout import INPUT, KIND
from pyg_incremental.kernels.compiled.machine import SPARE, run
from pyg_incremental.store import Backend, NodeSet
from pyg_incremental.update import Work

_NO_IDS = np.empty(0, np.int64)


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
        is_worth_it: Whether it runs any aggregation.
    """

    def __init__(
        self, executors: Sequence[Any], nodes: NodeSet, graph: DynamicGraph, backend: Backend
    ) -> None:
        self._nodes, self._graph, self._backend = nodes, graph, backend
        self.tables = t = Tables(executors, nodes, backend.like.dtype)
        self._executors = t.executors
        self.aggregators = [e for e in executors[t.known :] if isinstance(e, Aggregator)]
        self.is_worth_it = any(isinstance(e, Aggregator) for e in t.executors)
        self._inputs = {
            e.out.value.name: s for s, e in enumerate(t.executors) if t.steps[s, KIND] == INPUT
        }
        self._names = [(e.out.value.name, _kind_of(e)) for e in t.executors]
        self._no_rows = np.empty((0, 1), t.space.dtype)
        self._zero = t.space.dtype.type(0)
        self._bits = np.int32(0) if t.space.itemsize == 4 else np.int64(0)
        self._moves = -1

    def takes(self, events: EdgeEvents, rows: Mapping[str, tuple[Tensor, Tensor]]) -> bool:
        """Whether an update is plain enough to begin with."""
        if len(events.changed.slots) or len(rows) > 1:
            return False
        for name, (ids, _) in rows.items():
            if name not in self._inputs or ids.shape[0] > self.tables.room:
                return False
        return True

    def run(
        self, events: EdgeEvents, rows: Mapping[str, tuple[Tensor, Tensor]], stats: Work
    ) -> int:
        """Run the steps, as far as the machine can.

        Returns:
            The first step that is left to the executors.
        """
        self._locate()
        tables, scratch, num_nodes = self.tables, self._nodes.scratch, self._nodes.num_nodes
        places = self._graph.places()
        removed, added = events.removed, events.added
        ends = (removed.src, removed.dst, removed.slots, added.src, added.dst, added.slots)
        given, ids, new = -1, _NO_IDS, self._no_rows
        for name, (of, to) in rows.items():
            given, ids, new = self._inputs[name], of.numpy(), self._flat(to)
        step, count = 0, 0
        read: dict[Any, Any] = {}
        while True:
            step, count = run(
                tables.plan, places, step, scratch.epoch, num_nodes, ends, given, ids, new,
                self._zero, self._bits,
            )  # fmt: skip
            scratch.epoch += SPARE * (tables.known + 1)
            if not count or count > tables.room:
                break
            given, ids = step, scratch.touched[:count]
            new = self._flat(self._product(self._executors[step], ids, read))
        stats.append((self._names, tables.stats.copy()))
        return int(step)

    def _locate(self) -> None:
        """See that the machine knows where everything is."""
        if self._moves != self._backend.moves:
            self.tables.locate()
            self._moves = self._backend.moves

    def _product(self, e: MapExecutor, ids: Any, read: dict[Any, Any]) -> Tensor:
        """New rows `ids` of a map with a matrix product.

        `read` keeps the rows of a value, because the next map is often one of the same rows.
        """
        args = []
        for cell in e.inputs:
            if not cell.stored:
                args.append(self.tables.changed(cell)[2])
                continue
            before, rows = read.get(cell, (_NO_IDS, None))
            if before.shape != ids.shape or not np.array_equal(before, ids):
                before, rows = ids.copy(), cell.read(torch.from_numpy(ids))
                read[cell] = before, rows
            args.append(rows)
        new: Tensor = e.fn(*args)
        return new

    def _flat(self, rows: Tensor) -> Any:
        """Rows as the kernels take them."""
        flat = rows if rows.dim() == 2 else rows.reshape(rows.shape[0], rows.shape[1:].numel())
        return flat.contiguous().numpy()

    def hand_over(self, cells: Sequence[Any]) -> None:
        """Tell cells what the machine has done to them."""
        for cell in cells:
            self.tables.hand_over(cell)


def _kind_of(executor: Any) -> str:
    """How the work of a step is called."""
    if isinstance(executor, Aggregator):
        return executor.step.kind
    return "input" if isinstance(executor, InputExecutor) else "map"
