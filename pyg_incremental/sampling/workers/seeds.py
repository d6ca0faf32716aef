"""Seeds that a service is asked for, and how long seeds and edges are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.delta.given import chosen_ids
from pyg_incremental.sampling.read import TIME, NodeType, per_type
from pyg_incremental.sampling.workers.messages import SampleQuery, TypedCounts

Ids = NDArray[np.int64]
Seeds = dict[NodeType, Ids]


class SeedAges:
    """When seeds were asked for last, and since when edges are too old; for any thread.

    Args:
        query: What is sampled.
        ttl: After how many seconds a seed is stale; None for never, and nothing is noted then.
        data_ttl: How old edges may grow by their times, in the unit of `clock`; None for any age.
        clock: What says the time in seconds.

    Raises:
        ValueError: If edges without times are to grow old.
    """

    def __init__(
        self,
        query: SampleQuery,
        ttl: float | None,
        data_ttl: float | None,
        clock: Callable[[], float],
    ) -> None:
        if data_ttl is not None and any(TIME not in data for data in query.data.values()):
            raise ValueError("data_ttl: the edges have no times to expire by; pass edge_time")
        self._ttl, self._data_ttl, self._clock = ttl, data_ttl, clock
        self._at: dict[tuple[NodeType, int], float] = {}
        self._lock = Lock()

    @property
    def oldest(self) -> float | None:
        """Edges from before this time are too old; None if none are."""
        return None if self._data_ttl is None else self._clock() - self._data_ttl

    def note(self, seeds: Mapping[NodeType, Ids]) -> None:
        """Some seeds, int64 `[k]` by type, are asked for now."""
        if self._ttl is None:
            return
        now = self._clock()
        with self._lock:
            for kind, ids in seeds.items():
                for seed in ids.tolist():
                    self._at.pop((kind, seed), None)
                    self._at[kind, seed] = now

    def take_stale(self, known: Mapping[NodeType, Ids]) -> TypedCounts:
        """Forget the seeds that nobody has asked for in time.

        Args:
            known: How often the first nodes of each type are subscribed to, int64 `[n]`.

        Returns:
            All subscriptions of those seeds, to be taken back.
        """
        stale: dict[NodeType, list[int]] = {}
        if self._ttl is None:
            return {}
        limit = self._clock() - self._ttl
        with self._lock:
            for (kind, seed), at in self._at.items():
                if at >= limit:
                    break
                stale.setdefault(kind, []).append(seed)
            for kind, seeds in stale.items():
                for seed in seeds:
                    del self._at[kind, seed]
        found = {}
        for kind, seeds in stale.items():
            ids = np.array(sorted(seeds), np.int64)
            found[kind] = ids, -_subscriptions(known[kind], ids)
        return found


def checked_seeds(seeds: Any, num_nodes: Mapping[NodeType, int]) -> Seeds:
    """Seeds by type: ids, int64 `[k]`, or masks, bool `[num_nodes]`.

    Raises:
        ValueError: If one does not exist.
    """
    if (None in num_nodes) == isinstance(seeds, Mapping):
        expected = "a tensor of node ids" if None in num_nodes else "seeds by node type"
        raise ValueError(f"seeds: expected {expected} (got {type(seeds).__name__})")
    found = {}
    for kind, given in per_type(seeds).items():
        if kind not in num_nodes:
            raise ValueError(f"seeds: there are no nodes of type {kind!r} (got {list(num_nodes)})")
        label = f"seeds[{kind!r}]" if kind else "seeds"
        found[kind] = chosen_ids(given, label, num_nodes[kind])
    return found


def counted(seeds: Mapping[NodeType, Ids]) -> TypedCounts:
    """How often each seed, int64 `[k]` by type, is listed."""
    found = {kind: np.unique(ids, return_counts=True) for kind, ids in seeds.items()}
    return {kind: (ids, counts) for kind, (ids, counts) in found.items()}


def not_subscribed(seeds: Mapping[NodeType, Ids], known: Mapping[NodeType, Ids]) -> Seeds:
    """Those of some seeds that nobody has subscribed to, ascending; types without any are left out.

    Args:
        seeds: Node ids, int64 `[k]` by type.
        known: How often the first nodes of each type are subscribed to.
    """
    new = {
        kind: np.unique(ids[_subscriptions(known[kind], ids) == 0]) for kind, ids in seeds.items()
    }
    return {kind: ids for kind, ids in new.items() if ids.size}


def taken_back(listed: TypedCounts, known: Mapping[NodeType, Ids]) -> TypedCounts:
    """What takes subscriptions back, as often as seeds are listed.

    `known` is how often the first nodes of each type are subscribed to, int64 `[n]`.

    Raises:
        ValueError: If there are not that many.
    """
    for kind, (ids, counts) in listed.items():
        too_many = _subscriptions(known[kind], ids) < counts
        if too_many.any():
            raise ValueError(f"node {ids[np.argmax(too_many)]} is not subscribed that often")
    return {kind: (ids, -counts) for kind, (ids, counts) in listed.items()}


def _subscriptions(known: Ids, ids: Ids) -> Ids:
    """How often some nodes are subscribed to, int64 `[k]`."""
    found = np.zeros_like(ids)
    here = ids < known.size
    found[here] = known[ids[here]]
    return found
