"""A plain delta of few changes, from what a user hands in to what is reported, in one look.

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
from pyg_incremental.rows import Cell
from pyg_incremental.session import report
from pyg_incremental.session.session import Session
from pyg_incremental.update import Update, UpdateStats


class FewChanges:
    """The short way of one session, for as long as its fast path is there.

    Args:
        session: The running state.
        out: Its only output.

    Attributes:
        session: The same.
    """

    def __init__(self, session: Session, out: Cell) -> None:
        self.session, self._out = session, out

    def apply(self, delta: PlainDelta, delta_id: Any, began: float) -> Update | None:
        """Take a delta; None if it is not for this, or not valid: nothing was changed then."""
        session, engine = self.session, self.session.engine
        if engine.main is None or not engine.takes_few(delta):
            return None
        before = None
        if delta.rows is not None:
            x = engine.cells[session.program.inputs[delta.name]]
            first = x.tensor.data_ptr()
            if first <= delta.rows.data_ptr() < first + x.tensor.nbytes:
                return None
            before = x.listed(delta.ids)
        order = session.graphs[engine.main].next_order
        num_nodes = dict(session.num_nodes) if delta.more else session.num_nodes
        about = session.committed.version + 1, delta, engine.main, order, before, num_nodes
        engine.forget_at_once()
        session.journal = tuple.__new__(PlainJournal, about)  # sooner made than `PlainJournal(...)`
        done = engine.update_few(delta)
        if done is None:
            session.journal = None
            return None
        work, ids = done
        if delta.more:
            (kind,) = num_nodes
            session.num_nodes[kind] = num_nodes[kind] + delta.more
        session.commit(delta_id, at_once=True)
        edges = delta.added.shape[1], delta.gone.shape[1]
        if ids is None:
            return report.updated(session, (*edges, work), began)
        ids = ids.copy()
        ids.sort()
        changed, out = torch.from_numpy(ids), torch.from_numpy(self._out.listed(ids))
        stats = UpdateStats(session.mode, *edges, time.perf_counter() - began, work)
        return Update(changed, out, stats, session.committed.version)


def few_changes_of(session: Session) -> FewChanges | None:
    """The short way of a session; None if its output is not one tensor with a row for each node."""
    out = session.outputs.only
    return None if out is None or not out.is_listed else FewChanges(session, out)
