"""A glance at memory: whether any of some words has changed, or of some pieces."""

import numpy as np

from pyg_incremental.kernels.address import line_at
from pyg_incremental.kernels.jit import inner, njit

SEED = 0xCBF29CE484222325
PIECE = 1 << 14
"""Bytes of the largest piece, which takes about a microsecond."""
WORD = 4
KEYS = np.random.default_rng(7).integers(0, 1 << 63, PIECE // WORD + WORD, np.uint64) * 2 + 1
"""A factor for each word of a piece. It is odd, so that no word changes without a trace."""
_PRIME = np.uint64(0x100000001B3)


@inner()
def _of_piece(begin, size, keys):  # type: ignore[no-untyped-def]
    """One number for the bytes of a piece: its words times the keys, and bytes that are left."""
    found = np.uint64(size)
    words = line_at(begin, size // WORD, np.uint32(0))
    for i in range(words.size):
        found += keys[i] * np.uint64(words[i])
    rest = line_at(begin + WORD * words.size, size - WORD * words.size, np.uint8(0))
    for i in range(rest.size):
        found += keys[words.size + i] * np.uint64(rest[i])
    return found


@njit(cache=True)
def mixed(addresses, pieces, always, first, last, keys):  # type: ignore[no-untyped-def]
    """One number for the 4-byte words at some addresses, int64 `[k]`, and for pieces of memory.

    Pieces, int64 `[n, 2]`, are addresses and bytes, at most `PIECE`. The first `always` ones count,
    and those from `first` to `last`; the number is that of these two kinds, one xor the other.
    """
    found = np.uint64(SEED)
    for i in range(addresses.size):
        word = line_at(addresses[i], 1, np.uint32(0))[0]
        found = (found ^ np.uint64(word)) * _PRIME
    for i in range(always):
        found = (found ^ _of_piece(pieces[i, 0], pieces[i, 1], keys)) * _PRIME
    turn = np.uint64(SEED)
    for i in range(first, last):
        turn = (turn ^ _of_piece(pieces[i, 0], pieces[i, 1], keys)) * _PRIME
    return found ^ turn
