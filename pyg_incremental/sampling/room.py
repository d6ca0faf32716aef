"""Rows that grow without being copied, where the system can move pages."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.graph.room import pages_of

Ids = NDArray[np.int64]
_WIDTH = 3
_SMALL = 1 << 16
"""Bytes that are copied sooner than pages are moved."""
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


class RowBuffer:
    """An int64 array `[room, 3]` that grows in place.

    A long stream would else copy all that is there again and again, at once. Pages that were never
    written cost no memory.

    Attributes:
        rows: The array; nobody may hold it when it grows.
    """

    def __init__(self, count: int = 0) -> None:
        self._pages: Any = None
        self.rows: Ids = np.empty((0, _WIDTH), np.int64)
        self.grow(count)

    def grow(self, count: int) -> None:
        """Have at least so many rows; those that come hold anything."""
        if count <= self.rows.shape[0]:
            return
        size = count * _WIDTH * self.rows.itemsize
        if self._pages is not None:
            held, self.rows = self.rows.shape[0], self.rows[:0].copy()
            try:
                self._pages.resize(size)
            # No such system, no room to move to, or somebody who still looks at the rows.
            except (SystemError, OSError, ValueError, BufferError):
                before, self._pages = self._array(held), None
                self._copied(before, count)
                return
        elif size < _SMALL or not _PRIVATE:
            self._copied(self.rows, count)
            return
        else:
            before = self.rows
            self._pages = pages_of(size)
            if self._pages is None:
                self._copied(before, count)
                return
            self._array(count)[: before.shape[0]] = before
        self.rows = self._array(count)

    def _array(self, count: int) -> Ids:
        """The first rows of the pages."""
        every: Ids = np.frombuffer(self._pages, np.int64, count * _WIDTH).reshape(count, _WIDTH)
        return every

    def _copied(self, before: Ids, count: int) -> None:
        self.rows = np.empty((count, _WIDTH), np.int64)
        self.rows[: before.shape[0]] = before

    def __getstate__(self) -> Ids:
        held: Ids = self.rows.copy()
        return held

    def __setstate__(self, rows: Ids) -> None:
        self._pages, self.rows = None, rows
