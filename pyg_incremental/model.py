"""The face of the package: a model whose output stays exact while its graph changes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from typing_extensions import Unpack

from pyg_incremental.blocks.given import bytes_of, call_of
from pyg_incremental.call.bound_call import BoundCall, bind
from pyg_incremental.call.method import module_of
from pyg_incremental.delta.describe import BY_ID, Fields, GraphDelta, with_fields_of
from pyg_incremental.delta.journal import Committed, checked_id
from pyg_incremental.delta.resolve.plain import PlainDelta, described
from pyg_incremental.engine.loop import NOTHING
from pyg_incremental.files.keeping import Keeping
from pyg_incremental.graph.storage import Storage
from pyg_incremental.kernels.takeover import KERNELS
from pyg_incremental.readings import Readings
from pyg_incremental.session import at_once, interrupted, report, start
from pyg_incremental.session.as_module import AsModule
from pyg_incremental.session.at_once import FewChanges, few_changes_of
from pyg_incremental.session.by_name import Names, taken_out
from pyg_incremental.session.compact import Removed, say_what_counts
from pyg_incremental.session.edge_ids import ids_taken_out
from pyg_incremental.session.expire import Expires
from pyg_incremental.session.parameters import ParameterWatch, refuse_autocast
from pyg_incremental.session.previous import PreviousOutput, kept_before
from pyg_incremental.session.scrub import Scrub
from pyg_incremental.session.session import Session
from pyg_incremental.session.settings import Options, Settings, settings_of, shows_options
from pyg_incremental.session.values import TakesValues
from pyg_incremental.telemetry.metrics import RECENT
from pyg_incremental.typing import Changes, Out, Pairs
from pyg_incremental.update import Update

_log = logging.getLogger(__name__)
_BY_ID = {*BY_ID}


class IncrementalModel(Keeping, Readings[Out], TakesValues, Expires, AsModule):
    """A model whose output stays exact while its graph changes.

    Made by `to_incremental`, which documents the arguments.
    """

    @shows_options
    def __init__(self, model: nn.Module | Callable[..., Any], **options: Unpack[Options]) -> None:
        settings = settings_of(options)
        super().__init__(model := module_of(model), settings)
        if settings.backend == "auto":  # they are made while features and edges are read
            start.begin_kernels(model, settings)
        self._scrub = Scrub(settings.scrub_rows)
        self._warned = False
        self._before: PreviousOutput | None = None
        self._few: FewChanges | None = None
        self._removed = Removed()

    # Full pass -----------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Out:
        """Run one full pass and fill the store.

        Args:
            *args: What the model takes: node features `[num_nodes, channels]`, a graph
                (`edge_index` int64 `[2, num_edges]`, `EdgeIndex`, torch CSR or CSC, or
                `SparseTensor`), edge data, a `Data` object, ...
            **kwargs: Likewise; and `node_ids`: names of all nodes, `[num_nodes]`, if deltas are to
                call them by these (see `GraphDelta`), of several types in a dict; and `edge_ids`:
                ids of all edges, `[num_edges]`, likewise.

        Returns:
            The model's output, as a copy.

        Raises:
            StaleStateError: If the model is in training mode.
            UnsupportedModelError: If `strict` and some step has to run on all rows; if there is no
                graph among the arguments; if the model has no `forward`, or an `Explainer` calls.
            InvalidDeltaError: If the arguments do not fit together.
        """

        def begun() -> Out:
            node_ids, settings = taken_out(self.model, kwargs), self._settings
            edge_ids = ids_taken_out(self.model, kwargs)
            call = partial(bind, self.model, args, kwargs, settings.roles)
            out: Out = self._begin(call, settings, node_ids, edge_ids).returned(copy=True)
            return out

        self._refuse_explainer()
        return self._rwlock.alone("a first pass", begun)

    def bootstrap(
        self,
        data: Data | HeteroData | Mapping[str, Any],
        *,
        memory: int | str = "4GB",
        directory: str | os.PathLike[str] | None = None,
        node_ids: Any = None,
    ) -> Any:
        """Fill the store of a graph that may be larger than memory.

        What is stored lies in memory as far as `memory` allows, and the rest in memory maps of
        files. The model itself does not run on the graph: `verify()` compares, where that fits.
        Steps on all rows have to fit, too.

        Args:
            data: The graph, as `evaluate` takes it. Tensors over memory maps stay on disk.
            memory: Bytes that what is stored may take in memory, a number or such as `'4GB'`. It
                does not count Python, PyTorch, and what is in use while a step or update runs.
            directory: Where the files are, which have no names, and go with the process.
            node_ids: Names of the nodes, as in a first call.

        Returns:
            The model's output: a live view, as `out` is.

        Raises:
            StaleStateError: If the model is in training mode.
            UnsupportedModelError: If `strict` and some step has to run on all rows.
            InvalidDeltaError: If the tensors do not fit together.
            MemoryError: If more is stored than `memory` allows, and there is no directory.
            OSError: If the disk is full.
        """
        storage = Storage(bytes_of(memory), directory)
        settings = replace(self._settings, check=False, storage=storage)
        call = partial(call_of, self.model, data)
        begun = partial(self._begin, call, settings, node_ids)
        return self._rwlock.alone("bootstrap", lambda: begun().returned(copy=False))

    def _begin(
        self,
        call: Callable[[], BoundCall],
        settings: Settings,
        node_ids: Any,
        edge_ids: Mapping[str, Any] | None = None,
    ) -> Session:
        """Run the first pass."""
        began = time.perf_counter()
        self._refuse_training()
        refuse_autocast()
        start.begin_kernels(self.model, settings)
        session = start.from_call(call(), settings)
        names = Names.of(session, node_ids, edge_ids or {})
        self._take(session, Committed())
        self._removed, self._names = Removed(), names
        self._say_computed("first pass", began)
        return session

    def forget(self) -> None:
        """Let go of everything that is stored, as if the model had not been called yet."""

        def forgotten() -> None:
            self._session = self._before = self._few = self._names = self._trials = None
            self._lost = ""

        self._rwlock.alone("forget", forgotten)

    def _take(self, session: Session, committed: Committed) -> None:
        """From here on this session is the state. Say once that it runs full passes, if it does."""
        session.watch = ParameterWatch(self.model, bool(session.plan.site.keeps))
        session.committed = session.noted(committed)
        self._session, self._last, self._few = session, None, few_changes_of(session)
        self._lost = ""
        self._warned = self._warned or start.say_if_whole(session)

    def refresh(self, nodes: Any = None, *, old: bool = False) -> Update[Out]:
        """Recompute from the current graph, features and parameters.

        Args:
            nodes: Ids of the nodes whose accumulated rows are made afresh, int64 `[k]`; everything
                by default. Everything is also what mends a stale state: after parameters changed,
                or after an update was interrupted.
            old: Report the OLD rows too, as in `apply_delta`.

        Returns:
            The output rows that came out different: all of them after an interrupt or a foreign
            write. The version stays. Work is counted step by step if `nodes` are given.

        Raises:
            StaleStateError: Before the first pass, or if the model is in training mode.
            InvalidDeltaError: If an id is out of range.
        """
        began = time.perf_counter()

        def renewed() -> Update[Out]:
            session = self._held()
            refuse_autocast()
            if nodes is not None:
                self._refuse_stale()
                session.settle()
                ids = session.resolver.ids(self._in_rows(session, nodes, "nodes"), "nodes")
                before = self._before = kept_before(self._before, session, old)
                return self._noted(report.renewed(session, ids, began, before, old))
            self._refuse_training()
            session.refuse_other_kind()
            lost = session.is_broken or session.is_written_to
            was = None if lost else session.outputs.now(copy=False)
            self._take(start.from_session(session), session.committed)
            self._say_computed("refresh", began)
            return report.refreshed(self._require(), was, began, old)

        return self._rwlock.alone("refresh", renewed)

    def settle(self, rows: int | None = None) -> bool:
        """Compute the rows that deltas have left to be computed, of a `lazy` model.

        They are all current then, as if every delta had been applied at once. Of any other model
        they always are.

        Args:
            rows: How many rows of the output to compute at most, for a worker that gives way to
                reads and deltas after each call; all by default.

        Returns:
            Whether rows still wait.

        Raises:
            ValueError: If `rows` is not positive.
            StaleStateError: Before the first pass, or if the stored state is stale.
            Exception: Whatever the model itself raises on the current graph.
        """
        if rows is not None and rows < 1:
            raise ValueError(f"settle: expected a number of rows, 1 or more (got {rows})")

        def settled() -> bool:
            self._refuse_stale()
            return (self._require() if rows is None else self._held()).settle_some(rows or 1)

        return self._rwlock.alone("settle", settled)

    def compact(self) -> Any:
        """Give the ids of removed nodes back; the other nodes move up, in their order.

        A removed node that was given edges, or features other than zeros, is there again. All is
        computed anew. It counts as an update: ids of earlier versions are others; names stay.

        Returns:
            The new id of every node, int64 `[num_nodes before]`, -1 for those that were removed; a
            dict if there are several kinds of nodes, of which those with learned rows stay.

        Raises:
            StaleStateError: If the stored state is stale.
        """

        def moved_up() -> Any:
            session = self._require()
            self._refuse_stale()
            refuse_autocast()
            names = self._settled(session)
            self._removed.note({} if names is None else names.free())
            again, ids = start.from_fewer_nodes(session, self._removed)
            names = None if names is None else names.moved(again, ids)
            self._take(again, session.committed.next(None))
            self._removed, self._names = Removed(), names
            return ids.get("", ids if len(ids) > 1 else next(iter(ids.values())))

        return self._rwlock.alone("compact", moved_up)

    # Updates -------------------------------------------------------------------------------------

    @with_fields_of(GraphDelta)
    def apply_delta(
        self,
        edge_index_add: GraphDelta | Pairs | Mapping[Any, Pairs] | None = None,
        edge_index_del: Pairs | Mapping[Any, Pairs] | None = None,
        x_changes: Changes | Mapping[Any, Changes] | None = None,
        *,
        delta_id: str | int | None = None,
        old: bool = False,
        undo: bool = False,
        **fields: Unpack[Fields],
    ) -> Update[Out]:
        """Apply one group of changes and bring the output up to date.

        Either one `GraphDelta`, as the only argument, or its fields as keywords; `GraphDelta`
        documents their shapes and the order in which they take effect.

        A delta may have a name, `delta_id`, a string or an integer. One of the last 1,024 that were
        applied under a name is not applied again: the update says that it is `repeated`. So a delta
        can be handed in again where nobody knows whether it was applied. Names are saved.

        `old` asks for the OLD rows, and `undo` for the delta that undoes this one; see `Update`.

        Returns:
            The changed output rows, and what the update cost.

        Raises:
            InvalidDeltaError: If the delta does not fit the graph. Nothing was changed then.
            StaleStateError: Before the first pass, if parameters changed, or after an interrupted
                update; see `refresh`.
            Exception: Whatever the model itself raises on the changed graph. Nothing was changed
                then, if it is said so in a note.

        Whatever is raised, an interrupt included: the delta was applied if and only if `version`
        has moved.
        """
        began, turns, heard = time.perf_counter(), self._rwlock, self._listeners
        given: Any = (edge_index_add, edge_index_del, x_changes)
        parts, delta = given, None
        if fields and fields.keys() <= _BY_ID and type(edge_index_add) is not GraphDelta:
            parts = *given, fields.get("edge_ids_add"), fields.get("edge_ids_del")
        elif fields or isinstance(edge_index_add, GraphDelta):
            alone = not fields and edge_index_del is x_changes is None
            delta = given[0] if alone else GraphDelta(*given, **fields).alone()
            parts = delta.plain_parts
        if turns.lock._is_owned():  # type: ignore[attr-defined]
            raise turns.refused("apply_delta")
        if turns.is_awaited:
            turns.let_a_reader_go_first()
        with turns.lock:
            turns.change = "apply_delta"
            if KERNELS.is_making:
                KERNELS.poll()
                start.say_if_made()
            if delta_id is not None and checked_id(delta_id) in self._held().committed.deltas:
                return report.repeated(self._held(), began, old)
            back = self._back(self._require(), delta or described(parts)) if undo else None
            apply = self._applied if self._names is None else self._apply_by_name
            update = apply(parts, delta, delta_id, began, old or bool(heard.asks_old))
            if undo:
                update._undo = back
        if heard.methods:
            heard.tell(update)
        return update

    def _applied(
        self,
        parts: tuple[Any, ...] | None,
        delta: GraphDelta | None,
        delta_id: Any,
        began: float,
        old: bool,
    ) -> Update[Out]:
        """Apply a delta, or parts of one; whoever calls this has the lock."""
        if torch.is_inference_mode_enabled():  # what is stored has to stay ordinary tensors
            with torch.inference_mode(mode=False):
                update = self._apply_at_once(parts, delta, delta_id, began, old)
        else:
            update = self._apply_at_once(parts, delta, delta_id, began, old)
        if update is not None:
            return update
        with torch.inference_mode(mode=False), torch.no_grad():
            return self._apply(delta or described(parts), delta_id, began, old)

    def _apply_at_once(
        self,
        parts: tuple[Any, ...] | None,
        delta: GraphDelta | None,
        delta_id: Any,
        began: float,
        old: bool,
    ) -> Update[Out] | None:
        """What is common and valid goes through in one look; None if this is not."""
        session, few = self._session, self._few
        if session is None or self._settings.scrub_rows or (session.on_demand and not old):
            return None
        session.settle()
        if type(parts) is PlainDelta:
            plain: PlainDelta | None = parts
        elif parts is not None:
            plain = session.plain(*parts) if len(parts) == 3 else None
        else:
            plain = None if delta is None else session.plain_of(delta)
        if plain is None:
            return None
        if session.reason():
            self._refuse_stale()
        refuse_autocast()
        before = self._before
        if old or before is not None:
            before = self._before = kept_before(before, session, old)
        try:
            if few is not None and few.session is session and before is None:
                update = few.apply(plain, delta_id, began)
                if update is not None:
                    return self._noted(update)
            done = at_once.carry_out(session, plain)
        except Exception as error:
            delta = delta or described(parts)
            return self._failed(session, delta, delta_id, error, began, old)
        if done is None:
            return None
        session.commit(delta_id, at_once=True)
        if plain.leave:
            self._removed.note(dict.fromkeys(session.num_nodes, plain.ids))
        if before is None:
            return self._noted(report.updated(session, done, began))
        left = at_once.removed(session, plain)
        return self._noted(report.updated(session, done, began, before, left, old))

    def _apply(self, delta: GraphDelta, delta_id: Any, began: float, old: bool) -> Update[Out]:
        session = self._held()
        marks = session.on_demand is not None and not old and delta.values is None
        self._refuse_stale()
        refuse_autocast()
        if not marks:
            session.settle()
        if delta.values is not None:
            return self._apply_values(session, delta, delta_id, began, old)
        resolved = session.resolver.resolve(delta)
        before = self._before = kept_before(self._before, session, old)
        turns = self._scrub.turn(session.num_nodes) if self._settings.scrub_rows else NOTHING
        try:
            events, work = session.carry_out(resolved, turns, marks)
        except Exception as error:
            return self._failed(session, delta, delta_id, error, began, old)
        session.commit(delta_id, at_once=False)
        if resolved.removed and not self._removed.by_kind():
            say_what_counts(session, resolved.removed)
        self._removed.note(resolved.removed)
        removed = {name: happened.removed.slots for name, happened in events.items()}
        added = sum(happened.added.slots.size for happened in events.values())
        done = added, sum(slots.size for slots in removed.values()), work
        if marks:
            update = report.marked(session, done, began)
        else:
            update = report.updated(session, done, began, before, removed, old)
        update.refused = resolved.refused
        return self._noted(update)

    def _noted(self, update: Update[Out]) -> Update[Out]:
        """An update, whose work `explain` and `metrics` tell of."""
        tally = self._tally
        self._last = stats = update.stats
        tally.recent.append(stats)
        if stats.seconds > tally.slow:
            tally.note_slow(stats, update.version)
        if len(tally.recent) == RECENT:
            tally.add_up()
        return update

    def _failed(
        self,
        session: Session,
        delta: GraphDelta,
        delta_id: Any,
        error: Exception,
        began: float,
        old: bool,
    ) -> Update[Out]:
        """The update fails, as the model itself may: go back to before it, if possible.

        Where it turns out that the program has missed something, it runs whole from here on.
        """
        with torch.inference_mode(mode=False), torch.no_grad():
            self._session = before = interrupted.gone_back(session, error)
            self._few = few_changes_of(before)
            if not interrupted.misses_something(before, delta, error):
                interrupted.note_of_ids(delta, error)
                raise error
            why = f"its program fails after a delta ({type(error).__name__}: {error})"
            _log.warning("%s falls back to full passes: %s", type(self.model).__name__, why)
            before.plan.site.whole = why
            was = before.outputs.now(copy=True)
            self._take(start.from_session(before), before.committed)
            self._require().outputs.compare_with(was)
            return self._apply(delta, delta_id, began, old)
