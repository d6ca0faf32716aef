"""The executor of a program: a full pass that fills the store, and updates that touch what changed.

One update is five lines:

    edge values of the changed edges are computed
    every aggregation retracts and inserts edges, with the OLD messages
    for each step in order:
        its dirty rows are computed, or its changed messages pushed
        rows that come out as they were leave the dirty set
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.aggregate import Aggregate, Aggregator
from pyg_incremental.edge_store import EdgeEvents
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.plan import plan
from pyg_incremental.program import Domain, Ones, Program, RowMap, Step, Whole
from pyg_incremental.store import NO_EVENTS, NO_IDS, Backend, Cell, Context, Ids
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


class InputExecutor:
    """Takes what the user hands in."""

    def __init__(
        self, step: Step, out: Cell, context: Context, materialize: Callable[[], object] | None
    ) -> None:
        self.step, self.out, self.context = step, out, context
        self._materialize = materialize
        self._first: Tensor | None = None
        self.given: tuple[Tensor, Tensor] | None = None

    @property
    def is_graph(self) -> bool:
        """Whether this input is the graph itself."""
        return self._materialize is not None

    def take(self, tensor: Tensor | None) -> None:
        """Hand in the tensor for the next full pass."""
        self._first = tensor

    def full(self) -> None:
        """Store what was handed in."""
        out = self.out
        if out.domain is Domain.EDGE:
            out.hold(self.context.graph.edge_data[out.value.name])
        elif self._materialize is not None:
            out.content, out.dirty = None, True
        elif self._first is not None:
            if out.domain is Domain.NODE:
                out.put(self._first, self.context.capacity)
            else:
                out.content = self._first
        self._first = None

    def edges_changed(self) -> None:
        """The graph has written the new rows; see which of the changed edges really differ."""
        out, events = self.out, self.context.events
        data = self.context.graph.edge_data[out.value.name]
        if data is not out.rows:
            out.hold(data)
        if len(events.changed.slots):
            out.old_changed = events.overwritten.get(out.value.name)

    def rows_changed(self) -> None:
        """Write the new rows of the delta."""
        out, context = self.out, self.context
        if self._materialize is not None:
            out.dirty = context.num_nodes > context.first_new or context.num_events > 0
            if out.dirty:
                out.content = None
        if self.given is not None:
            ids, rows = context.backend.ids(self.given[0]), self.given[1]
            changed = out.commit(ids, rows, context.first_new)
            context.stats.append((out.value.name, "input", ids.count, changed, 0, 0))
            self.given = None

    def object(self) -> object:
        """The graph, in the format in which it was handed in."""
        if self.out.content is None and self._materialize is not None:
            self.out.content = self._materialize()
        return self.out.content


class OnesExecutor:
    """One for every node."""

    def __init__(self, step: Step, out: Cell, context: Context) -> None:
        self.out, self.context = out, context

    def full(self) -> None:
        """Store a one for every node."""
        like = self.context.backend.like
        self.out.put(like.new_ones(self.context.num_nodes, 1), self.context.capacity)

    def rows_changed(self) -> None:
        """Give new nodes their one."""
        context, out = self.context, self.out
        if context.num_nodes > context.first_new and out.rows is not None:
            ids = context.backend.ids(torch.arange(context.first_new, context.num_nodes))
            out.commit(ids, out.rows.new_ones(ids.count, 1), context.first_new)


class MapExecutor:
    """Runs a row map: on all rows once, then where an input is dirty."""

    def __init__(self, step: RowMap, inputs: list[Cell], out: Cell, context: Context) -> None:
        self.step, self.inputs, self.out, self.context = step, inputs, out, context
        self.fn = step.fn
        self.rowed = [c for c in inputs if c.domain is not Domain.WHOLE]

    def full(self) -> None:
        """Compute all rows."""
        out = self.out
        count = (
            self.context.num_nodes
            if out.domain is Domain.NODE
            else self.context.graph.slot_capacity
        )
        args = [c.content if c.domain is Domain.WHOLE else c.whole(count) for c in self.inputs]
        result = self.fn(*args)
        if out.domain is Domain.WHOLE:
            out.content = result
        elif out.stored:
            out.put(result, self.context.capacity if out.domain is Domain.NODE else count)
        else:
            out.rows = result

    def edges_changed(self) -> None:
        """An edge value: compute the rows of added and changed edges."""
        out, events = self.out, self.context.events
        backend = self.context.backend
        changed = any(c.old_changed is not None for c in self.rowed)
        slots = backend.ids_from(events.added.slots).tensor
        if changed:
            again = backend.ids_from(events.changed.slots).tensor
            out.old_changed = out.read(again)
            slots = torch.cat([slots, again])
        if not len(slots):
            return
        args = [c.content if c.domain is Domain.WHOLE else c.read(slots) for c in self.inputs]
        out.tensor[slots] = self.fn(*args)
        self.context.stats.append((out.value.name, "map", len(slots), len(slots), 0, 0))

    def rows_changed(self) -> None:
        """Compute the rows where an input changed."""
        context, out = self.context, self.out
        sets: list[Ids] = []
        shared: Ids | None = None
        everywhere = False
        for cell in self.inputs:
            ids = cell.ids
            if ids is not None:
                if ids not in sets:
                    sets.append(ids)
                if not cell.stored:
                    shared = ids
            everywhere |= cell.dirty
        if not sets and not everywhere and context.renew_ids is None:
            return
        if context.renew_ids is not None:
            sets.append(context.renew_ids)
        if out.domain is Domain.WHOLE:
            if everywhere:
                out.content, out.dirty = self.fn(*(c.content for c in self.inputs)), True
            return
        if everywhere:
            ids = context.all_nodes
        elif not sets:
            return
        else:
            # An input that is not stored was computed at all rows that are dirty here (see `plan`).
            ids = context.unite(sets) if shared is None else shared
        args = []
        for cell in self.inputs:
            if cell.ids is ids and cell.fresh is not None:
                args.append(cell.fresh)
            else:
                args.append(cell.content if cell.domain is Domain.WHOLE else cell.gather(ids))
        new = self.fn(*args)
        count = changed = ids.count
        if out.stored:
            changed = out.commit(ids, new, context.first_new)
        else:
            out.ids, out.fresh = ids, new
        context.stats.append((out.value.name, "map", count, changed, 0, 0))


class WholeExecutor:
    """Runs a step on all rows whenever an input changed."""

    def __init__(self, step: Whole, inputs: list[Cell], out: Cell, context: Context) -> None:
        self.step, self.inputs, self.out, self.context = step, inputs, out, context
        self.graph_input: InputExecutor | None = None

    def _compute(self) -> Any:
        context = self.context
        args: list[Any] = []
        for cell in self.inputs:
            if cell.domain is Domain.NODE:
                # A copy: the step may write to it, or return a view.
                args.append(cell.whole(context.num_nodes).clone())
            elif cell.domain is Domain.EDGE:
                args.append(cell.read(torch.from_numpy(context.graph.slots_for_model())))
            elif self.graph_input is not None and cell is self.graph_input.out:
                args.append(self.graph_input.object())
            else:
                args.append(cell.content)
        return self.step.fn(*args)

    def full(self) -> None:
        """Run once, on all rows."""
        result = self._compute()
        if self.out.domain is Domain.NODE:
            self.out.put(result, self.context.capacity)
        else:
            self.out.content = result

    def rows_changed(self) -> None:
        """Run on all rows again if an input changed."""
        context, out = self.context, self.out
        graph_changed = context.num_events > 0 and any(c.domain is Domain.EDGE for c in self.inputs)
        if not graph_changed and not any(c.dirty or c.ids is not None for c in self.inputs):
            return
        result = self._compute()
        rows = context.num_nodes
        changed = rows
        if out.domain is Domain.NODE:
            old = out.tensor
            if result.dtype != old.dtype or result.shape[1:] != old.shape[1:]:
                out.put(result, context.capacity)  # such as distances to all nodes
                out.ids = context.all_nodes
            else:
                changed = out.commit(context.all_nodes, result, context.first_new)
        else:
            out.dirty = not _same(result, out.content)
            out.content, changed = result, rows if out.dirty else 0
        edges = context.graph.num_edges if self.graph_input is not None else 0
        context.stats.append((out.value.name, "whole", rows, changed, edges, 0))


def _same(a: Any, b: Any) -> bool:
    """Whether a value of domain `WHOLE` came out as it was."""
    if isinstance(a, (int, float, torch.Size)):
        return type(a) is type(b) and bool(a == b)
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    if a.shape != b.shape or a.dtype != b.dtype or a.layout is not torch.strided:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())
