"""Updates of few rows: as far as compiled code carries them, and the executors from there."""

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta.resolve.plain import PlainDelta
from pyg_incremental.fused import FastPath
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import EdgeEvents, Ids
from pyg_incremental.ops.maps import InputExecutor
from pyg_incremental.rows import NO_EVENTS, NO_IDS, Backend, Cell, NodeSet
from pyg_incremental.rows.lazy_rows import LazyRows
from pyg_incremental.rows.weakly import weakly
from pyg_incremental.telemetry.work import Work


class FewRows:
    """What an engine does where an update is small.

    Attributes:
        stops_at: The first step that compiled code leaves to its executor, and why; empty if it
            knows all of them.
        fast: The compiled plan; None until it is due, or if it is not worth it.
        late: Rows that somebody was told to have a copy of, and that are copied when asked for.
    """

    graphs: Mapping[str, DynamicGraph]
    main: str | None
    backend: Backend
    nodes: dict[str, NodeSet]
    edge_executors: list[Any]
    node_executors: list[Any]
    stops_at: str
    late: ref[LazyRows] | None
    fast: FastPath | None
    _planned: FastPath | None = None
    _wait: int | None
    _alone: AbstractContextManager[None]
    _whole_graphs: list[InputExecutor]
    _outputs: list[Cell]
    _cells: list[Cell]
    _dirty: list[Cell]

    @abstractmethod
    def _begin(self, events: Mapping[str, EdgeEvents], stats: Work) -> int:
        """Tell contexts and cells that an update begins; returns the number of edge events."""

    @abstractmethod
    def _clean(self) -> None:
        """Let cells forget the update before."""

    @abstractmethod
    def make_room(self, new_nodes: Mapping[str, int]) -> None:
        """See that all rows have room for what is there, and for more nodes of each kind."""

    @abstractmethod
    def _grow(self) -> None:
        """See that all rows have room for the nodes and edges that there are now."""

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
