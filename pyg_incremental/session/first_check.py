"""The first pass held against the original model, in a bounded amount of memory.

A model's own pass holds a row for every edge, and on a dense graph a few nodes see nearly all of
them. So the model runs on a part of the graph that fits in `ROOM`:

* on all that some nodes see, where so few edges are enough: what it says of these nodes is compared
  with the rows that were stored;
* else on some of the edges around them: there the program runs as well, and all that both say is
  compared. It is the program that may have missed something, and it is the same on every graph.

The reference is always the user's own model. Where that fails, nothing is known of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyg_incremental.call import full_pass
from pyg_incremental.engine.memory import memory_of
from pyg_incremental.session.against_model import (
    CHECKED,
    Comparison,
    everywhere,
    nodes_to_check,
    on_part,
    sample,
    sees_parts,
    why_it_differs,
)
from pyg_incremental.session.near import complete_around, rows_in, some_around
from pyg_incremental.session.session import Session

ROOM = 1 << 28
"""Bytes that the model may take, by an estimate, on what is looked at beside the store."""

TRIES = 3
"""Draws of nodes: PyG's sorting aggregations fail where the last node of a part has no edges."""


@dataclass(frozen=True)
class Verdict:
    """What came of it.

    Attributes:
        why: Why the program is not exact; empty if nothing speaks against it.
        where: On what it was held against the model.
        skipped: Why it was not; empty if it was.
    """

    why: str = ""
    where: str = ""
    skipped: str = ""


class _NoReference(Exception):
    """The model itself fails; the message says how."""


def first_check(session: Session) -> Verdict:
    """Hold the first pass against the original model.

    Raises:
        Exception: Whatever the model raises on all of the graph, as the user's call of it would;
            but for a lack of memory, which says nothing of either.
    """
    program = session.plan.program
    num_edges = sum(g.num_edges for g in session.graphs.values())
    size = sum(session.num_nodes.values()) + num_edges
    most = rows_in(session, ROOM)
    beside = rows_in(session, ROOM + memory_of(session.engine, session.count).total)
    found, why = None, ""
    try:
        if nodes_to_check(program) is None or not sees_parts(session):
            if size <= beside:
                return _verdict(session, everywhere(session), "all nodes", whole=True)
        else:
            found = _at_nodes(session, most)
            if found is not None and (found.why or found.where == _nodes(CHECKED)):
                return found
    except _NoReference as error:
        why = str(error)
    for seed in range(TRIES):
        try:
            return _on_some_edges(session, most, beside, seed)
        except _NoReference as error:
            why = str(error)
    said = f"the model itself fails on what was to be compared ({why})"
    return found or Verdict(skipped=said)


def _nodes(count: int) -> str:
    return f"{count} nodes" if count != 1 else "1 node"


def _at_nodes(session: Session, most: int) -> Verdict | None:
    """Compare stored rows with the model on all that as many nodes as possible see."""
    for count in (CHECKED, 4, 1):
        asked = sample(session, count, seed=0)
        part = complete_around(session, asked, most)
        if part is not None:
            return _verdict(session, on_part(session, asked, part), _nodes(count))
    return None


def _on_some_edges(session: Session, most: int, beside: int, seed: int) -> Verdict:
    """Compare program and model on a smaller graph, made of edges of this one."""
    part = some_around(session, sample(session, CHECKED, seed), most)
    if part.num_nodes > beside:
        return Verdict(
            skipped=f"there can be no fewer than its {part.num_nodes:,} nodes, on which the model "
            f"itself would need more than {ROOM >> 20} MB beside the store"
        )
    where = f"{part.num_edges:,} edges of the graph"
    try:
        small = session.on(*part.state(session))
        both = everywhere(small)
    except Exception as error:  # of the program, if the model itself does not fail there
        if full_pass.lacks_memory(error):
            return Verdict(skipped=f"there is no memory for it ({_said(error)})")
        arguments = session.arguments_on(*part.state(session))
        _reference(lambda: full_pass.run(session.plan.site, arguments, fresh=True))
        return Verdict(f"its program fails on {where} ({_said(error)})", where)
    return _verdict(session, both, where)


def _verdict(session: Session, both: Comparison, where: str, whole: bool = False) -> Verdict:
    gap = full_pass.gap(both.ours, _reference(both.model, whole))
    return Verdict(why_it_differs(session.plan.program, gap), where)


def _reference(model: Callable[[], Any], whole: bool = False) -> Any:
    """What the model says; an error on the `whole` graph is that of the user's call."""
    try:
        return model()
    except Exception as error:  # a user's model may raise anything
        if whole and not full_pass.lacks_memory(error):
            raise
        raise _NoReference(_said(error)) from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
