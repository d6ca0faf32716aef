"""The three ways in which a session starts: from a call, another session, or a saved state."""

from dataclasses import replace
from typing import Any

from torch import nn
from torch_geometric.data import Data

from pyg_incremental.call_site import CallSite, Roles, classify, to_format
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.prepare import prepare
from pyg_incremental.session import Session
from pyg_incremental.settings import Settings


def from_call(site: CallSite, settings: Settings) -> Session:
    """Trace a call and compute all rows.

    Args:
        site: The call; its tensors are taken over.
        settings: What the user chose.
    """
    roles = classify(site)
    nodes = {name: site.tensors[name].detach() for name in roles.nodes}
    others = {name: site.tensors[name] for name in roles.others}
    data = {name: site.tensors[name] for name in roles.edges}
    if roles.values is not None:
        data["edge_weight"] = roles.values
    plan = prepare(site, roles, settings)
    graph = DynamicGraph(roles.edge_index, roles.num_nodes, data, roles.by_target)
    session = Session(plan, graph, nodes, others, settings)
    session.fill(nodes, others)
    site.tensors = {}
    return session


def from_session(session: Session, settings: Settings, broken: bool) -> Session:
    """A new session on the current graph and features, traced and computed anew.

    Args:
        session: The session whose place it takes.
        settings: What the user chose.
        broken: Whether an update was interrupted.
    """
    site = session.plan.site
    graph, nodes = session.finished(broken)
    others = session.others()
    site.tensors = dict(zip(site.names, session.arguments_on(graph, nodes), strict=True))
    values = graph.state(for_model=True).get("edge_weight")
    roles = replace(
        session.roles,
        num_nodes=graph.num_nodes,
        values=None if session.roles.values is None else values,
    )
    plan = prepare(site, roles, settings)
    site.tensors = {}
    again = Session(plan, graph, nodes, others, settings)
    again.fill(nodes, others)
    return again


def from_state(
    content: dict[str, Any], model: nn.Module, settings: Settings, *, exact_sums: bool
) -> Session:
    """Continue from `Session.state(exact=False)`.

    Args:
        content: The state.
        model: The model that it belongs to.
        settings: What the user chose.
        exact_sums: Whether the stored rows are taken over as they are.
    """
    fields = {name for names in content["data_fields"].values() for name in names}
    graph_state = dict(content["graph"])
    edge_index = graph_state.pop("edge_index")
    tensors: dict[str, Any] = {**content["others"], **graph_state}
    saved = content["roles"]
    tensors |= {name: content["rows"][name] for name in saved["nodes"]}
    fmt, device = saved["format"], tensors[saved["x"]].device
    graph_values = graph_state.get("edge_weight") if fmt != "coo" else None
    tensors[saved["graph"]] = to_format(fmt, edge_index, graph_values, content["num_nodes"], device)
    arguments: dict[str, Any] = dict(content["constants"])
    for key, names in content["data_fields"].items():
        arguments[key] = Data(**{n: tensors[n] for n in names})
    arguments |= {n: tensors[n] for n in content["names"] if n not in fields}
    site = CallSite(model, arguments, content["positional"])
    values = None if fmt == "coo" else graph_state.get("edge_weight")
    said: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()}
    roles = Roles(
        **said,
        edge_index=edge_index,
        values=values,
        num_nodes=content["num_nodes"],
    )
    plan = prepare(site, roles, settings)
    nodes = {n: tensors[n] for n in roles.nodes}
    others = {n: tensors[n] for n in roles.others}
    graph = DynamicGraph(edge_index, content["num_nodes"], graph_state, roles.by_target)
    session = Session(plan, graph, nodes, others, settings)
    session.fill(nodes, others)
    site.tensors = {}
    if exact_sums and str(plan.program) == content["program"] and plan.mode == "incremental":
        session.engine.restore(content["rows"], content["aggregators"])
    return session
