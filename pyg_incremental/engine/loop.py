"""The executor of a program: a full pass that fills the store, and updates that touch what changed.

One update is five lines:

    edge values of the changed edges are computed
    every aggregation retracts and inserts edges, with the OLD messages
    for each step in order:
        its dirty rows are computed, or its changed messages pushed
        rows that come out as they were leave the dirty set

Where an update is small one call of compiled code goes through all steps, as far as there is room
and it knows them; the executors go on from there.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta.resolve.plain import PlainDelta
from pyg_incremental.engine.storing import steps_and_stored
from pyg_incremental.engine.values import OtherValues
from pyg_incremental.fused import FastPath
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import EdgeEvents, Ids
from pyg_incremental.kernels.threads import Alone
from pyg_incremental.ops import Aggregator
from pyg_incremental.ops.maps import InputExecutor, operator_of
from pyg_incremental.ops.operator import Operator
from pyg_incremental.program.derivations import run_over
from pyg_incremental.program.steps import Domain, Program, Step, Value
from pyg_incremental.rows import NO_EVENTS, NO_IDS, Backend, Cell, Context, NodeSet, Rows
from pyg_incremental.rows.lazy_rows import LazyRows
from pyg_incremental.rows.weakly import weakly
from pyg_incremental.telemetry.progress import PATIENCE, shown
from pyg_incremental.telemetry.work import Work
from pyg_incremental.typing import StoreName

NOTHING: Mapping[str, Tensor] = {}


def _unheard(_: Operator) -> None:
    """Nobody asks how long steps take."""


LARGE = 10_000
"""Edges of a graph that is there to be served: its plan is laid out with the full pass."""


class Engine:
    """Runs one program over its graphs.

    Args:
        program: The program.
        graphs: The graphs by the names of the arguments; the engine reads them, their owner changes
            them.
        num_nodes: The number of nodes of each kind.
        backend: Kernels and arrays.
        accumulate_dtype: In which dtype sums are kept, or None for that of their messages.
        materialize: Makes the graph object, named by its argument, that steps of domain `WHOLE` are
            given.
        compile_after: How many updates after a full pass these get their fast path, on a graph of
            less than `LARGE` edges; None for never. On a larger one they have it from the first on.
        store: Which values are kept between updates; see `steps_and_stored`.
        main: The graph whose small changes get the fast path, if there are several; None for that
            whose edges change when it is made.

    Attributes:
        main: The same, or the only graph.
        fast: The compiled plan; None until it is due, or if it is not worth it.
        stops_at: The first step that compiled code leaves to its executor, and why; empty if it
            knows all of them.
        late: A result whose rows are not copied yet, if it is still held.
        done: Told of each step of an update that goes step by step, once it has run.
    """

    def __init__(
        self,
        program: Program,
        graphs: Mapping[str, DynamicGraph],
        num_nodes: Mapping[str, int],
        backend: Backend,
        accumulate_dtype: torch.dtype | None,
        materialize: Callable[[str], object],
        compile_after: int | None = None,
        store: StoreName = "fast",
        main: str | None = None,
    ) -> None:
        self.program = program
        self.graphs = graphs
        self.main = next(iter(graphs)) if len(graphs) == 1 else main
        self._aside = graphs.keys() - run_over(program)
        self.backend = backend
        self._materialize = materialize
        self.nodes = {kind: NodeSet(backend, count) for kind, count in num_nodes.items()}
        self._contexts: dict[tuple[str, str | None], Context] = {}
        steps, stored = steps_and_stored(program, store, accumulate_dtype is None)
        self.cells = {
            s.output: Cell(
                s.output,
                backend,
                self.nodes[s.output.kind] if s.output.domain is Domain.NODE else None,
            )
            for s in steps
        }
        self.inputs: dict[str, InputExecutor] = {}
        self.aggregators: list[Aggregator] = []
        self.executors = [self._bind(s) for s in steps]
        # Of very many rows a model itself would not take a plain sum in single precision.
        wide = {r.graph for r in program.graphs.values() if r.every}
        for a in self.aggregators:
            of_all = torch.float64 if a.step.graph in wide else None
            a.accumulate_dtype = accumulate_dtype or of_all
        self._is_collective = any(s.is_collective for s in steps)
        self._say_what_cells_are_for(steps, stored)
        self.edge_executors: list[Any] = [
            e for e in self.executors if (e.is_given or e.computes) and e.out.domain is Domain.EDGE
        ]
        changing_with_edges = {e.out for e in self.edge_executors}
        self.node_executors = [e for e in self.executors if e.out not in changing_with_edges]
        self._edge_maps = [e for e in self.node_executors if e.out.domain is Domain.EDGE]
        self._whole_graphs = [e for e in self.inputs.values() if e.is_graph]
        graphs_held = {e.out: e for e in self._whole_graphs}
        for e in self.executors:
            e.take_graphs(graphs_held, self._over)
        self._cells = list(self.cells.values())
        self._dirty = self._cells
        self._sizes: tuple[int, ...] = ()
        self._outputs = [self.cells[v] for v in program.outputs]
        self.late: ref[LazyRows] | None = None
        self.done: Callable[[Operator], object] = _unheard
        self.fast: FastPath | None = None
        self._planned: FastPath | None = None
        self.stops_at = "the first step" if compile_after else ""
        self._alone: AbstractContextManager[None] = Alone()
        if any(cell.maker is not None for cell in self._cells):
            compile_after = None  # compiled code reads stored rows
            self._alone = nullcontext()  # the same number of threads gives the same bits again
        self._wait = self._compile_after = compile_after
        backend.ask_for({"loop", "graph", "rows"}.union(*(e.kernels for e in self.executors)))

    def _say_what_cells_are_for(self, steps: Sequence[Step], stored: Iterable[Value]) -> None:
        """Which rows are kept, of which the OLD ones are asked for, and which only users read."""
        for a in self.aggregators:
            for cell in (self.cells[v] for v in a.step.messages):
                cell.old_if_few = a.pulls and (cell.old_if_few or not cell.keeps_old)
                cell.keeps_old, cell.most = True, max(cell.most, a.most)
        for value in stored:
            self.cells[value].stored = True
        readers = {v for s in steps for v in s.inputs}
        for value in self.program.outputs:
            self.cells[value].compares_values = value not in readers

    def _context(self, kind: str, graph: str | None) -> Context:
        """What steps on these nodes, and over that graph into them, share."""
        found = self._contexts.get((kind, graph))
        if found is None:
            edges = None if graph is None else self.graphs[graph]
            self._contexts[kind, graph] = found = Context(self.nodes[kind], edges, self.backend)
        return found

    def _on(self, kind: str) -> Context:
        """The context of steps on some nodes alone: any one of these nodes."""
        loops = [r.graph for r in self.program.graphs.values() if r.source == r.target == kind]
        return self._context(kind, loops[0] if loops else None)

    def _over(self, graph: str) -> Context:
        """The context of steps on the edges of some graph."""
        relation = next(r for r in self.program.graphs.values() if r.graph == graph)
        return self._context(relation.target, graph)

    def _bind(self, step: Step) -> Operator:
        """What runs a step; an aggregator, or what takes an input, is noted as that."""
        cells, out = self.cells, self.cells[step.output]
        if step.over is not None:
            context = self._context(step.output.kind, step.over[0])
            made: Aggregator = step.bind(cells.__getitem__, context)
            self.aggregators.append(made)
            return made
        if out.domain is Domain.NODE:
            context = self._on(out.value.kind)
        elif out.domain is Domain.EDGE:
            context = self._over(out.value.kind)
        elif out.value in self.program.graphs:
            context = self._over(out.value.name)
        else:
            context = self._on(next(iter(self.nodes)))
        if step.is_given:
            is_graph = out.value in self.program.graphs
            make = partial(self._materialize, out.value.name) if is_graph else None
            taken = self.inputs[out.value.name] = InputExecutor(step, out, context, make)
            return taken
        return operator_of(step, [cells[v] for v in step.inputs], out, context)

    def full(self, inputs: Mapping[str, Tensor], progress: bool = False) -> None:
        """Run every step on all rows and fill the store.

        `inputs` holds the node inputs, `[num_nodes, ...]`, and constants by name.
        """
        self._run(inputs, {*self._cells}, progress)
        self.backend.spare.clear()
        self.lay_out()

    def lay_out(self) -> None:
        """See that small updates of a large graph have their fast path from the first one on."""
        if self._wait and sum(g.num_edges for g in self.graphs.values()) >= LARGE:
            self._wait = 1
            if self.main is not None and not self._is_collective:  # an update of all ranks
                self.update({}, {}, {})  # lays it out, and loads what it is made of

    def take_values(self, given: Mapping[str, Tensor]) -> Callable[[], Work] | None:
        """Take other tensors without rows; rows that come out as they were lead nowhere.

        Args:
            given: New tensors, `[...]` of any shape, by the names of inputs.

        Returns:
            What brings every row up to date, and says what has run; None, and nothing has changed,
            where `renew` is for it.
        """
        values = OtherValues(self.executors, self.inputs, given)
        events = None
        if values.are_followed():
            with values:
                events = values.events(self.edge_executors)
        if events is None:
            return None
        of_edges = events

        def carry_out() -> Work:
            self.interpret()
            values.take()
            done = self.update(of_edges, {}, {}, values=values.cells)
            self._wait = self._compile_after
            return done

        return carry_out

    def renew(self, given: Mapping[str, Tensor]) -> Work:
        """Run again, on all rows, what reads some tensors, and what depends on that.

        Rows are replaced, and never written to: whoever still holds those of before can put them
        back.

        Args:
            given: New tensors, `[...]` of any shape, by the names of inputs.

        Returns:
            What has run.
        """
        wanted = {self.inputs[name].out for name in given}
        read = [(e, [self.cells[v] for v in e.step.inputs]) for e in self.executors]
        for e, cells in read:
            if not wanted.isdisjoint(cells):
                wanted.add(e.out)
        for e, cells in reversed(read):  # and what these read, where it is not kept
            if e.out in wanted:
                wanted |= {c for c in cells if c.domain is not Domain.WHOLE and c.rows is None}
        self._run(given, wanted)
        ran = [(e.out, e.step.kind) for e in self.executors if e.out in wanted]
        return [(c.value.name, kind, n, n, 0, 0) for c, kind in ran if (n := self._count(c))]

    def _count(self, cell: Cell) -> int:
        """How many rows a value has; 0 if it has none."""
        if cell.domain is Domain.EDGE:
            return self.graphs[cell.value.kind].num_edges
        return 0 if cell.nodes is None else cell.nodes.num_nodes

    def _run(self, inputs: Mapping[str, Tensor], wanted: Set[Cell], progress: bool = False) -> None:
        """Make some values, or all, on all rows; see `full`."""
        self.fast, self._planned, self._wait = None, None, self._compile_after
        self.copy_late()
        for nodes in self.nodes.values():
            nodes.begin(nodes.num_nodes, nodes.num_nodes, NO_IDS)
        stats: Work = []
        for context in self._contexts.values():
            context.begin(NO_EVENTS, stats)
        everything = zip(self.executors, self._reads(), strict=True)
        reads = [(e, cells) for e, cells in everything if e.out in wanted]
        left = Counter(cell for _, cells in reads for cell in cells)
        for cell in self._cells:
            cell.reset()
        bar = shown(
            progress, total=len(reads), desc="all rows", unit=" steps", delay=PATIENCE, leave=False
        )
        with bar:
            for e, cells in reads:
                if e.is_given:
                    name = e.out.value.name
                    self.inputs[name].take(inputs.get(name))
                e.full()
                bar.update()
                left.subtract(cells)
                for cell in cells:
                    if not left[cell] and not cell.stored:
                        cell.rows = None
        for cell in self._cells:
            cell.reset()

    def _reads(self) -> list[list[Cell]]:
        """What each executor reads when it runs; also finds the values that are read once.

        Such a value is made, a part at a time, by the map that reads it.
        """
        times = Counter(c for e in self.executors for c in e.inputs)
        maps = {e.out: e for e in self.executors if e.computes and e.out.domain is Domain.NODE}
        for e in maps.values():
            for cell in e.inputs:
                cell.is_read_once = cell in maps and times[cell] == 1 and not cell.stored

        def read_by(e: Operator) -> Iterator[Cell]:
            for cell in e.inputs:
                yield from read_by(maps[cell]) if cell.is_read_once else [cell]

        return [[] if e.out.is_read_once else [*read_by(e)] for e in self.executors]

    def give_up(self) -> list[Tensor]:
        """The memory of all rows but inputs and outputs, of which there may be views elsewhere.

        An output that is no row per node may be a view of any. What is given can't be read any
        more.
        """
        if any(v.domain is Domain.WHOLE for v in self.program.outputs):
            return []
        self.copy_late()
        seen: set[Rows] = {*self._outputs, *(e.out for e in self.inputs.values())}
        kept = {c for c in self._cells if c.domain is Domain.NODE}.union(
            *(a.all_rows() for a in self.aggregators)
        )
        given = []
        for rows in kept - seen:
            if rows.rows is not None:
                given.append(rows.rows)
                rows.rows = rows.array = None
        return given

    def restore(self, rows: Mapping[str, Tensor], kept: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Overwrite stored rows, `[n, ...]` by name, after a full pass.

        `kept` are those of the aggregations: by output, then by name.
        """
        self.copy_late()
        for value, cell in self.cells.items():
            if value.name in rows and cell.rows is not None:
                saved = rows[value.name]
                cell.rows[: len(saved)] = saved
        for a in self.aggregators:
            saved_too = kept[a.step.output.name]
            for name, extra in a.extra.items():
                extra.tensor[: len(saved_too[name])] = saved_too[name]
            if a.scale.rows is not None:
                a.scale.hold(saved_too["scale"])
        for a in self.aggregators:
            a.restored()
        for e in self._edge_maps:
            e.full()
        for e in self.executors:  # such as a readout of all nodes, which is no row
            if e.out.domain is Domain.WHOLE and not e.is_given:
                e.full()

    def update(
        self,
        events: Mapping[str, EdgeEvents],
        new_nodes: Mapping[str, int],
        rows: Mapping[str, tuple[Tensor, Tensor]],
        renew: Mapping[str, Tensor] = NOTHING,
        values: Sequence[Cell] = (),
    ) -> Work:
        """Bring every stored row up to date after the graphs have taken `events`.

        Args:
            events: What happened to the edges of each graph.
            new_nodes: How many nodes of each kind are new.
            rows: For each changed node input the distinct ids, int64 `[c]`, and their new rows,
                `[c, ...]`, new nodes included.
            renew: Rows of every aggregation to make afresh, int64 `[k]` for each kind of nodes.
            values: What has no rows and is another one now; see `take_values`.
        """
        self.copy_late()
        if self._aside:
            events = {name: e for name, e in events.items() if name not in self._aside}
        for kind, nodes in self.nodes.items():
            first_new = nodes.num_nodes
            nodes.begin(first_new + new_nodes.get(kind, 0), first_new, renew.get(kind, NO_IDS))
        stats: Work = []
        fast = self.fast if self._wait == 0 else self._compile(events)
        if fast is not None and not renew:
            happened = events.get(self.main or "", NO_EVENTS)
            if len(events) <= (self.main in events) and fast.takes(happened, rows):
                self._update_few(fast, events, happened, rows, stats)
                return stats
        num_events = self._begin(events, stats)
        if not (num_events or new_nodes or rows or renew or values or self._is_collective):
            return stats  # where others may send something, they wait for this process, too
        for cell in values:
            cell.dirty = True
        with self._alone:
            if new_nodes or num_events:
                self._grow()
                for edge_executor in self.edge_executors:
                    edge_executor.edges_changed()
                    self.done(edge_executor)
                for a in self.aggregators:
                    a.edges_changed()
                    self.done(a)
            for name, given in rows.items():
                self.inputs[name].given = given
            for e in self.node_executors:
                e.rows_changed()
                self.done(e)
        return stats

    def _begin(self, events: Mapping[str, EdgeEvents], stats: Work) -> int:
        """Tell contexts and cells that an update begins; returns the number of edge events."""
        num_events = 0
        for (_, graph), context in self._contexts.items():
            context.begin(events.get(graph or "", NO_EVENTS), stats)
            num_events += context.num_events
        self._clean()
        return num_events

    def _clean(self) -> None:
        """Let cells forget the update before."""
        for cell in self._dirty:
            if not cell.is_clean:
                cell.reset()
        self._dirty = self._cells

    def _grow(self) -> None:
        """See that all rows have room for the nodes and edges that there are now."""
        nodes, graphs = self.nodes, self.graphs
        sizes = (
            *(n.scratch.size for n in nodes.values()),
            *(g.slot_capacity for g in graphs.values()),
        )
        if sizes == self._sizes:
            return
        for cell in self._cells:
            if cell.nodes is not None:
                cell.grow(cell.nodes.scratch.size)
            elif cell.domain is Domain.EDGE:
                cell.grow(graphs[cell.value.kind].slot_capacity)
        for a in self.aggregators:
            a.grow()
        self._sizes = sizes

    def make_room(self, new_nodes: Mapping[str, int]) -> None:
        """See that all rows have room for the edges that there is room for, and for more nodes.

        Args:
            new_nodes: How many nodes of each kind are about to come.
        """
        before = {kind: nodes.scratch.parts() for kind, nodes in self.nodes.items()}
        try:
            for kind, nodes in self.nodes.items():
                nodes.make_room(nodes.num_nodes + new_nodes.get(kind, 0))
            self._grow()
            if self.fast is not None:
                self.fast.locate()
        except Exception:
            for kind, nodes in self.nodes.items():
                nodes.scratch.put_back(before[kind])  # else later updates would ask for room
            raise

    # In compiled code -----------------------------------------------------------------------------

    def _compile(self, events: Mapping[str, EdgeEvents]) -> FastPath | None:
        """The fast path, once it is due: it takes time to make, and not everybody needs it.

        Of several graphs it is for the one whose edges change then.
        """
        if self._wait is None:
            return None
        self._wait -= 1
        if self._wait > 0:
            return None
        self.backend.poll()  # ranks do not look for kernels before an update
        if self.backend.is_compiled and not self.backend.serves_compiled:
            self._wait = 1  # the machine is not there yet; ask again before the next update
            return None
        if self.main is None and len(self.graphs) > 1 and len(events) != 1:
            self._wait = 1
            return None
        self.main = self.main or next(iter(events), None)
        self._wait = 0
        if self.backend.is_compiled and self.main is not None:
            kinds, graph = [*self.nodes.values()], self.graphs[self.main]
            fast = self._planned or FastPath(
                self.node_executors, self.edge_executors, kinds, graph, self.backend,
                weakly(self._begin_others),
            )  # fmt: skip
            self._planned, self.stops_at = None, fast.tables.why
            if not fast.is_worth_it:
                return None
            self.backend.ask_for(fast.tables.kernels)  # some are only known by now
            if not self.backend.serves_compiled:
                self._planned, self._wait = fast, 1
                return None
            fast.tables.put_code()
            self.fast = fast
        return self.fast

    def _update_few(
        self,
        fast: FastPath,
        events: Mapping[str, EdgeEvents],
        happened: EdgeEvents,
        rows: Mapping[str, tuple[Tensor, Tensor]],
        stats: Work,
    ) -> None:
        """One call of compiled code, and the executors from where it stops."""
        self._clean()
        self._grow()
        fast.share()
        if events and (self.edge_executors or fast.aggregators):
            self._begin(events, stats)
            with torch.no_grad(), self._alone:
                for e in self.edge_executors:
                    if e.is_given or e not in fast.tables.edge_maps:
                        e.edges_changed()
                for a in fast.aggregators:
                    a.edges_changed()
        done = fast.run(happened, rows, stats)
        if done == len(fast.executors):
            self._finish(fast)
        else:
            self._go_on(fast, done, events, stats)

    def copy_late(self) -> None:
        """What is stored is about to change: copy what somebody was told to have a copy of."""
        if self.late is not None:
            late = self.late()
            if late is not None:
                late.rows()
            self.late = None

    def interpret(self) -> None:
        """From here on go step by step, whatever `compile_after` says."""
        self.fast = self._wait = None

    def update_at_once(self, delta: PlainDelta) -> Work | None:
        """Change the graph, and bring every stored row up to date, in one call of compiled code.

        It is two calls if unknown steps need something in between.

        Returns:
            The work; None if the delta is not valid, or too large. Nothing was changed then.
        """
        fast = self.fast
        if fast is None:
            return None
        self.copy_late()
        stats: Work = []
        if fast.aggregators:
            return stats if self._update_in_two(fast, delta, stats) else None
        if delta.more:
            self.make_room_for(delta.more)
        else:
            for nodes in self.nodes.values():
                nodes.begin_plain()
        self._clean()
        done = fast.run_at_once(delta, stats)
        if done is None:
            if delta.more:
                self.forget_new()
            return None
        self._end_of(fast, done, delta, stats)
        return stats

    def begin_trial(self, more: int, edges: int) -> FastPath | None:
        """See that there is room for deltas which are only tried, and that everything is located.

        Args:
            more: How many nodes are new in each.
            edges: How many edges come and leave at most.

        Returns:
            What may carry them out, and then `end_trial` comes last; None where that takes more
            than compiled code, and nothing has begun.
        """
        fast = self.fast
        if fast is None or not fast.is_alone:
            return None
        self.copy_late()
        if more:
            self.make_room_for(more)
        else:
            for nodes in self.nodes.values():
                nodes.begin_plain()
        self._clean()
        fast.locate()
        fast.tables.saved_rows.make_room(edges)
        return fast

    def run_trial(self, fast: FastPath, delta: PlainDelta) -> bool:
        """Change the graph and every stored row, in one call.

        Whatever becomes of it, the caller puts back what was there.

        Returns:
            Whether that was all; else the delta is not valid, too large, or not for compiled code.
        """
        if fast.run_few(delta) != (len(fast.executors), 0):
            return False
        self._finish(fast)
        return True

    def end_trial(self, more: int) -> None:
        """Forget what was tried, so many new nodes included."""
        self._clean()
        if more:
            self.forget_new()

    def go_on_few(self, delta: PlainDelta, step: int, why: int) -> Work:
        """Bring an update that `FastPath.run_few` has begun to its end; returns the work."""
        fast = self.fast
        assert fast is not None
        if not delta.more:
            for nodes in self.nodes.values():
                nodes.begin_plain()
        self._clean()
        fast.begin()
        stats: Work = []
        self._end_of(fast, fast.go_on(delta, step, why, stats), delta, stats)
        return stats

    def make_room_for(self, more: int) -> None:
        """See that there is room for new nodes of the only kind, which begin here."""
        for kind, nodes in self.nodes.items():
            for graph in self.graphs.values():
                graph.make_node_room(nodes.num_nodes + more)
            self.make_room({kind: more})
            nodes.begin(nodes.num_nodes + more, nodes.num_nodes, NO_IDS)

    def forget_begun(self, num_nodes: Mapping[str, int]) -> None:
        """An update has not begun after all; there are so many nodes of each kind."""
        for kind, nodes in self.nodes.items():
            if nodes.num_nodes != num_nodes[kind]:
                nodes.begin(num_nodes[kind], num_nodes[kind], NO_IDS)

    def forget_new(self) -> None:
        """The new nodes have not come after all."""
        for nodes in self.nodes.values():
            nodes.begin(nodes.first_new, nodes.first_new, NO_IDS)

    def _update_in_two(self, fast: FastPath, delta: PlainDelta, stats: Work) -> bool:
        """The same where aggregations that the machine does not know see the edges first."""
        events = fast.change_graph(delta)
        if events is None:
            return False
        for nodes in self.nodes.values():
            nodes.begin(nodes.num_nodes + delta.more, nodes.num_nodes, NO_IDS)
        rows = {}
        if delta.rows is not None:
            rows[delta.name] = torch.from_numpy(delta.ids), delta.rows
        has_events = events.removed.slots.size or events.added.slots.size
        self._update_few(fast, self._on_main(events) if has_events else {}, events, rows, stats)
        return True

    def _on_main(self, events: EdgeEvents) -> dict[str, EdgeEvents]:
        """What happened to the edges, by graph."""
        assert self.main is not None
        return {self.main: events}

    def slots_at_once(self, delta: PlainDelta) -> tuple[Ids, Ids] | None:
        """The slots of the edges that leave and of those that come in an update at once.

        None if it was not accepted yet; nothing has changed then.
        """
        fast = self.fast
        if fast is None or not fast.has_accepted:
            return None
        events = fast.events_of(delta)
        return events.removed.slots, events.added.slots

    def _end_of(self, fast: FastPath, done: int, delta: PlainDelta, stats: Work) -> None:
        """Whatever compiled code has left of an update at once, which came as far as `done`."""
        if done == len(fast.executors):
            self._finish(fast)
        else:
            self._go_on(fast, done, self._on_main(fast.events_of(delta)), stats)

    def _finish(self, fast: FastPath) -> None:
        """Compiled code has come to the end."""
        fast.tables.hand_over(self._outputs)
        if not fast.torch_steps.has_begun:
            self._dirty = self._outputs  # it forgets by itself

    def _go_on(
        self, fast: FastPath, done: int, events: Mapping[str, EdgeEvents], stats: Work
    ) -> None:
        """The executors from where compiled code has stopped."""
        if not fast.torch_steps.has_begun:
            self._begin_on(events, stats)
        fast.tables.hand_over(self._cells)
        happened = events.get(self.main or "", NO_EVENTS)
        fast.tables.saved_rows.hand_over(done, *(np.stack([e.src, e.dst]) for e in happened[:2]))
        with torch.no_grad(), self._alone:
            for executor in fast.executors[done:]:
                executor.rows_changed()

    def _begin_others(self, events: EdgeEvents, stats: Work) -> None:
        """Executors are about to run in the midst of compiled code."""
        happened = events.removed.slots.size or events.added.slots.size
        self._begin_on(self._on_main(events) if happened else {}, stats)

    def _begin_on(self, events: Mapping[str, EdgeEvents], stats: Work) -> None:
        """Tell executors, graphs as objects included, of which the machine does not know."""
        self._begin(events, stats)
        for graph in self._whole_graphs:
            graph.rows_changed()
