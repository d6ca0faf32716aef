"""Events that other threads of this process push."""

import queue
import threading
import time
from collections import deque
from typing import Any

from pyg_incremental.sources.event import Event


class QueueSource:
    """A bounded queue in memory: who pushes more than it holds waits. Its position is a number.

    What is in it goes with the process; for events that must not, see `SqliteLog`. Each event has
    the time at which it was pushed, so that it is known how long it has waited.

    Args:
        max_events: How many events wait in it at most.
        wait: Seconds to wait for an event where there is none.
    """

    def __init__(self, max_events: int = 100_000, *, wait: float = 0.01) -> None:
        self._max_events, self._wait = max_events, wait
        self._events: deque[Event] = deque()
        self._changed = threading.Condition()
        self._pushed = self._given = 0

    def push(self, *values: Any, timeout: float | None = None) -> None:
        """Append events, from any thread; wait while there is no room for them.

        Args:
            *values: Mappings or `GraphDelta`.
            timeout: How many seconds to wait at most.

        Raises:
            queue.Full: If there was no room in that time. What there was room for is in.
        """
        with self._changed:
            for value in values:
                if len(self._events) >= self._max_events:
                    self._changed.notify_all()
                    room = self._changed.wait_for(self._has_room, timeout)
                    if not room:
                        raise queue.Full(f"QueueSource: {len(self._events)} events wait already")
                self._pushed += 1
                self._events.append(Event(self._pushed, value, None, time.perf_counter()))
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return len(self._events) < self._max_events

    def next_batch(self, max_events: int) -> list[Event]:
        """See `Source`; a `GraphDelta` is one event here."""
        with self._changed:
            if not self._events:
                self._changed.wait(self._wait)
            found = [self._events.popleft() for _ in range(min(max_events, len(self._events)))]
            if found:
                self._given = found[-1].position
                self._changed.notify_all()
        return found

    def position(self) -> int:
        """See `Source`."""
        return self._given

    def open(self, position: int) -> None:
        """See `Source`.

        Raises:
            ValueError: If events of before are asked for, which are gone.
        """
        with self._changed:
            if position < self._given:
                raise ValueError(
                    f"a QueueSource that has given {self._given} events cannot go back to "
                    f"{position}; push to a SqliteLog, which can"
                )
            while self._given < position and self._events:
                self._given = self._events.popleft().position
            self._given = self._pushed = max(self._given, position)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(at {self._given}, {len(self._events)} wait)"
