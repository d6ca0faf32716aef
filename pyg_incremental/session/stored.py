"""Everything that a session stores, as plain values and tensors: for files, and to compare."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from pyg_incremental.call.state import described
from pyg_incremental.program.steps import Domain
from pyg_incremental.session.session import Session


def stored(session: Session, exact: bool, copy: bool = True) -> dict[str, Any]:
    """What is stored.

    Args:
        session: The running state.
        exact: With the neighbour lists, to compare two states.
        copy: Whether rows are copied; else they are views, which change with the session.
    """
    site, roles, counts = session.plan.site, session.roles, session.num_nodes
    state: dict[str, Any] = {
        **described(site, roles),
        "num_nodes": {kind: counts[kind] for kind in roles.kinds},
        "graphs": {r.graph: session.graphs[r.graph].state() for r in roles.given},
        "others": session.others(),
        "rows": _rows(session, copy),
        "aggregators": _aggregators(session, copy),
        "program": str(session.plan.program),
    }
    if exact:
        state["constants"] = repr(site.constants)
        state["lists"] = {name: g.lists() for name, g in session.graphs.items()}
    return state


def stored_rows(session: Session) -> Iterator[Tensor]:
    """The stored rows of nodes, as live views."""
    yield from _rows(session, copy=False).values()


def _rows(session: Session, copy: bool) -> dict[str, Tensor]:
    """The stored rows of nodes, by the name of the value."""
    return {
        value.name: _as_asked(cell.tensor[: session.num_nodes[value.kind]], copy)
        for value, cell in session.engine.cells.items()
        if value.domain is Domain.NODE and cell.stored
    }


def _as_asked(rows: Tensor, copy: bool) -> Tensor:
    return rows.clone() if copy else rows


def _aggregators(session: Session, copy: bool) -> dict[str, dict[str, Tensor]]:
    """What aggregations keep beside their rows, by the name of the value."""
    found = {}
    for a in session.engine.aggregators:
        count = session.num_nodes[a.step.output.kind]
        kept = {name: _as_asked(rows.tensor[:count], copy) for name, rows in a.extra.items()}
        if a.scale.rows is not None:
            kept["scale"] = a.scale.tensor
        found[a.step.output.name] = kept
    return found
