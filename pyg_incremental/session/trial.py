"""Deltas that compiled code tries on the state as it is: noted, carried out, read, put back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.call.traced import Output
from pyg_incremental.delta.resolve.plain import PlainDelta
from pyg_incremental.fused import FastPath
from pyg_incremental.fused.undo import Undo
from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.rows.lazy_rows import LazyRows
from pyg_incremental.session.at_once import apart, write_down
from pyg_incremental.session.outputs import in_structure
from pyg_incremental.session.previous import lie_within, nothing_like
from pyg_incremental.session.session import Session
from pyg_incremental.telemetry.work import UpdateStats
from pyg_incremental.update import Update, is_one_channel


class Trials:
    """Tries deltas on one session.

    Args:
        session: The running state.

    Attributes:
        session: The same.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._undo: Undo | None = None
        self._values = session.plan.program.outputs
        self._has_rows = all(v.domain is Domain.NODE for v in self._values)
        self._within: tuple[int, set[Value]] = (-1, set())

    def tried(self, delta: PlainDelta, began: float) -> Update | None:
        """What a delta would change; not one bit is another one afterwards.

        Args:
            delta: The delta; it need not be valid.
            began: When that began.

        Returns:
            What it would change; None if it is not valid, or not for compiled code alone.
        """
        session, main = self.session, self.session.engine.main
        found = None
        edges = delta.added.shape[1], delta.gone.shape[1]
        with self._room_for(delta.more, sum(edges)) as fast:
            if fast is None or main is None or not fast.fits(delta):
                return None
            delta, undo = apart(session, delta), self._undo_of(fast)
            if not undo.note(delta):
                return None
            fast.forget()
            write_down(session, delta, main)
            try:
                if session.engine.run_trial(fast, delta):
                    found = *self._changed(), [fast.work]
            finally:
                try:
                    undo.put_back()
                except BaseException:  # an interrupt: once more from the beginning
                    undo.put_back()
                    raise
                finally:
                    session.journal = None
        if found is None:
            return None
        changed, out, work = found
        old, within = self._before(changed, out)
        stats = UpdateStats(session.mode, *edges, time.perf_counter() - began, work)
        version = session.committed.version
        return Update(changed, out, stats, version, old=old, may_be_probabilities=within)

    def all_tried(self, deltas: Sequence[PlainDelta]) -> list[Callable[[], Update] | None]:
        """The same of many deltas, each on the state as it is.

        Args:
            deltas: The deltas.

        Returns:
            What tells of each what it would change; None for one that is not valid, or not for
            compiled code alone.
        """
        counts = {delta.more for delta in deltas}
        if len(counts) == 1:
            return self._alike_tried(deltas)
        found: list[Callable[[], Update] | None] = [None] * len(deltas)
        for more in counts:
            alike = [i for i, delta in enumerate(deltas) if delta.more == more]
            told = self._alike_tried([deltas[i] for i in alike])
            for i, tells in zip(alike, told, strict=True):
                found[i] = tells
        return found

    def _alike_tried(self, deltas: Sequence[PlainDelta]) -> list[Callable[[], Update] | None]:
        """The same of deltas that have as many new nodes each."""
        session, out, began = self.session, self.session.outputs.only, time.perf_counter()
        found: list[Callable[[], Update] | None] = [None] * len(deltas)
        most = max([d.added.shape[1] + d.gone.shape[1] for d in deltas])
        with self._room_for(deltas[0].more, most) as fast:
            if fast is None or out is None:
                return found
            at = [i for i, delta in enumerate(deltas) if fast.fits(delta)]
            some = [apart(session, deltas[i]) for i in at]
            known = session.num_nodes[out.value.kind]
            tried = self._undo_of(fast).try_all(some, out, known) if some else None
            if tried is None:
                return found
        seconds = (time.perf_counter() - began) / len(some)
        within = out.value in self._within_bounds()
        tail, version, names = out.tensor.shape[1:], session.committed.version, fast.names
        ids, new, old = map(torch.from_numpy, (tried.ids, tried.new, tried.old))
        told = tried.told.tolist()

        def tells(i: int) -> Update:
            first, count = told[i]
            last = first + count
            rows = new[first:last].view(-1, *tail)
            edges = some[i].added.shape[1], some[i].gone.shape[1]
            stats = UpdateStats(session.mode, *edges, seconds, [(names, tried.work[i])])
            still, before = within and lie_within(rows), old[first:last].view(-1, *tail)
            changed = ids[first:last]
            return Update(changed, rows, stats, version, old=before, may_be_probabilities=still)

        for i, place in enumerate(at):
            if told[i][1] >= 0:
                found[place] = partial(tells, i)
        return found

    @contextmanager
    def _room_for(self, more: int, edges: int) -> Iterator[FastPath | None]:
        """While a delta is tried with so many new nodes and so many edges."""
        session = self.session
        fast = session.engine.begin_trial(more, edges) if self._has_rows else None
        try:
            yield fast
        finally:
            if fast is not None:
                session.engine.end_trial(more)
            if session.has_moved:  # what users can reach lies elsewhere
                session.committed = session.noted(session.committed)

    def _undo_of(self, fast: FastPath) -> Undo:
        """What notes and puts back for a compiled plan."""
        if self._undo is None or self._undo.fast is not fast:
            self._undo = Undo(fast, self.session.program.goes_against_edges)
        return self._undo

    def _changed(self) -> tuple[Any, Any]:
        """Ids and new rows of what has changed, as copies."""
        ids, out, _ = self.session.outputs.changed()
        if isinstance(out, LazyRows):
            out = out.rows()
        return ids, out

    def _before(self, changed: Any, out: Any) -> tuple[Any, bool]:
        """What stands in the rows that would change, and whether these may be probabilities."""
        session, within, still = self.session, self._within_bounds(), False

        def old_of(place: Output, ids: Tensor, rows: Tensor) -> Tensor:
            nonlocal still
            value = self._values[place.index]
            still |= value in within and lie_within(rows)
            old, known = session.engine.cells[value].read(ids), session.num_nodes[value.kind]
            if ids.numel() and ids[-1] >= known:
                new = ids >= known
                old[new] = nothing_like(old, int(new.sum()))
            return old

        return in_structure(session.plan.traced.structure, old_of, changed, out), still

    def _within_bounds(self) -> set[Value]:
        """The outputs of one channel whose numbers all lie between 0 and 1."""
        version = self.session.committed.version
        if self._within[0] != version:
            cells = [(v, self.session.engine.cells[v]) for v in self._values]
            one = [(v, c) for v, c in cells if is_one_channel(c.tensor)]
            self._within = version, {v for v, c in one if lie_within(c.current())}
        return self._within[1]
