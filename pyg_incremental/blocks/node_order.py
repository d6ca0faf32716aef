"""The order in which blocks take the nodes: inside, a node is called by its place in it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


class NodeOrder:
    """The places of the nodes of each kind.

    Blocks, neighbour lists and rows that are kept go by places, so that what lies together is read
    together. What is handed in, and what comes out, goes by ids.

    Args:
        ids: The nodes of each kind in the order in which they are taken, int64 `[num_nodes]`, each
            once; a kind that is not named is taken by ids.
    """

    def __init__(self, ids: Mapping[str, Ids] | None = None) -> None:
        self._ids = dict(ids or {})
        self._of: dict[str, Ids] = {}
        for kind, some in self._ids.items():
            self._of[kind] = place = np.empty_like(some)
            place[some] = np.arange(len(some))

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return sum(a.nbytes for held in (self._ids, self._of) for a in held.values())

    def of(self, kind: str, ids: Ids) -> Ids:
        """The places of some nodes, of any integer dtype, `[k]`."""
        return self._of[kind][ids] if kind in self._of else ids

    def nodes(self, kind: str, places: Ids | range) -> Ids | range:
        """The nodes, integers `[k]`, at some places."""
        if kind not in self._ids:
            return places
        if isinstance(places, range):
            return self._ids[kind][places.start : places.stop]
        return self._ids[kind][np.minimum(places, len(self._ids[kind]) - 1)]

    def every(self, kind: str, count: int) -> Ids | range:
        """The places of all nodes, by their ids."""
        return self._of.get(kind, range(count))

    def rows(self, kind: str, places: Ids | None) -> Ids | None:
        """In which row each of some places is written where rows go by ids; None for as they come.

        Args:
            kind: The kind of nodes.
            places: The places of which there are rows, int64 `[k]`, ascending; None for all.
        """
        if kind not in self._ids or places is None:
            return self._ids.get(kind)
        rank = np.empty(len(places), np.int64)
        rank[np.argsort(self._ids[kind][places], kind="stable")] = np.arange(len(places))
        return rank
