"""Rows that every update makes afresh besides, taking turns through all nodes."""

from collections.abc import Mapping

import torch
from torch import Tensor

from pyg_incremental.engine.loop import NOTHING


class Scrub:
    """Whose turn it is.

    Args:
        rows: How many rows of each kind of nodes every update makes afresh.

    Attributes:
        next: The first of those whose turn is next, all rounds counted.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.next = 0

    def turn(self, num_nodes: Mapping[str, int]) -> Mapping[str, Tensor]:
        """Ids of the nodes whose turn it is, int64 `[k]`, for each kind; the next ones follow."""
        rows = self._rows
        if not rows:
            return NOTHING
        first, self.next = self.next, self.next + rows
        return {
            kind: torch.arange(first, first + min(rows, count)) % max(count, 1)
            for kind, count in num_nodes.items()
        }
