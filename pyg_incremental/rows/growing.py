"""Rows with room to grow."""

from __future__ import annotations

from torch import Tensor

from pyg_incremental.rows.backend import Backend
from pyg_incremental.typing import Array


class Rows:
    """A tensor with room to grow, `[capacity, ...]`, and the kernels' view of it.

    The view is `[capacity, channels]`.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.rows: Tensor | None = None
        self.array: Array = None

    @property
    def tensor(self) -> Tensor:
        """The rows, which have to be there."""
        if self.rows is None:
            raise RuntimeError(
                f"{self!r} is read at rows where it was not computed, but is not stored"
            )
        return self.rows

    def hold(self, rows: Tensor) -> None:
        """Store `rows`, `[n, ...]`, as they are."""
        self.backend.moves += 1
        self.rows = rows
        flat = rows.view(len(rows), rows.shape[1:].numel()) if rows.dim() > 2 else rows
        self.array = self.backend.array(flat)

    def put(self, rows: Tensor, capacity: int) -> None:
        """Store a copy of `rows`, `[n, ...]`, with room for `capacity`; the room is zero."""
        count, tail = rows.shape[0], rows.shape[1:]
        room = self.backend.zeros(rows, max(capacity, count), *tail, unread=count)
        room[:count] = rows
        self.hold(room)

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` rows."""
        if self.rows is not None and self.rows.shape[0] < capacity:
            self.put(self.rows, capacity)
