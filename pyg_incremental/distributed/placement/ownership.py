"""Who is to own which node of a call: chosen by a partition, or told by the user."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.call.roles import Roles
from pyg_incremental.distributed.errors import PartitionError
from pyg_incremental.distributed.numbering.owners import Ranks
from pyg_incremental.distributed.placement import ldg
from pyg_incremental.distributed.placement.partition import Method, partition_edges
from pyg_incremental.distributed.placement.place import ROOM
from pyg_incremental.distributed.placement.union import Union

Ids = NDArray[np.int64]
Ownership = Method | Tensor | Sequence[int] | Mapping[str, Tensor]


def owners_of(roles: Roles, by: Ownership, size: int) -> dict[str, Ranks]:
    """The rank of every node, by kind.

    Args:
        roles: What the tensors of the call are; with the graphs.
        by: A method, which sees the graphs as one; or the rank of every node, `[num_nodes]`. With
            several kinds of nodes that is a dict by kind; kinds that are left out are placed next
            to the others.
        size: The number of ranks.

    Raises:
        PartitionError: If what is told does not fit.
    """
    union = Union(roles.num_nodes)
    edges = union.edges((r, roles.edge_index[r.graph].numpy()) for r in roles.relations)
    if isinstance(by, str):
        return union.split(partition_edges(edges, union.total, size, by))
    if not isinstance(by, Mapping) and len(roles.kinds) > 1 and "" not in roles.kinds:
        raise PartitionError(
            f"partition_by: there are several kinds of nodes; give a dict with keys among "
            f"{roles.kinds}"
        )
    given = dict(by) if isinstance(by, Mapping) else {roles.kinds[0]: by}
    known = {roles.features(kind) or kind: kind for kind in roles.kinds if not kind}
    given = {known.get(key, key): ranks for key, ranks in given.items()}
    owner = np.full(union.total, ldg.NOWHERE, np.int16)
    every = union.split(owner)  # views
    for key, ranks in given.items():
        if key not in every:
            raise PartitionError(
                f"partition_by: there is no {key!r} (expected one of {roles.kinds})"
            )
        every[key][:] = _checked(ranks, key, roles.num_nodes[key], size)
    if len(given) < len(every):
        left = np.flatnonzero(owner == ldg.NOWHERE)
        place_rest(owner, left, edges, size)
    return every


def _checked(ranks: Any, kind: str, count: int, size: int) -> Ranks:
    owner = np.asarray(ranks.cpu() if isinstance(ranks, Tensor) else ranks)
    within = owner.shape == (count,) and bool(((owner >= 0) & (owner < size)).all())
    if not within or (owner != owner.astype(np.int16)).any():
        of = f" of type '{kind}'" if kind else ""
        raise PartitionError(
            f"partition_by: expected a rank below {size} for each of the {count} nodes{of} (got "
            f"shape {list(owner.shape)}, {owner.dtype})"
        )
    return owner.astype(np.int16)


def place_rest(owner: Ranks, nodes: Ids, edges: Ids, size: int) -> None:
    """Place the nodes that nobody owns yet by LDG.

    Args:
        owner: The rank of every node, `NOWHERE` of those to be placed; written.
        nodes: Those, int64 `[k]`.
        edges: int64 `[2, num_edges]`.
        size: The number of ranks.
    """
    start, neighbor = ldg.both_ways(edges[0], edges[1], owner.size)
    sizes = np.bincount(owner[owner != ldg.NOWHERE], minlength=size)
    counts = np.diff(start)[nodes]
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    at = np.repeat(start[nodes] - begins[:-1], counts) + np.arange(begins[-1])
    ldg.place(nodes, begins, neighbor[at], owner, sizes, max(1.0, ROOM * owner.size / size))
