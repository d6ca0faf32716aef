"""The workers of a service, for one thread at a time, and answers of serving workers for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Event, RLock, Thread

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.errors import StaleStateError
from pyg_incremental.sampling.read import NodeType
from pyg_incremental.sampling.workers.messages import Answer
from pyg_incremental.sampling.workers.pool import Worker, WorkerLost
from pyg_incremental.sampling.workers.supervisor import Supervisor

Ids = NDArray[np.int64]
Seeds = dict[NodeType, Ids]
_AGAIN = 0.01
"""Seconds until a worker is asked again that does not know its seeds yet."""


class Client:
    """Lets one thread at a time give orders to the workers, and any thread ask them.

    Args:
        supervisor: The workers.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._lock = RLock()
        self._closed = False
        self._ended = Event()

    def watch(self, every: float | None) -> None:
        """Have a thread see every so many seconds that all workers are there; None for no such."""
        if every is not None:
            Thread(target=self._watch, args=(every,), daemon=True).start()

    def _watch(self, every: float) -> None:
        while not self._ended.wait(every):
            # A closed service says so to whoever uses it.
            with (
                suppress(StaleStateError, WorkerLost),
                self.working() as supervisor,
                self.or_close(),
            ):
                supervisor.beat()

    def answers(
        self, seeds: Seeds, until: float, have: Callable[[Seeds, float], None]
    ) -> tuple[list[Mapping[NodeType, Ids]], list[Answer]]:
        """Where the seeds of each worker that was asked stand, and what it has answered.

        Args:
            seeds: Node ids, int64 `[k]` by type.
            until: When there has to be an answer (of `time.monotonic`).
            have: Sees that seeds are subscribed by then; somebody else may let them go at any time.
        """
        while True:
            have(seeds, until)
            workers = self.supervisor.serving
            owned = self.supervisor.served(seeds, len(workers))
            asked = [part for part, at in enumerate(owned) if at] or [0]
            own = [{kind: seeds[kind][at] for kind, at in owned[part].items()} for part in asked]
            found = [
                self._ask(workers[part], ids, until) for part, ids in zip(asked, own, strict=True)
            ]
            answers = [answer for answer in found if answer is not None]
            if len(answers) == len(found):
                return [owned[part] for part in asked], answers
            if time.monotonic() > until:
                count = sum(ids.size for ids in seeds.values())
                raise TimeoutError(f"no answer for {count} seeds in time")
            time.sleep(_AGAIN)  # somebody else is making a worker ready

    def _ask(self, worker: Worker, seeds: Seeds, until: float) -> Answer | None:
        """The answer of a serving worker; None if it has none yet, or had to be replaced."""
        try:
            return worker.ask(seeds, until)
        except WorkerLost:
            self.done_by(until, lambda: self._replace(worker))
            return None

    def _replace(self, worker: Worker) -> None:
        with self.working() as supervisor:
            if worker in supervisor.serving:
                with self.or_close():
                    supervisor.repair()

    def finish(self, number: int | None = None) -> int:
        """See all rounds through, or those up to one; the number of the last that is done."""
        with self.working() as supervisor:
            supervisor.finish_all(number)
            return supervisor.done

    def done_by(self, until: float, work: Callable[[], object]) -> None:
        """Have something done in time, by a thread that sees it through in any case.

        Workers may have to be waited for, and replaced, which whoever asks has no time for.

        Args:
            until: When it has to be done (of `time.monotonic`).
            work: What to do.

        Raises:
            TimeoutError: If it is not.
        """
        raised: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as error:
                raised.append(error)

        thread = Thread(target=run, daemon=True)
        thread.start()
        thread.join(max(0.0, until - time.monotonic()))
        if raised:
            raise raised[0]
        if thread.is_alive():
            raise TimeoutError("the workers are busy, or one of them does not answer")

    @contextmanager
    def working(self) -> Iterator[Supervisor]:
        """Have the workers to oneself."""
        with self._lock:
            if self._closed:
                raise StaleStateError(
                    "this service is closed, or was interrupted; SampleService.restore(source, "
                    "directory) goes on from its last checkpoint"
                )
            yield self.supervisor

    @contextmanager
    def or_close(self, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """What is begun inside is either done, or the service is closed; `but` errors leave it."""
        try:
            yield
        except but:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._ended.set()
                self.supervisor.close()
