"""Where new nodes go: next to those that their edges name, if there is room."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.distributed.numbering.owners import Owners, Ranks
from pyg_incremental.distributed.placement import ldg

Ids = NDArray[np.int64]
ROOM = 1.05
"""How many nodes a part of LDG may hold, in units of the mean."""
_BITS = 40


class GlobalNumbers:
    """One number for each node of any kind, also for those that are not there yet.

    Args:
        owners: Who owns the nodes of each kind.
    """

    def __init__(self, owners: Mapping[str, Owners]) -> None:
        self._owners = owners
        self._first = {kind: i << _BITS for i, kind in enumerate(owners)}

    def of(self, kind: str, ids: Ids) -> Ids:
        """The numbers of some nodes of one kind, int64 `[k]`."""
        return ids + self._first[kind]

    def owners(self, names: Ids) -> Ranks:
        """The ranks of some nodes, by their numbers, int64 `[k]`; `NOWHERE` if not there yet."""
        ranks = np.full(names.size, ldg.NOWHERE, np.int16)
        for kind, owners in self._owners.items():
            ids = names - self._first[kind]
            known = (ids >= 0) & (ids < owners.num_nodes)
            ranks[known] = owners[ids[known]]
        return ranks


def place_new(
    nodes: Ids, edges: Ids, owners: Callable[[Ids], Ranks], sizes: NDArray[np.int64]
) -> Ranks:
    """The parts of new nodes, chosen by LDG.

    Args:
        nodes: The nodes, by any distinct numbers, int64 `[n]`.
        edges: Edges among which theirs are, int64 `[2, k]`.
        owners: Tells the parts of nodes, int16 `[k]`, `NOWHERE` of those that are not placed.
        sizes: Nodes in each part, int64 `[num_parts]`.
    """
    count = nodes.size
    ends = np.concatenate([edges, edges[::-1]], axis=1)
    order = np.argsort(nodes, kind="stable")
    place = np.searchsorted(nodes[order], ends[0]).clip(max=max(0, count - 1))
    own = order[place] if count else place
    mine = nodes[own] == ends[0]
    own, far = own[mine], ends[1][mine]
    by_node = np.argsort(own, kind="stable")
    start = np.searchsorted(own[by_node], np.arange(count + 1))
    # Only the owners of the nodes in question are needed, under small numbers of their own.
    names, at = np.unique(np.concatenate([nodes, far[by_node]]), return_inverse=True)
    parts = owners(names)
    room = max(1.0, ROOM * (sizes.sum() + count) / sizes.size)
    ldg.place(at[:count], start, at[count:], parts, sizes.copy(), room)
    placed: Ranks = parts[at[:count]]
    return placed
