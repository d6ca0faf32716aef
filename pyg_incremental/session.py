"""One model on one graph: the plan that was made for the call, the graph, and the engine that keeps the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch_geometric.data import Data

from pyg_incremental import full_pass
from pyg_incremental.call_site import CallSite, Roles, classify, to_format
from pyg_incremental.delta import GraphDelta
from pyg_incremental.engine import Engine
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.graph import DynamicGraph, EdgeEvents
from pyg_incremental.probe import probe_arguments, probe_graph
from pyg_incremental.program import Domain, Program, Value
from pyg_incremental.resolve import ResolvedDelta, Resolver
from pyg_incremental.store import NO_IDS, Backend, Cell
from pyg_incremental.trace import NotTraceable, Output, Traced, trace
from pyg_incremental.typing import BackendName
from pyg_incremental.update import Work

_NO_ARGUMENT = torch.empty(2, 0, dtype=torch.int64)
_AGREE = {torch.float64: 1e-8, torch.float32: 1e-3}


@dataclass(frozen=True)
class Settings:
    """What the user chose."""

    strict: bool = False
    backend: BackendName = "auto"
    accumulate_dtype: torch.dtype | None = None


@dataclass(frozen=True)
class Plan:
    """How a call is computed.

    Attributes:
        site: The call.
        roles: What its tensors are.
        traced: The program, and how its outputs are put together.
        fallback: Why the whole model runs as one step, or an empty string.
    """

    site: CallSite
    roles: Roles
    traced: Traced
    fallback: str

    @property
    def program(self) -> Program:
        return self.traced.program

    @property
    def mode(self) -> str:
        """`'incremental'`, `'mixed'` or `'full pass'`."""
        return (
            "full pass" if self.fallback else "mixed" if self.program.whole_steps else "incremental"
        )

    @property
    def why(self) -> list[str]:
        """What runs on all rows, and why."""
        return [self.fallback] if self.fallback else [s.reason for s in self.program.whole_steps]


def prepare(site: CallSite, roles: Roles, settings: Settings) -> Plan:
    """Trace a call, and hold the program against the model on a small probe before it is trusted.

    Raises:
        UnsupportedModelError: If `strict` and some step has to run on all rows.
    """
    tensors, edge_index = probe_graph(site, roles)
    if roles.by_target:
        edge_index = edge_index[:, edge_index[1].argsort()]
    arguments = probe_arguments(site, roles, tensors, edge_index)
    lean = replace(roles, edge_index=_NO_ARGUMENT)
    try:
        expected = full_pass.run(site, arguments)
    except Exception as error:  # a user's model may raise anything
        reason = f"it does not run on a probe of {len(tensors[roles.x])} nodes ({type(error).__name__}: {error})"
        expected = full_pass.run(
            site, list(site.tensors.values())
        )  # a broken call raises here as it does in PyG
        plan = Plan(
            site, lean, _one_step(site, roles, expected, roles.num_nodes), reason.splitlines()[0]
        )
    else:
        try:
            plan = Plan(site, lean, trace(site, roles, arguments), "")
            _hold_against(plan, expected, tensors, edge_index, settings)
        except NotTraceable as error:
            plan = Plan(
                site, lean, _one_step(site, roles, expected, len(tensors[roles.x])), str(error)
            )
    if settings.strict and plan.why:
        raise UnsupportedModelError(
            f"{type(site.model).__name__} has steps that run on all rows with every update: {'; '.join(plan.why)}. "
            "Replace them, or wrap it without strict=True: it then stays exact at the cost of these steps"
        )
    return plan


def _one_step(site: CallSite, roles: Roles, expected: Any, num_nodes: int) -> Traced:
    """The program that runs the whole model."""
    program = Program(format=roles.format)
    values = []
    for name in site.names:
        if name == roles.graph:
            program.graph = program.input(name, Domain.WHOLE)
            values.append(program.graph)
            if roles.values is not None:
                program.input("edge_weight", Domain.EDGE)
        else:
            domain = (
                Domain.NODE
                if name in roles.nodes
                else Domain.EDGE
                if name in roles.edges
                else Domain.WHOLE
            )
            values.append(program.input(name, domain))
    leaves, structure = pytree.tree_flatten(expected)

    def per_node(leaf: Any) -> bool:
        return isinstance(leaf, Tensor) and leaf.dim() > 0 and leaf.shape[0] == num_nodes

    def model(*tensors: Any) -> Any:
        return full_pass.run(site, list(tensors))

    places: list[Any] = []
    if len(leaves) == 1 and per_node(leaves[0]):
        program.outputs.append(program.whole("model", model, values, Domain.NODE, "the model"))
        places.append(Output(0))
    else:
        result = program.whole("model", model, values, Domain.WHOLE, "the model")
        for i, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor):
                raise UnsupportedModelError(
                    f"{type(site.model).__name__} returns {type(leaf).__name__} beside tensors, which cannot be kept current"
                )
            domain = Domain.NODE if per_node(leaf) else Domain.WHOLE
            program.outputs.append(
                program.whole(
                    f"out_{i}", lambda r, i=i: pytree.tree_leaves(r)[i], [result], domain, ""
                )
            )
            places.append(Output(i))
    return Traced(program, pytree.tree_unflatten(places, structure))


def _hold_against(
    plan: Plan, expected: Any, tensors: dict[str, Tensor], edge_index: Tensor, settings: Settings
) -> None:
    """Run the program on the probe, then a delta, and compare with the model.

    Raises:
        NotTraceable: If they disagree: the trace has missed something that the model does.
    """
    site, roles = plan.site, plan.roles
    edges = {
        k: v
        for k, v in tensors.items()
        if k in roles.edges or (k == "edge_weight" and roles.format != "coo")
    }
    nodes = {k: tensors[k] for k in roles.nodes}
    others = {k: tensors[k] for k in roles.others}
    try:
        session = Session(
            plan,
            DynamicGraph(edge_index, len(nodes[roles.x]), edges, roles.by_target),
            nodes,
            others,
            settings,
        )
        session.engine.full({**nodes, **others})
        _same_or_raise(session.output(copy=False), expected, "on a probe")
        delta = GraphDelta(
            edge_index_add=edge_index[:, [0, 5]].flip(0),
            edge_index_del=edge_index[:, [1, 7]],
            x_changes=([2, 3], nodes[roles.x][[4, 5]]),
            **{
                f"{k}_add": v[[2, 3]] for k, v in edges.items() if k in ("edge_weight", "edge_attr")
            },
        )
        if set(edges) <= {"edge_weight", "edge_attr"}:
            session.update(session.resolver.resolve(delta))
            _same_or_raise(
                session.output(copy=False), session.model_output(), "on a probe after a delta"
            )
    except NotTraceable:
        raise
    except Exception as error:  # a user's model may raise anything when it sees fewer rows
        raise NotTraceable(
            f"the program of {type(site.model).__name__} fails on a probe ({type(error).__name__}: {error})"
        ) from error


def _same_or_raise(ours: Any, theirs: Any, where: str) -> None:
    leaves = [t for t in pytree.tree_leaves(theirs) if isinstance(t, Tensor)]
    dtype = next((t.dtype for t in leaves if t.dtype.is_floating_point), torch.float64)
    scale = max(
        (float(t.double().nan_to_num(0, 0, 0).abs().max()) for t in leaves if t.numel()),
        default=0.0,
    )
    gap = full_pass.difference(ours, theirs)
    if gap > _AGREE.get(dtype, 0.1) * max(scale, 1.0):
        raise NotTraceable(f"the traced program differs from the model by {gap:.3g} {where}")


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
        plan: Plan,
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
        self.backend = Backend(settings.backend, self.like)
        self.engine = Engine(
            plan.program, graph, self.backend, settings.accumulate_dtype, self.materialize
        )
        refuse = ""
        if len(self.roles.nodes) > 1:
            refuse = f"new nodes would need rows of {list(self.roles.nodes[1:])} too; call the model on the new graph"
        values = self.roles.values
        unit = values is not None and values.dim() == 1 and bool((values == 1).all())
        self.resolver = Resolver(graph, x[:0], refuse, unit)
        self._pending: tuple[ResolvedDelta, int, int] | None = None
        self._whole_outputs: dict[Value, Any] = {}
        first = plan.program.outputs[0]
        self._only = self.engine.cells[first] if first.domain is Domain.NODE else None

    # Running -------------------------------------------------------------------------------------

    def update(self, resolved: ResolvedDelta, renew: Tensor = NO_IDS) -> tuple[EdgeEvents, Work]:
        """Take a delta, and bring every row up to date.

        Until it is through, `_pending` says how to finish the job: which edges were there before, and what was to change.
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

    def _finished(self, broken: bool) -> tuple[DynamicGraph, dict[str, Tensor]]:
        """Graph and node inputs; the delta of an interrupted update is applied, wherever it stopped."""
        graph = self.graph
        nodes = self.nodes(graph.num_nodes)
        if not broken:
            return graph, nodes
        if self._pending is None:
            none = np.empty(0, np.int64)
            return graph.remade(none, graph.next_order, none.reshape(2, 0), {}, graph.num_nodes), nodes
        resolved, order, before = self._pending
        x = self.nodes(before)[self.roles.x]
        nodes[self.roles.x] = x = torch.cat([x, x.new_zeros((resolved.new_nodes, *x.shape[1:]))])
        x[resolved.x_ids] = resolved.x_rows
        return self.graph.remade(
            resolved.removed, order, resolved.added, resolved.data_now(self.graph), len(x)
        ), nodes

    def again(self, settings: Settings, broken: bool) -> Session:
        """A new session on the current graph and features, traced and computed anew.

        Args:
            settings: What the user chose.
            broken: Whether an update was interrupted.
        """
        site = self.plan.site
        graph, nodes = self._finished(broken)
        site.tensors = dict(zip(site.names, self._arguments(graph, nodes), strict=True))
        plan = prepare(site, classify(site), settings)
        site.tensors = {}
        session = Session(plan, graph, nodes, self.others(), settings)
        session.engine.full({**nodes, **self.others()})
        return session

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
        return self._arguments(self.graph, self.nodes(self.graph.num_nodes))

    def _arguments(self, graph: DynamicGraph, nodes: dict[str, Tensor]) -> list[Any]:
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
        """Ids and new rows of the outputs that the last update changed, in the structure of the output."""
        if isinstance(self.plan.traced.structure, Output) and self._only is not None:
            ids = _sorted(self._only)
            return ids, self._only.gather(self.backend.ids(ids))
        found: dict[int, Tensor] = {}
        for i, value in enumerate(self.plan.program.outputs):
            cell = self.engine.cells[value]
            if value.domain is Domain.NODE:
                found[i] = _sorted(cell)
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
        leaf = lambda v: isinstance(v, Output)  # noqa: E731
        return pytree.tree_map(lambda v: fill(v) if leaf(v) else v, structure, is_leaf=leaf)

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
        self.resolver.resolve(delta)  # a delta that would be refused has no inverse
        delta = delta.both_directions()
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
            for name, rows in graph.edge_data.items():
                back[f"{name}_add"] = rows[torch.from_numpy(gone)]
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
            a.step.output.name: {k: r.tensor[:count].clone() for k, r in a.extra.items()}
            for a in self.engine.aggregators
        }
        site = self.plan.site
        state: dict[str, Any] = {
            "names": site.names,
            "constants": site.constants,
            "data_fields": {k: list(v) for k, v in site.data_fields.items()},
            "num_nodes": count,
            "graph": self.graph.state(),
            "others": self.others(),
            "rows": rows,
            "aggregators": kept,
            "program": str(self.plan.program),
            "by_target": self.graph.by_target,
            "program_format": self.plan.program.format,
        }
        if exact:
            state["constants"] = repr(site.constants)
            state["lists"] = self.graph.lists()
        return state

    @classmethod
    def from_state(
        cls, content: dict[str, Any], model: nn.Module, settings: Settings, *, exact_sums: bool
    ) -> Session:
        """Continue from `state(exact=False)`."""
        fields = {name for names in content["data_fields"].values() for name in names}
        graph_state = dict(content["graph"])
        edge_index = graph_state.pop("edge_index")
        tensors: dict[str, Any] = {**content["others"], **graph_state}
        node_rows = {k: v for k, v in content["rows"].items() if k in content["names"]}
        tensors |= node_rows
        x = next(iter(node_rows.values()))
        graph_name = next(n for n in content["names"] if n not in tensors)
        fmt = content["program_format"]
        tensors[graph_name] = to_format(
            fmt, edge_index, graph_state.get("edge_weight"), content["num_nodes"], x.device
        )
        arguments: dict[str, Any] = dict(content["constants"])
        for key, names in content["data_fields"].items():
            arguments[key] = Data(**{n: tensors[n] for n in names})
        arguments |= {n: tensors[n] for n in content["names"] if n not in fields}
        site = CallSite(model, arguments)
        roles = classify(site)
        plan = prepare(site, roles, settings)
        nodes = {n: tensors[n] for n in roles.nodes}
        others = {n: tensors[n] for n in roles.others}
        graph = DynamicGraph(edge_index, content["num_nodes"], graph_state, content["by_target"])
        session = cls(plan, graph, nodes, others, settings)
        session.engine.full({**nodes, **others})
        site.tensors = {}
        if exact_sums and str(plan.program) == content["program"] and plan.mode == "incremental":
            session.engine.restore(content["rows"], content["aggregators"])
        return session


def _sorted(cell: Cell) -> Tensor:
    """The changed rows of a value, ascending."""
    if cell.ids is None:
        return NO_IDS
    ids = cell.ids.tensor
    return torch.from_numpy(np.sort(ids.numpy()))


def _changed_rows(before: Any, after: Any) -> Tensor:
    """Rows of an output without a row per node that changed; all of them if its shape did."""
    if not isinstance(after, Tensor) or not after.dim():
        return NO_IDS
    if not isinstance(before, Tensor) or before.shape != after.shape:
        return torch.arange(after.shape[0])
    same = (before == after) | ((before != before) & (after != after))
    return (~same.flatten(1).all(1) if after.dim() > 1 else ~same).nonzero().flatten().cpu()
