"""Arrays that grow where they are, from the first edge on."""

from __future__ import annotations

import math
import mmap
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.graph.room import SMALL, pages_of
from pyg_incremental.graph.storage import Storage
from pyg_incremental.kernels.address import address_of

T = TypeVar("T", bound=np.generic)
_AHEAD, _AT_LEAST = 4, 1 << 28
"""How many times its size, and how many bytes, an array may grow to in its place."""


class GrowingStorage(Storage):
    """Makes arrays with addresses kept free behind them, so that growing copies nothing.

    A stream would else copy all that is there at once, now and then. Pages that were never written
    cost no memory, and are zero.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_limited = True  # it is asked for longer arrays, as one that counts memory is
        self._pages: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()

    def zeros(self, dtype: Any, *shape: int) -> NDArray[Any]:
        """Zeros; see `Storage`."""
        count = math.prod(shape)
        size = count * np.dtype(dtype).itemsize
        pages = pages_of(max(_AHEAD * size, _AT_LEAST)) if size >= SMALL else None
        if pages is None:
            return super().zeros(dtype, *shape)
        found: NDArray[Any] = np.frombuffer(pages, dtype, count)
        self._pages[address_of(found)] = pages
        return found.reshape(shape)

    def longer(self, array: NDArray[T], size: int) -> NDArray[T]:
        """The array, `[n]`, with room for `size` elements, in its place if there is room there."""
        pages = self._pages.get(address_of(array)) if array.ndim == 1 else None
        if pages is not None and size * array.itemsize <= len(pages):
            return np.frombuffer(pages, array.dtype, size)
        return super().longer(array, size)

    def more_rows(self, rows: Tensor, size: int) -> Tensor:
        """The same of a tensor `[n, ...]` and its rows."""
        if rows.dim() != 1 or not rows.is_cpu or not rows.numel():
            return super().more_rows(rows, size)
        return torch.from_numpy(self.longer(rows.contiguous().numpy(), size))

    def __getstate__(self) -> dict[str, Any]:
        # What is copied lies elsewhere.
        return {**self.__dict__, "_pages": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "_pages": WeakValueDictionary()}
