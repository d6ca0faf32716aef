"""A plain delta, from what a user hands in to what is reported, in one look.

The same is done as for every other delta, in the same order; what is known to hold for all of them
is not asked again. Whatever is not as it mostly is goes the longer way, which knows what to do, or
what to say.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from pyg_incremental.delta.journal import PlainJournal
from pyg_incremental.delta.resolve.plain import PlainDelta
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.rows import Cell
from pyg_incremental.session import report
from pyg_incremental.session.session import Session
from pyg_incremental.telemetry.work import UpdateStats, Work
from pyg_incremental.update import Update


def write_down(session: Session, delta: PlainDelta, main: str) -> None:
    """Let the journal hold what there is before a delta."""
    order, num_nodes, before = session.graphs[main].next_order, session.num_nodes, None
    if delta.rows is not None:
        before = session.engine.cells[session.program.inputs[delta.name]].listed(delta.ids)
    if delta.more:
        num_nodes = dict(num_nodes)
    about = session.committed.version + 1, delta, main, order, before, num_nodes
    session.journal = tuple.__new__(PlainJournal, about)  # sooner made than `PlainJournal(...)`


def _is_view(session: Session, delta: PlainDelta) -> bool:
    """Whether the new rows are a view of those they are written to, such as a part of `inc.x`."""
    if delta.rows is None:
        return False
    stored = session.engine.cells[session.program.inputs[delta.name]].tensor
    first = stored.data_ptr()
    return first <= delta.rows.data_ptr() < first + stored.nbytes


def apart(session: Session, delta: PlainDelta) -> PlainDelta:
    """The same delta, its rows no view of those that they are written to."""
    if not _is_view(session, delta):
        return delta
    assert delta.rows is not None
    return delta._replace(rows=delta.rows.clone())


def _count_new(session: Session, more: int) -> None:
    """There are so many more nodes of the only kind."""
    (kind,) = session.num_nodes
    session.num_nodes[kind] += more


def carry_out(session: Session, delta: PlainDelta) -> tuple[int, int, Work] | None:
    """Take a delta, and bring every row up to date; see `Session.carry_out`.

    Returns:
        How many edges came and left, and the work; None if the delta is not valid, or too large.
        Nothing was changed then.
    """
    fast, main = session.engine.fast, session.engine.main
    if fast is None or main is None:
        return None
    delta = apart(session, delta)
    fast.forget()
    write_down(session, delta, main)
    work = session.engine.update_at_once(delta)
    if work is None:
        session.journal = None
        return None
    if delta.more:
        _count_new(session, delta.more)
    return delta.added.shape[1], delta.gone.shape[1], work


def removed(session: Session, delta: PlainDelta) -> dict[str, Ids]:
    """The slots of the edges that a delta has removed, by graph; right after it only."""
    slots, main = session.engine.slots_at_once(delta), session.engine.main
    return {} if slots is None or main is None else {main: slots[0]}


class FewChanges:
    """The shortest way of one session, for deltas of few changes.

    Args:
        session: The running state.
        out: Its only output.

    Attributes:
        session: The same.
    """

    def __init__(self, session: Session, out: Cell) -> None:
        self.session, self._out = session, out

    def apply(self, delta: PlainDelta, delta_id: Any, began: float) -> Update[Any] | None:
        """Take a delta; None if it is not for this, or not valid: nothing was changed then."""
        session, more = self.session, delta.more
        engine = session.engine
        fast, main = engine.fast, engine.main
        if fast is None or main is None or not fast.takes_few(delta):
            return None
        if delta.rows is not None and _is_view(session, delta):
            return None
        fast.forget()
        write_down(session, delta, main)
        if engine.late is not None:
            engine.copy_late()
        if more:
            engine.make_room_for(more)
            fast.locate()
        done = fast.run_few(delta)
        if done is None:
            if more:
                engine.forget_new()
            session.journal = None
            return None
        ids = fast.changed_few(done[0], self._out)
        work = [fast.work] if ids is not None else engine.go_on_few(delta, *done)
        if more:
            _count_new(session, more)
        session.commit(delta_id, at_once=True)
        edges = delta.added.shape[1], delta.gone.shape[1]
        if ids is None:
            return report.updated(session, (*edges, work), began)
        ids.sort()
        changed, rows = torch.from_numpy(ids), torch.from_numpy(self._out.listed(ids))
        stats = UpdateStats(session.mode, *edges, time.perf_counter() - began, work)
        return Update(changed, rows, stats, session.committed.version)


def few_changes_of(session: Session) -> FewChanges | None:
    """The shortest way of a session; None if its output is not one tensor with rows of nodes."""
    out = session.outputs.only
    return None if out is None or not out.is_listed else FewChanges(session, out)
