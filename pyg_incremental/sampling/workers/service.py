"""The service as a user sees it: events are pulled, seeds are asked for."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.sampling.edges import TIME
from pyg_incremental.sampling.strategy import StrategyName, checked_seed
from pyg_incremental.sampling.workers import checkpoint
from pyg_incremental.sampling.workers.crew import Crew
from pyg_incremental.sampling.workers.front import Front
from pyg_incremental.sampling.workers.merge import merged
from pyg_incremental.sampling.workers.messages import NO_COUNTS, Counts, SampleQuery
from pyg_incremental.sampling.workers.owners import check_counts, checked_owners
from pyg_incremental.sampling.workers.results import ServiceStats, Step
from pyg_incremental.sampling.workers.source import Source, num_events
from pyg_incremental.sampling.workers.split import Splitter

Ids = NDArray[np.int64]
_KEPT = 8
"""Rounds that are done, and of which it is still known how many events they had read."""


class SampleService:
    """Samples kept ready in several processes (Helios, sections 4 to 6).

    Sampling workers own nodes by a hash of their ids or by a map, and have the edges that lead to
    them, their samples and their features. Serving workers own seeds, likewise, and hold what
    queries for them read. This object is the coordinator: it pulls events from a source and sends
    each to the owners of its targets, registers seeds, hands queries to serving workers, orders
    checkpoints, and replaces workers that die.

    Samples are those of a `StreamingSampler` on the same events with the same seed, edge ids
    included. Methods may be called from several threads; queries do not wait for events unless they
    are told to.

    A program that makes one has to be importable without making it again (`if __name__ ==
    '__main__':`), as with everything that starts processes.

    Args:
        source: Where events come from.
        edge_index: The edges that are there at first, int64 `[2, num_edges]`.
        x: The features, `[num_nodes, num_features]`.
        num_neighbors: How many in-edges of each node are sampled in each hop; no -1.
        directory: A folder for checkpoints, and for workers to meet in; each service has its own.
        strategy: See `StreamingSampler`, as for the next two.
        edge_time: The times of the edges, `[num_edges]`.
        edge_weight: Their weights, `[num_edges]`.
        seed: What samples are drawn from.
        sampling: Number of sampling workers.
        serving: Number of serving workers.
        memory: How many bytes of rows each serving worker has in memory, see `SampleCache`.
        timeout: Seconds after which a worker that has not answered another one counts as dead.
        checkpoint_events: After how many events a checkpoint is written.
        owners: The part of each node, int64 `[num_nodes]`, such as METIS cuts a graph into: nodes
            of one part are sampled by one worker, and served by one. Part `p` belongs to worker
            `p % sampling` and `p % serving`; nodes that come later go by a hash. None for all.

    Raises:
        ValueError: If an argument does not fit.
        InvalidDeltaError: If the edges or the features do not.
    """

    def __init__(
        self,
        source: Source,
        edge_index: Tensor,
        x: Tensor,
        num_neighbors: list[int],
        directory: str | Path,
        *,
        strategy: StrategyName = "random",
        edge_time: Tensor | None = None,
        edge_weight: Tensor | None = None,
        seed: int = 0,
        sampling: int = 1,
        serving: int = 1,
        memory: int | None = None,
        timeout: float = 30.0,
        checkpoint_events: int = 1_000_000,
        owners: Tensor | None = None,
    ) -> None:
        fanouts = list(num_neighbors)
        if not fanouts or not all(isinstance(k, int) and k >= 0 for k in fanouts):
            raise ValueError(
                f"num_neighbors: expected a limit for every hop, no -1 (got {num_neighbors})"
            )
        data = {} if edge_time is None else {TIME: torch.as_tensor(edge_time)}
        needed = {"topk": TIME, "weight": "edge_weight"}.get(strategy)
        if needed == "edge_weight" and edge_weight is not None:
            data["edge_weight"] = torch.as_tensor(edge_weight)
        if needed and needed not in data:
            name = "edge_time" if needed == TIME else needed
            raise ValueError(f"strategy={strategy!r} needs {name}, one number an edge")
        kinds = {name: values.detach().cpu()[:0] for name, values in data.items()}
        query = SampleQuery(
            fanouts, strategy, checked_seed(seed), kinds, x.detach().cpu()[:0], memory,
            checked_owners(owners, x.shape[0]),
        )  # fmt: skip
        splitter = Splitter(query)
        check_counts(sampling, serving)
        first = splitter.start(edge_index, data, x, sampling)
        crew = Crew(query, sampling, serving, timeout, Path(directory))
        self._set_up(source, query, splitter, crew, checkpoint_events)
        with self._front.or_close():
            crew.start([], [[part] for part in first])
            self.checkpoint()

    def _set_up(
        self, source: Source, query: SampleQuery, splitter: Splitter, crew: Crew, events: int
    ) -> None:
        self._source, self._query, self._splitter, self._crew = source, query, splitter, crew
        self._front = Front(crew)
        self._checkpoint_events, self._since = events, 0
        self._counts = ServiceStats()
        self._read_by: dict[int, int] = {0: 0}  # events read by the rounds that are not done

    @classmethod
    def restore(
        cls,
        source: Source,
        directory: str | Path,
        *,
        sampling: int | None = None,
        serving: int | None = None,
        timeout: float = 30.0,
        checkpoint_events: int = 1_000_000,
    ) -> SampleService:
        """Go on from the last checkpoint in a folder, with as many workers as before or others.

        The source is opened at the position of the checkpoint. Seeds are subscribed as they were.

        Raises:
            FileNotFoundError: If there is no checkpoint.
            StateFileError: If it is damaged.
        """
        directory = Path(directory)
        content = checkpoint.read(directory)
        query, files = content["query"], content["files"]
        sampling = len(files) if sampling is None else sampling
        serving = content["serving"] if serving is None else serving
        check_counts(sampling, serving)
        self = cls.__new__(cls)
        splitter = Splitter(query, content["num_nodes"], content["next_id"])
        source.open(content["position"])
        crew = Crew(query, sampling, serving, timeout, directory)
        self._set_up(source, query, splitter, crew, checkpoint_events)
        self._counts.events = content["events"]
        crew.seeds = content["seeds"].numpy()
        with self._front.or_close():
            crew.start([(path, checksum) for path, checksum in files], None)
        self._read_by = {crew.done: self._counts.events}
        return self

    @property
    def num_nodes(self) -> int:
        """The number of nodes after all that was read."""
        return self._splitter.num_nodes

    @property
    def workers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids of the processes of sampling and of serving workers."""
        kinds = self._crew.sampling, self._crew.serving
        sampling, serving = (tuple(w.process.pid for w in kind) for kind in kinds)
        return sampling, serving

    # Events --------------------------------------------------------------------------------------

    def step(self, max_events: int = 100_000, *, wait: bool = True) -> Step:
        """Read some events from the source and hand them to the workers.

        A delta that does not fit is left out and reported; edges that are to be deleted and are not
        there are passed over and counted.

        Args:
            max_events: How many at most.
            wait: Whether to return only when all of it is visible. Without, up to two steps are on
                their way at a time.

        Raises:
            StaleStateError: If the service is closed.
            RankFailedError: If workers die faster than they can be replaced.
        """
        with self._front.working() as crew:
            deltas = self._source.next_batch(max_events)
            with self._front.or_close():
                return self._take(crew, deltas, wait)

    def _take(self, crew: Crew, deltas: list[GraphDelta], wait: bool) -> Step:
        parts: list[list[Any]] = [[] for _ in crew.sampling]
        refused, events = [], 0
        for delta in deltas:
            try:
                said = self._splitter.read(delta, len(parts))
            except InvalidDeltaError as error:
                refused.append(error)
                continue
            events += num_events(delta)
            for own, part in zip(parts, said, strict=True):
                own.append(part)
        position = self._source.position()
        self._counts.events += events
        self._since += events
        token = self._round(parts, NO_COUNTS) if events else crew.round
        if wait or self._since >= self._checkpoint_events:
            crew.finish_all()
        if self._since >= self._checkpoint_events:
            self.checkpoint()
        return Step(token, events, position, tuple(refused))

    def expire(self, before: float) -> int:
        """Delete edges with times below `before`; a token for it. No earlier checkpoint has it.

        Raises:
            ValueError: If the edges came without times.
        """
        with self._front.working() as crew:
            said = self._splitter.expire(before, len(crew.sampling))
            with self._front.or_close():
                return self._round([[part] for part in said], NO_COUNTS)

    @property
    def visible(self) -> int:
        """The token of what is visible on all serving workers, as far as is known."""
        return self._crew.done

    def barrier(self) -> int:
        """Return when all that was read is visible; a token for it."""
        with self._front.working() as crew:
            crew.finish_all()
            return crew.done

    def _round(self, parts: list[list[Any]], seeds: Counts) -> int:
        token = self._crew.begin(parts, seeds)
        self._read_by[token] = self._counts.events
        for old in [r for r in self._read_by if r < self._crew.done - _KEPT]:
            del self._read_by[old]
        return token

    # Seeds ---------------------------------------------------------------------------------------

    def subscribe(self, seeds: Tensor) -> None:
        """Have the samples of some seeds ready from now on, int64 `[k]`; each time counts.

        Raises:
            ValueError: If a node does not exist.
        """
        ids, counts = np.unique(self._checked(seeds), return_counts=True)
        with self._front.working() as crew:
            self._round([[] for _ in crew.sampling], (ids, counts))
            crew.finish_all()

    def unsubscribe(self, seeds: Tensor) -> None:
        """Take back as many subscriptions as seeds are listed, int64 `[k]`.

        Raises:
            ValueError: If there are not that many; nothing was taken back then.
        """
        ids, counts = np.unique(self._checked(seeds), return_counts=True)
        with self._front.working() as crew:
            too_many = self._subscribed(ids) < counts
            if too_many.any():
                raise ValueError(f"node {ids[np.argmax(too_many)]} is not subscribed that often")
            self._round([[] for _ in crew.sampling], (ids, -counts))
            crew.finish_all()

    def _subscribed(self, ids: Ids) -> Ids:
        known = self._crew.seeds
        found = np.zeros_like(ids)
        found[ids < known.size] = known[ids[ids < known.size]]
        return found

    def query(self, seeds: Tensor, *, after: int | None = None, timeout: float = 60.0) -> Data:
        """The complete samples of some seeds, as `SampleCache.query` gives them.

        Seeds that are not subscribed are subscribed first. Of several serving workers each gives
        the nodes that its seeds reach, so a node may be in the batch more than once.

        Args:
            seeds: Node ids, int64 `[k]`.
            after: A token: the answer has to contain all that was read by then (read your writes).
            timeout: Seconds in which there has to be an answer; in the meantime workers that have
                died are replaced.

        Returns:
            A graph as that of `SampleCache`, with the `token` of the changes that it contains and
            the number of `events_behind` that had been read and are not in it.

        Raises:
            ValueError: If a seed does not exist.
            TimeoutError: If there is no answer in time.
        """
        ids, until = self._checked(seeds), time.monotonic() + timeout
        if after is not None and after > self._crew.done:
            with self._front.working(until) as crew:
                while crew.done < min(after, crew.round):
                    crew.finish()
        new = np.unique(ids[self._subscribed(ids) == 0])
        if new.size:
            self.subscribe(torch.from_numpy(new))
        read = self._counts.events
        places, answers = self._front.answers(ids, until)
        data = merged(answers, places, ids.size)
        data.token = min([a.round for a in answers], default=self._crew.done)
        seen = [n for round_, n in self._read_by.copy().items() if round_ <= data.token]
        data.events_behind = max(0, read - max(seen, default=read))
        self._counts.queries += ids.size
        if data.events_behind:
            self._counts.behind += ids.size
            self._counts.events_behind += ids.size * data.events_behind
        return data

    def _checked(self, seeds: Any) -> Ids:
        ids: Ids = torch.as_tensor(seeds).to(torch.int64).reshape(-1).contiguous().numpy()
        if ids.size and not (ids.min() >= 0 and ids.max() < self.num_nodes):
            raise ValueError(
                f"seeds: expected node ids in [0, {self.num_nodes}) (got {ids.min()} to "
                f"{ids.max()})"
            )
        return ids

    # Checkpoints, scale, end ---------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write edges, features, seeds and the position of the source; needs no pickle.

        Raises:
            OSError: If it cannot be written; the one before counts then.
        """
        with self._front.working() as crew:
            self._since = 0
            files = crew.save(checkpoint.new_folder(crew.directory, self._counts.events))
            content = {
                "query": self._query,
                "files": [list(file) for file in files],
                "position": self._source.position(),
                "events": self._counts.events,
                "num_nodes": self._splitter.num_nodes,
                "next_id": self._splitter.next_id,
                "seeds": torch.from_numpy(crew.seeds.copy()),
                "serving": len(crew.serving),
            }
            checkpoint.write(crew.directory, content)
            crew.saved(files)

    def scale(self, *, sampling: int | None = None, serving: int | None = None) -> None:
        """Go on with other numbers of workers of either kind; queries wait for it.

        Other sampling workers read a checkpoint, which is written first.
        """
        with self._front.working() as crew, self._front.or_close():
            sampling = len(crew.sampling) if sampling is None else sampling
            serving = len(crew.serving) if serving is None else serving
            check_counts(sampling, serving)
            if sampling != len(crew.sampling):
                self.checkpoint()
            crew.scale(sampling, serving)

    @property
    def stats(self) -> ServiceStats:
        """What the service has done, and what its workers hold."""
        with self._front.working() as crew:
            said = crew.report()
            count = len(crew.sampling)
            return replace(
                self._counts,
                missing=sum(report["missing"] for report in said[:count]),
                replaced=crew.replaced,
                sampling=tuple(said[:count]),
                serving=tuple(said[count:]),
            )

    def close(self) -> None:
        """End all workers; what was read since the last checkpoint is read again by `restore`."""
        self._front.close()

    def __enter__(self) -> SampleService:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        crew = self._crew
        return (
            f"{type(self).__name__}(num_nodes={self.num_nodes}, events={self._counts.events}, "
            f"{len(crew.sampling)} sampling, {len(crew.serving)} serving)"
        )
