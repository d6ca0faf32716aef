"""The last neighbours of nodes in a stream of interactions, for temporal models such as TGN."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.delta.given import checked_ids, chosen_ids
from pyg_incremental.sampling.kernels.rows import EDGE, HELD, PLACE, START
from pyg_incremental.sampling.reservoirs import Reservoirs

Ids = NDArray[np.int64]
_SOURCE = 2**32 - 1
_FIXED = "their number is that of `num_nodes`"


class RecentNeighbors:
    """Has the last interactions of every node ready; PyG's `LastNeighborLoader` in other words.

    It takes the calls of `torch_geometric.nn.models.tgn.LastNeighborLoader` and gives what that
    gives, from the rows that samplers keep: an interaction is in the rows of both of its nodes, and
    a row holds the `size` latest. Where one `insert` has more than `size` interactions of a node,
    PyG's keeps `size` of them that need not be the latest; this one keeps the latest.

    Args:
        num_nodes: The number of nodes.
        size: How many interactions of each node are kept.
        device: Where what is returned lives.

    Attributes:
        cur_e_id: The id that the next interaction gets, counted from zero.

    Raises:
        ValueError: If a number is negative or zero.
    """

    def __init__(self, num_nodes: int, size: int, device: torch.device | str | None = None) -> None:
        if num_nodes < 0 or size < 1:
            raise ValueError(
                f"expected num_nodes >= 0 and size >= 1 (got num_nodes={num_nodes}, size={size})"
            )
        self.num_nodes, self.size = num_nodes, size
        self._device = torch.device("cpu" if device is None else device)
        self.reset_state()

    def reset_state(self) -> None:
        """Forget all interactions."""
        self.cur_e_id = 0
        self._rows = Reservoirs(self.num_nodes, self.size)

    def insert(self, src: Tensor, dst: Tensor) -> None:
        """Take in interactions in the order in which they happened, int64 `[k]` each.

        Raises:
            ValueError: If a node does not exist; nothing was taken in then.
        """
        ends = np.stack([self._ends(src, "src"), self._ends(dst, "dst")])
        count = ends.shape[1]
        ids = np.arange(self.cur_e_id, self.cur_e_id + count)
        # Each interaction once for either node; a loop is there twice, as in PyG.
        nodes, others = ends[::-1].T.reshape(-1), ends.T.reshape(-1)
        edges = np.repeat(ids, 2)
        self._rows.enter(nodes, others, np.zeros_like(edges), edges, edges)
        self.cur_e_id += count

    def __call__(self, n_id: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The last interactions of some nodes.

        Args:
            n_id: Nodes, int64 `[k]`, or a mask, bool `[num_nodes]`.

        Returns:
            These nodes and their neighbours, ascending, int64 `[n]`; edges from neighbours to the
            nodes asked for, as places in the former, int64 `[2, e]`; and the ids of the
            interactions, int64 `[e]`. Those of a node come together, the latest first.

        Raises:
            ValueError: If a node does not exist.
        """
        nodes = chosen_ids(n_id, "n_id", self.num_nodes, _FIXED)
        held = np.minimum(self._rows.heads[nodes, HELD], self.size)
        step = np.arange(self.size)
        sampled = step < held[:, None]
        found = self._rows.pool[(self._rows.heads[nodes, START][:, None] + step)[sampled]]
        neighbors, targets = found[:, PLACE] & _SOURCE, np.repeat(nodes, held)
        every, at = np.unique(np.concatenate([nodes, neighbors, targets]), return_inverse=True)
        edge_index = at[nodes.size :].reshape(2, -1)
        parts = (every, edge_index, np.ascontiguousarray(found[:, EDGE]))
        n_id, edges, e_id = (torch.from_numpy(part).to(self._device) for part in parts)
        return n_id, edges, e_id

    def _ends(self, value: Tensor, name: str) -> Ids:
        return checked_ids(value, name, self.num_nodes, _FIXED)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_nodes}, size={self.size})"
