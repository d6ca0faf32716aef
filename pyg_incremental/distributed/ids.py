"""Global ids and the small numbers under which a rank knows them."""

from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ids = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)
_FREE = -1
_GONE = -2
_NONE = np.empty(0, np.int64)


@njit(cache=True)
def _seek(key: int, keys: Ids) -> int:
    mask = keys.size - 1
    at = ((key * 0x9E3779B1) ^ (key >> 15)) & mask
    while keys[at] != key and keys[at] != _FREE:
        at = (at + 1) & mask
    return at


@njit(cache=True)
def _find(ids: Ids, keys: Ids, values: Ids, found: Ids) -> None:
    for i in range(ids.size):
        at = _seek(ids[i], keys)
        found[i] = values[at] if keys[at] == ids[i] else -1


@njit(cache=True)
def _put(ids: Ids, numbers: Ids, keys: Ids, values: Ids) -> int:
    used = 0
    for i in range(ids.size):
        at = _seek(ids[i], keys)
        if keys[at] == _FREE:
            keys[at] = ids[i]
            used += 1
        values[at] = numbers[i]
    return used


@njit(cache=True)
def _drop(ids: Ids, keys: Ids) -> None:
    for i in range(ids.size):
        at = _seek(ids[i], keys)
        if keys[at] == ids[i]:
            keys[at] = _GONE


class IdTable:
    """From global ids to local numbers; constant time each, memory by the number of entries."""

    def __init__(self) -> None:
        self._make(16)

    def _make(self, size: int) -> None:
        self._keys = np.full(size, _FREE, np.int64)
        self._values = np.empty(size, np.int64)
        self._used = 0

    def find(self, ids: Ids) -> Ids:
        """The numbers of some ids, int64 `[k]`; -1 for an id that is not there."""
        found = np.empty(ids.size, np.int64)
        _find(ids, self._keys, self._values, found)
        return found

    def put(self, ids: Ids, numbers: Ids) -> None:
        """Enter ids with their numbers, `[k]` each."""
        if 2 * (self._used + ids.size) > self._keys.size:
            live = self._keys >= 0
            keys, values = self._keys[live], self._values[live]
            self._make(1 << int(4 * (keys.size + ids.size)).bit_length())
            self._used = _put(keys, values, self._keys, self._values)
        self._used += _put(ids, numbers, self._keys, self._values)

    def drop(self, ids: Ids) -> None:
        """Forget some ids."""
        _drop(ids, self._keys)


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
        """Write some entries, growing as far as needed."""
        if at.size:
            self.grow(int(at.max()) + 1)
            self._room[at] = values


def joined(parts: Iterable[Ids]) -> Ids:
    """Ids one behind the other."""
    found = list(parts)
    return np.concatenate(found) if found else _NONE
