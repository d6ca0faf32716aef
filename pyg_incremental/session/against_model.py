"""A session held against the original model, on all of its graph or on a part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_incremental.call import full_pass
from pyg_incremental.call.members import all_in_graphs, count_of, set_apart
from pyg_incremental.call.roles import Roles
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.journal import Journal, State
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.program.steps import Domain, Program
from pyg_incremental.session.compact import left_over, new_ids
from pyg_incremental.session.near import NearPart, complete_around
from pyg_incremental.session.session import Session

CHECKED = 16
"""Nodes of each kind that the first pass of a program made of known steps is checked at."""


def nodes_to_check(program: Program) -> int | None:
    """How many nodes of each kind the first pass is held against the model on; None for all."""
    return None if program.whole_steps or found_by_trying(program) else CHECKED


def why_it_differs(program: Program, gap: float) -> str:
    """What is said of a program that is off by so much on the user's graph; empty for zero."""
    if not gap:
        return ""
    doubtful = found_by_trying(program) or [s.output.name for s in program.whole_steps]
    names = ", ".join(f"'{name}'" for name in doubtful) or "a step"
    return f"the program differs from the model by {gap:.3g} on this graph, at {names}"


def found_by_trying(program: Program) -> list[str]:
    """The steps that were found to be local by trying: functions of which nothing else is known."""
    return [s.output.name for s in program.steps if s.recomputes]


@dataclass(frozen=True)
class Comparison:
    """Our output beside the model's, which is not computed yet.

    Attributes:
        ours: Rows of ours, copied or not to be changed until then.
        model: Runs a copy of the original model, so that nothing it may have kept of earlier calls
            can matter, and returns the same rows of what it says.
    """

    ours: Any
    model: Callable[[], Any]


def against_full_pass(session: Session, num_nodes: int | None, seed: int) -> Comparison:
    """Our output and the model's, for all nodes or on what a sample of them sees.

    Everything is copied here, and the model runs later.
    """
    if num_nodes is None or num_nodes >= session.count or not sees_parts(session):
        return everywhere(session)
    asked = sample(session, num_nodes, seed)
    part = complete_around(session, asked)
    assert part is not None
    return on_part(session, asked, part)


def everywhere(session: Session) -> Comparison:
    """Both on all of the graph."""
    ours = session.outputs.now(copy=True)
    nodes = {name: rows.clone() for name, rows in session.nodes().items()}
    every = as_given(session, (session.graphs, session.num_nodes, nodes))
    here, there = _in_both(session.roles, nodes)

    def model() -> Any:
        return session.outputs.chosen(full_pass.run(session.plan.site, every, fresh=True), there)

    return Comparison(session.outputs.chosen(ours, here), model)


def on_part(session: Session, asked: Mapping[str, Ids], part: NearPart) -> Comparison:
    """Our rows of some nodes, int64 `[k]` by kind, and the model's on the part that they see."""
    arguments = session.arguments_on(*part.state(session))
    kinds = session.outputs.kinds

    def rows_of(out: Any, ids: Mapping[str, Tensor]) -> Any:
        return pytree.tree_map(
            lambda t, kind: t[ids[kind]] if isinstance(t, Tensor) else t, out, kinds
        )

    here = {kind: torch.from_numpy(ids) for kind, ids in asked.items()}
    there = {kind: part.places(kind, ids) for kind, ids in asked.items()}
    site, ours = session.plan.site, rows_of(session.outputs.now(copy=False), here)
    return Comparison(ours, lambda: rows_of(full_pass.run(site, arguments, fresh=True), there))


def sample(session: Session, num_nodes: int, seed: int) -> dict[str, Ids]:
    """Some nodes of each kind, int64 `[num_nodes]`."""
    generator = torch.Generator().manual_seed(seed)
    return {
        kind: torch.randperm(n, generator=generator)[:num_nodes].numpy()
        for kind, n in session.num_nodes.items()
    }


def graphs_with_nodes(roles: Roles, nodes: Mapping[str, Tensor]) -> dict[str, slice]:
    """The graphs that a model has a row for, by kind: those up to the last one that has a node.

    Node inputs, `[num_nodes, ...]`, by name; those that name graphs are int64 `[num_nodes]`.

    Here, all others keep their rows; and the model is given removed nodes in one more.
    """
    named = [r for r in roles.relations if r.members and not r.every]
    return {r.target: slice(count_of(nodes[r.members])) for r in named}


def as_given(session: Session, state: State) -> list[Any]:
    """The arguments with which the model is called: without nodes that left a readout of all.

    Args:
        session: Whose model it is.
        state: Graphs, numbers of nodes and node inputs.
    """
    left = missing(session.roles, state[2])
    if left:
        gone = {kind: torch.nonzero(rows < 0).flatten().numpy() for kind, rows in left.items()}
        state = left_over(session, state, new_ids(state[1], gone))
    graphs, num_nodes, nodes = state
    return session.arguments_on(graphs, num_nodes, set_apart(session.roles, nodes))


def missing(roles: Roles, nodes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For each kind that is read out as one and lacks nodes which are there, int64 `[num_nodes]`.

    NeighborhoodRows of nodes that were removed are negative.
    """
    every = {r.source: nodes[r.members].cpu() for r in roles.relations if r.every}
    return {kind: rows for kind, rows in every.items() if not all_in_graphs(rows)}


def _in_both(roles: Roles, nodes: Mapping[str, Tensor]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rows that both we and the model have, by kind: here, and there.

    Removed nodes are in no graph here, whose row they could read.
    """
    here: dict[str, Any] = dict(graphs_with_nodes(roles, nodes))
    for r in roles.relations:
        if r.read_back and not all_in_graphs(nodes[r.members]):
            inside = nodes[r.members] >= 0
            here[r.source] = inside & here[r.source] if r.source in here else inside
    there = dict(here)
    for kind, rows in missing(roles, nodes).items():
        stays = rows >= 0
        inside = here.get(kind, torch.ones_like(stays)).to(stays.device)
        here[kind], there[kind] = inside & stays, inside[stays]
    return here, there


def sees_parts(session: Session) -> bool:
    """Whether the model can be run on what some rows see."""
    program, roles = session.plan.program, session.roles
    return not (
        roles.fixed
        or program.whole_steps
        or program.read_out
        or any(v.domain is not Domain.NODE for v in program.outputs)
        or any(roles.grows(kind) for kind in session.num_nodes)
    )


def why_not_after(session: Session, delta: GraphDelta) -> str:
    """Why the model itself cannot answer after a delta either; empty if it can."""
    orders = {name: g.next_order for name, g in session.graphs.items()}
    resolved, counts = session.resolver.resolve(delta), dict(session.num_nodes)
    journal = Journal(session.committed.version + 1, resolved, counts, orders, {}, {})
    state = journal.finished(session.graphs, session.roles, session.stored_inputs())
    try:
        full_pass.run(session.plan.site, as_given(session, state), fresh=True)
    except Exception as error:  # a user's model may raise anything
        return f"{type(error).__name__}: {error}"
    return ""
