"""A glance at memory: whether any of some words has changed."""

import numpy as np

from pyg_incremental.kernels.address import line_at
from pyg_incremental.kernels.jit import njit

_PRIME = np.uint64(0x100000001B3)


@njit(cache=True)
def mixed(addresses):  # type: ignore[no-untyped-def]
    """One number for the 4-byte words at some addresses, int64 `[k]`."""
    found = np.uint64(0xCBF29CE484222325)
    for i in range(addresses.size):
        word = line_at(addresses[i], 1, np.uint32(0))[0]
        found = (found ^ np.uint64(word)) * _PRIME
    return found
