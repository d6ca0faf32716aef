"""Rows of a result that are copied when somebody asks for them, or before they change."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from pyg_incremental.kernels.lent import Lent
from pyg_incremental.kernels.locks import anew_in_child
from pyg_incremental.rows.backend import Ids
from pyg_incremental.rows.cell import Cell

MANY = 1 << 20
"""Elements of a result from which on it is: fewer are copied in half a millisecond, which is little
beside an update that changes so many."""


class LazyRows:
    """A copy of some rows as they are now, made as late as that can be.

    Nobody may ever read most of a large result, and copying it costs as much as a good part of the
    update. Whoever is about to write to the rows has to call `rows` first if this is still held.

    Args:
        cell: Holds the rows, in memory.
        ids: Which ones, int64 `[k]`; nobody else writes to them before the rows do change.
        lent: Memory for the copy.
    """

    def __init__(self, cell: Cell, ids: Ids, lent: Lent) -> None:
        self._from: tuple[Cell, Ids, Lent] | None = (cell, ids, lent)
        self._rows: Tensor | None = None
        self.begin_anew()
        anew_in_child(self)

    def begin_anew(self) -> None:
        """Nobody is copying."""
        # Whoever holds the result may be in another thread, or in a signal handler of this one.
        self._lock = threading.RLock()

    def rows(self) -> Tensor:
        """The rows, `[k, ...]`."""
        with self._lock:
            if self._rows is None:
                assert self._from is not None
                cell, ids, lent = self._from
                with torch.inference_mode(mode=False):  # as where the others are copied
                    self._rows = cell.gather(ids, lent)
                self._from = None
            return self._rows
