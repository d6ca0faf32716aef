"""Rows that are kept from layer to layer: in memory, or in files that anybody can read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.encoding.arrays import new_array
from pyg_incremental.errors import UnsupportedModelError

Ids = NDArray[np.int64]


class KeptRows:
    """The rows of one value, at all nodes of its kind or at some.

    Args:
        rows: The rows, `[k, ...]`.
        ids: The nodes that they belong to, int64 `[k]`, ascending; None for all of them.
        path: The file in which they are, or None.
        at: In which of the rows each of them is, int64 `[k]`; None if they come as they are.
    """

    def __init__(
        self,
        rows: Tensor,
        ids: Ids | None = None,
        path: Path | None = None,
        at: Ids | None = None,
    ) -> None:
        self.rows, self.ids, self.path, self._at = rows, ids, path, at

    @property
    def nbytes(self) -> int:
        """Bytes that they take in memory."""
        return 0 if self.path is not None else self.rows.nbytes

    def at(self, ids: Ids | range) -> Tensor:
        """The rows `[k, ...]` of some nodes, int64 `[k]`; a view where they follow each other.

        Nodes that are not among the kept ones get any row: nothing reads it.
        """
        if self.ids is not None:
            wanted = np.arange(ids.start, ids.stop) if isinstance(ids, range) else ids
            ids = np.searchsorted(self.ids, wanted)
        if self._at is None:
            return taken(self.rows, ids)
        if isinstance(ids, range):
            return taken(self.rows, self._at[ids.start : ids.stop])
        return taken(self.rows, self._at[np.minimum(ids, len(self._at) - 1)])

    def part(self, first: int, last: int, device: torch.device) -> Tensor | None:
        """Where the rows from place `first` to before `last` are to be written, `[k, ...]`.

        None if they do not lie there one behind the other, on that device.
        """
        if self._at is not None or self.rows.device != device:
            return None
        return self.rows[first:last]

    def lends(self, ids: Ids | range) -> bool:
        """Whether `at` returns for nodes, int64 `[k]`, a part of rows that are held in memory."""
        plain = self.ids is None and self._at is None and self.path is None
        return plain and isinstance(ids, range)

    def write(self, first: int, rows: Tensor) -> None:
        """Write rows, `[k, ...]`, of the nodes from place `first` on."""
        if self._at is None:
            self.rows[first : first + len(rows)] = rows
        else:
            self.rows[torch.from_numpy(self._at[first : first + len(rows)])] = rows.cpu()

    def written(self, first: int, last: int) -> Tensor:
        """The rows, `[k, ...]`, of the nodes from place `first` to before `last`."""
        if self._at is None:
            return self.rows[first:last]
        return self.rows[torch.from_numpy(self._at[first:last])]

    def remove(self) -> None:
        """Nobody reads them any more."""
        self.rows = self.rows[:0]
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def taken(rows: Tensor, ids: Ids | range) -> Tensor:
    """The rows `ids`, int64 `[k]`, of some, `[n, ...]`; any row for what lies behind them."""
    if isinstance(ids, range):
        return rows[ids.start : ids.stop]
    if not len(rows):
        return rows.new_zeros(len(ids), *rows.shape[1:])
    at = torch.from_numpy(np.clip(ids, 0, len(rows) - 1))
    return rows[at.to(rows.device)]


def on_disk(path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Room for rows in a new `.npy` file, in memory only as far as it is in use.

    Raises:
        UnsupportedModelError: If NumPy knows no such dtype.
        OSError: If the disk is full.
    """
    try:
        kind = torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError as error:
        raise UnsupportedModelError(f"rows of {dtype} cannot be kept in a directory") from error
    return torch.from_numpy(new_array(path, kind, shape))
