"""Rows of the output for ids that are not watched."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pyg_incremental.call.roles import is_label
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.names import listed
from pyg_incremental.errors import InvalidDeltaError, UnsupportedModelError
from pyg_incremental.program.steps import Domain
from pyg_incremental.session.session import Session


def query_delta(
    session: Session,
    given: Sequence[Any],
    named: Mapping[str, Any],
    rows_of: Callable[[str, Any, str], Any] | None = None,
) -> GraphDelta:
    """The delta that would watch other ids, after which their rows are those that changed.

    Args:
        session: The running state.
        given: The ids, and what goes with each of them, in the order of the model's arguments.
        named: The same by name.
        rows_of: Gives the rows of nodes of a kind, int64 `[k]`, by their names; None if ids are
            rows.

    Raises:
        UnsupportedModelError: If the output has no row for each of the ids alone.
        InvalidDeltaError: If arguments are missing, or too many.
    """
    site, roles = session.plan.site, session.roles
    watched = [r for r in roles.given if is_label(r.graph)]
    outputs = session.program.outputs
    alone = len(watched) == 1 and all(
        v.domain is Domain.EDGE and v.kind == watched[0].graph for v in outputs
    )
    where = f"query of {type(site.model).__name__}"
    if not alone:
        raise UnsupportedModelError(
            f"{where}: the output does not have a row for each of the ids that were asked for, and "
            "for nothing else, so no others can be; call the model itself"
        )
    (relation,) = watched
    asked = site.asked.get(relation.graph)
    ids = asked.names if asked else (relation.graph,)
    data = [name for name, graph in roles.edges.items() if graph == relation.graph]
    known = [*inspect.signature(site.model.forward).parameters]
    names = sorted((*ids, *data), key=lambda n: known.index(n) if n in known else len(known))
    tensors = {**dict(zip(names, given, strict=False)), **named}
    if len(given) > len(names) or tensors.keys() != set(names):
        raise InvalidDeltaError(
            f"{where}: expected {names} (got {len(given)} by position, and {sorted(named)}); give "
            "them as the model takes them"
        )
    if rows_of is not None:
        ends, form = (relation.source, relation.target), asked.form if asked else "rows"
        for name, end in zip(ids, ends, strict=False):
            if form in ("one", "two"):
                tensors[name] = rows_of(end, tensors[name], name)
                continue
            pairs = listed(tensors[name])
            both = pairs if form == "rows" else [*zip(*pairs, strict=True)]
            found = [rows_of(kind, of, name) for kind, of in zip(ends, both, strict=True)]
            tensors[name] = torch.stack(found, 0 if form == "rows" else 1)
    tensors = {name: torch.as_tensor(t) for name, t in tensors.items()}
    pairs = asked.pairs(tensors) if asked else tensors[relation.graph]
    rows = {relation.key: {name: tensors[name] for name in data}} if data else None
    return GraphDelta(pairs_add={relation.key: pairs}, edge_data_add=rows)
