"""The edges as the tensor that PyG takes, sorted by target, while they change."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_incremental import GraphDelta

LOW = (1 << 32) - 1


class EdgeList:
    """Edges in ascending order of (target, source); sorted edges are what PyG runs fastest on."""

    def __init__(self, x: Tensor, edge_index: Tensor) -> None:
        self.x = x.clone()
        self._keys = _keys(edge_index).sort().values
        self._tensor: Tensor | None = None

    def apply(self, delta: GraphDelta) -> None:
        """Take one delta."""
        if delta.edge_index_del is not None:
            gone = _keys(delta.edge_index_del).sort().values
            # of equal ones the first, the second, ...
            nth = torch.arange(len(gone)) - torch.searchsorted(gone, gone)
            keep = torch.ones(len(self._keys), dtype=torch.bool)
            keep[torch.searchsorted(self._keys, gone) + nth] = False
            self._keys = self._keys[keep]
        if delta.edge_index_add is not None:
            came = _keys(delta.edge_index_add).sort().values
            at = torch.searchsorted(self._keys, came) + torch.arange(len(came))
            there = torch.ones(len(self._keys) + len(came), dtype=torch.bool)
            there[at] = False
            keys = torch.empty(len(there), dtype=torch.int64)
            keys[there], keys[at] = self._keys, came
            self._keys = keys
        if delta.edge_index_del is not None or delta.edge_index_add is not None:
            self._tensor = None
        if delta.x_changes is not None:
            ids, rows = delta.x_changes
            self.x[ids] = rows

    @property
    def edge_index(self) -> Tensor:
        """The edges, int64 `[2, edges]`."""
        if self._tensor is None:
            self._tensor = torch.stack([self._keys & LOW, self._keys >> 32])
        return self._tensor


def _keys(edge_index: Tensor) -> Tensor:
    return edge_index[1] << 32 | edge_index[0]
