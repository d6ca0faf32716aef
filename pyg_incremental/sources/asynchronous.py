"""Events from an asynchronous iterable."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any

from pyg_incremental.sources.event import Event
from pyg_incremental.sources.loop_thread import LoopThread


class AsyncSource:
    """Any asynchronous iterable of mappings, or of `GraphDelta`; its position is how many it gave.

    It is iterated over by a thread with an event loop of its own, which waits while `max_events`
    are there that nobody has read. What belongs to another loop, such as a connection that was
    opened there, has to be opened in the function that is passed.

    Args:
        values: What is iterated over: an iterable that begins anew each time, a function that
            returns one, or an iterator, which can only go on.
        max_events: How many events wait at most.
        wait: Seconds to wait for an event where there is none.

    Example:
        >>> async def events():
        ...     yield {"src": 3, "dst": 5}
        >>> source = AsyncSource(events, wait=5.0)
        >>> [event.value for event in source.next_batch(10)]
        [{'src': 3, 'dst': 5}]
        >>> source.close()
    """

    def __init__(
        self,
        values: AsyncIterable[Any] | Callable[[], AsyncIterable[Any]],
        *,
        max_events: int = 10_000,
        wait: float = 0.01,
    ) -> None:
        self._values, self._max_events, self._wait = values, max_events, wait
        self._loop, self._changed, self._room = LoopThread(), threading.Condition(), asyncio.Event()
        self._events: deque[Event] = deque()
        self._given = self._skipped = 0
        self._begin()

    def _begin(self) -> None:
        values = self._values
        self._iterator: AsyncIterator[Any] = aiter(values() if callable(values) else values)
        self._reading: Future[None] = self._loop.start(self._read(self._iterator))

    async def _read(self, iterator: AsyncIterator[Any]) -> None:
        read = 0
        async for value in iterator:
            read += 1
            with self._changed:
                if read > self._skipped:
                    self._events.append(Event(read, value, None, time.perf_counter()))
                    self._changed.notify_all()
            while len(self._events) >= self._max_events:
                self._room.clear()
                await self._room.wait()
        if read < self._skipped:
            raise ValueError(f"the values end after {read}, before {self._skipped}")

    def next_batch(self, max_events: int) -> list[Event]:
        """See `Source`; a `GraphDelta` is one event here.

        Raises:
            Exception: What the iterable has raised, once all that came before was given.
        """
        has_ended = self._reading.done()
        with self._changed:
            if not self._events and not has_ended:
                self._changed.wait(self._wait)
            found = [self._events.popleft() for _ in range(min(max_events, len(self._events)))]
        if found:
            self._given = found[-1].position
            self._loop.call(self._room.set)
        elif has_ended:
            self._reading.result()
        return found

    def position(self) -> int:
        """See `Source`."""
        return self._given

    def open(self, position: int) -> None:
        """See `Source`.

        Raises:
            ValueError: If the position lies behind what an iterator has given.
        """
        if self._iterator is not self._values:
            self._loop.cancel(self._reading)
            self._events.clear()
            self._skipped = position
            self._begin()
        elif position < self._given:
            raise ValueError(
                f"an iterator that has given {self._given} values cannot go back to {position}; "
                "pass a function that returns one"
            )
        else:
            with self._changed:
                self._skipped = position
                while self._events and self._events[0].position <= position:
                    self._events.popleft()
            self._loop.call(self._room.set)
        self._given = position

    def close(self) -> None:
        """End the thread, and with it the iteration."""
        self._loop.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(at {self._given}, {len(self._events)} wait)"
