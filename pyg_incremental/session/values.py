"""Arguments that are neither of a node nor of an edge, and change: the time of now, a threshold."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from pyg_incremental.call.said import Role, said_of
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import rows_like
from pyg_incremental.delta.resolve.resolver import ResolvedDelta
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.program.steps import Domain
from pyg_incremental.session import report, start
from pyg_incremental.session.rollback import Rollback
from pyg_incremental.session.session import Session
from pyg_incremental.telemetry.work import UpdateStats, Work
from pyg_incremental.update import Update

_PLAIN = (bool, int, float, str)


def understood(session: Session) -> dict[str, Role]:
    """What the arguments of a call were taken for; values are told from constants where said."""
    found = session.plan.understood
    said = said_of(session.plan.site.model, session.settings.roles)
    return found | {n: said[n] for n in found if n in said and said[n].what == "value"}


def current(session: Session, names: Mapping[str, Any]) -> dict[str, Any]:
    """What some values are now.

    Raises:
        InvalidDeltaError: If there is no such argument, or it is of nodes or edges.
    """
    others, plain = session.others(), session.plan.site.constants
    found = {}
    for name in names:
        if name == "num_nodes" and plain.get(name) is not None and name not in others:
            raise InvalidDeltaError(
                "values: 'num_nodes' is how many nodes there are, which follows those that come "
                "with x_add; without node features call the model again with another number"
            )
        if name in session.roles.ids or (name not in others and name not in plain):
            known = [n for n in others if n not in session.roles.ids]
            known += [n for n, value in plain.items() if isinstance(value, _PLAIN)]
            raise InvalidDeltaError(
                f"values: there is no value '{name}' (expected one of {known}); rows of nodes "
                "change by x_changes, and those of edges by edge_changes"
            )
        found[name] = others[name].clone() if name in others else plain[name]
    return found


def checked(session: Session, values: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """New values: tensors, of the shapes that they have, and plain numbers and texts.

    Raises:
        InvalidDeltaError: If they do not fit.
    """
    if not isinstance(values, Mapping):
        raise InvalidDeltaError(
            f"values: expected a mapping from arguments to what they are now, as in {{'now': "
            f"torch.tensor(3.0)}} (got {type(values).__name__})"
        )
    tensors, plain = {}, {}
    for name, was in current(session, values).items():
        if isinstance(was, Tensor):
            given = rows_like(values[name], f"values['{name}']", was).detach()
            if given.shape != was.shape:
                raise InvalidDeltaError(
                    f"values['{name}']: expected shape {list(was.shape)}, that of the first call "
                    f"(got {list(given.shape)}); call the model again where it is another one"
                )
            tensors[name] = given.clone()
            continue
        if type(values[name]) is not type(was) or not isinstance(was, _PLAIN):
            raise InvalidDeltaError(
                f"values['{name}']: expected a {type(was).__name__}, as in the first call (got "
                f"{type(values[name]).__name__})"
            )
        plain[name] = values[name]
    return tensors, plain


class WithValues:
    """A session with other values, computed anew beside the one that there is.

    So whatever is raised changes nothing. Tensors alone are put into the session itself: the maps
    that read them run again, and what is behind where that changes a row; other steps that read
    them run on all rows, and all those behind. With anything else, or numbers, which the model may
    branch on, all steps run, as in a first pass.

    Args:
        session: The running state, which stays as it is.
        delta: The delta.
        is_tried: Whether everything is put back, bit by bit.

    Raises:
        InvalidDeltaError: If a value does not fit, or the delta says more, and outputs have a row
            for each edge.
        Exception: Whatever the model raises.

    Attributes:
        session: The session with these values.
        rest: What else the delta says, None if that is nothing.
    """

    def __init__(self, session: Session, delta: GraphDelta, is_tried: bool = False) -> None:
        tensors, plain = checked(session, delta.values)
        rest = replace(delta, values=None)
        self.rest = rest if rest.says_something else None
        if self.rest is not None and any(v.domain is Domain.EDGE for v in session.program.outputs):
            raise InvalidDeltaError(
                "values: outputs have a row for each edge, so that a delta that gives values can "
                "say nothing else; apply two deltas"
            )
        self._was = session.outputs.now(copy=True)
        self._work: Work = []
        self._before: Rollback | None = None
        if plain or self.rest is not None:
            self.session = start.from_values(session, tensors, plain, self.rest is not None)
            return
        self.session = session
        if not self._followed(tensors, is_tried):
            self._before = Rollback(session.engine, written=False)
            try:
                self._work = session.engine.renew(tensors)
            except BaseException:
                self.put_back()
                raise
        session.outputs.compare_with(session.outputs.now(copy=False))

    def _followed(self, tensors: Mapping[str, Tensor], is_tried: bool) -> bool:
        """Take tensors as an update does, if they may be; where that fails, all is made afresh."""
        session = self.session
        if session.on_demand is not None:
            return False
        if is_tried:
            self._before = Rollback(session.engine)
        carry_out, others = session.engine.take_values(tensors), session.others()
        if carry_out is None:
            return False
        session.interrupted = "a delta with values was interrupted"
        try:
            self._work = carry_out()
        except Exception:
            session.fill({n: rows.clone() for n, rows in session.nodes().items()}, others)
            session.committed = session.noted(session.committed)
            session.interrupted = ""
            raise
        session.interrupted = ""
        return True

    def put_back(self) -> None:
        """Leave the running state with the values of before."""
        if self._before is not None:
            session = self.session
            self._before.put_back()
            session.outputs.compare_with(self._was)
            session.committed = session.noted(session.committed)

    def carry_out(self) -> tuple[int, int, Work, ResolvedDelta | None]:
        """Do the rest of the delta: how many edges came and left, the work, and what it was."""
        if self.rest is None:
            return 0, 0, self._work, None
        session = self.session
        resolved = session.resolver.resolve(self.rest)
        events, work = session.carry_out(resolved)
        session.journal = None
        added = sum(happened.added.slots.size for happened in events.values())
        gone = sum(happened.removed.slots.size for happened in events.values())
        return added, gone, work, resolved

    def told(self, began: float, counts: tuple[int, int, Work], old: bool) -> Update[Any]:
        """What has changed.

        Args:
            began: When the update began.
            counts: How many edges came and left, and the work.
            old: Whether the OLD rows are wanted.
        """
        update = report.refreshed(self.session, self._was, began, old)
        seconds = time.perf_counter() - began
        update.stats = UpdateStats(self.session.mode, *counts[:2], seconds, counts[2])
        return update


def foreseen(session: Session, delta: GraphDelta, began: float) -> Update[Any]:
    """What a delta that gives values would do; nothing changes.

    Args:
        session: The running state.
        delta: The delta.
        began: When that began.

    Raises:
        InvalidDeltaError: If it does not fit.
        Exception: Whatever the model raises.
    """
    made = WithValues(session, delta, is_tried=True)
    try:
        added, gone, work, resolved = made.carry_out()
        update = made.told(began, (added, gone, work), True)
        update.version = session.committed.version
        update.refused = [] if resolved is None else resolved.refused
        return update
    finally:
        made.put_back()


class TakesValues:
    """The part of an `IncrementalModel` that knows values."""

    def _apply_values(
        self: Any, session: Session, delta: GraphDelta, delta_id: Any, began: float, old: bool
    ) -> Update[Any]:
        """Apply a delta that gives values."""
        made = WithValues(session, delta)
        added, gone, work, resolved = made.carry_out()
        if made.session is session:
            session.engine.lay_out()
        self._take(made.session, session.committed.next(delta_id))
        update = made.told(began, (added, gone, work), old)
        if resolved is not None:
            self._removed.note(resolved.removed)
            update.refused = resolved.refused
        noted: Update = self._noted(update)
        return noted
