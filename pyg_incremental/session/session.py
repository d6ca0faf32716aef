"""One model on one graph: the graph, and the engine that keeps the rows."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pyg_incremental.call import full_pass
from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.site import device_of
from pyg_incremental.call.state import described
from pyg_incremental.call.traced import Output
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.journal import Committed, Journal, PlainJournal, State, edge_data_before
from pyg_incremental.delta.read.reader import written
from pyg_incremental.delta.resolve.plain import PlainDelta
from pyg_incremental.delta.resolve.resolver import ResolvedDelta, Resolver
from pyg_incremental.engine.loop import NOTHING, Engine
from pyg_incremental.errors import RowCountError, StaleStateError, UnsupportedModelError
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import EdgeEvents
from pyg_incremental.kernels.lent import Lent
from pyg_incremental.kernels.threads import wait_for_all
from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.rows import NO_IDS, Backend, Cell, Ids
from pyg_incremental.session.parameters import ParameterWatch
from pyg_incremental.session.settings import Settings
from pyg_incremental.update import Work

_writes = attrgetter("_version")


class Session:
    """The running state.

    Args:
        plan: How the call is computed.
        graphs: The current graphs by the names of the arguments.
        num_nodes: The number of nodes of each kind.
        nodes: Node inputs by name.
        others: Other tensors by name.
        settings: What the user chose.

    Attributes:
        committed: The version, and what goes with it. It is assigned once when an update is in, and
            nothing else says that it is.
        journal: What the running update is about to change, or one that was interrupted.
        interrupted: What else was interrupted, or an empty string.
        runs_the_model: Whether updates run the model itself, or parts of it.
        watch: Notices that the model is no longer the one whose results these are.
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
        self.roles = roles = plan.roles
        self.mode = plan.mode
        self.graphs = graphs
        self.num_nodes = num_nodes
        for graph in graphs.values():
            graph.belongs_to(type(plan.site.model).__name__)
        parameters = (p for p in plan.site.model.parameters() if p.dtype.is_floating_point)
        floats = (x for x in nodes.values() if x.dtype.is_floating_point)
        device = device_of(plan.site.model, nodes.values())
        like = next(floats, next(parameters, torch.empty(0, device=device)))
        self.like = like.detach().new_empty(0)  # nobody's rows, which would be held
        self._kind = _kind_of(plan.site.model)
        self.backend = Backend(settings.backend, self.like)
        self.engine = Engine(
            plan.program,
            graphs,
            num_nodes,
            self.backend,
            settings.accumulate_dtype,
            self.materialize,
            settings.compile_after,
            settings.store,
            None if roles.main is None else roles.main.graph,
        )
        self.resolver = Resolver(roles, graphs, num_nodes, {k: x[:0] for k, x in nodes.items()})
        self.committed = Committed()
        self.journal: Journal | PlainJournal | None = None
        self.interrupted = ""
        self.watch: ParameterWatch | None = None
        self._settings = settings
        self.runs_the_model = any(s.kind in ("whole", "rows") for s in plan.program.steps)
        self._whole_outputs: dict[Value, Any] = {}
        first = plan.program.outputs[0]
        self._lent = Lent()
        is_only = isinstance(plan.traced.structure, Output) and first.domain is Domain.NODE
        self._only = self.engine.cells[first] if is_only else None

    def refuse_other_kind(self) -> None:
        """Features of one dtype or device do not fit a model that was moved to another."""
        kind = _kind_of(self.plan.site.model)
        if kind != self._kind and kind is not None:
            dtype, device = kind
            raise StaleStateError(
                f"the model was moved to {dtype} on '{device}', but the stored features are "
                f"{self.like.dtype} on '{self.like.device}': call the model again with "
                f"{str(dtype).removeprefix('torch.')} features on '{device}'"
            )

    # Running -------------------------------------------------------------------------------------

    def fill(self, nodes: dict[str, Tensor], others: dict[str, Any]) -> None:
        """Compute all rows from the node inputs, other tensors, and rows that are parameters."""
        self.engine.full({**nodes, **others, **self.plan.program.learned_rows()})

    def fill_in_place_of(
        self, before: "Session", nodes: dict[str, Tensor], others: dict[str, Any]
    ) -> None:
        """Like `fill`, but in the memory of another session, of which only the inputs are left."""
        given = dict(nodes)
        for name, rows in nodes.items():
            cell, theirs = self.engine.cells[self.plan.program.inputs[name]], before._rows_of(name)
            assert cell.nodes is not None
            same = rows.data_ptr() == theirs.data_ptr()  # not so after an interrupted update
            if same and theirs.shape[0] == cell.nodes.scratch.size:
                cell.hold(theirs)
                del given[name]
        self.backend.spare, self._lent = before.engine.give_up(), before._lent
        self.fill(given, others)

    def update(
        self, resolved: ResolvedDelta, renew: Mapping[str, Tensor] = NOTHING
    ) -> tuple[dict[str, EdgeEvents], Work]:
        """Take a delta, and bring every row up to date; it is in."""
        done = self.carry_out(resolved, renew)
        self.journal = None
        return done

    def carry_out(
        self, resolved: ResolvedDelta, renew: Mapping[str, Tensor] = NOTHING
    ) -> tuple[dict[str, EdgeEvents], Work]:
        """Take a delta, and bring every row up to date; it is in when `committed` says so.

        Until then the journal holds what there was before.
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
        events = self.resolver.apply(resolved, graphs, self.num_nodes)
        stats = self.engine.update(events, resolved.new_nodes, resolved.rows, renew)
        for name, happened in events.items():
            graphs[name].free(happened.removed.slots)
        given = {r.graph for r in self.roles.given}
        return {name: e for name, e in events.items() if name in given}, stats

    def _refuse_no_edges(self, resolved: ResolvedDelta) -> None:
        """See that the program still is what the model does, where that holds with edges only.

        Raises:
            RowCountError: If too many edges leave.
        """
        least = self.plan.program.least_edges
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
        resolver = self.resolver.plain
        asks = self.plan.program.least_edges > 0
        if resolver is None or asks or not self.engine.takes_at_once:
            return None
        return resolver.plain(edge_index_add, edge_index_del, x_changes)

    def plain_of(self, delta: GraphDelta) -> PlainDelta | None:
        """The same of a delta with other parts."""
        resolver = self.resolver.plain
        if resolver is None or not self.engine.takes_at_once:
            return None
        return resolver.of(delta)

    def carry_out_at_once(self, delta: PlainDelta) -> tuple[int, int, Work] | None:
        """Take a plain delta in one look, and bring every row up to date; see `carry_out`.

        Returns:
            How many edges came and left, and the work; None if the delta is not valid, or too
            large. Nothing was changed then.
        """
        before = None
        if delta.rows is not None:
            rows = self._rows_of(delta.name)
            first = rows.data_ptr()
            if first <= delta.rows.data_ptr() < first + rows.nbytes:
                delta = delta._replace(rows=delta.rows.clone())
            before = self.engine.cells[self.plan.program.inputs[delta.name]].listed(delta.ids)
        main = self.engine.main
        assert main is not None
        order = self.graphs[main].next_order
        self.engine.forget_at_once()
        num_nodes = dict(self.num_nodes) if delta.more else self.num_nodes
        about = self.committed.version + 1, delta, main, order, before, num_nodes
        self.journal = tuple.__new__(PlainJournal, about)  # sooner made than `PlainJournal(...)`
        work = self.engine.update_at_once(delta)
        if work is None:
            self.journal = None
            return None
        if delta.more:
            (kind,) = num_nodes
            self.num_nodes[kind] = num_nodes[kind] + delta.more
        return delta.added.shape[1], delta.gone.shape[1], work

    def removed_at_once(self, delta: PlainDelta) -> dict[str, NDArray[np.int64]]:
        """The slots of the edges that a plain delta has removed, by graph; right after it only."""
        slots = self.engine.slots_at_once(delta)
        return {} if slots is None or self.engine.main is None else {self.engine.main: slots[0]}

    def commit(self, delta_id: Any, at_once: bool) -> None:
        """The update that was carried out is in, whatever is raised from here on.

        Args:
            delta_id: What the caller calls it, or None.
            at_once: Whether it was carried out at once, which counts no write of a tensor.
        """
        committed = self.committed.next(delta_id)
        self.committed = committed if at_once else self.noted(committed)
        self.journal = None

    def noted(self, committed: Committed) -> Committed:
        """The same, with a note of how often what users can reach has been written to by now."""
        cells = self.engine.cells
        values = [*map(self.plan.program.inputs.__getitem__, self.roles.nodes)]
        values += [v for v in self.plan.program.outputs if v.domain is Domain.NODE]
        held = [t for v in values if (t := cells[v].rows) is not None]
        held += [t for graph in self.graphs.values() for t in graph.edge_data.values()]
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
            known = ids[ids < self.num_nodes[self.roles.nodes[name]]]
            found[name] = known, self._rows_of(name)[known.to(self.like.device)]
        return found

    def made_afresh(self) -> "Session":
        """A session on the same graphs with all rows computed from the features, to compare."""
        nodes, others = self.nodes(), self.others()
        again = Session(self.plan, self.graphs, dict(self.num_nodes), nodes, others, self._settings)
        again.fill(nodes, others)
        return again

    # Interrupts ----------------------------------------------------------------------------------

    @property
    def is_broken(self) -> bool:
        """Whether something was interrupted, so that graph and rows may not fit together."""
        return bool(self.interrupted) or self._has_begun

    @property
    def _has_begun(self) -> bool:
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
        if self.journal is not None and self._has_begun:
            return "an update was interrupted"
        if self.interrupted:
            return self.interrupted
        if self.is_written_to:
            return "rows, edge data or outputs were written to, which only apply_delta may"
        return "" if self.watch is None else self.watch.reason()

    def taken_back(self) -> "Session | None":
        """A session on the state before an update that failed; None if none has begun."""
        if not self._has_begun:
            return None
        graphs, before, nodes = self.before()
        others = self.others()
        again = Session(self.plan, graphs, before, nodes, others, self._settings)
        again.fill(nodes, others)
        again.watch, again.committed = self.watch, again.noted(self.committed)
        return again

    def before(self) -> State:
        """Graphs, numbers of nodes and node inputs without an update that is not in.

        It does not matter where that was interrupted, and this may be interrupted, too, and done
        again.
        """
        if not self.is_broken:
            return self.graphs, self.num_nodes, self.nodes()
        wait_for_all()  # threads that have a part in the update may not have noticed
        journal, graphs, roles = self.journal, self.graphs, self.roles
        if journal is None or not self._has_begun:
            remade = {name: g.remade(g.num_nodes) for name, g in graphs.items()}
            return remade, self.num_nodes, self.nodes()
        if isinstance(journal, Journal):
            return journal.undone(graphs, roles, {n: self._rows_of(n) for n in roles.nodes})
        slots = self.engine.slots_at_once(journal.delta)
        return journal.undone(graphs, roles, self.nodes(), slots)

    def finished(self, broken: bool) -> State:
        """Graphs, numbers of nodes and node inputs, an interrupted update applied.

        It does not matter where the update was interrupted.
        """
        if not broken:
            return self.graphs, self.num_nodes, self.nodes()
        if not isinstance(self.journal, Journal):
            graphs = {name: g.remade(g.num_nodes) for name, g in self.graphs.items()}
            return graphs, self.num_nodes, self.nodes()
        roles = self.roles
        rows = {name: self._rows_of(name) for name in roles.nodes}
        return self.journal.finished(self.graphs, roles, rows)

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
        return self.engine.cells[self.plan.program.inputs[name]].tensor

    def nodes(self) -> dict[str, Tensor]:
        """The node inputs by name, as live views."""
        num_nodes = self.num_nodes
        return {name: self._rows_of(name)[: num_nodes[k]] for name, k in self.roles.nodes.items()}

    def others(self) -> dict[str, Any]:
        """Other tensors by name."""
        cells, inputs = self.engine.cells, self.plan.program.inputs
        return {name: cells[inputs[name]].content for name in self.roles.others}

    def arguments(self) -> list[Any]:
        """The arguments with which the model would be called now."""
        return self.arguments_on(self.graphs, self.num_nodes, self.nodes())

    def arguments_on(
        self,
        graphs: Mapping[str, DynamicGraph],
        num_nodes: Mapping[str, int],
        nodes: Mapping[str, Tensor],
    ) -> list[Any]:
        """The arguments of a call on the given graphs and node inputs."""
        states = {name: g.state(for_model=True) for name, g in graphs.items()}
        return full_pass.arguments(
            self.plan.site, self.roles, nodes, states, num_nodes, self.others()
        )

    def materialize(self, name: str) -> Any:
        """A graph in the format in which it was handed in."""
        relation = next(r for r in self.roles.relations if r.graph == name)
        state = self.graphs[name].state(for_model=True)
        return full_pass.graph_object(relation, state, self.num_nodes, self.like.device)

    def model_output(self) -> Any:
        """A full pass of a copy of the original model."""
        return full_pass.run(self.plan.site, self.arguments(), fresh=True)

    def output(self, copy: bool) -> Any:
        """The current output, as live views or copies."""

        def fill(place: Output) -> Any:
            value = self.plan.program.outputs[place.index]
            cell = self.engine.cells[value]
            if value.domain is Domain.EDGE:
                return cell.read(torch.from_numpy(self.graphs[value.kind].slots_for_model()))
            rows = cell.content if value.domain is Domain.WHOLE else cell.current()
            if value.domain is Domain.WHOLE:
                self._whole_outputs.setdefault(value, rows)
            return rows.clone() if copy and isinstance(rows, Tensor) else rows

        return self._in_structure(fill)

    def compare_with(self, before: Any) -> None:
        """Let the next update say what differs from an earlier output, where the model runs whole.

        Else rows would not be named that the model itself rounds in another way.
        """
        places, outputs = pytree.tree_leaves(self.plan.traced.structure), self.plan.program.outputs
        rows = (t for t in pytree.tree_leaves(before) if isinstance(t, Tensor))
        for place, was in zip((p for p in places if isinstance(p, Output)), rows, strict=True):
            value = outputs[place.index]
            if value.domain is Domain.WHOLE:
                self._whole_outputs[value] = was

    @property
    def output_kinds(self) -> Any:
        """The kind of nodes of each output, in the structure of the output."""
        outputs = self.plan.program.outputs
        return self._in_structure(lambda place: outputs[place.index].kind)

    def output_at(self, nodes: Any) -> Any:
        """Copies of output rows, in the structure of the output.

        Args:
            nodes: Ids of nodes, int64 `[k]`, or a dict by kind.

        Raises:
            InvalidDeltaError: If an id is out of range.
            UnsupportedModelError: If an output has no row for each node.
        """
        outputs = self.plan.program.outputs
        if any(v.domain is not Domain.NODE for v in outputs):
            raise UnsupportedModelError(
                "read: the output has no row for each node, so none can be chosen; call read()"
            )
        kinds = {v.kind for v in outputs}
        if not isinstance(nodes, Mapping) and len(kinds) == 1:
            (kind,) = kinds  # ids of what the only output has rows for, as graphs
            nodes = nodes if kind in self.roles.kinds else {kind: nodes}
        ids = {kind: torch.from_numpy(at) for kind, at in self.resolver.ids(nodes, "nodes").items()}

        def rows(place: Output) -> Any:
            value = outputs[place.index]
            return self.engine.cells[value].read(ids.get(value.kind, NO_IDS))

        return self._in_structure(rows)

    def nothing(self) -> tuple[Any, Any]:
        """What an update that did nothing has changed; see `changed`."""

        def rows(place: Output) -> Any:
            value = self.plan.program.outputs[place.index]
            cell = self.engine.cells[value]
            if value.domain is not Domain.WHOLE:
                return cell.read(NO_IDS)
            content = cell.content
            return content[:0] if isinstance(content, Tensor) and content.dim() else _own(content)

        return self._in_structure(lambda _: NO_IDS.clone()), self._in_structure(rows)

    def changed(self) -> tuple[Any, Any, Any]:
        """Ids and new rows of what the last update changed, in the structure of the output.

        And the edges that these ids are, int64 `[2, k]`, where an output has a row for each edge:
        None in place of others, and None alone if there is no such output.
        """
        only = self._only
        if only is not None:
            ids = _sorted(only)
            return ids.tensor, only.gather(ids, self._lent), None
        found: dict[int, Tensor] = {}
        ends: dict[int, Tensor] = {}
        at: dict[int, Tensor] = {}
        seen: dict[Value, Any] = {}
        for i, value in enumerate(self.plan.program.outputs):
            cell = self.engine.cells[value]
            if value.domain is Domain.NODE:
                found[i] = at[i] = _sorted(cell).tensor
            elif value.domain is Domain.EDGE:
                found[i], at[i], ends[i] = self._changed_edges(value)
            else:
                found[i] = changed_rows(self._whole_outputs.get(value), cell.content)
                seen[value] = cell.content
        self._whole_outputs.update(seen)  # not before: a value may be returned twice

        def rows(place: Output) -> Any:
            value = self.plan.program.outputs[place.index]
            cell = self.engine.cells[value]
            if value.domain is not Domain.WHOLE:
                return cell.read(at[place.index])
            content = cell.content
            return (
                content[found[place.index]]
                if isinstance(content, Tensor) and content.dim()
                else _own(content)
            )

        ids_of = self._in_structure(lambda place: found[place.index])
        edges = self._in_structure(lambda place: ends.get(place.index)) if ends else None
        return ids_of, self._in_structure(rows), edges

    def _changed_edges(self, value: Value) -> tuple[Tensor, Tensor, Tensor]:
        """Which edges have another row of an output: their rows there, slots, and both ends."""
        graph, ids = self.graphs[value.kind], self.engine.cells[value].ids
        changed = (NO_IDS if ids is None else ids.tensor).cpu().numpy()
        places, slots = graph.in_order_for_model(changed)
        ends = graph.ends_of(slots)
        return torch.from_numpy(places), torch.from_numpy(slots), torch.from_numpy(ends)

    def _in_structure(self, fill: Any) -> Any:
        structure = self.plan.traced.structure
        if isinstance(structure, Output):
            return fill(structure)

        def filled(leaf: Any) -> Any:
            return fill(leaf) if isinstance(leaf, Output) else leaf

        return pytree.tree_map(filled, structure, is_leaf=_is_output)

    def why_not_whole(self, delta: GraphDelta) -> str:
        """Why the model itself cannot answer after a delta either; empty if it can."""
        roles, orders = self.roles, {name: g.next_order for name, g in self.graphs.items()}
        about = self.committed.version + 1, self.resolver.resolve(delta), dict(self.num_nodes)
        rows = {name: self._rows_of(name) for name in roles.nodes}
        after = Journal(*about, orders, {}, {}).finished(self.graphs, roles, rows)
        try:
            full_pass.run(self.plan.site, self.arguments_on(*after), fresh=True)
        except Exception as error:  # a user's model may raise anything
            return f"{type(error).__name__}: {error}"
        return ""

    # Undoing -------------------------------------------------------------------------------------

    def inverse(self, delta: GraphDelta) -> GraphDelta:
        """The delta that undoes `delta`, read off the current state."""
        resolved = self.resolver.resolve(delta)
        back: dict[str, Any] = {}
        for name, (ids, _) in resolved.rows.items():
            kept = ids[ids < self.num_nodes[self.roles.nodes[name]]]
            if len(kept):
                back.setdefault("x_changes", {})[name] = (kept, self._rows_of(name)[kept].clone())
        for kind in self.roles.kinds:
            before, new = self.num_nodes[kind], resolved.new_nodes.get(kind, 0)
            if new:
                back.setdefault("nodes_del", {})[kind] = torch.arange(before, before + new)
        for relation in self.roles.given:
            changes = resolved.edges.get(relation.graph)
            if changes is not None:
                ends = (self.num_nodes[relation.source], self.num_nodes[relation.target])
                undone = changes.undone(self.graphs[relation.graph], ends, delta.which == "oldest")
                for field, value in undone.items():
                    back.setdefault(field, {})[relation.key] = value
        return written(self.roles, back)

    # Files ---------------------------------------------------------------------------------------

    def state(self, exact: bool) -> dict[str, Any]:
        """Everything that is stored, as plain values and tensors.

        Args:
            exact: With the neighbour lists, to compare two states.
        """
        cells, site, roles = self.engine.cells, self.plan.site, self.roles
        rows = {
            s.output.name: cells[s.output].tensor[: self.num_nodes[s.output.kind]].clone()
            for s in self.plan.program.steps
            if s.output in cells and s.output.domain is Domain.NODE and cells[s.output].stored
        }
        kept = {
            a.step.output.name: {
                **{
                    k: r.tensor[: self.num_nodes[a.step.output.kind]].clone()
                    for k, r in a.extra.items()
                },
                **({} if a.scale.rows is None else {"scale": a.scale.tensor}),
            }
            for a in self.engine.aggregators
        }
        state: dict[str, Any] = {
            **described(site, roles),
            "num_nodes": {kind: self.num_nodes[kind] for kind in roles.kinds},
            "graphs": {r.graph: self.graphs[r.graph].state() for r in roles.given},
            "others": self.others(),
            "rows": rows,
            "aggregators": kept,
            "program": str(self.plan.program),
        }
        if exact:
            state["constants"] = repr(site.constants)
            state["lists"] = {name: g.lists() for name, g in self.graphs.items()}
        return state


def _is_output(value: Any) -> bool:
    return isinstance(value, Output)


def _kind_of(model: nn.Module) -> tuple[torch.dtype, torch.device] | None:
    """Dtype and device of the first floating parameter of a model."""
    parameters = (p for p in model.parameters() if p.dtype.is_floating_point)
    first = next(parameters, None)
    return None if first is None else (first.dtype, first.device)


def _own(content: Any) -> Any:
    """A value that is handed out, as a copy."""
    return content.clone() if isinstance(content, Tensor) else content


def _sorted(cell: Cell) -> Ids:
    """The changed rows of a value, ascending, in memory of their own: users get them."""
    if cell.ids is None:
        return cell.backend.ids(NO_IDS.clone())
    ids = cell.backend.sorted(cell.ids.array)
    return cell.backend.ids_from(ids.copy() if ids is cell.ids.array else ids)


def changed_rows(before: Any, after: Any) -> Tensor:
    """Rows of an output without a row per node that changed, and those that are new.

    All of them if the shape of a row did.
    """
    if not isinstance(after, Tensor) or not after.dim():
        return NO_IDS.clone()
    was_rows = isinstance(before, Tensor) and before.dim() > 0  # a squeezed row is none
    if not was_rows or before.shape[1:] != after.shape[1:]:
        return torch.arange(after.shape[0])
    common = min(before.shape[0], after.shape[0])
    old, new = before[:common], after[:common]
    same = (old == new) | ((old != old) & (new != new))
    differ = (~same.flatten(1).all(1) if same.dim() > 1 else ~same).nonzero().flatten().cpu()
    return torch.cat([differ, torch.arange(common, after.shape[0])])
