"""Updates that touch few rows, in one call of compiled code.

The executors of an engine are interpreted: each step is a handful of Python calls, which cost more
than the work of a small update. The plan is therefore also laid out in tables that one compiled
function goes through (see `kernels.compiled.machine`). That needs row maps as lists of operations
(`row_ops`), and aggregations whose messages are stored rows. Where a plan has something else, the
executor of that step runs in between; where an update reaches many rows, the executors go on from
the step at which the machine stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor, get_num_threads

from pyg_incremental.delta.resolve.plain import PlainDelta
from pyg_incremental.fused.chain import Chain, chain_from
from pyg_incremental.fused.edge_values import EdgeValues
from pyg_incremental.fused.ends import Ends, edges_of, ends_of, events_of
from pyg_incremental.fused.parts import NEVER, Parts
from pyg_incremental.fused.tables import Tables
from pyg_incremental.fused.torch_steps import Begin, TorchSteps
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import EdgeEvents, Ids
from pyg_incremental.kernels import graph_at
from pyg_incremental.kernels.compiled.kinds import FOR_THREADS, SPARE
from pyg_incremental.kernels.compiled.layout import (
    COUNT,
    EDGE_MAP,
    EXCHANGE,
    INPUT,
    KIND,
    NOTHING,
    ONES,
    OTHER,
)
from pyg_incremental.kernels.compiled.machine import (
    EDGES,
    FOR_OTHERS,
    FOR_RANKS,
    GRAPH,
    MANY,
    arrive,
    update,
)
from pyg_incremental.rows import Backend, Cell, NodeSet, ascending
from pyg_incremental.telemetry.work import Work

_NO_IDS = np.empty(0, np.int64)
_EDGES = 1024
"""Edges that come or leave at most in an update of one call."""
FEW = 64
"""Edges that come, edges that leave, and rows that change at most, for `run_few`."""


class FastPath:
    """The compiled plan of one engine.

    Args:
        executors: Those of node values, in order.
        edge_executors: Those of edge values, which come before.
        kinds: Their nodes.
        graph: The graph whose edges change; where steps go over another one, it stops.
        backend: Its arrays; compiled.
        begin: Called before the first executor runs that does what the machine does not know.

    Attributes:
        executors: All of them, in order.
        aggregators: Those that the machine does not run, and that have to retract and insert edges
            before it does.
        others: The steps that it does not know.
        is_worth_it: Whether it runs any aggregation; and `is_alone` whether it runs every step.
        graph: The graph; likewise `kinds`.
        inputs: The step of each input, by name.
        slots: The slots of edges that left and came, see `graph_at.accept_now`.
    """

    def __init__(
        self,
        executors: Sequence[Any],
        edge_executors: Sequence[Any],
        kinds: Sequence[NodeSet],
        graph: DynamicGraph,
        backend: Backend,
        begin: Begin,
    ) -> None:
        self.kinds, self.graph, self._backend = kinds, graph, backend
        self.executors = [*edge_executors, *executors]
        self.tables = t = Tables(executors, edge_executors, kinds, graph, backend.like.dtype)
        steps = t.steps[:, KIND]
        left = [e for s, e in enumerate(t.executors) if steps[s] == OTHER and e.takes_edges]
        self.aggregators = [e for e in left if e.context.graph is graph]
        self.torch_steps = TorchSteps(t, begin)
        self._edge_values = EdgeValues(edge_executors, graph, t.edge_maps)
        self.is_worth_it = any(e.gathers for s, e in enumerate(t.executors) if steps[s] != OTHER)
        self.inputs = {
            e.out.value.name: s for s, e in enumerate(t.executors) if t.steps[s, KIND] == INPUT
        }
        self._first_input = next(
            (s for s, kind in enumerate(steps) if kind not in (NOTHING, ONES, EDGE_MAP)), -1
        )
        self._told = 0
        self._names = [named(e) for e in t.executors]
        self._no_rows = np.empty((0, 1), t.space.dtype)
        self._zero = t.space.dtype.type(0)
        self._bits = np.int32(0) if t.space.itemsize == 4 else np.int64(0)
        self._parts = Parts(t, backend, self._zero, self._bits)
        self._exchanges = [
            e for e, kind in zip(t.executors, steps, strict=True) if kind == EXCHANGE
        ]
        self._ones = [
            (s, e.out.nodes)
            for s, (e, kind) in enumerate(zip(t.executors, steps, strict=True))
            if kind == ONES
        ]
        self.is_alone = t.known == len(t.executors) and not self._exchanges
        self._takes_few, self._few_rows = self._begins, self._rows_at_most()
        self.slots = np.zeros((2, 1 + _EDGES), np.int64)
        self._located: tuple[int, ...] = ()
        self._placed: tuple[Any, ...] = ()
        self._counted: list[tuple[int, int]] = []

    # The smallest deltas --------------------------------------------------------------------------
    # What `run_at_once` asks of a delta costs as much as the work of one change. Here it is not
    # asked again: while nothing has moved since an update that went that way, one call takes the
    # next.

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
        if delta.data and self.computes_edge_values:
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

    # Updates of more ------------------------------------------------------------------------------

    def takes(self, events: EdgeEvents, rows: Mapping[str, tuple[Tensor, Tensor]]) -> bool:
        """Whether an update is plain enough to begin with; arguments as in `run`."""
        if len(events.changed.slots) or len(rows) > 1:
            return False
        if not all(e.is_shared for e in self._exchanges) or (self._exchanges and self._has_new):
            return False
        # New ghosts come without rows, so no input says that they are too many.
        if any(n.num_nodes - n.first_new > self.tables.room_of(s) for s, n in self._ones):
            return False
        for name, (ids, _) in rows.items():
            step = self.inputs.get(name)
            if step is None or ids.shape[0] > self.tables.room_of(step):
                return False
        return True

    def share(self) -> None:
        """Exchanges have one memory with their input again, which may just have outgrown that."""
        for e in self._exchanges:
            if not e.is_shared:
                e.share()

    def run(
        self, events: EdgeEvents, rows: Mapping[str, tuple[Tensor, Tensor]], stats: Work
    ) -> int:
        """Run the steps, as far as the machine can.

        `rows` are the ids of the changed input, int64 `[c]`, and their new rows, `[c, ...]`.

        Returns:
            The first step that is left to the executors.
        """
        self.begin()
        given, ids, new = -1, _NO_IDS, self._no_rows
        for name, (of, to) in rows.items():
            given, ids, new = self.inputs[name], of.numpy(), self.flat(to)
        edges = edges_of(events)
        self.tables.saved_rows.make_room(edges[0].shape[1] + edges[1].shape[1])
        return self._finish(EDGES, given, ids, new, edges, stats)

    def run_at_once(self, delta: PlainDelta, stats: Work) -> int | None:
        """Take a delta that was not looked at yet, in one call, graph and all.

        Returns:
            What `run` returns; None if the delta is not valid or not plain enough. Nothing was
            changed then.
        """
        added, gone, ids = delta.added, delta.gone, delta.ids
        comes, leaves = added.shape[1], gone.shape[1]
        many = self._many()
        is_large = max(comes + leaves, len(ids)) * self._parts.widest > many
        if max(comes, leaves) > _EDGES and (not is_large or self.tables.is_for_one_thread):
            return None
        ready = self.graph.ready_for(comes, leaves)
        if ready is None or not self._has_room(delta):
            return None
        if comes and self._edge_values.are_there:
            self._edge_values.write_ahead(delta, ready, stats)
        self.begin()
        self.tables.saved_rows.make_room(comes + leaves)
        given, new = -1, self._no_rows
        if delta.rows is not None:
            given, new = self.inputs[delta.name], self.flat(delta.rows)
        if is_large and not self.tables.is_for_one_thread:
            return self._run_beside(delta, ready, given, new, stats)
        scratch = self.tables.nodes.scratch
        step, count, used = update(
            self.tables.plan, self.graph.places(), added, gone, *ready, self.slots,
            scratch.epoch, self._num_nodes, given, ids, new, self._zero, self._bits,
            many, GRAPH,
        )  # fmt: skip
        if step < 0:
            return None
        scratch.epoch += SPARE * (len(self.executors) + 1)
        self.graph.changed(comes, leaves, used)
        self.graph.num_nodes += delta.more
        return self.go_on(delta, step, count, stats)

    def go_on(self, delta: PlainDelta, step: int, count: int, stats: Work) -> int:
        """Run the steps behind the call that has changed the graph, as far as the machine can.

        `step` and `count` are what it returned: the first step that was not done, and why. Returns
        what `run` does.
        """
        self._look_for_code()
        if count:
            given, ids, new = -1, _NO_IDS, self._no_rows
            if delta.rows is not None and self.inputs[delta.name] > step:  # not put yet
                given, ids, new = self.inputs[delta.name], delta.ids, self.flat(delta.rows)
            edges = delta.added, delta.gone, self.slots
            return self._finish(step, given, ids, new, edges, stats, count)
        self._tell(stats, len(self.executors))
        return step

    def change_graph(self, delta: PlainDelta) -> EdgeEvents | None:
        """Take the edges of a delta that was not looked at yet, and make room for its nodes.

        Returns:
            What happened to the edges; None if the delta is not valid or too large. Nothing was
            changed then.
        """
        graph, added, gone = self.graph, delta.added, delta.gone
        comes, leaves, total = added.shape[1], gone.shape[1], graph.num_nodes + delta.more
        ready = graph.ready_for(comes, leaves)
        if ready is None or max(comes, leaves) > _EDGES or not self._has_room(delta):
            return None
        graph.make_node_room(total)
        free, num_free, end, order = ready
        slots = self.slots
        if not graph_at.accept_now(
            graph.places(), added, gone, delta.ids, total, free, num_free, end, slots
        ):
            return None
        events = self.events_of(delta)
        graph.write(events.added.slots, delta.data)
        if comes or leaves:
            taken = self._ends(delta)[5]
            places, left = graph.places(), events.removed.slots
            used = graph_at.change_pairs(places, added, left, taken, order)
            for side in range(2):
                graph_at.change_list(places, side, added, left, taken)
            graph_at.has_changed(free, num_free, slots, comes, leaves)
            graph.changed(comes, leaves, used)
        graph.num_nodes = total
        return events

    def _has_room(self, delta: PlainDelta) -> bool:
        """Whether the machine may begin with the rows of a delta."""
        if not all(e.is_shared for e in self._exchanges) or (self._exchanges and delta.more):
            return False
        given = self.inputs.get(delta.name)
        return delta.rows is None or (
            given is not None and len(delta.ids) <= self.tables.room_of(given)
        )

    def _run_beside(
        self, delta: PlainDelta, ready: tuple[Any, int, int, int], given: int, rows: Any,
        stats: Work,
    ) -> int | None:  # fmt: skip
        """`run_at_once` for many edges: some threads change the graph, others begin.

        To begin, only the ends of the edges have to be known.
        """
        added, gone, places = delta.added, delta.gone, self.graph.places()
        comes, leaves, num_nodes = added.shape[1], gone.shape[1], self._num_nodes
        if self.slots.shape[1] <= max(comes, leaves):
            self.slots = np.zeros((2, 2 * max(comes, leaves) + 1), np.int64)
        free, num_free, end, order = ready
        slots, changed = self.slots, (delta.ids, num_nodes, free, num_free, end)
        if not graph_at.accept_now(places, added, gone, *changed, slots):
            return None
        ends = self._ends(delta)
        left, taken = ends[2], ends[5]
        _, _, used = self._parts.begin(
            places, num_nodes, ends,
            [
                lambda: graph_at.change_list(places, 0, added, left, taken),
                lambda: graph_at.change_list(places, 1, added, left, taken),
                lambda: graph_at.change_pairs(places, added, left, taken, order),
            ],
        )  # fmt: skip
        graph_at.has_changed(free, num_free, slots, comes, leaves)
        self.graph.changed(comes, leaves, used)
        return self._finish(0, given, delta.ids, rows, (added, gone, slots), stats)

    def _ends(self, delta: PlainDelta) -> tuple[Any, ...]:
        """Sources, targets and slots of the edges that leave, and of those that come."""
        return ends_of((delta.added, delta.gone, self.slots))

    @property
    def has_accepted(self) -> bool:
        """Whether `run_at_once` has accepted a delta since `forget`."""
        return bool(self.slots[0, 0])

    def events_of(self, delta: PlainDelta) -> EdgeEvents:
        """What `run_at_once` has done to the edges."""
        return events_of(self._ends(delta))

    def _finish(
        self, step: int, given: int, ids: Any, new: Any, edges: Ends, stats: Work, count: int = 0
    ) -> int:
        """Run the steps from `step` on, where it stopped because `count` rows are for threads."""
        added, gone, slots = edges
        ends = ends_of(edges)
        tables, scratch, num_nodes = self.tables, self.tables.nodes.scratch, self._num_nodes
        parts, places, many = self._parts, self.graph.places(), self._many()
        is_large = given >= 0 and ids.size * tables.width_of(given) > many
        is_shared = is_large or (ends[0].size + ends[3].size) * parts.widest > many
        if step < 0 and is_shared and not tables.is_for_one_thread:
            parts.begin(places, num_nodes, ends)
            step = 0
        if step >= 0 and is_large and given == self._first_input:
            step, given = self._compute(chain_from(tables, given, len(ids)), ids, new), -1
        while count <= 0 or count <= tables.room_of(step):
            if count == FOR_RANKS:
                if not self._exchange(step):
                    break
                step += 1
            elif count == FOR_OTHERS:
                self._tell(stats, step)
                step, fits = self.torch_steps.run(step, events_of(ends), stats)
                self.locate()
                if not fits or step == len(self.executors):
                    break
            elif count == FOR_THREADS:
                fits = parts.total(step, ends)
                step += 1
                if not fits:
                    break
            elif count:
                dirty = scratch.touched[:count].copy()
                if not tables.reads_fresh(step):
                    dirty = ascending(dirty)
                step = self._compute(chain_from(tables, step, count), dirty)
            step, count, _ = update(
                tables.plan, places, added, gone, _NO_IDS, 0, 0, 0, slots, scratch.epoch, num_nodes,
                given, ids, new, self._zero, self._bits, many, step,
            )  # fmt: skip
            scratch.epoch += SPARE * (len(self.executors) + 1)
            if not count:
                break
        self._tell(stats, len(self.executors))
        return int(step)

    def begin(self) -> None:
        """Another update begins."""
        self._look_for_code()
        self.locate()
        self._told = 0
        self.tables.begin()
        self.torch_steps.has_begun = False

    def _look_for_code(self) -> None:
        """See whether the code for large sums is there by now; until then executors do them."""
        if self.tables.lacks_large and self._backend.has(("large_sum",)):
            self.tables.put_large_code()

    def _tell(self, stats: Work, last: int) -> None:
        """Report the work of the steps before `last` that was not reported yet."""
        first, self._told = self._told, last
        stats.append((self._names[first:last], self.tables.stats[first:last].copy()))

    def _compute(self, chain: Chain, ids: Any, given: Any = None) -> int:
        """Compute and put rows of some maps; returns the step behind them.

        `ids` are those of the first one, which is an input if its new rows are `given`.
        """
        self._parts.compute(chain, ids, given)
        return chain[-1].step + 1

    def _exchange(self, step: int) -> bool:
        """Send other processes what changed here, and put what they send.

        Returns whether there is room for it; if not, the executor goes on with what was sent.
        """
        e, tables = self.tables.executors[step], self.tables
        ids, _, _ = tables.changed(e.source)
        here = _NO_IDS if ids is None else ids
        arrived, rows = e.swap(here)
        if here.size + arrived.size > tables.room_of(step):
            e.arrived = arrived, rows
            return False
        arrive(tables.plan, step, arrived, self.flat(rows), self._zero, self._bits)
        return True

    @property
    def _has_new(self) -> bool:
        """Whether there are new nodes."""
        return any(nodes.first_new < nodes.num_nodes for nodes in self.kinds)

    def _many(self) -> int:
        """From more elements on than these a step is one for threads."""
        return NEVER if self._has_new else self._parts.many()

    def locate(self) -> None:
        """See that the machine knows where everything is."""
        places = self._backend.moves, *[nodes.scratch.size for nodes in self.kinds]
        if self._located != places:
            self.tables.locate()
            self._located = places
        counts = [(nodes.num_nodes, nodes.first_new) for nodes in self.kinds]
        if self._counted != counts:
            self.tables.count_nodes()
            self._counted = counts
        self._placed = *places, *counts


def named(executor: Any) -> tuple[str, str, str]:
    """What the work of a step is reported as: its value, its kind, and the way it is done here."""
    name: str = executor.out.value.name
    return name, executor.step.kind, executor.small_way
