"""Nodes of several kinds as nodes of one graph, for those who only ask which are neighbours."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.program.steps import Relation

Ids = NDArray[np.int64]
_NO_EDGES = np.empty((2, 0), np.int64)


class Union:
    """One numbering of the nodes of all kinds: those of a kind follow those of the kind before it.

    Args:
        num_nodes: The number of nodes of each kind.

    Attributes:
        total: How many nodes there are.
    """

    def __init__(self, num_nodes: Mapping[str, int]) -> None:
        self._first: dict[str, int] = {}
        self._num_nodes = dict(num_nodes)
        self.total = 0
        for kind, count in num_nodes.items():
            self._first[kind] = self.total
            self.total += count

    def ids(self, kind: str, ids: Ids) -> Ids:
        """The numbers of some nodes, int64 `[k]`."""
        return ids + self._first[kind] if self._first[kind] else ids

    def edges(self, parts: Iterable[tuple[Relation, Ids]]) -> Ids:
        """The edges of several graphs as those of one, int64 `[2, num_edges]`."""
        found = [
            np.stack([self.ids(r.source, edges[0]), self.ids(r.target, edges[1])])
            if self._first[r.source] or self._first[r.target] else edges
            for r, edges in parts
        ]  # fmt: skip
        if len(found) == 1:
            return found[0]
        return np.concatenate(found, 1) if found else _NO_EDGES

    def split(self, rows: NDArray[np.int16]) -> dict[str, NDArray[np.int16]]:
        """Something for every node, `[total]`, by kind."""
        return {
            kind: rows[(at := self._first[kind]) : at + n] for kind, n in self._num_nodes.items()
        }
