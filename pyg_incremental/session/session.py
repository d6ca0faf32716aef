"""One model on one graph: the graph, and the engine that keeps the rows."""

import functools
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from pyg_incremental.call import full_pass
from pyg_incremental.call.bound_call import device_of, dtype_of
from pyg_incremental.call.members import naming_graphs, set_apart
from pyg_incremental.call.plan import CallPlan
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.journal import (
    Committed,
    Journal,
    PlainJournal,
    edge_data_before,
    remembered,
)
from pyg_incremental.delta.resolve.plain import PlainDelta, PlainResolver
from pyg_incremental.delta.resolve.resolver import ResolvedDelta, Resolver
from pyg_incremental.engine.loop import NOTHING, Engine
from pyg_incremental.engine.on_demand import OnDemand
from pyg_incremental.errors import RowCountError, StaleStateError
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import EdgeEvents
from pyg_incremental.program.derivations import run_over
from pyg_incremental.program.steps import Domain
from pyg_incremental.rows import Backend
from pyg_incremental.rows.weakly import weakly
from pyg_incremental.session.outputs import Outputs
from pyg_incremental.session.parameters import ParameterWatch
from pyg_incremental.session.room import make_room
from pyg_incremental.session.settings import Settings
from pyg_incremental.telemetry.work import Work

_writes = attrgetter("_version")


class Session:
    """The running state.

    Args:
        plan: How the call is computed.
        graphs: The current graphs by the names of the arguments.
        num_nodes: The number of nodes of each kind.
        nodes: Node inputs by name, `[num_nodes, ...]`.
        others: Other tensors by name, of any shape.
        settings: What the user chose.

    Attributes:
        outputs: What the model returns, read off the rows.
        committed: The version, and what goes with it. It is assigned once when an update is in, and
            nothing else says that it is.
        journal: What the running update is about to change, or one that was interrupted.
        interrupted: What else was interrupted, or an empty string.
        makes_room: Whether the running update only makes room yet.
        settings: What the user chose.
        runs_the_model: Whether updates run the model itself, or parts of it.
        naming: The node inputs that say which graph each node belongs to.
        on_demand: What deltas have marked, of a lazy model; else None.
        watch: Notices that the model is no longer the one whose results these are.
        checked: On what the first pass was held against the model; empty if it was not.
    """

    def __init__(
        self,
        plan: CallPlan,
        graphs: dict[str, DynamicGraph],
        num_nodes: dict[str, int],
        nodes: dict[str, Tensor],
        others: dict[str, Tensor],
        settings: Settings,
    ) -> None:
        self.plan = plan
        self.program = plan.program
        self.roles = roles = plan.roles
        self.mode = plan.mode
        self.graphs = graphs
        self.num_nodes = num_nodes
        for graph in graphs.values():
            graph.belongs_to(type(plan.site.model).__name__)
        model, rows = plan.site.model, nodes.values()
        self.like = torch.empty(0, dtype=dtype_of(model, rows), device=device_of(model, rows))
        self._kind = _kind_of(plan.site.model)
        given = [*nodes.values(), *(t for g in graphs.values() for t in g.edge_data.values())]
        self.backend = Backend(
            settings.backend, self.like, settings.storage, {t.dtype for t in given}
        )
        self.engine = Engine(
            plan.program,
            graphs,
            num_nodes,
            self.backend,
            settings.accumulate_dtype,
            weakly(self.materialize),
            settings.compile_after,
            settings.store,
            _main(plan),
        )
        self.on_demand = OnDemand(self.engine) if settings.lazy else None
        self.naming = naming_graphs(roles, plan.program, nodes)
        self.resolver = Resolver(
            roles, graphs, num_nodes, {k: x[:0] for k, x in nodes.items()}, self.naming
        )
        self.committed = Committed()
        self.journal: Journal | PlainJournal | None = None
        self.interrupted = ""
        self.makes_room = False
        self._moves = -1  # how often rows had moved when they were noted
        self.watch: ParameterWatch | None = None
        self.checked = ""
        self.settings = settings
        self.runs_the_model = any(s.kind in ("whole", "rows") for s in plan.program.steps)
        self.outputs = Outputs(plan, self.engine, graphs, self.resolver)

    def refuse_other_kind(self) -> None:
        """Features of one dtype or device do not fit a model that was moved to another."""
        kind = _kind_of(self.plan.site.model)
        if kind != self._kind and kind is not None:
            dtype, device = kind
            raise StaleStateError(
                f"the model was moved to {dtype} on '{device}', but what is stored was "
                f"computed in {self.like.dtype} on '{self.like.device}': call the model again with "
                f"{str(dtype).removeprefix('torch.')} features on '{device}'"
            )

    # Running -------------------------------------------------------------------------------------

    def fill(self, nodes: dict[str, Tensor], others: dict[str, Any]) -> None:
        """Compute all rows from node inputs, `[num_nodes, ...]`, other tensors, and parameters."""
        inputs = {**nodes, **others, **self.program.learned_rows()}
        self.engine.full(inputs, self.settings.progress)

    def fill_in_place_of(
        self, before: "Session", nodes: dict[str, Tensor], others: dict[str, Any]
    ) -> None:
        """Like `fill`, but in the memory of another session, of which only the inputs are left."""
        given = dict(nodes)
        for name, rows in nodes.items():
            cell, theirs = self.engine.cells[self.program.inputs[name]], before._rows_of(name)
            assert cell.nodes is not None
            same = rows.data_ptr() == theirs.data_ptr()  # not so after an interrupted update
            if same and theirs.shape[0] == cell.nodes.scratch.size:
                cell.hold(theirs)
                del given[name]
        self.backend.spare = before.engine.give_up()
        self.outputs.lent = before.outputs.lent
        self.fill(given, others)

    def update(
        self, resolved: ResolvedDelta, renew: Mapping[str, Tensor] = NOTHING
    ) -> tuple[dict[str, EdgeEvents], Work]:
        """Take a delta as in `carry_out`, and bring every row up to date; it is in."""
        done = self.carry_out(resolved, renew)
        self.journal = None
        return done

    def carry_out(
        self, resolved: ResolvedDelta, renew: Mapping[str, Tensor] = NOTHING, marks: bool = False
    ) -> tuple[dict[str, EdgeEvents], Work]:
        """Take a delta, and bring every row up to date; it is in when `committed` says so.

        Until then the journal holds what there was before. `renew` names nodes by kind, int64
        `[k]`, whose accumulated rows are made afresh. If it only `marks`, rows follow later.
        """
        graphs = self.graphs
        self._refuse_no_edges(resolved)
        for graph in graphs.values():
            graph.count_anew_if_due()
        for name, (ids, rows) in resolved.rows.items():
            resolved.rows[name] = ids, self._apart(name, rows)
        orders = {name: g.next_order for name, g in graphs.items()}
        self.journal = Journal(
            self.committed.version + 1, resolved, dict(self.num_nodes), orders,
            self._rows_before(resolved), edge_data_before(resolved, graphs),
        )  # fmt: skip
        if self.settings.storage.is_limited:
            self.makes_room = True
            make_room(resolved, self.roles, graphs, self.num_nodes, self.engine)
            self.makes_room = False
        events = self.resolver.apply(resolved, graphs, self.num_nodes)
        stats: Work = []
        if marks:
            assert self.on_demand is not None
            self.on_demand.mark(events, resolved.new_nodes, resolved.rows)
        else:
            stats = self.engine.update(events, resolved.new_nodes, resolved.rows, renew)
        if self.resolver.plain is None and self.engine.main is not None:
            self.resolver.is_plain_on(self.engine.main)
        for name, happened in events.items() if not marks else ():
            graphs[name].free(happened.removed.slots)
        given = {r.graph for r in self.roles.given}
        return {name: e for name, e in events.items() if name in given}, stats

    def _refuse_no_edges(self, resolved: ResolvedDelta) -> None:
        """See that the program still is what the model does, where that holds with edges only.

        Raises:
            RowCountError: If too many edges leave.
        """
        least = self.program.least_edges
        if not least:
            return
        for r in self.roles.given:
            changes, count = resolved.edges.get(r.graph), self.graphs[r.graph].num_edges
            if changes is None:
                continue
            left = count + changes.added.shape[1] - changes.removed.size
            if left < least:
                raise RowCountError(
                    f"'{r.graph}' has {left} edges left, with which the model does something else"
                )

    def plain(self, edge_index_add: Any, edge_index_del: Any, x_changes: Any) -> PlainDelta | None:
        """One of the most common deltas, if `update_at_once` may take it."""
        resolver = self.plain_resolver
        if resolver is None:
            return None
        return resolver.plain(edge_index_add, edge_index_del, x_changes)

    def plain_of(self, delta: GraphDelta) -> PlainDelta | None:
        """The same of a delta with any parts."""
        resolver, parts = self.plain_resolver, delta.plain_parts
        if resolver is None:
            return None
        return resolver.of(delta) if parts is None else resolver.plain(*parts)

    @property
    def plain_resolver(self) -> PlainResolver | None:
        """What knows the deltas that `update_at_once` may take; None if it takes none."""
        asked = self.resolver
        if self.engine.fast is None or self.program.least_edges:
            return None
        return asked.of_now if asked.asking else asked.plain

    def settle(self, asked: Mapping[str, Tensor] | None = None) -> None:
        """Compute what deltas have marked: all, or what some rows of the output need.

        Nothing is computed where something is stale, or in the midst of an update.

        Args:
            asked: The rows by kind of nodes, int64 `[k]`.
        """
        on_demand = self.on_demand
        if on_demand is None or not on_demand.waits or self.journal is not None or self.reason():
            return
        with torch.inference_mode(mode=False), torch.no_grad():
            try:
                if asked is None:
                    on_demand.settle()
                else:
                    on_demand.read(asked)
            finally:
                self.interrupted = "an update that waited was interrupted" * on_demand.is_broken
                self.committed = self.noted(self.committed)
        self.outputs.look_again()

    def settle_some(self, most: int) -> bool:
        """Compute some rows of the outputs that deltas have marked; whether rows still wait.

        Args:
            most: How many of each output at most. Once none is left, the rest is computed.
        """
        on_demand = self.on_demand
        if on_demand is None:
            return False
        asked = on_demand.marked_outputs(most) if on_demand.waits and not self.reason() else {}
        self.settle(asked or None)
        return on_demand.waits

    def commit(self, delta_id: Any, at_once: bool) -> None:
        """The update that was carried out is in, whatever is raised from here on.

        Args:
            delta_id: What the caller calls it, or None.
            at_once: Whether it was carried out at once, which counts no write of a tensor.
        """
        version, deltas, held, writes = self.committed
        if delta_id is not None:
            deltas = remembered(deltas, delta_id, version + 1)
        # As `Committed(...)`, which takes longer than it should.
        committed = tuple.__new__(Committed, (version + 1, deltas, held, writes))
        same = at_once and not self.has_moved
        self.committed = committed if same else self.noted(committed)
        self.journal = None

    @property
    def has_moved(self) -> bool:
        """Whether rows lie elsewhere than when they were noted."""
        return self._moves != self.backend.moves

    def noted(self, committed: Committed) -> Committed:
        """The same, with a note of how often what users can reach has been written to by now."""
        cells = self.engine.cells
        values = [*map(self.program.inputs.__getitem__, self.roles.nodes)]
        values += [v for v in self.program.outputs if v.domain is Domain.NODE]
        held = [t for v in values if (t := cells[v].rows) is not None]
        held += [t for graph in self.graphs.values() for t in graph.edge_data.values()]
        self._moves = self.backend.moves
        return committed._replace(held=tuple(held), writes=[*map(_writes, held)])

    def _apart(self, name: str, rows: Tensor) -> Tensor:
        """Rows that are no view of those they are written to, such as a part of `inc.x`."""
        stored = self._rows_of(name)
        first = stored.data_ptr()
        return rows.clone() if first <= rows.data_ptr() < first + stored.nbytes else rows

    def _rows_before(self, resolved: ResolvedDelta) -> dict[str, tuple[Tensor, Tensor]]:
        """Ids that are there of each changed node input, and what stands in their rows."""
        found = {}
        for name, (ids, _) in resolved.rows.items():
            kind, stored = self.roles.nodes[name], self._rows_of(name)
            if kind in resolved.new_nodes:
                ids = ids[ids < self.num_nodes[kind]]
            found[name] = ids, stored.index_select(0, ids.to(stored.device))
        return found

    def on(
        self, graphs: dict[str, DynamicGraph], num_nodes: dict[str, int], nodes: dict[str, Tensor]
    ) -> "Session":
        """A session of the plan on some graphs and node inputs `[num_nodes, ...]`, all computed."""
        others = self.others()
        made = Session(self.plan, graphs, num_nodes, nodes, others, self.settings)
        made.fill(nodes, others)
        return made

    # Interrupts ----------------------------------------------------------------------------------

    @property
    def is_broken(self) -> bool:
        """Whether something was interrupted, so that graph and rows may not fit together."""
        return bool(self.interrupted) or self.has_begun

    @property
    def has_begun(self) -> bool:
        """Whether an update has begun that is not in."""
        journal = self.journal
        return journal is not None and journal.version > self.committed.version

    @property
    def is_written_to(self) -> bool:
        """Whether somebody else has written to rows that users can reach."""
        _, _, held, writes = self.committed
        return [*map(_writes, held)] != writes

    def reason(self) -> str:
        """Why what is stored is not the model's answer, or an empty string."""
        if self.journal is not None and self.has_begun:
            return "an update was interrupted"
        if self.interrupted:
            return self.interrupted
        if self.is_written_to:
            return "rows, edge data or outputs were written to, which only apply_delta may"
        return "" if self.watch is None else self.watch.reason()

    # Reading -------------------------------------------------------------------------------------

    @property
    def x(self) -> Any:
        """The current node features, as live views: by kind, if there are several types."""
        found = {}
        for kind, count in self.num_nodes.items():
            name = self.roles.features(kind)
            if name is not None:
                found[kind] = self._rows_of(name)[:count]
        if len(self.num_nodes) > 1 and "" not in self.num_nodes:
            return found
        only = next(iter(self.num_nodes)) if len(self.num_nodes) == 1 else ""
        if only not in found:
            raise KeyError("no node features: the rows of the nodes are parameters of the model")
        return found[only]

    @property
    def count(self) -> int:
        """The number of nodes; hyperedges, which have a kind of their own, are none."""
        return self.num_nodes.get("", sum(self.num_nodes[kind] for kind in self.roles.kinds))

    @property
    def graph(self) -> Any:
        """The graph: by key, if there are several."""
        given = self.roles.given
        if len(given) == 1:
            return self.graphs[given[0].graph]
        return {r.key: self.graphs[r.graph] for r in given}

    def _rows_of(self, name: str) -> Tensor:
        return self.engine.cells[self.program.inputs[name]].tensor

    def nodes(self) -> dict[str, Tensor]:
        """The node inputs by name, as live views."""
        num_nodes = self.num_nodes
        return {name: self._rows_of(name)[: num_nodes[k]] for name, k in self.roles.nodes.items()}

    def stored_inputs(self) -> dict[str, Tensor]:
        """The same with the rows of nodes that an update was about to add, `[capacity, ...]`."""
        return {name: self._rows_of(name) for name in self.roles.nodes}

    def others(self) -> dict[str, Any]:
        """Other tensors by name."""
        cells, inputs = self.engine.cells, self.program.inputs
        return {name: cells[inputs[name]].content for name in self.roles.others}

    def arguments(self) -> list[Any]:
        """The arguments with which the model would be called now."""
        nodes = set_apart(self.roles, self.nodes())
        return self.arguments_on(self.graphs, self.num_nodes, nodes)

    def arguments_on(
        self,
        graphs: Mapping[str, DynamicGraph],
        num_nodes: Mapping[str, int],
        nodes: Mapping[str, Tensor],
        others: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """The arguments of a call on some graphs and inputs, `[num_nodes, ...]`, and others."""
        given = [r.graph for r in self.roles.given]
        states = {name: graphs[name].state(for_model=True) for name in given}
        others = self.others() if others is None else others
        return full_pass.arguments(self.plan.site, self.roles, nodes, states, num_nodes, others)

    def returned(self, copy: bool) -> Any:
        """What the model returns now, objects included, as live views or copies."""
        site, made = self.plan.site, self.outputs.now(copy)

        @functools.cache
        def inputs() -> dict[str, Any]:
            given = zip(site.names, self.arguments(), strict=True)
            return {n: t.clone() if copy and isinstance(t, Tensor) else t for n, t in given}

        return site.handed_out(made, inputs)

    def materialize(self, name: str) -> Any:
        """A graph in the format in which it was handed in."""
        relation = next(r for r in self.roles.relations if r.graph == name)
        state = self.graphs[name].state(for_model=True)
        return full_pass.graph_object(relation, state, self.num_nodes, self.like.device)

    def model_output(self) -> Any:
        """A full pass of a copy of the original model."""
        return full_pass.run(self.plan.site, self.arguments(), fresh=True)


def _main(plan: CallPlan) -> str | None:
    """The graph whose small changes get the fast path; None for whichever changes."""
    derived = {r.graph for r in plan.roles.derived}
    used = run_over(plan.program)
    if derived & used:  # those that these are made of change with them
        return next(iter(used)) if len(used) == 1 else None
    return None if plan.roles.main is None else plan.roles.main.graph


def _kind_of(model: nn.Module) -> tuple[torch.dtype, torch.device] | None:
    """Dtype and device of the first floating parameter of a model."""
    parameters = (p for p in model.parameters() if p.dtype.is_floating_point)
    first = next(parameters, None)
    return None if first is None else (first.dtype, first.device)
