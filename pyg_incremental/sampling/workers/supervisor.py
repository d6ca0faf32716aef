"""The workers of both kinds together: rounds, and replacing those that die."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from pyg_incremental.sampling.cache import SampleCache
from pyg_incremental.sampling.disk_table import PREFIX
from pyg_incremental.sampling.read import NodeType
from pyg_incremental.sampling.sampler import StreamingSampler
from pyg_incremental.sampling.workers.messages import SampleQuery, TypedCounts, WorkerDelta
from pyg_incremental.sampling.workers.owners import SAMPLING, SERVING, split
from pyg_incremental.sampling.workers.pool import Worker, WorkerLost, heard
from pyg_incremental.sampling.workers.process import LOST

Ids = NDArray[np.int64]
_ATTEMPTS = 5
_MEETING = "meeting-"
_LONG = 600.0
"""Seconds for reading or writing a checkpoint, and for taking in events since then."""
Parts = list[list[WorkerDelta]]
"""What some deltas say, by sampling worker."""


class Supervisor:
    """Sampling and serving workers that meet in rounds.

    In a round every sampling worker takes in its part of some events, and every serving worker gets
    what follows from them. Where a worker dies in the middle of one, the others leave the round; a
    new worker takes its place, reads the last checkpoint and the events since then, and in a fresh
    round all samples that are subscribed to are published anew. That is right because the sample of
    a node is a function of its edges, whatever the rounds in which they came.

    Args:
        query: What is sampled.
        sampling: Number of sampling workers.
        serving: Number of serving workers.
        timeout: Seconds after which a worker that has not answered counts as dead.
        directory: The folder in which workers meet, and for what serving workers send to the disk;
            an absolute path.

    Attributes:
        directory: The folder.
        seeds: How often each node of a type is subscribed to, int64 `[n]`.
        round: The number of the last round that was begun.
        done: The number of the last round of which all is visible.
        replaced: How many workers had to be replaced.
    """

    def __init__(
        self, query: SampleQuery, sampling: int, serving: int, timeout: float, directory: Path
    ) -> None:
        self._query, self._timeout, self.directory = query, timeout, directory
        directory.mkdir(parents=True, exist_ok=True)
        for left in directory.glob(f"{_MEETING}*"):  # by a coordinator that was killed
            left.unlink(missing_ok=True)
        _warm_up(query.strategy)
        self.seeds = {kind: np.zeros(0, np.int64) for kind in query.x}
        self.round = self.done = self.replaced = 0
        self._log: list[Parts] = []  # since the last checkpoint
        self._files: list[tuple[str, str]] = []  # of the last checkpoint
        self.sampling = [self._new() for _ in range(sampling)]
        self.serving = [self._new() for _ in range(serving)]

    def _new(self) -> Worker:
        spill = None if self._query.memory is None else str(self.directory)
        return Worker(self._timeout, spill)

    @property
    def workers(self) -> list[Worker]:
        """All of them, by rank."""
        return [*self.sampling, *self.serving]

    @property
    def processes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids of the processes of both kinds."""
        kinds = self.sampling, self.serving
        sampling, serving = (tuple(w.process.pid for w in kind) for kind in kinds)
        return sampling, serving

    def start(self, files: list[tuple[str, str]], first: Parts | None) -> None:
        """Begin with a checkpoint, whoever wrote it, or with the first events."""
        self._files = files
        if first is not None:
            self._log.append(first)
        self._begin_with(list(enumerate(self.sampling)), self.serving)

    def _begin_with(self, sampling: list[tuple[int, Worker]], serving: list[Worker]) -> None:
        """Have new workers be of either kind, and meet the others."""
        try:
            self._make_sampling(sampling)
            self._make_serving(serving)
            self._renew()
        except WorkerLost:
            self.repair()

    def _make_sampling(self, new: list[tuple[int, Worker]]) -> None:
        """Have new workers be sampling ones, with all events so far."""
        count, workers = len(self.sampling), [worker for _, worker in new]
        for part, worker in new:
            worker.tell("sample", self._query, part, count)
            own = self._files[part : part + 1] if len(self._files) == count else self._files
            if own:
                worker.tell("load", own)
        for parts in self._log:
            for part, worker in new:
                worker.tell("apply", parts[part])
            self._settle(workers, _LONG)
        self._settle(workers, _LONG)
        for worker in workers:
            worker.is_ready = True

    def _make_serving(self, new: list[Worker]) -> None:
        for worker in new:
            worker.tell("serve", self._query)
        self._settle(new)
        for worker in new:
            worker.is_ready = True

    # Rounds --------------------------------------------------------------------------------------

    def begin(self, parts: Parts, seeds: TypedCounts) -> int:
        """Begin a round; returns its number.

        Args:
            parts: The events of it.
            seeds: What is added to how often nodes are subscribed to.
        """
        while self.round - self.done >= 2:
            self.finish()
        for kind, (ids, counts) in seeds.items():
            known = self.seeds[kind]
            more = int(ids.max(initial=-1)) + 1 - known.size
            self.seeds[kind] = np.pad(known, (0, max(0, more)))
            self.seeds[kind][ids] += counts
        if any(parts):
            self._log.append(parts)
        self.round += 1
        try:
            self._tell_round(self.round, parts, seeds, False)
        except WorkerLost:
            self.repair()
        return self.round

    def _tell_round(self, number: int, parts: Parts, seeds: TypedCounts, fresh: bool) -> None:
        said = self._seeds_of(seeds)
        lost: WorkerLost | None = None
        for rank, worker in enumerate(self.workers):
            own = (parts[rank], said[rank]) if rank < len(said) else ([], [])
            try:
                worker.tell("round", number, *own, fresh)
            except WorkerLost as error:
                lost = error  # the others still have to take their events in
        if lost is not None:
            raise lost

    def _seeds_of(self, seeds: TypedCounts) -> list[list[TypedCounts]]:
        """Seeds by the sampling worker that owns them and the serving worker that answers."""
        found: list[list[TypedCounts]] = [[{} for _ in self.serving] for _ in self.sampling]
        for kind, (ids, counts) in seeds.items():
            owners = self._query.owners_of(kind)
            owned = split(ids, len(self.sampling), SAMPLING, owners)
            served = split(ids, len(self.serving), SERVING, owners)
            for row, own in zip(found, owned, strict=True):
                for said, to in zip(row, served, strict=True):
                    at = np.intersect1d(own, to)
                    said[kind] = ids[at], counts[at]
        return found

    def served(self, seeds: Mapping[NodeType, Ids], parts: int) -> list[dict[NodeType, Ids]]:
        """Where the seeds, int64 `[k]`, of each of so many serving workers stand in their type."""
        found: list[dict[NodeType, Ids]] = [{} for _ in range(parts)]
        for kind, ids in seeds.items():
            own = split(ids, parts, SERVING, self._query.owners_of(kind))
            for said, at in zip(found, own, strict=True):
                if at.size:
                    said[kind] = at
        return found

    def finish(self) -> None:
        """See one round through; repairs what is broken."""
        if self.done == self.round:
            return
        if LOST in heard(self.workers, 2 * self._timeout):
            self.repair()
        else:
            self.done += 1

    def finish_all(self, number: int | None = None) -> None:
        """See all rounds through, or those up to one."""
        while self.done < (self.round if number is None else min(number, self.round)):
            self.finish()

    # Repairs -------------------------------------------------------------------------------------

    def repair(self) -> None:
        """Replace who is dead or was never told what to be, and publish everything anew.

        Raises:
            WorkerLost: If workers die faster than they can be replaced.
        """
        for _ in range(_ATTEMPTS):
            try:
                for worker in self.workers:
                    if not self._is_well(worker):
                        self._replace(worker)
                self._renew()
                return
            except WorkerLost:
                continue
        raise WorkerLost(
            f"workers were replaced {_ATTEMPTS} times in a row, and one died again each time; see "
            "what they have printed, and go on with SampleService.restore"
        )

    def beat(self) -> None:
        """See that all workers are there and answer in time; replace those that do not."""
        self.finish_all()
        try:
            for worker in self.workers:
                worker.tell("beat")
            self._settle(self.workers)
        except WorkerLost:
            self.repair()

    def _is_well(self, worker: Worker) -> bool:
        """Hear what a worker still owes; whether it is what it is to be, and owes nothing."""
        while worker.owed and worker.is_there:
            before = worker.owed
            heard([worker], 2 * self._timeout)
            if worker.owed == before:
                break
        return worker.is_ready and worker.is_there and not worker.owed

    def _replace(self, worker: Worker) -> None:
        worker.kill()
        self.replaced += 1
        new = self._new()
        if worker in self.sampling:
            part = self.sampling.index(worker)
            self.sampling[part] = new
            self._make_sampling([(part, new)])
        else:
            self.serving[self.serving.index(worker)] = new
            self._make_serving([new])

    def _renew(self) -> None:
        """Meet in a new group, and publish everything that is subscribed to."""
        self._settle(self.workers)
        self._meet()
        nothing: Parts = [[] for _ in self.sampling]
        some = {kind: np.flatnonzero(counts) for kind, counts in self.seeds.items()}
        seeds = {kind: (ids, self.seeds[kind][ids]) for kind, ids in some.items()}
        self.round += 1
        self._tell_round(self.round, nothing, seeds, True)
        self._settle(self.workers)
        self.done = self.round

    def _meet(self) -> None:
        """Have all workers meet by a file.

        Its name is new each time: who comes upon what is left of another meeting waits for workers
        that are gone.
        """
        meeting = self.directory / f"{_MEETING}{secrets.token_hex(8)}"
        try:
            for rank, worker in enumerate(self.workers):
                worker.tell("join", meeting.as_uri(), rank, len(self.workers), len(self.sampling))
            self._settle(self.workers)
        finally:
            meeting.unlink(missing_ok=True)

    def _settle(self, workers: list[Worker], patience: float = 0.0) -> list[Any]:
        """Hear all that some workers owe; their last replies.

        Raises:
            WorkerLost: If one of them is dead or silent.
        """
        last: dict[Worker, Any] = {}
        patience = max(patience, 2 * self._timeout)
        while owing := [w for w in workers if w.owed]:
            for worker, reply in zip(owing, heard(owing, patience), strict=True):
                if isinstance(reply, str) and reply == LOST:
                    raise WorkerLost("a worker was lost")
                last[worker] = reply
        return [last.get(worker) for worker in workers]

    # Checkpoints and scale -----------------------------------------------------------------------

    def save(self, folder: Path) -> list[tuple[str, str]]:
        """Have every sampling worker write its file; their paths and checksums."""
        while True:
            self.finish_all()
            paths = [str(folder / f"sampling-{part}") for part in range(len(self.sampling))]
            try:
                for worker, path in zip(self.sampling, paths, strict=True):
                    worker.tell("save", path)
                sums = self._settle(self.sampling, _LONG)
            except WorkerLost:
                self.repair()
                continue
            return list(zip(paths, sums, strict=True))

    def saved(self, files: list[tuple[str, str]]) -> None:
        """From here on replaced workers read these files; events before are not needed any more."""
        self._files, self._log = files, []

    def scale(self, sampling: int, serving: int) -> None:
        """Go on with other numbers of workers; a checkpoint was just taken."""
        self.finish_all()
        leaving = self.serving[serving:]
        more = [self._new() for _ in range(serving - len(self.serving))]
        self.serving = [*self.serving[:serving], *more]
        new: list[tuple[int, Worker]] = []
        if sampling != len(self.sampling):
            leaving = [*leaving, *self.sampling]
            self.sampling = [self._new() for _ in range(sampling)]
            new = list(enumerate(self.sampling))
        self._begin_with(new, more)
        for worker in leaving:
            worker.stop()

    def report(self) -> list[dict[str, Any]]:
        """What each worker says that it holds, by rank."""
        while True:
            self.finish_all()
            try:
                for worker in self.workers:
                    worker.tell("report")
                return self._settle(self.workers)
            except WorkerLost:
                self.repair()

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.stop()
        for left in self.directory.glob(f"{PREFIX}*"):  # by those that were killed
            shutil.rmtree(left, ignore_errors=True)


def _warm_up(strategy: str) -> None:
    """Compile what workers call, if it never was: in a round that might take longer than is waited.

    What is compiled is kept on disk, and so every worker only reads it.
    """
    edges, data = torch.tensor([[0, 1, 1], [1, 0, 0]]), torch.ones(3)
    more: dict[str, Any] = {}
    if strategy != "random":
        more["edge_time" if strategy == "topk" else "edge_weight"] = data
    sampler = StreamingSampler(edges, 2, [1, 1], strategy=cast(Any, strategy), **more)
    cache = SampleCache(sampler, torch.ones(2, 1))
    cache.query(torch.tensor([0]))
    name = {"topk": "time", "weight": "edge_weight"}.get(strategy)
    added = {"edge_data_add": {name: data[:1]}} if name else {}
    sampler.apply_delta(edge_index_add=edges[:, :1], edge_index_del=edges[:, 1:], **added)
    sampler.apply_delta(nodes_del=[0])
