"""The executor of a program: a full pass that fills the store, and updates that touch what changed.

One update is five lines:

    edge values of the changed edges are computed
    every aggregation retracts and inserts edges, with the OLD messages
    for each step in order:
        its dirty rows are computed, or its changed messages pushed
        rows that come out as they were leave the dirty set
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from pyg_incremental.aggregate import Aggregate, Aggregator
from pyg_incremental.edge_store import EdgeEvents
from pyg_incremental.executors import InputExecutor, MapExecutor, OnesExecutor, WholeExecutor
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.plan import plan
from pyg_incremental.program import Domain, Ones, Program, RowMap, Step, Whole
from pyg_incremental.store import NO_EVENTS, NO_IDS, Backend, Cell, Context
from pyg_incremental.update import Work


class Engine:
    """Runs one program over one graph.

    Args:
        program: The program.
        graph: The graph; the engine reads it, its owner changes it.
        backend: Kernels and arrays.
        accumulate_dtype: In which dtype sums are kept, or None for that of their messages.
        materialize: Makes the graph object that steps of domain `WHOLE` are given.
    """

    def __init__(
        self,
        program: Program,
        graph: DynamicGraph,
        backend: Backend,
        accumulate_dtype: torch.dtype | None,
        materialize: Callable[[], object],
    ) -> None:
        self.program = program
        self.graph = graph
        self.context = Context(graph, backend)
        self._materialize = materialize
        steps, stored = plan(program)
        self.cells = {s.output: Cell(s.output, backend) for s in steps}
        self.executors = [self._bind(s) for s in steps]
        self.aggregators = [e for e in self.executors if isinstance(e, Aggregator)]
        for a in self.aggregators:
            a.accumulate_dtype = accumulate_dtype
            for v in a.step.messages:
                self.cells[v].keeps_old = True
        for value in stored:
            self.cells[value].stored = True
        readers = {v for s in steps for v in s.inputs}
        for value in program.outputs:
            self.cells[value].compares_values = value not in readers
        graph_input = next(
            (e for e in self.executors if isinstance(e, InputExecutor) and e.is_graph), None
        )
        for e in self.executors:
            if isinstance(e, WholeExecutor):
                e.graph_input = graph_input
        self.edge_executors = [
            e
            for e in self.executors
            if isinstance(e, (InputExecutor, MapExecutor)) and e.out.domain is Domain.EDGE
        ]
        self.node_executors = [e for e in self.executors if e.out.domain is not Domain.EDGE]
        self.inputs = {e.out.value.name: e for e in self.executors if isinstance(e, InputExecutor)}
        self._cells = list(self.cells.values())
        self._sizes = (0, 0)

    def _bind(
        self, step: Step
    ) -> "Aggregator | MapExecutor | WholeExecutor | InputExecutor | OnesExecutor":
        cells, context = self.cells, self.context
        out = cells[step.output]
        if isinstance(step, Aggregate):
            return step.bind(cells.__getitem__, context)
        if isinstance(step, RowMap):
            return MapExecutor(step, [cells[v] for v in step.inputs], out, context)
        if isinstance(step, Whole):
            return WholeExecutor(step, [cells[v] for v in step.inputs], out, context)
        if isinstance(step, Ones):
            return OnesExecutor(step, out, context)
        return InputExecutor(
            step, out, context, self._materialize if out.value is self.program.graph else None
        )

    def full(self, inputs: Mapping[str, Tensor]) -> None:
        """Run every step on all rows and fill the store.

        `inputs` holds the node inputs and constants by name.
        """
        context = self.context
        context.begin(NO_EVENTS, self.graph.num_nodes, NO_IDS)
        reads_left: dict[int, int] = {}
        for e in self.executors:
            for cell in getattr(e, "inputs", ()):
                reads_left[id(cell)] = reads_left.get(id(cell), 0) + 1
        for cell in self._cells:
            cell.reset()
        for e in self.executors:
            if isinstance(e, InputExecutor):
                e.take(inputs.get(e.out.value.name))
            e.full()
            for cell in getattr(e, "inputs", ()):
                reads_left[id(cell)] -= 1
                if not reads_left[id(cell)] and not cell.stored:
                    cell.rows = None
        for cell in self._cells:
            cell.reset()

    def restore(self, rows: Mapping[str, Tensor], kept: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Overwrite stored rows by name, after a full pass."""
        for value, cell in self.cells.items():
            if value.name in rows and cell.rows is not None:
                cell.rows[: self.graph.num_nodes] = rows[value.name]
        for a in self.aggregators:
            for name, extra in a.extra.items():
                extra.tensor[: self.graph.num_nodes] = kept[a.step.output.name][name]
            if a.scale.rows is not None:
                a.scale.hold(kept[a.step.output.name]["scale"])
        for a in self.aggregators:
            a.restored()

    def update(
        self,
        events: EdgeEvents,
        first_new: int,
        rows: Mapping[str, tuple[Tensor, Tensor]],
        renew: Tensor = NO_IDS,
    ) -> Work:
        """Bring every stored row up to date after the graph has taken `events`.

        Args:
            events: What happened to the edges.
            first_new: Ids from here on are new nodes.
            rows: For each changed node input the distinct ids and their new rows, new nodes
                included.
            renew: Rows of every aggregation to make afresh.
        """
        context = self.context
        context.begin(events, first_new, renew)
        for cell in self._cells:
            if not cell.is_clean:
                cell.reset()
        if context.num_nodes > first_new or context.num_events:
            if (context.capacity, self.graph.slot_capacity) != self._sizes:
                self._grow()
            for edge_executor in self.edge_executors:
                edge_executor.edges_changed()
            for a in self.aggregators:
                a.edges_changed()
        for name, given in rows.items():
            self.inputs[name].given = given
        for e in self.node_executors:
            e.rows_changed()
        return context.stats

    def _grow(self) -> None:
        nodes, slots = self._sizes = self.context.capacity, self.graph.slot_capacity
        for cell in self._cells:
            cell.grow(slots if cell.domain is Domain.EDGE else nodes)
        for a in self.aggregators:
            for extra in a.extra.values():
                extra.grow(nodes)
