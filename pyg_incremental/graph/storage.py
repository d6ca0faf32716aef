"""Where the arrays of a store lie: in memory, or in files that are mapped into memory.

Whoever reads or writes an array need not know. A file has no name: it goes with its array, or with
the process however that ends, because half a store is of no use to anybody.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.encoding.arrays import allocate
from pyg_incremental.kernels.address import zeros
from pyg_incremental.kernels.adjacency import Adjacency

T = TypeVar("T", bound=np.generic)
IN_NUMPY = {
    torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
}  # fmt: skip
"""Dtypes of which NumPy has arrays."""
SMALL = 1 << 16
"""Arrays of so many bytes are in memory, and count for nothing."""


class Storage:
    """Makes arrays of zeros.

    Args:
        memory: Bytes that arrays may take in memory at once, or None for any number.
        directory: Where all others are; None if there may be no others. It is made if it is not
            there.

    Attributes:
        is_limited: Whether memory is counted.
        in_memory: Bytes in memory now; they are counted only where their number is limited.
        on_disk: Bytes in files now.
        refused: The last error that was raised for want of room, before anything was made.
    """

    def __init__(
        self, memory: int | None = None, directory: str | os.PathLike[str] | None = None
    ) -> None:
        self._memory, self.is_limited = memory, memory is not None
        self._directory = None if directory is None else Path(directory)
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
        self.in_memory = self.on_disk = 0
        self.refused: Exception | None = None

    def zeros(self, dtype: Any, *shape: int) -> NDArray[Any]:
        """Zeros that begin with a cache line.

        Raises:
            MemoryError: If they fit nowhere.
            OSError: If the disk is full.
        """
        count = math.prod(shape) * np.dtype(dtype).itemsize
        if self._memory is None or count <= SMALL:
            return zeros(dtype, *shape)  # type: ignore[no-any-return]
        if self.in_memory + count <= self._memory:
            made = zeros(dtype, *shape)
            self._note("in_memory", count, made.base)
            return made  # type: ignore[no-any-return]
        if self._directory is None:
            self.refused = MemoryError(
                f"what is stored takes more than the {self._memory:,} bytes that it may "
                f"({self.in_memory:,}, and {count:,} to come): allow more with memory=..., or name "
                "a directory for the rest"
            )
            raise self.refused
        try:
            pages = _mapped(self._directory, count)
        except OSError as error:
            self.refused = error
            raise
        self._note("on_disk", count, pages)
        return np.frombuffer(pages, dtype).reshape(shape)

    def rows(self, like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Zeros, `[*shape]`, on the device of `like`, of its dtype if no other is given.

        What is not on the CPU is wherever PyTorch puts it.
        """
        dtype = dtype or like.dtype
        if not like.is_cpu:
            return like.new_zeros(shape, dtype=dtype)
        count = math.prod(shape) * dtype.itemsize
        return torch.from_numpy(self.zeros(np.uint8, count)).view(dtype).view(shape)

    def longer(self, array: NDArray[T], size: int) -> NDArray[T]:
        """A copy of an array, `[n]`, with room for `size` elements; the room is zero."""
        grown = self.zeros(array.dtype, size)
        grown[: array.size] = array
        return grown

    def more_rows(self, rows: Tensor, size: int) -> Tensor:
        """The same of a tensor `[n, ...]` and its rows."""
        grown = self.rows(rows, size, *rows.shape[1:])
        grown[: rows.shape[0]] = rows
        return grown

    def more_nodes(self, lists: Adjacency, size: int) -> Adjacency:
        """Neighbour lists for `size` nodes; those of new nodes are empty."""
        return lists._replace(
            start=self.longer(lists.start, size),
            degree=self.longer(lists.degree, size),
            capacity=self.longer(lists.capacity, size),
        )

    def _note(self, where: str, count: int, owner: Any) -> None:
        """So many bytes more, until their owner goes."""
        self.__dict__[where] += count
        weakref.finalize(owner, self._forget, where, count)

    def _forget(self, where: str, count: int) -> None:
        self.__dict__[where] -= count


def _mapped(directory: Path, count: int) -> mmap.mmap:
    """Pages of a file without a name."""
    with tempfile.TemporaryFile(dir=directory) as file:
        allocate(file, count)
        return mmap.mmap(file.fileno(), count)


def write_rows(held: Tensor, slots: NDArray[np.int64], rows: Tensor) -> None:
    """Write rows `[k, ...]` to some places, int64 `[k]`, of others, `[n, ...]`.

    NumPy does it where it knows the dtype: it begins sooner than PyTorch, which also counts writes.
    """
    if held.is_cpu and rows.is_cpu and held.dtype in IN_NUMPY:
        held.numpy()[slots] = rows.detach().numpy() if rows.requires_grad else rows.numpy()
    else:
        held[torch.from_numpy(slots)] = rows
