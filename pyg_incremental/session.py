"""One model on one graph: the graph, and the engine that keeps the rows."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pyg_incremental import full_pass
from pyg_incremental.call_plan import CallPlan
from pyg_incremental.call_site import to_format
from pyg_incremental.delta import GraphDelta
from pyg_incremental.edge_store import EdgeEvents
from pyg_incremental.engine import Engine
from pyg_incremental.errors import StaleStateError
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.program import Domain, Value
from pyg_incremental.resolve import ResolvedDelta, Resolver
from pyg_incremental.settings import Settings
from pyg_incremental.store import NO_IDS, Backend, Cell, Ids
from pyg_incremental.traced import Output
from pyg_incremental.update import Work


class Session:
    """The running state.

    Args:
        plan: How the call is computed.
        graph: The current graph.
        nodes: Node inputs by name.
        others: Other tensors by name.
        settings: What the user chose.
    """

    def __init__(
        self,
        plan: CallPlan,
        graph: DynamicGraph,
        nodes: dict[str, Tensor],
        others: dict[str, Tensor],
        settings: Settings,
    ) -> None:
        self.plan = plan
        self.roles = plan.roles
        self.mode = plan.mode
        self.graph = graph
        x = nodes[self.roles.x]
        parameters = (p for p in plan.site.model.parameters() if p.dtype.is_floating_point)
        self.like = (
            x if x.dtype.is_floating_point else next(parameters, torch.empty(0, device=x.device))
        )
        self._kind = _kind_of(plan.site.model)
        self.backend = Backend(settings.backend, self.like)
        self.engine = Engine(
            plan.program, graph, self.backend, settings.accumulate_dtype, self.materialize
        )
        refuse = ""
        if len(self.roles.nodes) > 1:
            refuse = (
                f"new nodes would need rows of {list(self.roles.nodes[1:])} too; "
                "call the model on the new graph"
            )
        values = self.roles.values
        unit = values is not None and values.dim() == 1 and bool((values == 1).all())
        self.resolver = Resolver(graph, x[:0], refuse, unit)
        self._pending: tuple[ResolvedDelta, int, int] | None = None
        self._whole_outputs: dict[Value, Any] = {}
        first = plan.program.outputs[0]
        self._only = self.engine.cells[first] if first.domain is Domain.NODE else None

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
        """Compute all rows from the node inputs and other tensors."""
        self.engine.full({**nodes, **others})

    def update(self, resolved: ResolvedDelta, renew: Tensor = NO_IDS) -> tuple[EdgeEvents, Work]:
        """Take a delta, and bring every row up to date.

        Until it is through, `_pending` says how to finish the job: which edges were there before,
        and what was to change.
        """
        graph = self.graph
        first_new = graph.num_nodes
        self._pending = resolved, graph.next_order, first_new
        events = resolved.apply(graph)
        rows = {self.roles.x: (resolved.x_ids, resolved.x_rows)} if resolved.x_ids.shape[0] else {}
        stats = self.engine.update(events, first_new, rows, renew)
        graph.release(events.removed.slots)
        self._pending = None
        return events, stats

    def finished(self, broken: bool) -> tuple[DynamicGraph, dict[str, Tensor]]:
        """Graph and node inputs, with the delta of an interrupted update applied.

        It does not matter where the update was interrupted.
        """
        graph = self.graph
        nodes = self.nodes(graph.num_nodes)
        if not broken:
            return graph, nodes
        if self._pending is None:
            none = np.empty(0, np.int64)
            return graph.remade(
                none, graph.next_order, none.reshape(2, 0), {}, graph.num_nodes
            ), nodes
        resolved, order, before = self._pending
        x = self.nodes(before)[self.roles.x]
        nodes[self.roles.x] = x = torch.cat([x, x.new_zeros((resolved.new_nodes, *x.shape[1:]))])
        x[resolved.x_ids] = resolved.x_rows
        return self.graph.remade(
            resolved.removed, order, resolved.added, resolved.data_now(self.graph), len(x)
        ), nodes

    # Reading -------------------------------------------------------------------------------------

    @property
    def x(self) -> Tensor:
        """The current node features, as a live view."""
        return self.nodes(self.graph.num_nodes)[self.roles.x]

    def nodes(self, count: int) -> dict[str, Tensor]:
        """The first `count` rows of the node inputs by name, as live views."""
        cells, inputs = self.engine.cells, self.plan.program.inputs
        return {name: cells[inputs[name]].whole(count) for name in self.roles.nodes}

    def others(self) -> dict[str, Any]:
        """Other tensors by name."""
        cells, inputs = self.engine.cells, self.plan.program.inputs
        return {name: cells[inputs[name]].content for name in self.roles.others}

    def arguments(self) -> list[Any]:
        """The arguments with which the model would be called now."""
        return self.arguments_on(self.graph, self.nodes(self.graph.num_nodes))

    def arguments_on(self, graph: DynamicGraph, nodes: dict[str, Tensor]) -> list[Any]:
        """The arguments of a call on the given graph and node inputs."""
        state = graph.state(for_model=True)
        edge_index = state.pop("edge_index")
        return full_pass.arguments(
            self.plan.site, self.roles, nodes, state, self.others(), edge_index
        )

    def materialize(self) -> Any:
        """The graph in the format in which it was handed in."""
        state = self.graph.state(for_model=True)
        values = state.get("edge_weight") if self.roles.format != "coo" else None
        return to_format(
            self.roles.format, state["edge_index"], values, self.graph.num_nodes, self.like.device
        )

    def model_output(self) -> Any:
        """A full pass of the original model."""
        return full_pass.run(self.plan.site, self.arguments())

    def output(self, copy: bool) -> Any:
        """The current output, as live views or copies."""

        def fill(place: Output) -> Any:
            value = self.plan.program.outputs[place.index]
            cell = self.engine.cells[value]
            rows = (
                cell.content if value.domain is Domain.WHOLE else cell.whole(self.graph.num_nodes)
            )
            if value.domain is Domain.WHOLE:
                self._whole_outputs.setdefault(value, rows)
            return rows.clone() if copy and isinstance(rows, Tensor) else rows

        return self._in_structure(fill)

    def changed(self) -> tuple[Any, Any]:
        """Ids and new rows of what the last update changed, in the structure of the output."""
        if isinstance(self.plan.traced.structure, Output) and self._only is not None:
            ids = _sorted(self._only)
            return ids.tensor, self._only.gather(ids)
        found: dict[int, Tensor] = {}
        for i, value in enumerate(self.plan.program.outputs):
            cell = self.engine.cells[value]
            if value.domain is Domain.NODE:
                found[i] = _sorted(cell).tensor
            else:
                found[i] = _changed_rows(self._whole_outputs.get(value), cell.content)
                self._whole_outputs[value] = cell.content

        def rows(place: Output) -> Any:
            value = self.plan.program.outputs[place.index]
            cell = self.engine.cells[value]
            if value.domain is Domain.NODE:
                return cell.read(found[place.index])
            content = cell.content
            return (
                content[found[place.index]]
                if isinstance(content, Tensor) and content.dim()
                else content
            )

        return self._in_structure(lambda place: found[place.index]), self._in_structure(rows)

    def _in_structure(self, fill: Any) -> Any:
        structure = self.plan.traced.structure
        if isinstance(structure, Output):
            return fill(structure)

        def filled(leaf: Any) -> Any:
            return fill(leaf) if isinstance(leaf, Output) else leaf

        return pytree.tree_map(filled, structure, is_leaf=_is_output)

    def against_full_pass(self, num_nodes: int | None, seed: int) -> tuple[Any, Any]:
        """Our output and the model's, for all nodes or on what a sample of them sees."""
        program = self.plan.program
        whole = bool(program.whole_steps) or any(v.domain is Domain.WHOLE for v in program.outputs)
        if num_nodes is None or num_nodes >= self.graph.num_nodes or whole:
            return self.output(copy=False), self.model_output()
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randperm(self.graph.num_nodes, generator=generator)[:num_nodes]
        state = self.graph.state(for_model=True)
        reverse = any(getattr(s, "reverse", False) for s in program.steps)
        subset, edge_index, mask, place = full_pass.neighbourhood(
            ids, program.depth, state.pop("edge_index"), self.graph.num_nodes, reverse
        )
        nodes = {k: v[subset] for k, v in self.nodes(self.graph.num_nodes).items()}
        edges = {k: v[mask] for k, v in state.items()}
        arguments = full_pass.arguments(
            self.plan.site, self.roles, nodes, edges, self.others(), edge_index
        )
        theirs = full_pass.run(self.plan.site, arguments)
        return pytree.tree_map(lambda t: t[ids], self.output(copy=False)), pytree.tree_map(
            lambda t: t[place], theirs
        )

    # Undoing -------------------------------------------------------------------------------------

    def inverse(self, delta: GraphDelta) -> GraphDelta:
        """The delta that undoes `delta`, read off the current state."""
        graph, before = self.graph, self.graph.num_nodes
        resolved = self.resolver.resolve(delta)
        back: dict[str, Any] = {}
        ids = resolved.x_ids[resolved.x_ids < before]
        if len(ids):
            back["x_changes"] = (ids, self.x[ids].clone())
        if resolved.new_nodes:
            back["nodes_del"] = torch.arange(before, before + resolved.new_nodes)
        if resolved.added.size:
            # Edges at new nodes leave with them.
            kept = (resolved.added < before).all(0)
            back["edge_index_del"] = torch.from_numpy(resolved.added[:, kept])
        gone = np.sort(resolved.removed)
        gone = gone[np.argsort(graph.slots.order[gone], kind="stable")]
        if gone.size:
            edges = graph.edges(gone)
            back["edge_index_add"] = torch.from_numpy(np.stack([edges.src, edges.dst]))
            at = torch.from_numpy(gone)
            back["edge_data_add"] = {name: rows[at] for name, rows in graph.edge_data.items()}
        if resolved.changed.size:
            edges = graph.edges(resolved.changed)
            slots = torch.from_numpy(resolved.changed)
            data = {name: graph.edge_data[name][slots] for name in resolved.changed_data}
            back["edge_changes"] = (torch.from_numpy(np.stack([edges.src, edges.dst])), data)
        return GraphDelta(**back)

    # Files ---------------------------------------------------------------------------------------

    def state(self, exact: bool) -> dict[str, Any]:
        """Everything that is stored, as plain values and tensors.

        Args:
            exact: With the neighbour lists, to compare two states.
        """
        count = self.graph.num_nodes
        cells = self.engine.cells
        rows = {
            s.output.name: cells[s.output].tensor[:count].clone()
            for s in self.plan.program.steps
            if s.output in cells and s.output.domain is Domain.NODE and cells[s.output].stored
        }
        kept = {
            a.step.output.name: {
                **{k: r.tensor[:count].clone() for k, r in a.extra.items()},
                **({} if a.scale.rows is None else {"scale": a.scale.tensor}),
            }
            for a in self.engine.aggregators
        }
        site = self.plan.site
        state: dict[str, Any] = {
            "names": site.names,
            "constants": site.constants,
            "positional": site.positional,
            "data_fields": {k: list(v) for k, v in site.data_fields.items()},
            "num_nodes": count,
            "graph": self.graph.state(),
            "others": self.others(),
            "rows": rows,
            "aggregators": kept,
            "program": str(self.plan.program),
            "roles": {
                "graph": self.roles.graph,
                "format": self.roles.format,
                "x": self.roles.x,
                "nodes": list(self.roles.nodes),
                "edges": list(self.roles.edges),
                "others": list(self.roles.others),
                "by_target": self.roles.by_target,
            },
        }
        if exact:
            state["constants"] = repr(site.constants)
            state["lists"] = self.graph.lists()
        return state


def _is_output(value: Any) -> bool:
    return isinstance(value, Output)


def _kind_of(model: nn.Module) -> tuple[torch.dtype, torch.device] | None:
    """Dtype and device of the first floating parameter of a model."""
    parameters = (p for p in model.parameters() if p.dtype.is_floating_point)
    first = next(parameters, None)
    return None if first is None else (first.dtype, first.device)


def _sorted(cell: Cell) -> Ids:
    """The changed rows of a value, ascending."""
    if cell.ids is None:
        return cell.backend.ids(NO_IDS)
    return cell.backend.ids_from(cell.backend.sorted(cell.ids.array))


def _changed_rows(before: Any, after: Any) -> Tensor:
    """Rows of an output without a row per node that changed; all of them if its shape did."""
    if not isinstance(after, Tensor) or not after.dim():
        return NO_IDS
    if not isinstance(before, Tensor) or before.shape != after.shape:
        return torch.arange(after.shape[0])
    same = (before == after) | ((before != before) & (after != after))
    return (~same.flatten(1).all(1) if after.dim() > 1 else ~same).nonzero().flatten().cpu()
