"""Global ids that are numbered in ascending order, in half a byte each.

A rank's nodes are numbered in the order of their ids when it starts, so the number of an id is how
many smaller ones there are: a bit for every id, and the count in front of every 32 of them, tell it
(the rank directory of Jacobson, "Space-efficient Static Trees and Graphs", FOCS 1989). That fits
into a cache where a hash table would not.
"""

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.jit import njit

Ids = NDArray[np.int64]
BYTES_PER_ID = 0.5
"""Memory for every id up to the largest, whether it is there or not."""
_AHEAD = 12
"""How many ids ahead of its use an entry is asked for."""


@njit(cache=True)
def _ones(bits: int) -> int:
    """How many of 32 bits are set."""
    bits -= (bits >> 1) & 0x55555555
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F
    return ((bits * 0x01010101) >> 24) & 0xFF


@njit(cache=True)
def _fill(ids: Ids, table: Ids) -> None:
    for i in range(ids.size):
        entry, bit = table[ids[i] >> 5], 1 << (ids[i] & 31)
        if entry[0] == 0:
            entry[0] = i << 32
        entry[0] |= bit
        entry[1] |= bit


@njit(cache=True)
def _find(ids: Ids, table: Ids, first: int, found: Ids) -> int:
    """Only looks for ids that were not found yet; returns how many are still not."""
    lost = 0
    for i in range(ids.size):
        if i + _AHEAD < ids.size:
            fetch(table, ids[i + _AHEAD] >> 5)
        if found[i] >= 0:
            continue
        at, place = ids[i] >> 5, ids[i] & 31
        if at < table.shape[0] and (table[at, 1] >> place) & 1:
            word = table[at, 0]
            found[i] = first + (word >> 32) + _ones(word & ((1 << place) - 1))
        else:
            lost += 1
    return lost


@njit(cache=True)
def _drop(ids: Ids, table: Ids) -> int:
    dropped = 0
    for i in range(ids.size):
        at, bit = ids[i] >> 5, 1 << (ids[i] & 31)
        if at < table.shape[0] and table[at, 1] & bit:
            table[at, 1] ^= bit
            dropped += 1
    return dropped


class FirstIds:
    """From ids to numbers that follow each other, and never change.

    Args:
        ids: The ids, ascending, int64 `[k]`.
        first: The number of the first one.

    Attributes:
        size: How many there are, or were.
    """

    def __init__(self, ids: Ids, first: int) -> None:
        # Columns: bits of 32 ids, and how many stand before them, 32 bits each; bits of those that
        # were not dropped.
        self._table = np.zeros((int(ids[-1] >> 5) + 1 if ids.size else 0, 2), np.int64)
        self.size, self._first = ids.size, first
        _fill(ids, self._table)

    def find(self, ids: Ids, found: Ids) -> int:
        """Write the numbers of ids to `found`, int64 `[k]` both, where that is negative, if known.

        Returns how many are still not found.
        """
        lost: int = _find(ids, self._table, self._first, found)
        return lost

    def drop(self, ids: Ids) -> int:
        """Forget some ids, int64 `[k]`; returns how many of them were known."""
        dropped: int = _drop(ids, self._table)
        return dropped
