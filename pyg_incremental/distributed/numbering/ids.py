"""Global ids and the small numbers under which a rank knows them."""

from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.jit import njit

Ids = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)
_FREE = -1
_GONE = -2
_AHEAD = 12
"""How many ids ahead of its use an entry is asked for."""
_NONE = np.empty(0, np.int64)


@njit(cache=True)
def _place(key: int, table: Ids) -> int:
    at: int = ((key * 0x9E3779B1) ^ (key >> 15)) & (table.shape[0] - 1)
    return at


@njit(cache=True)
def _seek(key: int, table: Ids) -> int:
    at: int = _place(key, table)
    while table[at, 0] != key and table[at, 0] != _FREE:
        at = (at + 1) & (table.shape[0] - 1)
    return at


@njit(cache=True)
def _find(ids: Ids, table: Ids, found: Ids) -> None:
    """Only looks for ids that were not found yet."""
    for i in range(ids.size):
        if i + _AHEAD < ids.size:
            fetch(table, _place(ids[i + _AHEAD], table))
        if found[i] < 0:
            at = _seek(ids[i], table)
            found[i] = table[at, 1] if table[at, 0] == ids[i] else -1


@njit(cache=True)
def _put(ids: Ids, numbers: Ids, table: Ids) -> int:
    used = 0
    for i in range(ids.size):
        at = _seek(ids[i], table)
        used += table[at, 0] == _FREE
        table[at, 0], table[at, 1] = ids[i], numbers[i]
    return used


@njit(cache=True)
def _drop(ids: Ids, table: Ids) -> None:
    for i in range(ids.size):
        at = _seek(ids[i], table)
        if table[at, 0] == ids[i]:
            table[at, 0] = _GONE


class IdTable:
    """From global ids to local numbers; constant time each, memory by the number of entries."""

    def __init__(self) -> None:
        self._make(16)

    def _make(self, size: int) -> None:
        self._table = np.full((size, 2), _FREE, np.int64)
        self._used = 0

    def find(self, ids: Ids, found: Ids | None = None) -> Ids:
        """The numbers of some ids, int64 `[k]`; -1 for an id that is not there.

        Those that were `found` elsewhere are kept as they are.
        """
        found = np.full(ids.size, -1, np.int64) if found is None else found
        _find(ids, self._table, found)
        return found

    def put(self, ids: Ids, numbers: Ids) -> None:
        """Enter ids with their numbers, int64 `[k]` each."""
        if 2 * (self._used + ids.size) > len(self._table):
            live = self._table[self._table[:, 0] >= 0]
            self._make(1 << int(3 * (len(live) + ids.size)).bit_length())
            self._used = _put(live[:, 0], live[:, 1], self._table)
        self._used += _put(ids, numbers, self._table)

    def drop(self, ids: Ids) -> None:
        """Forget some ids, int64 `[k]`."""
        _drop(ids, self._table)


class Grown(Generic[T]):
    """An array that grows at its end: `fill` where nothing was written.

    Attributes:
        array: The entries, `[size]`.
    """

    def __init__(self, array: NDArray[T], fill: int) -> None:
        self._room = array
        self._fill = fill
        self.size = array.size

    @property
    def array(self) -> NDArray[T]:
        """The entries so far."""
        return self._room[: self.size]

    def grow(self, size: int) -> None:
        """See that there are `size` entries."""
        if size > self._room.size:
            room = np.full(max(size, self._room.size * 5 // 4 + 16), self._fill, self._room.dtype)
            room[: self.size] = self._room[: self.size]
            self._room = room
        self.size = max(self.size, size)

    def put(self, at: Ids, values: NDArray[T]) -> None:
        """Write some entries, `[k]`, at places int64 `[k]`, growing as far as needed."""
        if at.size:
            self.grow(int(at.max()) + 1)
            self._room[at] = values


def joined(parts: Iterable[Ids]) -> Ids:
    """Ids, int64 `[k]` each, one behind the other."""
    found = list(parts)
    return np.concatenate(found) if found else _NONE
