"""A stream: events in, exact answers and alerts out, and nothing lost."""

import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from pyg_incremental.errors import IncrementalError, StaleStateError
from pyg_incremental.model import IncrementalModel
from pyg_incremental.sources.event import Events, num_events
from pyg_incremental.sources.source import Source
from pyg_incremental.sources.sqlite import Durability
from pyg_incremental.stream.alerts import Alert, Watch, finder
from pyg_incremental.stream.by_type import ByType
from pyg_incremental.stream.checkpoint import Folder
from pyg_incremental.stream.history import History, by_type
from pyg_incremental.stream.intake import EventIntake, Taken
from pyg_incremental.stream.journal import Entry
from pyg_incremental.stream.pace import Pace
from pyg_incremental.stream.schema import AnySchema, HeteroSchema, Schema, Type
from pyg_incremental.stream.sinks import DeadLetter, Deliveries, Sink
from pyg_incremental.stream.stats import StreamStats
from pyg_incremental.stream.why import Search, Why
from pyg_incremental.stream.window import Window, Windows, windows_of
from pyg_incremental.telemetry.metrics import Metrics
from pyg_incremental.update import Update

_PATIENCE = 5.0
"""Seconds in which a source has to give after a restart what it had given before."""


class Stream:
    """Applies the events of a source to a model, and tells of the rows that they change.

    Each event counts exactly once in the state, whatever happens to the process: with a
    `directory` the position of the source is saved in one file with the state, and a stream that
    is made again goes on there. Alerts come at least once; see `Alert`.

    One thread calls `step`, `drain` or `run`; any other may read (`stream.inc.read(nodes)`), ask
    for alerts, write a checkpoint or stop it.

    Args:
        model: The trained model, or an `IncrementalModel`.
        source: Where events come from; see `pyg_incremental.sources`.
        schema: Which field of an event is what; a `HeteroSchema` where there are several types.
            Events that are a `GraphDelta` need none.
        first: What the model is called with if there is no checkpoint: a tuple of arguments, a dict
            of named ones, or one object. It may be left out if it has been called.
        directory: The folder of the checkpoints. None for none: nothing survives the process.
        max_size: How many events are taken at once at most.
        max_latency: Within how many seconds of its arrival an event is to be answered; batches are
            made as large as that allows, by what batches have taken so far.
        durability: What the keys of alerts survive, `'process'` or `'power'`; see `Folder`.
        checkpoint_events: After how many events a checkpoint is written, in the background.
        dead_letters: What events that are left out are handed to, as `DeadLetter`. The last 1,000
            are in `dead_letters` in any case.
        window: How long edges stay, by the times of events; a dict by edge type, or one for all.
        keep: How many of the last updates are kept, for `as_of` and `why`: the rows that they
            changed as these were before, and the way back. None are by default.
        clock: What says the time in seconds, as `time.perf_counter`.

    Attributes:
        inc: The model, current.
        stats: What was done; see `StreamStats`.
        dead_letters: The last events that were left out.

    Raises:
        StaleStateError: If there is no checkpoint, and the model has not been called.
        StateFileError: If the checkpoint is damaged, or of another model.
        IncrementalError: If another stream has the folder.
    """

    def __init__(
        self,
        model: nn.Module | Callable[..., Any] | IncrementalModel,
        source: Source,
        schema: AnySchema | None = None,
        *,
        first: Any = None,
        directory: str | os.PathLike[str] | None = None,
        max_size: int = 10_000,
        max_latency: float | None = None,
        durability: Durability = "process",
        checkpoint_events: int = 1_000_000,
        dead_letters: Sink | None = None,
        window: Window | Windows | None = None,
        keep: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.inc = model if isinstance(model, IncrementalModel) else IncrementalModel(model)
        if not isinstance(source, Source):
            raise IncrementalError(
                f"Stream: expected a source of events (got {type(source).__name__}); of a list or "
                "an iterator pass IterableSource(events), of a file JsonLinesSource(path)"
            )
        if not isinstance(schema, (Schema, HeteroSchema, type(None))):
            raise IncrementalError(
                f"Stream: expected a Schema (got {type(schema).__name__}); pass "
                "Schema(src='from', dst='to'), with the names of your fields"
            )
        self._source, self._schema, self._clock = source, schema or Schema(), clock
        self._windows = windows_of(window, self._schema)
        self._begins: dict[Type, float] = dict.fromkeys(self._windows, -math.inf)
        self._pace = Pace(max_size, max_latency)
        self._checkpoint_events, self._since = checkpoint_events, 0
        self.stats = StreamStats()
        self.dead_letters: deque[DeadLetter] = deque(maxlen=1000)
        self._dead = None if dead_letters is None else Deliveries(dead_letters)
        self._watches: list[Watch] = []
        self._intake = EventIntake(self.inc, self._schema, self._windows)
        self._history = History(self.inc, keep) if keep else None
        self._rest = Events()
        self._read_at = self._waited = 0.0
        self._refused: list[tuple[Any, str]] = []
        self._parts: list[Any] = []
        self._replay: deque[Entry] = deque()
        self._lock, self._stopping = threading.RLock(), threading.Event()
        self._is_closed = False
        self._folder = None if directory is None else Folder(Path(directory), durability)
        try:
            self._begin(first)
        except BaseException:
            self._let_go()
            raise

    def _begin(self, first: Any) -> None:
        """Take up the checkpoint, or call the model."""
        folder = self._folder
        if folder is not None and folder.has_state:
            self._replay.extend(folder.restore(self.inc))
            saved = self.inc.extra
            self._position = saved["position"]
            self._intake.seen = dict.fromkeys(saved["seen"])
            self._refused = [(position, reason) for position, reason in saved["refused"]]
            self._parts = [*saved.get("parts", ())]
            self._intake.latest, begins = saved["latest"], saved["begins"]
            self._begins |= begins if isinstance(begins, dict) else {None: begins}
            if self._intake.live is not None:
                self._intake.live.restore(saved.get("made") or {})
            self.stats.restore(saved["stats"])
            ByType(self.inc, self._schema).check()
            self._source.open(self._position)
            return
        if first is not None:
            args, named = _call(first)
            self.inc(*args, **named)
        elif self.inc.stale:
            raise StaleStateError(
                f"Stream: {self.inc.stale}; say what it is called with, as in "
                "first=(x, edge_index), or call it before"
            )
        ByType(self.inc, self._schema).check()
        if self._intake.live is not None:
            self._intake.live.check()
        self._position = self._source.position()
        if folder is not None:
            _check_position(self._position)
            self.checkpoint()

    # Events --------------------------------------------------------------------------------------

    @property
    def position(self) -> Any:
        """Where the source is behind the last event that is in the state."""
        return self._position

    def step(self) -> int:
        """Take the next events, as many as can be answered in time; how many were dealt with.

        Raises:
            StaleStateError: If the model's state is stale; see `IncrementalModel.refresh`.
            IncrementalError: If a position of the source cannot be kept.
            OSError: If a checkpoint could not be written. What was read is in; the next one is
                tried after as many events as ever.
            Exception: Whatever the source raises. Nothing is lost: the next call goes on there.
        """
        with self._lock:
            self._settle()
            self._expire()
            self._advance_again()
            if self._folder is not None:
                self._folder.raise_what_failed()
            reads = not self._rest
            if reads and not self._replay:
                self._rest = Events.of(self._source.next_batch(self._pace.size(self._waited)))
            if self._rest and self._folder is not None:
                _check_position(self._rest.positions[-1])
            count = self._group()
            if reads:
                self._read_at = self._clock()
            if not count:
                return 0
            taken = self._take(self._rest[:count])
            if self._folder is not None and self._since >= self._checkpoint_events:
                self.checkpoint(wait=False)
            return taken

    def _take(self, events: Events) -> int:
        """Take as many of some events as one update can say, and as are in time; how many."""
        began = self._clock()
        replay, pace = self._replay, self._pace
        known = replay[0].known(events.positions) if replay else {}
        keeps = self._history is not None
        sizes = {} if self._history is None else self._history.sizes()
        most = None if replay else pace.most
        taken = self._intake.take(events, known, keeps or bool(self._watches), keeps, most)
        version = None if taken.update is None else taken.update.version
        dead = self._commit(taken, version)
        if self._history is not None and taken.update is not None:
            out = {*taken.refused, *taken.repeated}
            self._history.note(
                taken.update, sizes, [e for n, e in enumerate(taken.events) if n not in out]
            )
        self._tell(taken, dead)
        self._expire()
        pace.note(len(taken.events), self._clock() - began, taken.reached)
        return len(taken.events)

    def drain(self) -> int:
        """Take events until the source has none now; how many there were."""
        total = 0
        while count := self.step():
            total += count
        return total

    def run(self) -> None:
        """Take events as they come, until `stop`; errors are those of `step`."""
        self._stopping.clear()
        while not self._stopping.is_set():
            if not self.step():
                self._stopping.wait(0.0005)  # what the source does not wait itself

    def stop(self) -> None:
        """Have `run` return after the batch that it is at; from any thread."""
        self._stopping.set()

    def _group(self) -> int:
        """How many of the events that were read are taken: after a restart as many as before."""
        if not self._replay:
            return len(self._rest)
        until, began = self._replay[0].until(self._position), time.monotonic()
        looked = 0
        while True:
            for n in range(looked, len(self._rest)):
                if self._rest.positions[n] == until:
                    return n + 1
            looked = len(self._rest)
            # A source whose order may be another one now knows which events these were.
            known = getattr(self._source, "next_until", None)
            more = known(until) if known else self._source.next_batch(self._pace.max_size)
            self._rest += Events.of(more)
            if not more and time.monotonic() - began > _PATIENCE:
                # The source has lost its end, as a log may if power is lost: there is no before.
                self._replay.clear()
                self.checkpoint()
                return looked

    def _settle(self) -> None:
        """See what became of an update in the midst of which an interrupt came."""
        about, self._intake.about = self._intake.about, None
        if about is not None and self.inc.version > about[0]:
            self._tell(about[1], self._commit(about[1], self.inc.version))

    def _commit(self, taken: Taken, version: int | None) -> list[DeadLetter]:
        """Events are in the state, and nobody has heard of it: what has to be known after a crash.

        Args:
            taken: What became of the events.
            version: The version that has them; None if there was nothing to do.
        """
        events, refused, stats = taken.events, taken.refused, self.stats
        dead = [
            DeadLetter(events.positions[n], events.values[n], refused[n]) for n in sorted(refused)
        ]
        self._rest = self._rest[len(events) :]
        self._position = events.positions[-1]
        self._intake.committed(taken)
        count = num_events(events.values[0]) if len(events) == 1 else len(events)
        self._since += count
        stats.events += count
        stats.repeated += len(taken.repeated)
        stats.dead += len(dead)
        stats.applied = stats.events - stats.repeated - stats.dead
        self._refused += [(letter.position, letter.reason) for letter in dead]
        if version is None:
            self._parts.append(self._position)
        else:
            self._note(version)
        return dead

    def _note(self, version: int, time: float | None = None) -> None:
        """An update is in, and nobody has heard of it."""
        self.stats.updates += 1
        entry = Entry(version, self._position, self._refused, self._parts, time)
        self._refused, self._parts = [], []
        if self._replay:
            self._replay.popleft()
        elif self._folder is not None:
            self._folder.note(entry)  # an error comes with the next step

    def advance(self, time: float) -> int:
        """Let time go on though no event comes, and edges leave that fall out of a window by that.

        For whoever knows that no earlier event will come: a timer, where the time of events is that
        at which a log took them. A restart does the same, at the same place among the events.

        Args:
            time: Seconds, as those of events. What lies before the latest event does nothing.

        Returns:
            How many edges have left. Time has gone on only if a window has moved.

        Raises:
            ValueError: If the stream has no window, or the time is not finite.
        """
        if not self._windows:
            raise ValueError("advance: the stream has no window; pass Stream(window=)")
        if not math.isfinite(time):
            raise ValueError(f"advance: expected seconds, as those of events (got {time})")
        with self._lock:
            self._settle()
            if self._replay:
                return 0  # time has been here before
            before = self.stats.expired
            self._advance(time)
            return self.stats.expired - before

    def _advance(self, time: float) -> bool:
        """Time goes on, if that moves a window; the update says so to a restart."""
        moves = any(w.begins(time) > self._begins[of] for of, w in self._windows.items())
        if moves and time > self._intake.latest:
            self._intake.latest = float(time)
            self._expire(self._intake.latest)
            return True
        return False

    def _advance_again(self) -> None:
        """After a restart time goes on at the places among the events where it has before."""
        replay = self._replay
        while replay and replay[0].time is not None and replay[0].position == self._position:
            if not self._advance(replay[0].time):
                replay.popleft()  # the window is another one now

    def _expire(self, time: float | None = None) -> None:
        """Let edges leave that have fallen out of the window.

        Args:
            time: Where time has come to, if no event has said so.
        """
        for of, window in self._windows.items():
            begins = window.begins(self._intake.latest)
            if begins <= self._begins[of]:
                continue
            keeps = self._history is not None
            sizes = {} if self._history is None else self._history.sizes()
            before = begins if of is None else {of: begins}
            update = self.inc.expire(
                before=before, by=window.by, old=keeps or bool(self._watches), undo=keeps
            )
            if self._history is not None:
                self._history.note(update, sizes, [])
            self._begins[of] = begins
            self._intake.expired()
            self.stats.expired += update.stats.edges_deleted
            self._note(update.version, time)
            self._tell_watches(update)

    def _tell_watches(self, update: Update) -> None:
        """Hand over alerts. A request that cannot be told costs the others none of theirs."""
        failed: Exception | None = None
        for watch in [*self._watches]:
            try:
                self.stats.alerts += watch.tell(update, self._position)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _tell(self, taken: Taken, dead: list[DeadLetter]) -> None:
        """Hand over what events have led to."""
        self.dead_letters.extend(dead)
        if dead and self._dead is not None:
            self._dead.give(dead)
        if taken.update is not None:
            self._tell_watches(taken.update)
        given = [self._dead, *(watch.to for watch in self._watches)]
        self.stats.failed = sum(of.failed for of in given if of is not None)
        now = self._clock()
        at = taken.events.at
        waited = (
            np.full(len(taken.events), now - self._read_at) if at is None else now - np.array(at)
        )
        self.stats.note(waited, self._pace.max_latency)
        self._waited = float(waited[0])

    # Alerts --------------------------------------------------------------------------------------

    def on(
        self,
        to: Callable[[Alert], Any] | None = None,
        *,
        changed: float | None = None,
        crossed: float | None = None,
        flipped: bool = False,
        channel: int | None = None,
        nodes: Any = None,
        type: Any = None,
        keep: int = 10_000,
    ) -> Watch:
        """Ask for alerts about rows of the output, one of three kinds.

        Args:
            to: What each `Alert` is handed to, by the thread that runs the stream. What it raises
                stops nothing and is counted. Without it the alerts are iterated over: `async for
                alert in stream.on(flipped=True)`.
            changed: Rows of which a number has changed by more than this.
            crossed: Rows that have come to this threshold from below, or fallen below it.
            flipped: Rows that have another label; see `Update.flips`.
            channel: The channel that is held against the threshold, if there are several.
            nodes: The nodes that are watched, int64 `[k]`, or their names; all by default. Where
                the output has rows of edges or pairs, those that begin or end there.
            type: Of which type they are, where the output is a dict by type; all by default.
            keep: How many alerts wait for an iterator at most; the oldest go first.

        Raises:
            ValueError: If not exactly one kind is asked for, or the output has no such rows.
            UnsupportedModelError: If rows have several channels, and none is named.
        """
        if type is not None and type not in [*self.inc.num_nodes_dict, *self.inc.edge_types]:
            raise ValueError(
                f"on: there is no type {type!r} (expected one of {[*self.inc.num_nodes_dict]})"
            )
        what, find = finder(changed, crossed, flipped, channel, nodes, type)
        watch = Watch(what, find, to, keep, self._watches.remove)
        with self._lock:
            if not self.inc.stale:
                watch.check(self.inc.out)
            self._watches.append(watch)
        return watch

    # Looking back --------------------------------------------------------------------------------

    def as_of(self, version: int) -> Any:
        """The output as it was at a version, from any thread.

        Args:
            version: One of the last `keep`, or the current one.

        Returns:
            The rows of the nodes that were there then, `[num_nodes, out_channels]`, as a copy; a
            dict by type, if that is the output. Rows of nodes that have taken the place of a
            removed one since are NaN.

        Raises:
            IncrementalError: If it is not kept.
        """
        with self._lock:
            return self._kept().rows(version)

    def why(self, node: Any, version: int | None = None, *, type: Any = None) -> Why:
        """The fewest events of the last update without which a label had not flipped.

        They are found by previews: of one event after the other, then of pairs, and so on. Call it
        where the alert comes, `stream.on(callback, flipped=True)`: parts of an update are taken
        back as long as no other one has come on top of it.

        Args:
            node: The node, by its number or its name, as an alert has it.
            version: That of the alert; the current one by default.
            type: The type of the node, where there are several.

        Returns:
            The events, at most those of eight pairs and nodes; see `Why`. Nodes that came stay, and
            so do the consequences of a removed one.

        Raises:
            IncrementalError: If the version is not the current one, or is not kept; if the node is
                not there, or its label did not flip.
            UnsupportedModelError: If features are made of the events.
        """
        with self._lock:
            now = self.inc.version
            if version not in (None, now):
                raise IncrementalError(
                    f"why: expected the current version, {now} (got {version}); another update has "
                    "come on top of it. Call why from the callback of the alert"
                )
            (past,) = self._kept().since(now - 1)
            Search.check(self._schema)
            outs = by_type(self.inc.out)
            of = None if None in outs else type
            if of not in outs:
                raise IncrementalError(
                    f"why: the output is one by type (expected one of {[*outs]}, got "
                    f"type={type!r}); an alert has it in node_type"
                )
            rows = ByType(self.inc, self._schema).rows().get(type)
            row = node if rows is None else rows.get(node, -1)
            if not isinstance(row, int) or not 0 <= row < len(outs[of]):
                raise IncrementalError(f"why: there is no node {node!r}")
            return Search(self.inc, self._schema, past, node, of, row).run()

    def _kept(self) -> History:
        if self._history is None:
            raise IncrementalError(
                "Stream: no updates are kept; say how many are, as in Stream(..., keep=1000)"
            )
        return self._history

    # Numbers -------------------------------------------------------------------------------------

    def metrics(self) -> Metrics:
        """The numbers of the model, those of `stats`, and how long events wait; for Prometheus too.

        See `IncrementalModel.metrics`. Names of what the stream itself counts begin with `stream_`.
        """
        shares = {"stream_latency_p50_seconds": 0.5, "stream_latency_p99_seconds": 0.99}
        waits = {name: self.stats.latency(share) for name, share in shares.items()}
        about = dict.fromkeys(waits, ("gauge", "Seconds from arrival to answer of recent events."))
        own = Metrics.of(self.stats, "stream_").beside(Metrics(waits, about))
        return self.inc.metrics().beside(own)

    # Checkpoints ---------------------------------------------------------------------------------

    def checkpoint(self, *, wait: bool = True) -> None:
        """Write the state and the position of the source; a restart goes on from here.

        Args:
            wait: Whether to return when it is on the disk; else a process that is forked writes it,
                or a thread, where that cannot be (see `IncrementalModel.saved_aside`).

        Raises:
            IncrementalError: If there is no folder.
            StaleStateError: If the model's state is stale.
            OSError: If it cannot be written; the one before counts then.
            Exception: What a sink raises that cannot keep what it was given.
        """
        if self._folder is None:
            raise IncrementalError("Stream: there is no folder for a checkpoint; pass directory=")
        with self._lock:
            self._settle()
            for sink in (self._dead, *(watch.to for watch in self._watches)):
                if sink is not None:
                    sink.flush()
            self._folder.write(self.inc, self._extra, wait)
            self._since = 0
            self.stats.checkpoints += 1

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is being written in the background."""
        return self._folder is not None and self._folder.is_writing

    def _extra(self) -> dict[str, Any]:
        """What belongs to a checkpoint beside the state of the model."""
        intake = self._intake
        return {
            "position": self._position, "seen": [*intake.seen], "latest": intake.latest,
            "begins": {**self._begins}, "stats": self.stats.saved(),
            "refused": [list(pair) for pair in self._refused], "parts": [*self._parts],
            "made": None if intake.live is None else intake.live.saved(),
        }  # fmt: skip

    def close(self) -> None:
        """Write a checkpoint, if there is a folder, and let go of it."""
        if self._folder is not None and not self._is_closed:
            self.stop()
            with self._lock:
                try:
                    if not self.inc.stale:
                        self.checkpoint()
                finally:
                    self._let_go()

    def _let_go(self) -> None:
        self._is_closed = True
        if self._folder is not None:
            self._folder.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.close()
        else:
            self._let_go()

    def __repr__(self) -> str:
        stats = self.stats
        return (
            f"{type(self).__name__}(at {self._position!r}, version={self.inc.version}, "
            f"events={stats.events}, dead={stats.dead}, alerts={stats.alerts})"
        )


def _check_position(position: Any) -> None:
    """See that a position is the same when it is read from a file.

    Raises:
        IncrementalError: If it is not.
    """
    try:
        is_plain = json.loads(json.dumps(position)) == position
    except (TypeError, ValueError):
        is_plain = False
    if not is_plain:
        raise IncrementalError(
            "Stream(directory=): a position is kept: expected a plain value as in JSON: a "
            f"number, a string, or a list of such (got {position!r}, {type(position)})"
        )


def _call(first: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the first call."""
    if isinstance(first, tuple):
        return first, {}
    return ((), first) if type(first) is dict else ((first,), {})
