"""What there is to go on from when an update was interrupted: the state before it, or after it."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.journal import Journal, PlainJournal, State
from pyg_incremental.errors import RowCountError
from pyg_incremental.kernels.threads import wait_for_all
from pyg_incremental.session.against_model import why_not_after
from pyg_incremental.session.session import Session


def gone_back(session: Session, error: Exception) -> Session:
    """A session on the state before an update that fails with an error, which is told of it.

    Where that cannot be had, the same session, which then is broken.
    """
    back = None
    if _found_no_room(session, error):
        return _told(session, error)
    with contextlib.suppress(Exception):  # else the state is stale
        back = taken_back(session)
        if back or not session.is_broken:
            return _told(back or session, error)
    return back or session


def _told(session: Session, error: Exception) -> Session:
    """The same session, behind an error that says that it is on the state of before."""
    if hasattr(error, "add_note"):  # since Python 3.11
        error.add_note("The update was taken back. Nothing was changed.")
    return session


def note_of_ids(delta: GraphDelta, error: Exception) -> None:
    """Say behind an `IndexError` of the model which integers of a delta it may have looked up."""
    if not isinstance(error, IndexError) or not hasattr(error, "add_note"):
        return
    changes: Any = delta.x_changes  # (ids, rows), or a dict of these
    for field, given in (("x_add", delta.x_add), ("x_changes", changes)):
        for name, rows in _by_name(given, field):
            largest = rows.max() if rows.size and rows.dtype.kind in "iu" else None
            if largest is not None:
                error.add_note(
                    f"{name} has integers up to {largest}; where the model looks rows up by them, "
                    "as in an nn.Embedding, the table may have no more than that many rows"
                )


def _by_name(given: Any, field: str) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The arrays of a field of rows, and how users call each."""
    if isinstance(given, Mapping):
        for name, part in given.items():
            yield from _by_name(part, f"{field}[{name!r}]")
    elif isinstance(given, tuple):
        yield f"{field}[1]", np.asarray(given[1])
    elif given is not None:
        yield field, np.asarray(given)


def _found_no_room(session: Session, error: Exception) -> bool:
    """Take back an update that found no room, if it has not changed anything yet.

    To compute all anew, as after other errors, there would be no room either.
    """
    journal = session.journal
    if journal is None or error is not session.settings.storage.refused:
        return False
    if isinstance(journal, PlainJournal):
        if session.engine.slots_at_once(journal.delta) is not None:
            return False
    elif not session.makes_room:
        return False
    session.engine.forget_begun(session.num_nodes)
    session.journal, session.makes_room = None, False
    return True


def misses_something(session: Session, delta: GraphDelta, error: Exception) -> bool:
    """Whether an update fails because of its program, which has missed something.

    So it is where a step makes another number of rows than it stands for, and the model itself does
    not fail on the changed graph.

    Args:
        session: The state before the update.
        delta: The update.
        error: How it fails.
    """
    return not (
        session.is_broken
        or session.plan.fallback
        or not isinstance(error, RowCountError)
        or why_not_after(session, delta)
    )


def taken_back(session: Session) -> Session | None:
    """A session on the state before an update that failed; None if none has begun."""
    if not session.has_begun:
        return None
    graphs, counts, nodes = before(session)
    again = session.on(graphs, counts, nodes)
    again.watch, again.committed = session.watch, again.noted(session.committed)
    return again


def before(session: Session) -> State:
    """Graphs, numbers of nodes and node inputs without an update that is not in.

    It does not matter where that was interrupted, and this may be interrupted, too, and done again.
    """
    if not session.is_broken:
        return session.graphs, session.num_nodes, session.nodes()
    wait_for_all()  # threads that have a part in the update may not have noticed
    journal, graphs, roles = session.journal, session.graphs, session.roles
    if journal is None or not session.has_begun:
        return _remade(session)
    if isinstance(journal, Journal):
        return journal.undone(graphs, roles, session.stored_inputs())
    slots = session.engine.slots_at_once(journal.delta)
    return journal.undone(graphs, roles, session.nodes(), slots)


def finished(session: Session, broken: bool) -> State:
    """Graphs, numbers of nodes and node inputs, an interrupted update applied.

    It does not matter where the update was interrupted.
    """
    if not broken:
        return session.graphs, session.num_nodes, session.nodes()
    if not isinstance(session.journal, Journal):
        return _remade(session)
    return session.journal.finished(session.graphs, session.roles, session.stored_inputs())


def _remade(session: Session) -> State:
    graphs = {name: g.remade(g.num_nodes) for name, g in session.graphs.items()}
    return graphs, session.num_nodes, session.nodes()
