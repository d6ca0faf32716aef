"""A run of events as one update: what fits is applied, and the rest is named with its reason."""

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.errors import InvalidDeltaError, StaleStateError
from pyg_incremental.model import IncrementalModel
from pyg_incremental.sources.event import Events
from pyg_incremental.stream.by_type import ByType
from pyg_incremental.stream.changes import Changes, changes_of, nothing, places_of
from pyg_incremental.stream.live_edges import LiveEdges
from pyg_incremental.stream.naming import numbered
from pyg_incremental.stream.schema import AnySchema, MalformedError, Shapes, Type
from pyg_incremental.stream.window import Windows, first_behind
from pyg_incremental.stream.window import refused as out_of_window
from pyg_incremental.update import Update

REMEMBERED = 100_000
"""So many of the last names of events are known when one comes again."""
_NOT_OF_AN_EVENT = (StaleStateError, MemoryError, OSError)
"""Errors that say nothing of the events that were to be applied."""
_MISSING = {
    "edge_index_del": "the edge to delete is not there",
    "edge_changes": "the edge to change is not there",
}
"""What to say of events whose nodes are there."""


class Taken(NamedTuple):
    """What became of some events.

    Attributes:
        events: The events that are dealt with, from the first one on.
        update: The update that has them; None if there was nothing to do.
        refused: Why events were left out, by their places.
        repeated: The places of events that had come before.
        names: The names of those that are in the state.
        latest: The latest event time then.
        reached: How many rows the events reach over one edge; 0 if nobody asked.
    """

    events: Events
    update: Update | None
    refused: dict[int, str]
    repeated: list[int]
    names: list[Any]
    latest: float = -math.inf
    reached: float = 0.0


class EventIntake:
    """Takes events in; one that does not fit never costs the others.

    Args:
        inc: The model.
        schema: Which field is what.
        windows: The windows over event times, by type.

    Attributes:
        latest: The latest event time that is in the state.
        seen: The names of the last events that are in the state, oldest first.
        about: While an update is applied the version before it, and what it takes.
        live: The edges of events, if features are made of them.
    """

    def __init__(self, inc: IncrementalModel, schema: AnySchema, windows: Windows) -> None:
        self._inc, self._schema, self._windows = inc, schema, windows
        self._view = ByType(inc, schema)
        self.latest = -math.inf
        self.seen: dict[Any, None] = {}
        self.about: tuple[int, Taken] | None = None
        every = schema.types.values()
        self._any_ahead = any(window.ahead is not None for window in windows.values())
        self._needs_times = bool(windows) or any(f.needs_time for s in every for f in s.features)
        self._has_ids = any(own.event_id is not None for own in every)
        makes = any(own.features for own in every)
        self.live = LiveEdges(inc, schema, windows, self._view) if makes else None

    def take(
        self,
        events: Events,
        known: dict[int, str],
        old: bool,
        undo: bool,
        most: float | None = None,
    ) -> Taken:
        """Apply as many of some events as one update can say.

        Args:
            events: The events.
            known: Why some of them are left out, by their places.
            old: Whether the update reports the OLD rows.
            undo: Whether it has the way back.
            most: How many rows the events may reach over one edge, if there is more than one of
                them; None if that is not to be counted.

        Raises:
            StaleStateError: If the state is stale.
            MemoryError: As the model does.
            OSError: Likewise.
        """
        if isinstance(events.values[0], GraphDelta) and 0 not in events.errors:
            return self._take_delta(events[:1], known, old, undo)
        if GraphDelta in set(map(type, events.values)):
            deltas = [n for n, value in enumerate(events.values) if type(value) is GraphDelta]
            events = events[: next((n for n in deltas if n not in events.errors), len(events))]
        refused = known | {n: _reason(error) for n, error in events.errors.items()}
        while True:
            try:
                times, late = self._times(events, refused)
                at, names, repeated = self._new(events, refused.keys() | late.keys())
                changes, unfit = self._changes(events, at, times, most)
            except MalformedError as error:
                refused |= error.reasons
                continue
            left_out = [*repeated, *late]
            if self._any_ahead:
                left_out = [*range(len(events))]  # any may come to be ahead of those that do fit
            refused |= _certain(unfit, left_out)
            if unfit and (left_out or changes.is_tainted):
                continue  # what does not fit brings nothing, never comes again, and no time passes
            end = changes.taken
            named = [
                n for m, n in zip(at, names, strict=False)
                if n is not None and m < end and m not in refused
            ]  # fmt: skip
            again, left = [n for n in repeated if n < end], _before(end, refused | late)
            counted = [t for n, t in times.items() if n < end and n not in left]
            latest = max([self.latest, *counted])
            taken = Taken(events[:end], None, left, again, named, latest, changes.reached)
            if self.live is not None:
                changes = self.live.take(changes, taken.latest)
            done = self._apply(changes, taken, old, undo)
            if isinstance(done, Taken):
                return done
            told, places = done
            if places:
                refused |= _certain(dict.fromkeys(places, told), left_out)
            elif len(at) > 1:  # it is one of them; those in the first half are tried without others
                events = events[: at[len(at) // 2]]
                refused = _before(len(events), refused)
            else:
                refused |= dict.fromkeys(at, told)

    def _times(
        self, events: Events, refused: dict[int, str]
    ) -> tuple[dict[int, float], dict[int, str]]:
        """The times of events that are not refused, and why some come too late, by their places."""
        if not self._needs_times:
            return {}, {}
        at = [n for n in range(len(events)) if n not in refused]
        if not at:
            return {}, {}
        values = [events.values[n] for n in at]
        times = _at(at, lambda: self._schema.times(values))
        late = {}
        if self._windows:
            late = out_of_window(self._windows, self._schema.types_of(values), times, self.latest)
        said = {n: time for n, time in zip(at, times.tolist(), strict=True) if time == time}
        return said, {at[n]: why for n, why in late.items()}

    def _new(
        self, events: Events, refused: Collection[int]
    ) -> tuple[Sequence[int], list[Any], list[int]]:
        """The places of events that are to be applied, their names, and those that came before."""
        at: Sequence[int] = range(len(events))
        if refused:
            at = [n for n in at if n not in refused]
        if not self._has_ids:
            return at, [], []
        names = _at(at, lambda: self._schema.ids([events.values[n] for n in at]))
        new: set[Any] = set()
        found, repeated = [], []
        for n, name in zip(at, names, strict=True):
            if name is not None and (name in self.seen or name in new):
                repeated.append(n)
            else:
                new.add(name)
                found.append((n, name))
        return [n for n, _ in found], [name for _, name in found], repeated

    def _changes(
        self, events: Events, at: Sequence[int], times: Mapping[int, float], most: float | None
    ) -> tuple[Changes, dict[int, str]]:
        """What events at some places do, and why some of them do not fit, by their places."""
        if not at:
            return nothing(len(events)), {}
        schema, rows, counts = self._schema, self._view.rows(), self._view.counts()
        values = events.values
        if len(at) < len(events):
            values = [values[n] for n in at]
        columns = _at(at, lambda: schema.read(values, self._shapes, rows))
        brought = [of for of, own in schema.types.items() if own.new_x is not None]
        named = numbered(columns, rows, counts, brought)
        degrees = {} if most is None else self._view.out_degrees()
        end = len(at)
        if self._windows:
            said = np.full(len(events), -math.inf)
            said[[*times]] = [*times.values()]
            latest = np.maximum.accumulate(np.append(self.latest, said))[at]
            end = first_behind(self._windows, columns, self.latest, latest)
        changes = changes_of(schema, named, len(at), counts, end, degrees, most or math.inf)
        unfit = {at[n]: reason for n, reason in changes.refused.items()}
        if len(at) == len(events):
            return changes, unfit
        where = np.array(at)
        places = {name: where[own] for name, own in changes.places.items()}
        taken = len(events) if changes.taken == len(at) else at[changes.taken]
        return changes._replace(taken=taken, places=places), unfit

    def _apply(
        self, changes: Changes, taken: Taken, old: bool, undo: bool
    ) -> Taken | tuple[str, list[int]]:
        """What is taken, with its update; or what is wrong, and with which events, if known."""
        if changes.delta is None:
            return taken
        self.about = self._inc.version, taken
        try:
            update = self._inc.apply_delta(changes.delta, old=old, undo=undo)
            return taken._replace(update=update)
        except _NOT_OF_AN_EVENT:
            raise
        except InvalidDeltaError as error:
            reason = _MISSING.get(error.what.partition("[")[0], str(error))
            return reason, places_of(changes, error.what, error.positions)
        except Exception as error:  # of the model, on the graph that the events would make
            if self._inc.stale:
                raise
            return _reason(error), []

    def _take_delta(self, events: Events, known: dict[int, str], old: bool, undo: bool) -> Taken:
        """A delta that the source gave is applied as it is, or not at all."""
        taken = Taken(events, None, _before(1, known), [], [], self.latest)
        if self.live is not None and not taken.refused:
            why = "features are made of events with fields, and this one is a GraphDelta"
            return taken._replace(refused={0: why})
        if taken.refused:
            return taken
        done = self._apply(nothing(1, events.values[0]), taken, old, undo)
        return done if isinstance(done, Taken) else taken._replace(refused={0: done[0]})

    @cached_property
    def _shapes(self) -> Mapping[Type, Shapes]:
        """The shapes of rows of features and of edge inputs, as far as there is one of each."""
        found: dict[Type, dict[str, tuple[int, ...]]] = {}
        for of, own in self._schema.types.items():
            rows = self._view.x(of)
            found[of] = {} if rows is None else {"x": tuple(rows.shape[1:])}
            for name in own.edge_data:
                with contextlib.suppress(KeyError):  # the delta says so, by its fields
                    found[of][name] = tuple(self._inc.edge_data(name, of).shape[1:])
        return found

    def expired(self) -> None:
        """Edges have left the state as they fell out of the window."""
        if self.live is not None:
            self.live.keep()

    def committed(self, taken: Taken) -> None:
        """Some events are in the state."""
        names = taken.names
        self.about, self.latest = None, taken.latest
        if self.live is not None:
            self.live.keep()
        self.seen.update(dict.fromkeys(names))
        for oldest in [*self.seen][: max(0, len(self.seen) - REMEMBERED)] if names else ():
            del self.seen[oldest]


def _at(places: Sequence[int], read: Any) -> Any:
    """What is read of the events at some places; errors name these places."""
    try:
        return read()
    except MalformedError as error:
        raise MalformedError({places[n]: why for n, why in error.reasons.items()}) from error


def _certain(unfit: dict[int, str], left_out: list[int]) -> dict[int, str]:
    """Which events do not fit whatever becomes of those left out, and why.

    An event that does not fit makes none behind it late or a repetition. So from the first one left
    out behind it on, others may come to fit once it is known: a node, say, that seemed too late.
    """
    first = min(unfit, default=0)
    end = min((n for n in left_out if n > first), default=math.inf)
    return {n: reason for n, reason in unfit.items() if n < end}


def _before(end: int, refused: dict[int, str]) -> dict[int, str]:
    return {n: reason for n, reason in refused.items() if n < end}


def _reason(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"
