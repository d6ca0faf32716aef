"""The complete samples of some seeds, ready with the features of all nodes in them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from pyg_incremental.delta.describe import GraphDelta, with_fields_of
from pyg_incremental.delta.given import chosen_ids
from pyg_incremental.errors import StaleStateError
from pyg_incremental.sampling.disk_table import DiskTraffic
from pyg_incremental.sampling.features import FeatureChanges, Features
from pyg_incremental.sampling.query import expand
from pyg_incremental.sampling.sampler import SampleUpdate, StreamingSampler
from pyg_incremental.sampling.slot_map import overflows_of
from pyg_incremental.sampling.tables import FeatureTable, HopTables, SampleTable

Ids = NDArray[np.int64]
_NONE = np.empty(0, np.int64)


@dataclass
class CacheStats:
    """What a cache holds, and what it has done.

    Attributes:
        seeds: Seeds that are subscribed.
        samples: Samples of each hop that are held.
        features: Rows of features that are held.
        bytes: What both take in memory.
        bytes_on_disk: What those of them take that are on disk alone.
        queries: Seeds that were asked for.
        misses: How many of them were not subscribed, and had to be.
        sample_lookups: Samples that queries have read.
        feature_lookups: Rows of features that they have read.
        samples_copied: Samples copied from the sampler, because they changed or were needed anew.
        features_copied: Rows of features, likewise.
        disk: Rows and bytes that went to the disk, and that came back.
    """

    seeds: int
    samples: list[int]
    features: int
    bytes: int
    bytes_on_disk: int
    queries: int = 0
    misses: int = 0
    sample_lookups: int = 0
    feature_lookups: int = 0
    samples_copied: int = 0
    features_copied: int = 0
    disk: DiskTraffic = field(default_factory=DiskTraffic)


class SampleCache:
    """Answers queries for subscribed seeds by look-ups alone (Helios, sections 5.3 and 6).

    A seed subscribes to its sample, to those of the nodes in it, and so on, and to the features of
    all nodes that are reached. Subscriptions are counted: for every hop and node, how many sampled
    edges lead there. When a sample changes, the nodes that came into it are subscribed to and those
    that left it are not any more, hop by hop; what nobody is subscribed to is forgotten. So a query
    reads at most one sample for each seed and each path of `k1 * k2 * ...` before the last hop, and
    one row of features for each node.

    The cache follows every change of its sampler, whoever makes it: features that come with a delta
    reach all caches and models of the sampler.

    Args:
        sampler: The sampler, of a homogeneous graph, with a number for each hop (no -1).
        x: The features, `[num_nodes, num_features]`; they are copied.
        ttl: After how many seconds without a query a seed is unsubscribed; None for never.
        data_ttl: How old edges may grow by their times, in the unit of `clock`; None for any age.
            It needs a sampler that was given `edge_time`.
        memory: How many bytes of samples and features may be in memory; half of them are for
            features. What was asked for longest ago goes to disk, by rocksdict (the `disk` extra).
            All that one query reads is in memory together, even if it is more. None for no limit.
        directory: The folder in which a folder is made for what goes to disk, which is removed
            with the cache; the system's for temporary files by default.
        clock: What says the time in seconds; `time.time` by default.

    Raises:
        ValueError: If the sampler is none that can be cached, or `memory` is negative.
        ImportError: If there is a limit, and rocksdict is not installed.
    """

    def __init__(
        self,
        sampler: StreamingSampler,
        x: Tensor,
        *,
        ttl: float | None = None,
        data_ttl: float | None = None,
        memory: int | None = None,
        directory: str | Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if sampler.is_hetero or min(sampler.num_neighbors) < 0:
            raise ValueError(
                "sampler: expected a homogeneous graph and a limit for every hop (got "
                f"num_neighbors={sampler.num_neighbors}); use the sampler itself"
            )
        if data_ttl is not None:
            sampler.edges_of().before(-float("inf"))  # raises without times
        self.sampler, self._clock = sampler, clock
        self._ttl, self._data_ttl = ttl, data_ttl
        nodes = sampler.num_nodes
        self._source = Features(x, nodes)
        fanouts = sampler.num_neighbors
        self._disk, overflows = overflows_of(memory, directory, len(fanouts))
        self._hops = [SampleTable(nodes, k, s) for k, s in zip(fanouts, overflows, strict=False)]
        self._features = FeatureTable(nodes, self._source.x, overflows[-1])
        # How many sampled edges of hop h - 1 lead to a node, and in row 0 how often it is a seed.
        self._needed = np.zeros((len(self._hops) + 1, nodes), np.int64)
        self._used: dict[int, float] = {}  # when each seed was asked for last, the oldest first
        self._counts = CacheStats(0, [], 0, 0, 0)
        self._interrupted = False
        sampler.watch(self._read, self._follow)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.sampler.watch(self._read, self._follow)

    # Subscriptions -------------------------------------------------------------------------------

    def subscribe(self, seeds: Tensor) -> None:
        """Have the samples of some seeds ready from now on; each time counts.

        Seeds are ids, int64 `[k]`, or a mask, bool `[num_nodes]`.

        Raises:
            ValueError: If a node does not exist.
        """
        ids, counts = np.unique(self._checked(seeds), return_counts=True)
        self._count_seeds(ids, counts)
        now = self._clock()
        for seed in ids.tolist():
            self._used.pop(seed, None)
            self._used[seed] = now

    def unsubscribe(self, seeds: Tensor) -> None:
        """Take back as many subscriptions as seeds are listed, int64 `[k]`.

        Raises:
            ValueError: If there are not that many; nothing was taken back then.
        """
        ids, counts = np.unique(self._checked(seeds), return_counts=True)
        too_many = self._needed[0, ids] < counts
        if too_many.any():
            at = int(np.argmax(too_many))
            raise ValueError(
                f"node {ids[at]} is subscribed {self._needed[0, ids[at]]} times, which cannot be "
                f"taken back {counts[at]} times"
            )
        self._count_seeds(ids, -counts)
        for seed in ids[self._needed[0, ids] == 0].tolist():
            self._used.pop(seed, None)

    def tick(self) -> None:
        """Let go what has become too old by now: seeds by `ttl`, edges by `data_ttl`."""
        self._unsubscribe_stale()
        if self._data_ttl is not None:
            self.sampler.expire(self._clock() - self._data_ttl)

    def _unsubscribe_stale(self) -> None:
        if self._ttl is None:
            return
        stale, limit = [], self._clock() - self._ttl
        for seed, used in self._used.items():
            if used >= limit:
                break
            stale.append(seed)
        if stale:
            ids = np.array(sorted(stale), np.int64)
            self._count_seeds(ids, -self._needed[0, ids])
            for seed in stale:
                del self._used[seed]

    # Changes -------------------------------------------------------------------------------------

    @with_fields_of(GraphDelta)
    def apply_delta(self, *changes: Any, **fields: Any) -> SampleUpdate:
        """Let edges, nodes and features change; see `StreamingSampler.apply_delta`.

        Raises:
            InvalidDeltaError: If the delta does not fit; nothing was changed then.
        """
        return self.sampler.apply_delta(*changes, **fields)

    def _read(self, delta: GraphDelta) -> FeatureChanges:
        return self._source.read(delta, self.sampler.num_nodes)

    def _follow(self, update: SampleUpdate, said: FeatureChanges | None) -> None:
        """Copy what changed, and what samples need, as far as anyone is subscribed."""
        nodes = self.sampler.num_nodes
        if nodes > self._needed.shape[1]:
            more = max(nodes, 3 * nodes // 2) - self._needed.shape[1]
            self._needed = np.pad(self._needed, ((0, 0), (0, more)))
            for table in self._hops:
                table.grow(nodes)
            self._features.grow(nodes)
            self._source.grow(nodes)
        self._begin()
        if said is not None:
            changed = self._source.write(said)
            self._copy_features(changed[self._features.store.has(changed)])
        self._settle(np.unique(update.touched()), _NONE)

    def _begin(self) -> None:
        """What begins here is either done, or nothing is answered any more."""
        if self._interrupted:
            raise StaleStateError(
                "a change of this cache was interrupted, and what it holds may not fit its seeds; "
                "make a new one"
            )
        self._interrupted = True

    def _count_seeds(self, ids: Ids, counts: Ids) -> None:
        """Add to how often nodes are seeds, and have or forget what follows from it."""
        self._begin()
        self._settle(_NONE, self._add(0, ids, counts))

    def _add(self, hop: int, ids: Ids, counts: Ids) -> Ids:
        """Add to how often distinct nodes are needed; those for which that began or ended."""
        needed = self._needed[hop]
        before = needed[ids] > 0
        needed[ids] += counts
        found: Ids = ids[before != (needed[ids] > 0)]
        return found

    def _settle(self, changed: Ids, turned: Ids) -> None:
        """Hop by hop: copy and forget samples, and count the nodes that they lead to.

        Args:
            changed: Nodes whose samples changed, ascending.
            turned: Seeds that began or ceased to be needed, distinct.
        """
        rows, every = self.sampler.edges_of().rows, [turned]
        for hop, table in enumerate(self._hops):
            again = changed[table.store.has(changed)]
            nodes = np.union1d(again, turned)
            had = nodes[table.store.has(nodes)]
            before = table.sources(had)
            needed = self._needed[hop, nodes] > 0
            gone, now = nodes[~needed], nodes[needed]
            table.drop(gone[table.store.has(gone)])
            table.copy(now, rows)
            self._counts.samples_copied += now.size
            after = table.sources(now)
            ids, at = np.unique(np.concatenate([before, after]), return_inverse=True)
            counts = np.bincount(at[before.size :], minlength=ids.size)
            counts -= np.bincount(at[: before.size], minlength=ids.size)
            turned = self._add(hop + 1, ids, counts)
            every.append(turned)
        nodes = np.unique(np.concatenate(every))
        needed, held = self._needed[:, nodes].any(0), self._features.store.has(nodes)
        self._features.drop(nodes[held & ~needed])
        self._copy_features(nodes[needed & ~held])
        self._interrupted = False

    def _copy_features(self, nodes: Ids) -> None:
        if nodes.size:
            for some in self._features.store.parts(nodes):
                self._features.put(some, self._source.rows(some))
            self._counts.features_copied += nodes.size

    # Queries -------------------------------------------------------------------------------------

    def query(self, seeds: Tensor) -> Data:
        """The complete samples of some seeds, as a batch of `NodeLoader` would be.

        Seeds that are not subscribed are subscribed first.

        Args:
            seeds: Node ids, int64 `[k]`, or a mask, bool `[num_nodes]`.

        Returns:
            A graph with `x`, `edge_index`, `n_id`, `e_id`, `num_sampled_nodes`,
            `num_sampled_edges` and `batch_size`, and `batch` if the sampler is disjoint; the seeds
            come first.

        Raises:
            ValueError: If a seed does not exist.
            StaleStateError: If a change was interrupted.
        """
        ids = self._checked(seeds)
        self._unsubscribe_stale()
        missing = np.unique(ids[self._needed[0, ids] == 0])
        if missing.size:
            self._count_seeds(missing, np.ones_like(missing))
        now = self._clock()
        for seed in ids.tolist():
            self._used.pop(seed, None)
            self._used[seed] = now
        if self._interrupted:
            self._begin()  # raises
        disjoint, tables = self.sampler.disjoint, HopTables(self._hops)
        found = expand({None: ids}, [None], {None: tables}, len(self._hops), disjoint).output()
        counts = self._counts
        counts.queries += ids.size
        counts.misses += missing.size
        counts.sample_lookups += sum(found.num_sampled_nodes[:-1])
        counts.feature_lookups += found.node.numel()
        data = Data(
            x=self._features.rows(found.node.numpy()),
            edge_index=torch.stack([found.row, found.col]),
            n_id=found.node,
            e_id=found.edge,
            num_sampled_nodes=found.num_sampled_nodes,
            num_sampled_edges=found.num_sampled_edges,
            batch_size=ids.size,
        )
        if disjoint:
            data.batch = found.batch
        return data

    @property
    def stats(self) -> CacheStats:
        """What the cache holds, and what it has done so far."""
        tables: list[SampleTable | FeatureTable] = [*self._hops, self._features]
        held = {
            "seeds": len(self._used),
            "samples": [table.store.count for table in self._hops],
            "features": self._features.store.count,
            "bytes": sum(t.num_bytes for t in tables),
            "bytes_on_disk": sum(t.store.bytes_on_disk for t in tables),
            "disk": DiskTraffic() if self._disk is None else replace(self._disk.traffic),
        }
        return CacheStats(**{**vars(self._counts), **held})

    def _checked(self, seeds: Any) -> Ids:
        return chosen_ids(seeds, "seeds", self.sampler.num_nodes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sampler!r}, {len(self._used)} seeds)"
