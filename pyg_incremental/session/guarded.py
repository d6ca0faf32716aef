"""What a wrapped model says where it cannot answer, and when that is so."""

from __future__ import annotations

import logging
import time

from torch import nn

from pyg_incremental.call.torchscript import refuse_torchscript
from pyg_incremental.errors import StaleStateError
from pyg_incremental.kernels.locks import anew_in_child
from pyg_incremental.session.by_name import Names
from pyg_incremental.session.listeners import Listeners
from pyg_incremental.session.rwlock import ReadWriteLock
from pyg_incremental.session.session import Session
from pyg_incremental.session.settings import Settings
from pyg_incremental.session.trial import Trials
from pyg_incremental.telemetry.metrics import Tally
from pyg_incremental.telemetry.work import UpdateStats

_log = logging.getLogger(__name__)


class Guarded:
    """The part of an `IncrementalModel` that knows whether there is an answer.

    Args:
        model: The model.
        settings: What the user chose.

    Raises:
        UnsupportedModelError: If TorchScript has traced, frozen or loaded the model.
    """

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        refuse_torchscript(model)
        self.model = model
        self._settings = settings
        self._session: Session | None = None
        self._names: Names | None = None
        self._rwlock = ReadWriteLock()
        self._last: UpdateStats | None = None
        self._listeners = Listeners()
        self._tally = Tally()
        self._trials: Trials | None = None
        self._lost = ""
        anew_in_child(self)

    def _say_computed(self, what: str, began: float) -> None:
        """Tell the logger, and count, that all rows were computed."""
        session, seconds = self._require(), time.perf_counter() - began
        self._tally.full_pass(seconds)
        edges = sum(session.graphs[r.graph].num_edges for r in session.roles.given)
        _log.info(
            "%s of %s: %d nodes, %d edges, %.3f s; updates run %s, %s kernels",
            what, type(self.model).__name__, session.count, edges, seconds, session.mode,
            session.backend.name,
        )  # fmt: skip

    def begin_anew(self) -> None:
        """In a forked child, let go of what is stored in files: parent and child write to these."""
        session = self._session
        if session is not None and session.settings.storage.on_disk:
            self._session = None
            self._lost = (
                "this process was forked, and what is stored lies in files that the parent goes on "
                "writing to. Call the model, bootstrap or load here, or fork first"
            )

    @property
    def stale(self) -> str | None:
        """Why updates are refused, or None."""
        under_way = self._rwlock.under_way
        return f"{under_way} is not through" if under_way else self._rwlock.read(self._why_stale)

    def _why_stale(self) -> str | None:
        if self._session is None:
            return self._lost or "the model has not been called yet"
        return self._session.reason() or None

    def _require(self) -> Session:
        """The running state, every row as of now; whoever calls this has the lock."""
        session = self._held()
        session.settle()
        return session

    def _held(self) -> Session:
        """The running state, in which rows of a lazy model may wait."""
        if self._session is None:
            if self._lost:
                raise StaleStateError(f"{type(self.model).__name__}: {self._lost}")
            raise StaleStateError(
                f"{type(self.model).__name__} has not been called yet, so nothing is stored; first "
                "call it on the whole graph, as in inc(x, edge_index), and then apply deltas"
            )
        return self._session

    def _trials_now(self) -> Trials:
        """What tries deltas on the running state."""
        session, trials = self._require(), self._trials
        if trials is None or trials.session is not session:
            trials = self._trials = Trials(session)
        return trials

    def _refuse_training(self) -> None:
        if any(m.training for m in self.model.modules()):
            raise StaleStateError(
                f"{type(self.model).__name__} is in training mode, where dropout and batch "
                "statistics make outputs depend on chance; call model.eval() first, and refresh() "
                "if it was called before"
            )

    def _refuse_stale(self, exactly: bool = False) -> None:
        session = self._held()
        reason = session.reason()
        if exactly and not reason and session.watch is not None:
            reason = session.watch.reason_exactly()
        if reason:
            raise StaleStateError(
                f"the stored rows of {type(self.model).__name__} are stale: {reason}. Call "
                "refresh() to recompute them from the current graph, features and parameters"
            )
