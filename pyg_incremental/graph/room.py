"""Room for arrays to grow into without being copied, where the system keeps addresses free."""

from __future__ import annotations

import contextlib
import mmap
import sys
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.graph.storage import Storage
from pyg_incremental.kernels.address import address_of

T = TypeVar("T", bound=np.generic)
SMALL = 1 << 20
"""Bytes that are copied sooner than addresses are kept."""
_AHEAD = 4
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
_NOT_COUNTED = 0x4000 if sys.platform == "linux" else 0  # MAP_NORESERVE, which Python 3.13 names


class AddressRoom:
    """Addresses for one array and for what it will grow to.

    A long stream would else copy all that is there again and again, at once. Pages that were never
    written cost no memory, and arrays from before stay where they are: who holds one sees the same
    entries.

    Args:
        storage: Where arrays lie. If memory is counted there, arrays are copied after all.
    """

    def __init__(self, storage: Storage | None = None) -> None:
        self._limited = storage if storage is not None and storage.is_limited else None
        self._pages: Any = None
        self._address = -1

    def longer(self, array: NDArray[T], count: int) -> NDArray[T]:
        """An array that begins with all entries of `array`, `[n]`, and has `count` of them.

        Those that come are zero: edge data of slots without an edge is computed with like any.
        """
        if self._limited is not None:
            return self._limited.longer(array, count)
        size = count * array.itemsize
        if size < SMALL or not _PRIVATE:
            return _copied(array, np.zeros(count, array.dtype))
        if address_of(array) == self._address and size <= len(self._pages):
            return np.frombuffer(self._pages, array.dtype, count)
        pages = pages_of(_AHEAD * size)
        if pages is None:
            return _copied(array, np.zeros(count, array.dtype))
        found = _copied(array, np.frombuffer(pages, array.dtype, count))
        self._pages, self._address = pages, address_of(found)
        return found

    def longer_rows(self, rows: Tensor, count: int) -> Tensor:
        """The same for rows, `[n, ...]`."""
        if self._limited is not None:
            return self._limited.more_rows(rows, count)
        if rows.device.type != "cpu" or not rows.is_contiguous() or not rows.numel():
            return torch.cat([rows, rows.new_zeros((count - rows.shape[0], *rows.shape[1:]))])
        raw = rows.view(-1).view(torch.uint8).numpy()
        wide = raw.size // rows.shape[0]
        grown = torch.from_numpy(self.longer(raw, count * wide))
        return grown.view(rows.dtype).view(count, *rows.shape[1:])

    def __getstate__(self) -> dict[str, Any]:
        # What is copied lies elsewhere.
        return {"_limited": self._limited, "_pages": None, "_address": -1}


def pages_of(size: int) -> Any:
    """So many bytes of memory that costs nothing before it is used; None if there is no such."""
    try:
        pages = mmap.mmap(-1, size, flags=_PRIVATE | _NOT_COUNTED)
    except (OSError, ValueError, OverflowError):  # no room among the addresses
        return None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without them
            pages.madvise(mmap.MADV_HUGEPAGE)  # as NumPy does for its own
    return pages


def _copied(array: NDArray[T], to: NDArray[T]) -> NDArray[T]:
    to[: array.size] = array
    return to
