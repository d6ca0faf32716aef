"""The features of all nodes, with room to grow, changed by deltas."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import as_ids, as_tensor
from pyg_incremental.delta.read.nodes import NodeReader

Ids = NDArray[np.int64]


class FeatureChanges(NamedTuple):
    """Rows that a delta brings: distinct ids, int64 `[k]`, and the rows `[k, num_features]`."""

    ids: Ids
    rows: Tensor | None
    num_nodes: int


class Features:
    """The features of all nodes; a copy of what is given.

    Args:
        x: The features, `[num_nodes, num_features]`.
        num_nodes: How many there have to be.

    Raises:
        ValueError: If there are more or fewer rows.
    """

    def __init__(self, x: Any, num_nodes: int) -> None:
        rows = as_tensor(x, "x").detach()
        if rows.dim() < 2 or rows.shape[0] != num_nodes:
            raise ValueError(
                f"x: expected a row for each of {num_nodes} nodes (got shape {list(rows.shape)})"
            )
        self._rows = rows.clone()
        self.num_nodes = num_nodes

    @property
    def x(self) -> Tensor:
        """The features of all nodes, `[num_nodes, num_features]`; not a copy."""
        return self._rows[: self.num_nodes]

    def rows(self, nodes: Ids) -> Tensor:
        """A copy of the features of some nodes, int64 `[k]`: `[k, num_features]`."""
        return self._rows.index_select(0, torch.from_numpy(nodes))

    def grow(self, num_nodes: int) -> None:
        """Make room for so many nodes; those that come have zeros until `write`."""
        if num_nodes > self._rows.shape[0]:
            room = max(num_nodes, 3 * num_nodes // 2)
            grown = self._rows.new_zeros((room, *self._rows.shape[1:]))
            grown[: self.num_nodes] = self.x
            self._rows = grown
        self.num_nodes = max(num_nodes, self.num_nodes)

    def read(self, delta: GraphDelta, num_nodes: int) -> FeatureChanges:
        """What a delta says of features; nothing changes.

        Raises:
            InvalidDeltaError: If it does not fit.
        """
        like: dict[str, Any] = {"x": self._rows[:0]}
        reader = NodeReader(like)
        new = reader.new({} if delta.x_add is None else {"x": delta.x_add})
        total = num_nodes + (len(new["x"]) if new else 0)
        changes = {} if delta.x_changes is None else {"x": delta.x_changes}
        gone = None if delta.nodes_del is None else as_ids(delta.nodes_del, "nodes_del")
        said = reader.read(changes, new, gone, total)
        found = said.rows(like, num_nodes).get("x")
        if found is None:
            return FeatureChanges(np.empty(0, np.int64), None, total)
        return FeatureChanges(found[0].numpy(), found[1], total)

    def write(self, changes: FeatureChanges) -> Ids:
        """Take the rows in; returns their ids."""
        self.grow(changes.num_nodes)
        if changes.rows is not None:
            self._rows[torch.from_numpy(changes.ids)] = changes.rows
        return changes.ids
