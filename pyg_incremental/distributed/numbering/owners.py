"""Who owns which node: two bytes per node, on every rank."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.distributed.numbering.ids import Grown
from pyg_incremental.kernels.jit import njit

Ids = NDArray[np.int64]
Ranks = NDArray[np.int16]


class Owners:
    """The rank of every node of one kind, and how many nodes each rank has.

    Args:
        first: The ranks of the nodes at the start, int16 `[num_nodes]`; may be memory-mapped, and
            ranks on one machine then share its pages.
        size: Number of ranks.

    Attributes:
        sizes: Nodes of each rank, int64 `[size]`.
    """

    def __init__(self, first: Ranks, size: int) -> None:
        self._first = first
        self._more = Grown(np.empty(0, np.int16), -1)
        self.sizes = np.zeros(size, np.int64)
        for at in range(0, first.size, 1 << 24):
            self.sizes += np.bincount(first[at : at + (1 << 24)], minlength=size)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return int(self._first.size + self._more.size)

    def __getitem__(self, ids: Ids) -> Ranks:
        """The ranks of some nodes, int16 `[k]`."""
        if not self._more.size:
            found: Ranks = self._first[ids]
            return found
        old = ids < self._first.size
        ranks = np.empty(ids.size, np.int16)
        ranks[old] = self._first[ids[old]]
        ranks[~old] = self._more.array[ids[~old] - self._first.size]
        return ranks

    def add(self, ranks: Ranks) -> None:
        """Append new nodes."""
        self._more.put(np.arange(self._more.size, self._more.size + ranks.size), ranks)
        self.sizes += np.bincount(ranks, minlength=self.sizes.size)

    def put(self, ranks: Ranks, at: int) -> None:
        """Write new nodes whose ids follow each other from `at`, whether they are there or not."""
        first = at - self._first.size
        self._more.put(np.arange(first, first + ranks.size), ranks)

    def with_new(self, ranks: Ranks | None, ids: Ids) -> Ranks:
        """The ranks of some nodes, int64 `[k]`, among them new ones that are not in yet.

        `ranks` are those of the new ones, int16 `[num_new]`; None if there are none.
        """
        if ranks is None:
            return self[ids]
        old = ids < self.num_nodes
        found = np.empty(ids.size, np.int16)
        found[old] = self[ids[old]]
        found[~old] = ranks[ids[~old] - self.num_nodes]
        return found

    def whole(self) -> Ranks:
        """The rank of every node, int16 `[num_nodes]`."""
        return np.concatenate([self._first, self._more.array])


def load_of(owners: Mapping[str, Owners]) -> Ids:
    """Nodes of each rank, of all kinds, int64 `[size]`."""
    total: Ids = sum(o.sizes for o in owners.values())  # type: ignore[assignment]
    return total


def by_rank(ranks: Ranks, size: int) -> dict[int, Ids]:
    """The places of each rank that occurs in a list, ascending, int64 `[k]`."""
    if not ranks.size:
        return {}
    order, begins = np.empty(ranks.size, np.int64), np.zeros(size + 1, np.int64)
    _group(ranks, order, begins)
    bounds = begins.tolist()
    return {r: order[bounds[r] : bounds[r + 1]] for r in range(size) if bounds[r] < bounds[r + 1]}


@njit(cache=True)
def _group(ranks: Ranks, order: Ids, bounds: Ids) -> None:
    """Sort places by what stands there; takes where those of each rank begin, and the last end."""
    for i in range(ranks.size):
        bounds[ranks[i] + 1] += 1
    for rank in range(1, bounds.size):
        bounds[rank] += bounds[rank - 1]
    place = bounds[:-1].copy()
    for i in range(ranks.size):
        order[place[ranks[i]]] = i
        place[ranks[i]] += 1
