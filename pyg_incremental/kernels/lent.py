"""Memory for results, which is used again when nobody holds the last result any more."""

import math
import sys
from typing import Any

import numpy as np

KEPT = 1 << 25
"""Bytes that are kept at most."""
_LINE = 64
_OURS = 2
"""References to the memory while nobody has borrowed it: that from here, and that of the question
how many there are."""


class Lent:
    """Memory for one result after the other.

    Memory that is new to a process is slow: the system hands it out page by page, and clears each.
    What was lent is lent again when all arrays and tensors that lie in it are gone, which its
    reference count tells. As long as there is one, the next result gets memory of its own.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def array(self, dtype: Any, *shape: int) -> Any:
        """An array of that shape with anything in it; it begins with a cache line."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        memory = None if sys.getrefcount(self._memory) > _OURS else self._memory
        if memory is None or memory.size < size + _LINE:
            memory = np.empty(size + size // 8 + _LINE, np.uint8)
            if memory.size <= KEPT:
                self._memory = memory
        first = -memory.ctypes.data % _LINE
        return memory[first : first + size].view(dtype).reshape(shape)
