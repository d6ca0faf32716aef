"""What runs in the process of a worker: commands from one pipe, queries from another.

Nothing is pickled: what goes through pipes is in the form in which ranks have their values.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from pyg_incremental.distributed.errors import RankFailedError
from pyg_incremental.distributed.wire.rounds import Rounds
from pyg_incremental.distributed.wire.torch_comm import TorchCommunicator
from pyg_incremental.encoding.framing import packed, unpacked
from pyg_incremental.sampling.workers.channel import Channel
from pyg_incremental.sampling.workers.sampling import SamplingWorker
from pyg_incremental.sampling.workers.serving import ServingWorker

Bytes = NDArray[np.uint8]
LOST = "lost"
"""What a worker says that could not end a round because another one is gone."""


def send(pipe: Connection, value: Any) -> None:
    """Send a value.

    Raises:
        OSError: If nobody is at the other end.
    """
    pipe.send_bytes(packed(value, _room).data)


def receive(pipe: Connection) -> Any:
    """Wait for a value.

    Raises:
        EOFError: If nobody is at the other end.
    """
    return unpacked(np.frombuffer(bytearray(pipe.recv_bytes()), np.uint8))


def _room(size: int) -> Bytes:
    return np.empty(size, np.uint8)


class WorkerProcess:
    """One worker of either kind; its first command says which.

    Args:
        timeout: Seconds after which another worker that has not answered counts as dead.
        directory: The folder for what goes to disk.
    """

    def __init__(self, timeout: float, directory: str | None) -> None:
        self._timeout = timeout
        self._directory = None if directory is None else Path(directory)
        self._rounds: Rounds | None = None
        self._parts = 0
        self.sampling: SamplingWorker | None = None
        self.serving: ServingWorker | None = None

    def run(self, name: str, *arguments: Any) -> Any:
        """Do what a command says; what it returns is the reply."""
        return getattr(self, f"do_{name}")(*arguments)

    def do_sample(self, query: Any, part: int, parts: int) -> None:
        """Be a sampling worker."""
        self.sampling, self._parts = SamplingWorker(query, part, parts), parts

    def do_serve(self, query: Any) -> None:
        """Be a serving worker."""
        self.serving = ServingWorker(query, self._directory)

    def do_load(self, files: list[tuple[str, str]]) -> None:
        """Take edges and features from a checkpoint."""
        assert self.sampling is not None
        self.sampling.load(files)

    def do_apply(self, parts: list[Any]) -> None:
        """Take in events that nobody need be told of."""
        assert self.sampling is not None
        self.sampling.apply(parts)

    def do_save(self, path: str) -> str:
        """Write a checkpoint."""
        assert self.sampling is not None
        return self.sampling.save(path)

    def do_join(self, url: str, rank: int, size: int, parts: int) -> str | None:
        """Meet the others in a new group; the one before it may be broken."""
        self._rounds, self._parts = None, parts
        if dist.is_initialized():
            dist.destroy_process_group()
        wait = timedelta(seconds=self._timeout)
        try:
            dist.init_process_group(
                "gloo", init_method=url, rank=rank, world_size=size, timeout=wait
            )
            self._rounds = Rounds(TorchCommunicator(self._timeout))
        except RuntimeError:  # what torch raises where somebody does not come
            _leave_half_made_group()
            return LOST
        return None

    def do_round(self, number: int, parts: list[Any], seeds: list[Any], fresh: bool) -> Any:
        """Take in events, and publish or hear what they change."""
        if self.sampling is not None:
            self.sampling.apply(parts)  # whatever becomes of the round: samples know no rounds
        if self._rounds is None:
            return LOST
        try:
            if self.sampling is not None:
                self.sampling.round(self._rounds, seeds, fresh)
            elif self.serving is not None:
                self.serving.listen(self._rounds, self._parts, number, fresh)
        except RankFailedError:
            return LOST
        return number

    def do_beat(self) -> None:
        """Say that this worker is there."""

    def do_report(self) -> dict[str, Any]:
        """What this worker holds."""
        sent = 0 if self._rounds is None else self._rounds.bytes_sent
        if self.sampling is not None:
            own = self.sampling
            return {
                "edges": own.num_edges,
                "missing": own.missing,
                "subscriptions": own.subscriptions,
                "bytes_sent": sent,
            }
        assert self.serving is not None
        return {**self.serving.held, "round": self.serving.round}

    def answer(self, queries: Connection) -> None:
        """Answer queries until nobody asks any more."""
        channel = Channel(queries)
        try:
            while True:
                number, seeds = channel.take()
                found = None if self.serving is None else self.serving.answer(seeds)
                channel.send((number, found))
        except (EOFError, OSError):
            return


def _leave_half_made_group() -> None:
    """See that the next group is the first one again, as it is for a new process.

    PyTorch numbers the groups that it has begun, and ranks that count differently never meet. It
    counts anew when a group ends, which one does not that was never made; one of a single rank is
    made and ended in its place.
    """
    if not dist.is_initialized():
        store = dist.HashStore()  # type: ignore[attr-defined]  # its stubs leave it out
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    dist.destroy_process_group()


def serve(control: Connection, queries: Connection, timeout: float, directory: str | None) -> None:
    """Be a worker until told to stop, or until nobody is there to tell."""
    worker = WorkerProcess(timeout, directory)
    threading.Thread(target=worker.answer, args=(queries,), daemon=True).start()
    try:
        while True:
            command = receive(control)
            if command[0] == "stop":
                return
            try:
                reply = worker.run(*command)
            except Exception as error:
                reply = error
            send(control, reply)
    except (EOFError, OSError, KeyboardInterrupt):
        return
    finally:
        worker.serving = None  # and what it has on disk


def run(control: Connection, queries: Connection, timeout: float, directory: str | None) -> None:
    """Serve, as a process of its own."""
    torch.set_num_threads(1)
    serve(control, queries, timeout, directory)
    # Without tidying up: a group whose other ranks are gone may wait for them.
    os._exit(0)
