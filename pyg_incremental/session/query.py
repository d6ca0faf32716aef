"""Rows of the output for ids that are not watched."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

import torch

from pyg_incremental.call.roles import is_label
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.names import listed
from pyg_incremental.errors import InvalidDeltaError, UnsupportedModelError
from pyg_incremental.program.steps import Domain, Relation
from pyg_incremental.session.session import Session


def query_delta(
    session: Session,
    given: Sequence[Any],
    named: Mapping[str, Any],
    rows_of: Callable[[str, Any, str], Any] | None = None,
) -> tuple[GraphDelta, bool]:
    """The delta that would watch other ids.

    Where the output has a row for each of the ids, and nothing else, they come beside those that
    are watched, and their rows are those that changed. Else they take the place of these.

    Args:
        session: The running state.
        given: The ids, and what goes with each of them, in the order of the model's arguments.
        named: The same by name.
        rows_of: Gives the rows of nodes of a kind, int64 `[k]`, by their names; None if ids are
            rows.

    Returns:
        The delta, and whether all of the output answers the question.

    Raises:
        UnsupportedModelError: If no ids are watched, or some steps run on all rows.
        InvalidDeltaError: If arguments are missing, or too many.
    """
    site, roles, program = session.plan.site, session.roles, session.program
    watched = [r for r in roles.given if is_label(r.graph)]
    alone = len(watched) == 1 and all(
        v.domain is Domain.EDGE and v.kind == watched[0].graph for v in program.outputs
    )
    where = f"query of {type(site.model).__name__}"
    if not watched or (not alone and program.whole_steps):
        raise UnsupportedModelError(
            f"{where}: the model is called without ids whose rows it is asked for, or has steps "
            "that run on all rows for others, too; call the model itself"
        )
    known = [*inspect.signature(site.model.forward).parameters]
    data = {r.graph: _beside(session, r.graph) for r in watched}
    names = [n for r in watched for n in (*_ids(session, r.graph), *data[r.graph])]
    names.sort(key=lambda n: known.index(n) if n in known else len(known))
    tensors = {**dict(zip(names, given, strict=False)), **named}
    if len(given) > len(names) or tensors.keys() != set(names):
        raise InvalidDeltaError(
            f"{where}: expected {names} (got {len(given)} by position, and {sorted(named)}); give "
            "them as the model takes them"
        )
    fields: dict[str, Any] = {"pairs_add": {}, "edge_data_add": {}}
    for r in watched:
        own = {n: tensors[n] for n in (*_ids(session, r.graph), *data[r.graph])}
        if rows_of is not None:
            own |= _in_rows(session, r, own, rows_of)
        own = {name: torch.as_tensor(t) for name, t in own.items()}
        asked, table = site.asked.get(r.graph), roles.asked(r.graph)
        pairs: Any = asked.pairs(own) if asked else own[r.graph]
        if asked is not None and table:
            pairs = tuple(asked.rows(own[n]) for n in table)
        fields["pairs_add"][r.key] = pairs
        if data[r.graph]:
            fields["edge_data_add"][r.key] = {name: own[name] for name in data[r.graph]}
    if not alone:
        fields["edge_index_del"] = {r.key: session.graphs[r.graph].to_edge_index() for r in watched}
    return GraphDelta(**{name: of for name, of in fields.items() if of}), not alone


def _ids(session: Session, graph: str) -> tuple[str, ...]:
    """The arguments with the ids that pairs stand for."""
    asked = session.plan.site.asked.get(graph)
    return asked.names if asked else (graph,)


def _beside(session: Session, graph: str) -> list[str]:
    """The other arguments with a row for each pair."""
    ids = _ids(session, graph)
    return [n for n, of in session.roles.edges.items() if of == graph and n not in ids]


def _in_rows(
    session: Session,
    relation: Relation,
    given: Mapping[str, Any],
    rows_of: Callable[[str, Any, str], Any],
) -> dict[str, Any]:
    """Ids by their names as rows."""
    ends, asked = (relation.source, relation.target), session.plan.site.asked.get(relation.graph)
    table = session.roles.asked(relation.graph)
    form, like = asked.form if asked else "rows", session.graphs[relation.graph].edge_data
    found: dict[str, Any] = {}
    for name, end in zip(_ids(session, relation.graph), cycle(ends), strict=False):
        if table and like[name].dim() > 1:
            raise UnsupportedModelError(
                f"query: the columns of '{name}' may be ids or anything else, and nodes have "
                "names; give each column as an argument of its own"
            )
        if form in ("one", "two") or table:
            found[name] = rows_of(end, given[name], name)
            continue
        pairs = listed(given[name])
        both = pairs if form == "rows" else [*zip(*pairs, strict=True)]
        rows = [rows_of(kind, of, name) for kind, of in zip(ends, both, strict=True)]
        found[name] = torch.stack(rows, 0 if form == "rows" else 1)
    return found
