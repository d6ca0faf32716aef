"""The memory of tensors and arrays, in pieces that can be looked at one after the other."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.kernels.samples import KEYS, PIECE, mixed

SHARED = 1 << 20
"""Bytes of memory shared between processes that are looked at before every update."""
_NO_WORDS = np.empty(0, np.int64)


class Pieces:
    """Pieces of memory, at most `PIECE` bytes each.

    Args:
        things: Tensors and arrays of NumPy, of any shape.

    Attributes:
        table: Addresses and bytes, int64 `[n, 2]`. Memory that other processes may write to comes
            first.
        always: So many of them are looked at before every update: all of little memory, else up to
            `SHARED` bytes of what is shared.
        turns: Which ones are looked at in turn, from the first to the last: `PIECE` bytes or less.
        bytes: Of all pieces.
        elsewhere: How many things have no pieces: they are on another device, or not in one line.
    """

    def __init__(self, things: Sequence[Any]) -> None:
        self._things = things
        lines = [_line_of(thing) for thing in things]
        shared = [line is not None and _is_shared(t) for t, line in zip(things, lines, strict=True)]
        self._spans: dict[int, tuple[int, int]] = {}
        pieces: list[tuple[int, int]] = []
        for i in sorted(range(len(things)), key=lambda i: not shared[i]):
            line, first = lines[i], len(pieces)
            if line is None:
                continue
            begin, size = line
            pieces += [(begin + at, min(PIECE, size - at)) for at in range(0, size, PIECE)]
            self._spans[i] = first, len(pieces)
        self.table = np.array(pieces, np.int64).reshape(-1, 2)
        self.bytes = int(self.table[:, 1].sum())
        self.elsewhere = sum(
            line is None and _has_memory(t) for t, line in zip(things, lines, strict=True)
        )
        ends = self.table[:, 1].cumsum()
        of_all = sum(self._spans[i][1] - self._spans[i][0] for i in self._spans if shared[i])
        limit = PIECE if self.bytes <= PIECE else SHARED
        some = len(pieces) if self.bytes <= PIECE else of_all
        self.always = int(np.searchsorted(ends[:some], limit, "right"))
        self.turns = _in_turns(self.table[:, 1].tolist(), self.always)

    def known(self, words: NDArray[np.int64]) -> list[tuple[int, int, int]]:
        """For each turn its pieces, and what `mixed` says of words, int64 `[k]`, and of these."""
        first = int(mixed(words, self.table, self.always, 0, 0, KEYS))
        of_turns = [int(mixed(_NO_WORDS, self.table, 0, a, b, KEYS)) for a, b in self.turns]
        # Without words and pieces it is zero: each kind begins with the same number.
        return [
            (a, b, first ^ of_turn) for (a, b), of_turn in zip(self.turns, of_turns, strict=True)
        ]

    def sum_of(self, i: int) -> int:
        """A checksum of all bytes of one thing."""
        if i in self._spans:
            first, last = self._spans[i]
            return int(mixed(_NO_WORDS, self.table, 0, first, last, KEYS))
        return _sum_elsewhere(self._things[i])


def _in_turns(sizes: list[int], first: int) -> list[tuple[int, int]]:
    """Neighbouring pieces of `PIECE` bytes or less together."""
    turns, room = [], 0
    for i in range(first, len(sizes)):
        if sizes[i] > room:
            turns.append((i, i))
            room = PIECE
        room -= sizes[i]
        turns[-1] = turns[-1][0], i + 1
    return turns or [(0, 0)]


def _line_of(thing: Any) -> tuple[int, int] | None:
    """Where the memory of something begins and how many bytes it has, if it is one line here."""
    if isinstance(thing, np.ndarray):
        return (thing.ctypes.data, thing.nbytes) if thing.flags.forc and thing.size else None
    if not thing.is_cpu or thing.layout is not torch.strided or not thing.numel():
        return None
    pairs = zip(thing.shape, thing.stride(), strict=True)
    if 1 + sum((size - 1) * step for size, step in pairs) != thing.numel():
        return None
    return thing.data_ptr(), thing.numel() * thing.element_size()


def _is_shared(thing: Any) -> bool:
    return isinstance(thing, Tensor) and thing.is_shared()


def _has_memory(thing: Any) -> bool:
    return bool(thing.size) if isinstance(thing, np.ndarray) else bool(thing.numel())


def _sum_elsewhere(thing: Any) -> int:
    """The same of what has no pieces, with a copy."""
    if isinstance(thing, np.ndarray):
        return zlib.crc32(thing.tobytes())
    if thing.is_meta or thing.layout is not torch.strided or not thing.numel():
        return 0
    flat = thing.detach().cpu().contiguous().reshape(-1)
    return zlib.crc32(flat.view(torch.uint8).numpy().data)
