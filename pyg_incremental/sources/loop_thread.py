"""An event loop in a thread of its own, for sources that wait by `await`."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines beside whoever calls, so that connections are answered between two reads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin with a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns.

        Raises:
            Exception: What it raises.
        """
        return self.start(work).result()

    def call(self, function: Callable[[], Any]) -> None:
        """Have a function called there."""
        self._loop.call_soon_threadsafe(function)

    def cancel(self, work: "Future[Any]") -> None:
        """End a coroutine that was begun, and wait until it has ended."""
        work.cancel()
        self.run(_end_others())

    def close(self) -> None:
        """End what still runs, and the thread."""
        if self._loop.is_closed():
            return
        self.run(_end_others())
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
