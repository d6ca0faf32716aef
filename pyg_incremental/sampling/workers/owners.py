"""Which worker has a node: by a hash of its id or by a map, so that nobody has to be asked."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ids = NDArray[np.int64]
SAMPLING, SERVING = 0, 0x5DEECE66D
"""What sets the two kinds apart, so that a node's places among them have nothing in common."""
_NOBODY = np.empty(0, np.int64)
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def owner_of(nodes: Ids, parts: int, kind: int, named: Ids = _NOBODY) -> Ids:
    """The worker of each node among `parts` of a kind, int64 `[k]`.

    Args:
        nodes: The nodes, int64 `[k]`.
        parts: How many workers of the kind there are.
        kind: `SAMPLING` or `SERVING`.
        named: The part of each of the first nodes, int64 `[n]`; those of part `p` belong to worker
            `p % parts` of both kinds. Other nodes go by a hash (SplitMix, 2014).
    """
    if parts == 1:
        return np.zeros(nodes.size, np.int64)
    found = _hashed(nodes, parts, kind)
    if named.size:
        known = nodes < named.size
        found[known] = named[nodes[known]] % parts
    return found


def _hashed(nodes: Ids, parts: int, kind: int) -> Ids:
    word = nodes.astype(np.uint64) + np.uint64(kind)
    word = (word ^ (word >> np.uint64(30))) * _A
    word = (word ^ (word >> np.uint64(27))) * _B
    found: Ids = ((word ^ (word >> np.uint64(31))) % np.uint64(parts)).astype(np.int64)
    return found


def split(nodes: Ids, parts: int, kind: int, named: Ids = _NOBODY) -> list[Ids]:
    """Where those of each worker stand among some nodes, ascending, int64 `[k]`."""
    owner = owner_of(nodes, parts, kind, named)
    return [np.flatnonzero(owner == part) for part in range(parts)]


def checked_owners(owners: Tensor | None, count: int) -> Ids:
    """The part of each of some nodes, int64 `[count]`; none if there is no map.

    Raises:
        ValueError: If it is none.
    """
    found: Ids = torch.as_tensor([] if owners is None else owners).to(torch.int64).cpu().numpy()
    if owners is not None and (found.shape != (count,) or found.min(initial=0) < 0):
        raise ValueError(
            f"owners: expected the part of each of {count} nodes, from zero on (got shape "
            f"{list(found.shape)}); None goes by a hash"
        )
    return found


def check_counts(sampling: int, serving: int) -> None:
    """Refuse a service without workers of a kind.

    Raises:
        ValueError: If there are none.
    """
    if min(sampling, serving) < 1:
        raise ValueError(
            f"expected at least one worker of each kind (got sampling={sampling}, "
            f"serving={serving})"
        )
