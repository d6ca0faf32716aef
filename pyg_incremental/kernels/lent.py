"""Memory for results, which is used again when nobody holds an earlier result any more."""

import math
import sys
from typing import Any

import numpy as np

from pyg_incremental.kernels.address import address_of

KEPT = 1 << 28
"""Bytes of a result up to which its memory is kept."""
_LINE = 64
_OURS = 2
"""References to memory that nobody has borrowed: that from the list here, and that of the question
how many there are."""


class Lent:
    """Memory for one result after the other.

    Memory that is new to a process is slow: the system hands it out page by page, and clears each.
    What was lent is lent again when all arrays and tensors that lie in it are gone, which its
    reference count tells. That of two results is kept, as whoever asks for the next one often still
    holds the last one.
    """

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def array(self, dtype: Any, *shape: int) -> Any:
        """An array of that shape with anything in it; it begins with a cache line."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        memory = self._memory(size + _LINE)
        first = -address_of(memory) % _LINE
        return memory[first : first + size].view(dtype).reshape(shape)

    def _memory(self, size: int) -> Any:
        """At least so many bytes that nobody uses."""
        kept = self._kept
        idle = [at for at in range(len(kept)) if sys.getrefcount(kept[at]) == _OURS]
        for at in idle:
            if kept[at].size >= size:
                return kept[at]
        new = np.empty(size + size // 8, np.uint8)
        if new.size <= KEPT:
            if len(kept) == 2:
                del kept[idle[0] if idle else 0]
            kept.append(new)
        return new
