"""A delta as arrays, the form in which peers take it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental import GraphDelta

Ids: TypeAlias = NDArray[np.int64]

NO_EDGES = np.empty((2, 0), np.int64)
NO_NODES = np.empty(0, np.int64)


class Changes(NamedTuple):
    """Edges `[2, k]` that come and go, and nodes (none twice) with their new features."""

    added: Ids
    deleted: Ids
    nodes: Ids
    rows: Tensor


def changes_of(delta: GraphDelta, no_rows: Tensor) -> Changes:
    """Views of what a delta holds; `no_rows` stands for the features if none change."""
    added, deleted = delta.edge_index_add, delta.edge_index_del
    nodes, rows = NO_NODES, no_rows
    if delta.x_changes is not None:
        nodes, rows = delta.x_changes[0].numpy(), delta.x_changes[1]
    return Changes(
        NO_EDGES if added is None else np.ascontiguousarray(added.numpy()),
        NO_EDGES if deleted is None else np.ascontiguousarray(deleted.numpy()),
        nodes,
        rows,
    )


def merged(deltas: list[GraphDelta]) -> GraphDelta:
    """One delta that has the effect of several, one after the other."""
    added = [d.edge_index_add for d in deltas if d.edge_index_add is not None]
    deleted = [d.edge_index_del for d in deltas if d.edge_index_del is not None]
    changes = [d.x_changes for d in deltas if d.x_changes is not None]
    came, gone = net(_joined(added), _joined(deleted))
    if not changes:
        return delta_of(came, gone, NO_NODES, torch.empty(0))
    nodes = torch.cat([ids for ids, _ in changes]).numpy()
    return delta_of(came, gone, nodes, torch.cat([rows for _, rows in changes]))


def delta_of(added: Ids, deleted: Ids, nodes: Ids, rows: Tensor) -> GraphDelta:
    """A delta that names only what changed; of a node listed twice the last row counts."""
    kept = len(nodes) - 1 - np.unique(nodes[::-1], return_index=True)[1]
    if len(kept) < len(nodes):
        nodes, rows = nodes[kept], rows[torch.from_numpy(kept)]
    return GraphDelta(
        edge_index_add=_as_tensor(added),
        edge_index_del=_as_tensor(deleted),
        x_changes=(torch.from_numpy(nodes), rows) if nodes.size else None,
    )


def _as_tensor(edges: Ids) -> Tensor | None:
    return torch.from_numpy(np.ascontiguousarray(edges)) if edges.size else None


def net(added: Ids, deleted: Ids) -> tuple[Ids, Ids]:
    """Additions and deletions without those that undo each other."""
    keys = np.concatenate([added[0] << 32 | added[1], deleted[0] << 32 | deleted[1]])
    sign = np.repeat([1, -1], [added.shape[1], deleted.shape[1]])
    pairs, which = np.unique(keys, return_inverse=True)
    if len(pairs) == len(keys):
        return added, deleted
    times = np.bincount(which, sign).astype(np.int64)
    came, gone = (np.repeat(pairs, np.maximum(0, s * times)) for s in (1, -1))
    return _unpacked(came), _unpacked(gone)


def _unpacked(keys: Ids) -> Ids:
    return np.stack([keys >> 32, keys & 0xFFFFFFFF])


def _joined(edges: list[Tensor]) -> Ids:
    return np.concatenate([NO_EDGES, *(e.numpy() for e in edges)], 1)
