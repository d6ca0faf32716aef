"""Which worker has a node: by a hash of its id, so that nobody has to be asked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
SAMPLING, SERVING = 0, 0x5DEECE66D
"""What sets the two kinds apart, so that a node's places among them have nothing in common."""
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def owner_of(nodes: Ids, parts: int, kind: int) -> Ids:
    """The worker of each node among `parts` of a kind, int64 `[k]` (SplitMix, 2014)."""
    if parts == 1:
        return np.zeros(nodes.size, np.int64)
    word = nodes.astype(np.uint64) + np.uint64(kind)
    word = (word ^ (word >> np.uint64(30))) * _A
    word = (word ^ (word >> np.uint64(27))) * _B
    found: Ids = ((word ^ (word >> np.uint64(31))) % np.uint64(parts)).astype(np.int64)
    return found


def split(nodes: Ids, parts: int, kind: int) -> list[Ids]:
    """Where those of each worker stand among some nodes, ascending, int64 `[k]`."""
    owner = owner_of(nodes, parts, kind)
    return [np.flatnonzero(owner == part) for part in range(parts)]
