"""The ways in which a session starts: from a call, another session, or a saved state."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from pyg_incremental.call import full_pass
from pyg_incremental.call.bound_call import BoundCall, device_of, dtype_of
from pyg_incremental.call.held_graphs import held_rows
from pyg_incremental.call.members import (
    count_of,
    counted,
    edges_of,
    leaving,
    put_back,
    with_everyone,
)
from pyg_incremental.call.roles import Roles, are_ones
from pyg_incremental.call.state import relations_of, site_of
from pyg_incremental.call.untold import ask_what_is_read
from pyg_incremental.delta.journal import State
from pyg_incremental.delta.resolve.derived import with_derived
from pyg_incremental.errors import InvalidDeltaError, warn
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.storage import Storage
from pyg_incremental.kernels.takeover import KERNELS
from pyg_incremental.session import interrupted
from pyg_incremental.session.classified import classified
from pyg_incremental.session.compact import Removed, left_over, new_ids
from pyg_incremental.session.first_check import first_check
from pyg_incremental.session.prepare import prepare
from pyg_incremental.session.session import Session
from pyg_incremental.session.settings import Settings

_log = logging.getLogger(__name__)


def begin_kernels(model: nn.Module, settings: Settings) -> None:
    """See that kernels serve: compiled ones, or plain ones until these are made."""
    dtype = str(dtype_of(model, ())).removeprefix("torch.")
    if settings.backend == "compiled":
        KERNELS.wait()
    if settings.backend != "reference":
        was_making = KERNELS.is_making
        KERNELS.begin(dtype, ["loop"])
        KERNELS.poll()
        if KERNELS.is_making and not was_making:
            _log.info("kernels of %s are being compiled or loaded; plain ones serve so long", dtype)


def say_if_made() -> None:
    """Tell the logger that compiled kernels have taken over, if they have."""
    if not KERNELS.is_making:
        _log.info("compiled kernels serve now")


def from_call(site: BoundCall, settings: Settings) -> Session:
    """Trace a call and compute all rows.

    Args:
        site: The call; its tensors are taken over.
        settings: What the user chose.
    """
    site, roles = _with_held(site, *classified(site, settings), settings)
    nodes = {name: site.tensors[name].detach() for name in roles.nodes}
    for name in roles.others:  # as of now, like features and edges, whatever becomes of them
        if isinstance(site.tensors[name], Tensor):
            site.tensors[name] = site.tensors[name].detach().clone()
    others = {name: site.tensors[name] for name in roles.others}
    try:
        plan = prepare(site, roles, settings)
    except Exception as error:
        ask_what_is_read(site.objects.values(), error)
        raise
    nodes = with_everyone(plan.roles, nodes, roles.num_nodes)
    storage = settings.storage
    counts = counted(plan.roles, roles.num_nodes, nodes)
    given = _graphs(roles, site.tensors, storage)
    graphs = _with_members(plan.roles, nodes, given, counts, storage)
    session = Session(plan, graphs, counts, nodes, others, settings)
    del roles
    site.tensors = {}  # edges that were copied out of another format are let go of
    if plan.fallback:
        session.fill(nodes, others)
        return session
    try:
        session.fill(nodes, others)
    except Exception as error:  # a user's model may raise anything; if it does so whole, it will
        if full_pass.lacks_memory(error):
            raise
        site.whole = f"its program fails on this graph ({type(error).__name__}: {error})"
    else:
        if settings.check:
            found = first_check(session)
            site.whole, session.checked = found.why, found.where
            _say_if_skipped(session, found.skipped)
    return from_session(session) if site.whole else session


def _with_held(
    site: BoundCall, found: BoundCall, roles: Roles, settings: Settings
) -> tuple[BoundCall, Roles]:
    """The call, with rows of edges that the model holds if it is followed with these alone.

    Args:
        site: The call as it came.
        found: The same with pairs in the place of ids.
        roles: What its tensors are.
        settings: What the user chose.
    """
    counts = {edges.shape[1] for edges in roles.edge_index.values()}
    held = held_rows(site.model, counts) if counts else {}
    held = {path: rows for path, rows in held.items() if path not in site.tensors}
    quiet = replace(settings, strict=False)
    if not held or not prepare(found, roles, quiet).fallback:
        return found, roles
    try:
        more = classified(site.with_held(held), settings)
        plan = prepare(*more, quiet)
        if plan.fallback:
            return found, roles
        read = {v.name for s in plan.program.steps for v in s.inputs}
        held = {path: rows for path, rows in held.items() if path in read}
        return classified(site.with_held(held), settings)
    except InvalidDeltaError:  # they may be rows of nodes as well
        return found, roles


def _say_if_skipped(session: Session, why: str) -> None:
    """Warn of a first pass that could not be held against the model, which is no fault of it."""
    if not why:
        return
    warn(
        f"{type(session.plan.site.model).__name__}: its first pass was not held against the model: "
        f"{why}. Its program agrees with the model on a small graph; verify(num_nodes=1) compares "
        "on this one, given memory, and check=False says that nobody asks for it"
    )


def _graphs(roles: Roles, tensors: Mapping[str, Any], storage: Storage) -> dict[str, DynamicGraph]:
    return {
        r.graph: DynamicGraph(
            roles.edge_index[r.graph],
            max(roles.num_nodes[r.source], roles.num_nodes[r.target]),
            roles.data_of(r, tensors),
            r.by_target,
            storage,
        )
        for r in roles.given
    }


def _with_members(
    roles: Roles,
    nodes: Mapping[str, Tensor],
    graphs: dict[str, DynamicGraph],
    num_nodes: Mapping[str, int],
    storage: Storage,
) -> dict[str, DynamicGraph]:
    """The graphs, the edges that inputs such as `batch` stand for, and those derived from these."""
    missing = [r for r in roles.relations if r.members and r.graph not in graphs]
    made = {}
    for r in missing:
        rows = nodes[r.members]
        room = max(len(rows), count_of(rows))
        made[r.graph] = DynamicGraph(edges_of(rows), room, {}, False, storage)
    device = next((rows.device for rows in nodes.values()), None)
    return with_derived(roles.relations, {**graphs, **made}, num_nodes, storage, device)


def from_session(session: Session) -> Session:
    """A new session on the current graph and features, traced and computed anew.

    Args:
        session: The session whose place it takes, and whose memory.
    """
    state = interrupted.before(session)
    again, nodes = _on(state, session)
    if not session.is_broken:
        session.interrupted = "a refresh was interrupted"  # from here on its rows are given up
    again.fill_in_place_of(session, nodes, session.others())
    again.checked = session.checked
    return again


def from_values(
    session: Session, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], apart: bool
) -> Session:
    """A new session in which some arguments have other values; the other one is as it was.

    Args:
        session: The session.
        tensors: Tensors of any shape, by the names of arguments.
        plain: Numbers and texts likewise. What the model does may depend on them, so that it is
            traced anew.
        apart: Whether what follows changes the graphs, which so have to be copies.
    """
    graphs = session.graphs
    if apart:
        graphs = {name: g.remade(g.num_nodes) for name, g in graphs.items()}
    nodes = {name: rows.clone() for name, rows in session.nodes().items()}
    others, counts = {**session.others(), **tensors}, dict(session.num_nodes)
    if plain:
        site = session.plan.site.on(session.plan.site.model)
        site.constants = {**site.constants, **plain}
        made, nodes = _on((graphs, counts, nodes), session, site, others)
    else:
        made = Session(session.plan, graphs, counts, nodes, others, session.settings)
    made.checked, made.committed = session.checked, session.committed
    made.fill(nodes, others)
    return made


def from_fewer_nodes(session: Session, removed: Removed) -> tuple[Session, dict[str, Tensor]]:
    """A new session without the nodes that were removed; the other one is as it was.

    Args:
        session: The session.
        removed: These nodes, of which some may be there again.

    Returns:
        The session, and the new id of every node, -1 for those that are gone, by kind.
    """
    ids = new_ids(session.num_nodes, removed.still(session))
    state = left_over(session, (session.graphs, session.num_nodes, session.nodes()), ids)
    again, nodes = _on(state, session)
    again.fill(nodes, session.others())
    return again, {kind: ids[kind] for kind in session.roles.kinds}


def _on(
    state: State,
    session: Session,
    site: BoundCall | None = None,
    others: dict[str, Any] | None = None,
) -> tuple[Session, dict[str, Tensor]]:
    """A session on some graphs and node inputs, in the place of another; no row is computed yet.

    And these inputs as its program takes them. The call and the other tensors are those of the
    other session if none are given.
    """
    site = site or session.plan.site
    graphs, num_nodes, nodes = state
    others, left = session.others() if others is None else others, leaving(session.roles)
    arguments = session.arguments_on(graphs, num_nodes, put_back(left, nodes), others)
    site.tensors = dict(zip(site.names, arguments, strict=True))
    values = {
        r.graph: graphs[r.graph].state(for_model=True)[r.values]
        for r in session.roles.given
        if r.graph in session.roles.values
    }
    relations = tuple(
        replace(r, unit_values=are_ones(values.get(r.graph))) for r in session.roles.relations
    )
    roles = replace(session.roles, relations=relations, num_nodes=dict(num_nodes), values=values)
    plan = prepare(site, roles.handed_in, session.settings)
    site.tensors = {}
    back = left - leaving(plan.roles)  # steps on all rows want every node in some graph
    again = {r.graph for r in session.roles.relations if r.members in back}
    nodes = with_everyone(plan.roles, put_back(back, nodes), num_nodes)
    graphs = {name: graph for name, graph in graphs.items() if name not in again}
    counts = counted(plan.roles, num_nodes, nodes)
    graphs = {r.graph: graphs[r.graph] for r in plan.roles.relations if r.graph in graphs}
    graphs = _with_members(plan.roles, nodes, graphs, counts, session.settings.storage)
    return Session(plan, graphs, counts, nodes, others, session.settings), nodes


def say_if_whole(session: Session) -> bool:
    """Warn where every update runs a full pass, or some steps on all rows; whether that is so."""
    plan = session.plan
    if plan.fallback:
        said = f"{plan.fallback}. Every update runs a full pass: exact, but not incremental"
    elif session.mode == "mixed":
        more = f", and {len(plan.why) - 1} more" if len(plan.why) > 1 else ""
        said = (
            f"{plan.why[0]}{more}. Every update runs that on all rows: exact, and all else is "
            "incremental"
        )
    else:
        return False
    _log.info("%s: %s", type(plan.site.model).__name__, said)
    warn(f"{type(plan.site.model).__name__}: {said}. explain() says what to write instead")
    return True


def from_state(content: dict[str, Any], model: nn.Module, settings: Settings) -> Session:
    """A session on the graph and features of `stored(session, exact=False)`, computed anew.

    Args:
        content: The state.
        model: The model that it belongs to.
        settings: What the user chose.
    """
    states: dict[str, dict[str, Any]] = {k: dict(v) for k, v in content["graphs"].items()}
    relations = relations_of(content)
    num_nodes, left = content["num_nodes"], set(content["leaving"])
    tensors: dict[str, Any] = dict(content["others"])
    rows = {name: content["rows"][name] for name in content["nodes"]}
    tensors |= put_back(left, rows)
    device = device_of(model, (tensors[name] for name in content["nodes"]))
    edge_index, values = {}, {}
    for r in relations:
        state = states[r.graph]
        tensors[r.graph] = full_pass.graph_object(r, state, num_nodes, device)
        edge_index[r.graph] = state.pop("edge_index")
        tensors |= state
        if r.graph in content["matrices"]:
            values[r.graph] = state[r.values]
    site = site_of(content, model, tensors)
    roles = Roles(
        relations,
        content["nodes"],
        content["edges"],
        tuple(content["others"]),
        num_nodes,
        edge_index,
        values,
        content["fixed"],
        tuple(site.unread),
        content["ids"],
    )
    plan = prepare(site, roles.handed_in, settings)
    rows = put_back(left - leaving(plan.roles), rows)
    nodes = with_everyone(plan.roles, rows, num_nodes)
    others = {n: tensors[n] for n in roles.others}
    storage = settings.storage
    counts = counted(plan.roles, num_nodes, nodes)
    given = _graphs(roles, tensors, storage)
    graphs = _with_members(plan.roles, nodes, given, counts, storage)
    session = Session(plan, graphs, counts, nodes, others, settings)
    session.fill(nodes, others)
    site.tensors = {}
    return session
