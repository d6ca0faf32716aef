"""A delta tried without keeping it.

There are two ways. Where compiled code carries out the whole update, it is known which few places
of memory that writes to, and they alone are copied. An executor in Python may write to anything
that it holds, attributes included, so a delta that takes one is tried step by step, on a copy.
"""

from __future__ import annotations

import time

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.session import report
from pyg_incremental.session.previous import PreviousOutput
from pyg_incremental.session.reach import reach, rows_within
from pyg_incremental.session.rollback import Rollback
from pyg_incremental.session.session import Session
from pyg_incremental.session.trial import Trials
from pyg_incremental.session.values import foreseen
from pyg_incremental.update import Update


def preview(trials: Trials, delta: GraphDelta, whole: bool = False) -> Update:
    """What a delta would change, and what that would cost; everything is as before then.

    The delta is carried out, and what was there before is put back from a copy. Until it is, the
    journal of the update holds, as for any update that is interrupted.

    Args:
        trials: Tries deltas on the running state, where compiled code can.
        delta: The delta.
        whole: Whether `out` is to hold all of the output, and not what would change.

    Raises:
        InvalidDeltaError: If it does not fit the graph.
    """
    session, began = trials.session, time.perf_counter()
    if delta.values is not None:
        return foreseen(session, delta, began)
    plain = None if whole else session.plain_of(delta)
    tried = None if plain is None else trials.tried(plain, began)
    return step_by_step(session, delta, whole) if tried is None else tried


def step_by_step(session: Session, delta: GraphDelta, whole: bool = False) -> Update:
    """The same, as the executors do it, whatever there is to be put back.

    Args:
        session: The running state.
        delta: The delta.
        whole: As in `preview`.

    Raises:
        InvalidDeltaError: If it does not fit the graph.
    """
    resolved = session.resolver.resolve(delta)
    nodes = reach(session, resolved)
    few = None if nodes is None else rows_within(session, nodes)
    before, rollback = PreviousOutput(session), Rollback(session, few)
    began = time.perf_counter()
    try:
        session.engine.interpret()
        events, work = session.carry_out(resolved)
        removed = {name: happened.removed.slots for name, happened in events.items()}
        added = sum(happened.added.slots.size for happened in events.values())
        counts = added, sum(slots.size for slots in removed.values()), work
        update = report.updated(session, counts, began, before, removed, old=True)
        if whole:
            update.out = session.outputs.now(copy=True)
        return update
    finally:
        try:
            rollback.put_back()
        except BaseException:  # an interrupt: once more from the beginning
            rollback.put_back()
            raise
        finally:
            session.committed = session.noted(session.committed)
