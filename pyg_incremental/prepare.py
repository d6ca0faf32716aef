"""From a call to its plan: traced, and held against the model before it is trusted."""

import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_incremental import full_pass
from pyg_incremental.call_plan import CallPlan
from pyg_incremental.call_site import CallSite, Roles
from pyg_incremental.delta import GraphDelta
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.probe import probe_arguments, probe_graph
from pyg_incremental.program import Domain, Program
from pyg_incremental.session import Session
from pyg_incremental.settings import Settings
from pyg_incremental.trace import trace
from pyg_incremental.traced import NotTraceable, Output, Traced

_NO_ARGUMENT = torch.empty(2, 0, dtype=torch.int64)
_AGREE = {torch.float64: 1e-8, torch.float32: 1e-3}


def prepare(site: CallSite, roles: Roles, settings: Settings) -> CallPlan:
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first pass itself will say it
            expected = full_pass.run(site, arguments)
    except Exception as error:  # a user's model may raise anything
        count = len(tensors[roles.x])
        reason = f"it does not run on a probe of {count} nodes ({type(error).__name__}: {error})"
        # A broken call raises here as it does in PyG.
        expected = full_pass.run(site, list(site.tensors.values()))
        plan = CallPlan(
            site, lean, _one_step(site, roles, expected, roles.num_nodes), reason.splitlines()[0]
        )
    else:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                plan = CallPlan(site, lean, trace(site, roles, arguments), "")
                _hold_against(plan, expected, tensors, edge_index, settings)
        except NotTraceable as error:
            plan = CallPlan(
                site, lean, _one_step(site, roles, expected, len(tensors[roles.x])), str(error)
            )
    if settings.strict and plan.why:
        raise UnsupportedModelError(
            f"{type(site.model).__name__} has steps that run on all rows with every update: "
            f"{'; '.join(plan.why)}. Replace them, or wrap it without strict=True: it then stays "
            "exact at the cost of these steps"
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
                    f"{type(site.model).__name__} returns {type(leaf).__name__} beside tensors, "
                    "which cannot be kept current"
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
    plan: CallPlan,
    expected: Any,
    tensors: dict[str, Tensor],
    edge_index: Tensor,
    settings: Settings,
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
        session.fill(nodes, others)
        _same_or_raise(session.output(copy=False), expected, "on a probe")
        # Larger than anything before, so that no maximum of all rows can hide.
        x = nodes[roles.x]
        delta = GraphDelta(
            edge_index_add=edge_index[:, [0, 5]].flip(0),
            edge_index_del=edge_index[:, [1, 7]],
            x_changes=([2, 3], _tripled(x[[4, 5]])),
            x_add=_tripled(x[[6]]) if len(nodes) == 1 else None,
            edge_data_add={k: _tripled(v[[2, 3]]) for k, v in edges.items()},
        )
        session.update(session.resolver.resolve(delta))
        _same_or_raise(
            session.output(copy=False), session.model_output(), "on a probe after a delta"
        )
    except NotTraceable:
        raise
    except Exception as error:  # a user's model may raise anything when it sees fewer rows
        raise NotTraceable(
            f"the program of {type(site.model).__name__} fails on a probe ({type(error).__name__}: "
            f"{error})"
        ) from error


def _tripled(rows: Tensor) -> Tensor:
    return 3 * rows if rows.dtype.is_floating_point else rows


def _same_or_raise(ours: Any, theirs: Any, where: str) -> None:
    leaves = [t for t in pytree.tree_leaves(theirs) if isinstance(t, Tensor)]
    dtype = next((t.dtype for t in leaves if t.dtype.is_floating_point), torch.float64)
    scale = max(
        (float(t.double().nan_to_num(0, 0, 0).abs().max()) for t in leaves if t.numel()),
        default=0.0,
    )
    own = [t for t in pytree.tree_leaves(ours) if isinstance(t, Tensor)]
    if [t.dtype for t in own] != [t.dtype for t in leaves]:
        raise NotTraceable(f"its inputs are of different dtypes, and its output {where} too")
    gap = full_pass.difference(ours, theirs)
    if gap > _AGREE.get(dtype, 0.1) * max(scale, 1.0):
        raise NotTraceable(f"the traced program differs from the model by {gap:.3g} {where}")
