"""The service as a user sees it: events are pulled, seeds are asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.sampling.read import EdgeType, per_type
from pyg_incremental.sampling.strategy import StrategyName
from pyg_incremental.sampling.workers import checkpoint
from pyg_incremental.sampling.workers.client import Client
from pyg_incremental.sampling.workers.merge import merged
from pyg_incremental.sampling.workers.messages import SampleQuery, TypedCounts
from pyg_incremental.sampling.workers.owners import check_counts
from pyg_incremental.sampling.workers.registration import registered
from pyg_incremental.sampling.workers.results import ReadBy, ServiceStats, ServiceStep
from pyg_incremental.sampling.workers.route import EdgesBy
from pyg_incremental.sampling.workers.seeds import (
    SeedAges,
    Seeds,
    checked_seeds,
    counted,
    not_subscribed,
    taken_back,
)
from pyg_incremental.sampling.workers.split import Splitter
from pyg_incremental.sampling.workers.supervisor import Supervisor
from pyg_incremental.sources.event import Event
from pyg_incremental.sources.source import Source
from pyg_incremental.telemetry.metrics import Metrics

Ids = NDArray[np.int64]


class SampleService:
    """Samples kept ready in several processes (Helios, sections 4 to 6).

    Sampling workers own nodes by a hash of their ids or by a map, and have their edges, samples and
    features; serving workers own seeds, likewise, and hold what queries for them read. This object
    is the coordinator: it pulls events from a source and sends each to the owners of its ends,
    registers seeds, hands queries on, orders checkpoints, and replaces workers that die.

    By default a record is kept by the owner of its target, and a sample is drawn among in-edges.
    With `edges_by='source'` it is kept by the owner of its source, for samples of out-edges; with
    `'both'` by the owners of both (a loop once), for samples of all edges at a node. Edges in
    answers lead to the node whose sample they are in, as messages flow, so records by source come
    turned round; the ids are those of the records. By type, edges turned round are of the type
    `(target, 'rev_' + name, source)`, as `ToUndirected` has it; with `'both'` records between nodes
    of one type keep theirs. Deltas, `expire` and times to live speak of records: one that leaves
    leaves all its owners in one round. Features lie with the owners of their nodes in any case.

    Edges, features, seeds and deltas are given by type where there are several, as to a
    `StreamingSampler`, and so are `num_neighbors`, `edge_time`, `edge_weight` and `owners`.

    Samples by target are those of a `StreamingSampler` on the same events with the same seed, edge
    ids included. Methods may be called from several threads; queries do not wait for events unless
    they are told to.

    A program that makes one has to be importable without making it again (`if __name__ ==
    '__main__':`), as with everything that starts processes.

    Args:
        source: Where events come from.
        edge_index: The edges that are there at first, int64 `[2, num_edges]`.
        x: The features, `[num_nodes, num_features]`.
        num_neighbors: How many edges of each node are sampled in each hop; no -1.
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
        ttl: After how many seconds without a query a seed is unsubscribed; None for never.
        data_ttl: How old edges may grow by their times, in the unit of `clock`, see `tick`.
        clock: What says the time in seconds; `time.time` by default.
        heartbeat: Every so many seconds a thread sees that all workers are there; None for never.
        edges_by: `'target'`, `'source'` or `'both'`, for all edge types or by type.

    Raises:
        ValueError: If an argument does not fit.
        InvalidDeltaError: If the edges or the features do not.
    """

    def __init__(
        self,
        source: Source,
        edge_index: Any,
        x: Any,
        num_neighbors: Any,
        directory: str | Path,
        *,
        strategy: StrategyName = "random",
        edge_time: Any = None,
        edge_weight: Any = None,
        seed: int = 0,
        sampling: int = 1,
        serving: int = 1,
        memory: int | None = None,
        timeout: float = 30.0,
        checkpoint_events: int = 1_000_000,
        owners: Any = None,
        ttl: float | None = None,
        data_ttl: float | None = None,
        clock: Callable[[], float] = time.time,
        heartbeat: float | None = None,
        edges_by: EdgesBy | Mapping[EdgeType, EdgesBy] = "target",
    ) -> None:
        query, data = registered(
            edge_index, x, num_neighbors, edge_time, edge_weight, owners,
            strategy=strategy, seed=seed, memory=memory, edges_by=edges_by,
        )  # fmt: skip
        check_counts(sampling, serving)
        splitter, self._kept = Splitter(query), SeedAges(query, ttl, data_ttl, clock)
        first = splitter.start(per_type(edge_index), data, per_type(x), sampling)
        supervisor = Supervisor(query, sampling, serving, timeout, Path(directory).absolute())
        self._set_up(source, query, splitter, supervisor, checkpoint_events)
        with self._client.or_close():
            supervisor.start([], [[part] for part in first])
            self.checkpoint()
        self._client.watch(heartbeat)

    def _set_up(
        self,
        source: Source,
        query: SampleQuery,
        splitter: Splitter,
        supervisor: Supervisor,
        events: int,
    ) -> None:
        self._source, self._query, self._splitter, self._supervisor = (
            source,
            query,
            splitter,
            supervisor,
        )
        self._client = Client(supervisor)
        self._checkpoint_events, self._since = events, 0
        self._counts = ServiceStats()
        self._read_by = ReadBy({0: 0})

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
        ttl: float | None = None,
        data_ttl: float | None = None,
        clock: Callable[[], float] = time.time,
        heartbeat: float | None = None,
    ) -> SampleService:
        """Go on from the last checkpoint in a folder, with as many workers as before or others.

        The source is opened at the position of the checkpoint. Seeds are subscribed as they were.

        Raises:
            FileNotFoundError: If there is no checkpoint.
            StateFileError: If it is damaged.
        """
        directory = Path(directory).absolute()
        content = checkpoint.read(directory)
        query, files = content["query"], content["files"]
        sampling = len(files) if sampling is None else sampling
        serving = content["serving"] if serving is None else serving
        check_counts(sampling, serving)
        self = cls.__new__(cls)
        self._kept = SeedAges(query, ttl, data_ttl, clock)
        splitter = Splitter(query, content["num_nodes"], content["next_id"])
        source.open(content["position"])
        supervisor = Supervisor(query, sampling, serving, timeout, directory)
        self._set_up(source, query, splitter, supervisor, checkpoint_events)
        self._counts.events = content["events"]
        supervisor.seeds = {kind: counts.numpy() for kind, counts in content["seeds"].items()}
        self._kept.note({kind: np.flatnonzero(counts) for kind, counts in supervisor.seeds.items()})
        with self._client.or_close():
            supervisor.start(files, None)
            checkpoint.sweep(directory, files)
        self._read_by = ReadBy({supervisor.done: self._counts.events})
        self._client.watch(heartbeat)
        return self

    @property
    def num_nodes(self) -> Any:
        """The number of nodes after all that was read; by node type if there are several."""
        return self._splitter.num_nodes.get(None, self._splitter.num_nodes)

    @property
    def workers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids of the processes of sampling and of serving workers."""
        return self._supervisor.processes

    # Events --------------------------------------------------------------------------------------

    def step(self, max_events: int = 100_000, *, wait: bool = True) -> ServiceStep:
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
            OSError: If a checkpoint is due and cannot be written. What was read is in; the next
                step tries again.
        """
        with self._client.working() as supervisor:
            events = self._source.next_batch(max_events)
            with self._client.or_close():
                step = self._take(supervisor, events, wait)
            if self._since >= self._checkpoint_events:
                self.checkpoint()  # of what is visible
            return step

    def _take(self, supervisor: Supervisor, given: Sequence[Event], wait: bool) -> ServiceStep:
        parts, events, refused = self._splitter.read_all(given, len(supervisor.sampling))
        position = self._source.position()
        self._counts.events += events
        self._since += events
        stale = self._kept.take_stale(supervisor.seeds)
        token = self._round(parts, stale) if events or stale else supervisor.round
        if wait:
            supervisor.finish_all()
        return ServiceStep(token, events, position, tuple(refused))

    def expire(self, before: float) -> int:
        """Delete edges with times below `before`; a token for it. No earlier checkpoint has it.

        Raises:
            ValueError: If the edges came without times.
        """
        with self._client.working() as supervisor:
            said = self._splitter.expire(before, len(supervisor.sampling))
            with self._client.or_close():
                return self._round(
                    [[part] for part in said], self._kept.take_stale(supervisor.seeds)
                )

    def tick(self) -> int:
        """Let go what has become too old by now: seeds by `ttl`, edges by `data_ttl`.

        Seeds go with every step, too. Returns a token for it.
        """
        if (before := self._kept.oldest) is not None:
            return self.expire(before)
        with self._client.working() as supervisor, self._client.or_close():
            stale = self._kept.take_stale(supervisor.seeds)
            return (
                self._round([[] for _ in supervisor.sampling], stale) if stale else supervisor.round
            )

    @property
    def visible(self) -> int:
        """The token of what is visible on all serving workers, as far as is known."""
        return self._supervisor.done

    def barrier(self) -> int:
        """Return when all that was read is visible; a token for it."""
        return self._client.finish()

    def _round(self, parts: list[list[Any]], seeds: TypedCounts) -> int:
        token = self._supervisor.begin(parts, seeds)
        self._read_by.note(token, self._counts.events, self._supervisor.done)
        return token

    # Seeds ---------------------------------------------------------------------------------------

    def subscribe(self, seeds: Any) -> None:
        """Have the samples of some seeds, int64 `[k]`, ready from now on; each time counts.

        Raises:
            ValueError: If a node does not exist.
        """
        ids = checked_seeds(seeds, self._splitter.num_nodes)
        self._kept.note(ids)
        self._change(lambda _: counted(ids))

    def unsubscribe(self, seeds: Any) -> None:
        """Take back as many subscriptions as seeds are listed, int64 `[k]`, by type likewise.

        Raises:
            ValueError: If there are not that many; nothing was taken back then.
        """
        listed = counted(checked_seeds(seeds, self._splitter.num_nodes))
        self._change(lambda known: taken_back(listed, known))

    def _have(self, seeds: Seeds, until: float) -> None:
        """Subscribe those of some seeds that are not."""
        if not_subscribed(seeds, self._supervisor.seeds):
            new = partial(not_subscribed, seeds)
            self._client.done_by(until, lambda: self._change(lambda known: counted(new(known))))

    def _change(self, counts: Callable[[Seeds], TypedCounts]) -> None:
        """See a round through in which subscriptions change, given those that there are."""
        with self._client.working() as supervisor:
            self._round([[] for _ in supervisor.sampling], counts(supervisor.seeds))
            supervisor.finish_all()

    def query(self, seeds: Any, *, after: int | None = None, timeout: float = 60.0) -> Any:
        """The complete samples of some seeds, as `SampleCache.query` gives them.

        Seeds that are not subscribed are subscribed first. Of several serving workers each gives
        the nodes that its seeds reach, so a node may be in the batch more than once.

        Args:
            seeds: Node ids, int64 `[k]`; by node type in a heterogeneous graph.
            after: A token: the answer has to contain all that was read by then (read your writes).
            timeout: Seconds in which there has to be an answer; in the meantime workers that have
                died are replaced.

        Returns:
            A graph as that of `SampleCache`, or a `HeteroData` with the same by type, with the
            `token` of the changes that it contains and the number of `events_behind` that had been
            read and are not in it.

        Raises:
            ValueError: If a seed does not exist.
            TimeoutError: If there is no answer in time.
        """
        ids, until = checked_seeds(seeds, self._splitter.num_nodes), time.monotonic() + timeout
        self._kept.note(ids)
        if after is not None and after > self._supervisor.done:
            self._client.done_by(until, lambda: self._client.finish(after))
        read = self._counts.events
        places, answers = self._client.answers(ids, until, self._have)
        sizes = {kind: own.size for kind, own in ids.items()}
        data, count = merged(answers, places, sizes), sum(sizes.values())
        data.token = min([a.round for a in answers], default=self._supervisor.done)
        data.events_behind = self._read_by.behind(data.token, read)
        self._counts.answered(count, data.events_behind)
        return data

    # Checkpoints, scale, end ---------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write edges, features, seeds and the position of the source; needs no pickle.

        Raises:
            OSError: If it cannot be written; the one before counts then.
        """
        with (
            self._client.working() as supervisor,
            self._client.or_close(but=(OSError, MemoryError)),
        ):
            content = {
                "query": self._query, "position": self._source.position(),
                "events": self._counts.events, "num_nodes": self._splitter.num_nodes,
                "next_id": self._splitter.next_id,
            }  # fmt: skip
            checkpoint.save(supervisor, content)
            self._since = 0

    def scale(self, *, sampling: int | None = None, serving: int | None = None) -> None:
        """Go on with other numbers of workers of either kind; queries wait for it.

        Other sampling workers read a checkpoint, which is written first.

        Raises:
            ValueError: If there would be no worker of a kind.
            OSError: If the checkpoint cannot be written; nothing has changed then.
        """
        with self._client.working() as supervisor:
            sampling = len(supervisor.sampling) if sampling is None else sampling
            serving = len(supervisor.serving) if serving is None else serving
            check_counts(sampling, serving)
            if sampling != len(supervisor.sampling):
                self.checkpoint()
            with self._client.or_close():
                supervisor.scale(sampling, serving)

    @property
    def stats(self) -> ServiceStats:
        """What the service has done, and what its workers hold."""
        with self._client.working() as supervisor:
            said, count = supervisor.report(), len(supervisor.sampling)
            return self._counts.reported(said[:count], said[count:], supervisor.replaced)

    def metrics(self) -> Metrics:
        """The counts of `stats` as plain numbers, whose names begin with `service_`."""
        return Metrics.of(self.stats, "service_")

    def close(self) -> None:
        """End all workers; what was read since the last checkpoint is read again by `restore`."""
        self._client.close()

    def __enter__(self) -> SampleService:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        supervisor = self._supervisor
        return (
            f"{type(self).__name__}(num_nodes={self.num_nodes}, events={self._counts.events}, "
            f"{len(supervisor.sampling)} sampling, {len(supervisor.serving)} serving)"
        )
