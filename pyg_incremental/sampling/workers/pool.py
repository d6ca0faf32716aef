"""Workers as the coordinator sees them: a process, a pipe for commands and a pipe for queries."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from threading import Lock, Timer
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.distributed.errors import RankFailedError
from pyg_incremental.sampling.read import NodeType
from pyg_incremental.sampling.workers.channel import Channel
from pyg_incremental.sampling.workers.messages import Answer
from pyg_incremental.sampling.workers.process import LOST, receive, run, send

Ids = NDArray[np.int64]


class WorkerLost(RankFailedError):
    """A worker is dead, or has not answered in time."""


class Worker:
    """A process that waits for commands.

    Args:
        timeout: Seconds after which a worker that has not answered counts as dead.
        directory: The folder for what serving workers send to the disk.

    Attributes:
        owed: How many commands it has not answered yet.
        is_ready: Whether it has become a sampling or a serving worker; whoever makes it so says it.
    """

    def __init__(self, timeout: float, directory: str | None) -> None:
        self._timeout = timeout
        context = _context()
        self._control, control = context.Pipe()
        asked, queries = context.Pipe()
        self._queries = Channel(asked)
        arguments = control, queries, timeout, directory
        self.process = context.Process(target=run, args=arguments, daemon=True)
        self.process.start()
        control.close()  # so that the death of the process ends the pipe
        queries.close()
        self.owed, self._asked = 0, 0
        self._asking, self._is_lost, self.is_ready = Lock(), False, False

    def tell(self, name: str, *arguments: Any) -> None:
        """Send a command; `heard` gets the reply. Who does not take it in for long is killed.

        Raises:
            WorkerLost: If the process is gone.
        """
        watch = Timer(2 * self._timeout, self.process.kill)
        watch.start()
        try:
            send(self._control, (name, *arguments))
        except OSError as error:
            raise self._gone(error) from error
        finally:
            watch.cancel()
        self.owed += 1

    def hear(self) -> Any:
        """The reply to the oldest command, which is there or on its way.

        Raises:
            WorkerLost: If the process is gone.
            Exception: What the worker has raised.
        """
        try:
            reply = receive(self._control)
        except (EOFError, OSError) as error:
            raise self._gone(error) from error
        self.owed -= 1
        if isinstance(reply, Exception):
            raise reply
        return reply

    def ask(self, seeds: Mapping[NodeType, Ids], until: float) -> Answer | None:
        """The answer of a serving worker; None if a seed, int64 `[k]`, is none of its own (yet).

        Raises:
            WorkerLost: If the process is gone, or is silent for so long that it was killed.
            TimeoutError: If there is no answer by `until` (of `time.monotonic`).
        """
        left = until - time.monotonic()
        if not self._asking.acquire(timeout=max(0.0, left)):
            raise TimeoutError("a serving worker is busy with other queries")
        try:
            self._asked += 1
            self._queries.put((self._asked, dict(seeds)))
            while (reply := self._queries.take(until, self._timeout)) is not None:
                number, found = reply
                if number == self._asked:  # and not what came too late for another one
                    return None if found is None else found
            if time.monotonic() < until:
                self.process.kill()
                raise EOFError
            raise TimeoutError("a serving worker has not answered in time")
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise self._gone(error) from error
        finally:
            self._asking.release()

    def _gone(self, error: Exception) -> WorkerLost:
        self._is_lost = True
        return WorkerLost(f"a worker is gone ({type(error).__name__})")

    @property
    def is_there(self) -> bool:
        """Whether the process is alive, as far as anyone has noticed."""
        return not self._is_lost and bool(self.process.is_alive())

    def stop(self) -> None:
        """Let the process end."""
        with contextlib.suppress(OSError):
            send(self._control, ("stop",))
        self.process.join(1.0)
        self.kill()

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        self._is_lost = True
        self.process.kill()
        self.process.join()
        self._control.close()
        with self._asking:  # who waits for an answer notices, and leaves
            self._queries.close()

    @property
    def pipe(self) -> Any:
        """What becomes ready when a reply is there, or the process is gone."""
        return self._control


def heard(workers: Sequence[Worker], timeout: float) -> list[Any]:
    """One reply of each worker; `LOST` of one that is dead, and of one that says so.

    Those that are silent for `timeout` seconds are killed.

    Raises:
        Exception: What a worker has raised, once all have answered.
    """
    found: dict[Worker, Any] = {}
    until = time.monotonic() + timeout
    errors: list[Exception] = []
    while len(found) < len(workers):
        waiting = {w.pipe: w for w in workers if w not in found}
        ready = wait(list(waiting), max(0.0, until - time.monotonic()))
        if not ready:
            for worker in waiting.values():
                worker.process.kill()
            found |= dict.fromkeys(waiting.values(), LOST)
        for pipe in ready:
            worker = waiting[pipe]
            try:
                found[worker] = worker.hear()
            except WorkerLost:
                found[worker] = LOST
            except Exception as error:
                found[worker] = None
                errors.append(error)
    if errors:
        raise errors[0]
    return [found[worker] for worker in workers]


def _context() -> Any:
    """Processes that load the package once and start in milliseconds, where there are such."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pyg_incremental.sampling.workers.process"])
    return context
