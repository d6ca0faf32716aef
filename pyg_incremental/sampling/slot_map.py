"""Rows of some nodes: in memory, and beyond a number of bytes on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.sampling.disk_table import DiskTable

Ids = NDArray[np.int64]
_AT_ONCE = 1024
"""Rows that are looked at at a time where some of them may be on disk."""
_NOT, _STALE, _CURRENT = range(3)
"""What the disk has of a row: nothing, what it was before, or what it is."""


class SlotMap:
    """Which row of a table belongs to which node; rows that were left are taken again.

    Attributes:
        of: The row of each node, int64 `[num_nodes]`, -1 for none.
        count: How many rows are taken.
        end: How many rows were ever taken at a time.
    """

    def __init__(self, num_nodes: int) -> None:
        self.of = np.full(num_nodes, -1, np.int64)
        self.count = self.end = 0
        self._free: list[Ids] = []

    def grow(self, num_nodes: int) -> None:
        """Make room for so many nodes."""
        if num_nodes > self.of.size:
            more = np.full(max(num_nodes, 3 * num_nodes // 2) - self.of.size, -1)
            self.of = np.concatenate([self.of, more])

    def take(self, nodes: Ids) -> None:
        """Give distinct nodes without a row, int64 `[k]`, one each."""
        rows, missing = [], nodes.size
        while missing and self._free:
            left = self._free.pop()
            rows.append(left[:missing])
            if left.size > missing:
                self._free.append(left[missing:])
            missing -= rows[-1].size
        rows.append(np.arange(self.end, self.end + missing))
        self.end += missing
        self.of[nodes] = np.concatenate(rows)
        self.count += nodes.size

    def give_back(self, nodes: Ids) -> None:
        """Take the rows of distinct nodes, int64 `[k]`, away."""
        if nodes.size:
            self._free.append(self.of[nodes])
            self.of[nodes] = -1
            self.count -= nodes.size


class Overflow(NamedTuple):
    """Where rows of one table go beyond a number of bytes.

    Attributes:
        limit: The bytes of its rows that may be in memory.
        disk: Who has the others.
        table: The number of the table there.
    """

    limit: int
    disk: DiskTable
    table: int


def overflows_of(
    memory: int | None, directory: str | Path | None, samples: int, features: int = 1
) -> tuple[DiskTable | None, list[Overflow | None]]:
    """What keeps so many bytes in memory: an overflow for each table of samples, then of features.

    Half of the bytes are for features.

    Raises:
        ValueError: If the number is negative.
        ImportError: If rocksdict is not installed.
    """
    if memory is None:
        return None, [None] * (samples + features)
    if memory < 0:
        raise ValueError(f"memory: expected a number of bytes (got {memory})")
    disk = DiskTable(directory)
    limits = [memory // 2 // samples] * samples + [memory // 2 // features] * features
    return disk, [Overflow(limit, disk, table) for table, limit in enumerate(limits)]


class PlacedRows:
    """Rows of equal shape, one for each node that has one.

    With an overflow, rows are in memory up to a number of bytes; those that were used longest ago
    are on disk. A row that is read comes back, and its copy on disk stays right until the row is
    written again. Rows that one call needs are in memory together, even if they are more.

    Args:
        num_nodes: Number of nodes.
        like: Rows of their kind, `[*, ...]`.
        overflow: Where rows go that are too many; None for none that are.

    Attributes:
        places: Where the rows in memory are.
        rows: The rows in memory, `[room, ...]`.
        count: How many nodes have a row.
    """

    def __init__(self, num_nodes: int, like: Tensor, overflow: Overflow | None = None) -> None:
        self.places = SlotMap(num_nodes)
        self.rows = like.new_zeros((0, *like.shape[1:]))
        self.count = 0
        self._overflow = overflow
        self.row_bytes = like.new_zeros((1, *like.shape[1:])).nbytes
        self._limit = -1 if overflow is None else overflow.limit // max(1, self.row_bytes)
        room = 0 if overflow is None else num_nodes
        self._on_disk = np.zeros(room, np.int8)
        # By place: whose row it is, and when it was used last.
        self._owner, self._used = np.empty(0, np.int64), np.empty(0, np.int64)
        self._turn = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the rows in memory, and of where rows are."""
        index = (self.places.of, self._on_disk, self._owner, self._used)
        return self.rows.nbytes + sum(part.nbytes for part in index)

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of the rows that are on disk and not in memory."""
        return (self.count - self.places.count) * self.row_bytes

    @property
    def may_be_away(self) -> bool:
        """Whether a row may be on disk alone."""
        return self._overflow is not None

    def grow(self, num_nodes: int) -> None:
        """Make room for so many nodes."""
        self.places.grow(num_nodes)
        more = self.places.of.size - self._on_disk.size
        if self._overflow is not None and more:
            self._on_disk = np.concatenate([self._on_disk, np.zeros(more, np.int8)])

    def has(self, nodes: Ids) -> NDArray[np.bool_]:
        """Which of some nodes have a row, bool `[k]`."""
        found: NDArray[np.bool_] = self.places.of[nodes] >= 0
        return found if self._overflow is None else found | (self._on_disk[nodes] == _CURRENT)

    def parts(self, nodes: Ids) -> Iterator[Ids]:
        """Some nodes, int64 `[k]`, so many at a time that their rows keep within the limit."""
        if self._overflow is None:
            yield nodes
            return
        size = max(1, min(_AT_ONCE, self._limit))
        for first in range(0, nodes.size, size):
            yield nodes[first : first + size]

    def place(self, nodes: Ids) -> Ids:
        """Where the rows of distinct nodes are to be written, int64 `[k]`; all of them are new."""
        new = nodes[self.places.of[nodes] < 0]
        self.count += int(nodes.size - self.has(nodes).sum())
        if self._overflow is not None:
            self._on_disk[nodes] = np.minimum(self._on_disk[nodes], _STALE)
        self._take(new, nodes)
        found: Ids = self.places.of[nodes]
        return found

    def bring(self, nodes: Ids) -> Ids:
        """Where the rows of nodes are in memory, int64 `[k]`, all of them at the same time."""
        if self._overflow is not None:
            every = np.unique(nodes)
            away = every[self.places.of[every] < 0]
            self._take(away, every)
            if away.size and self.rows.shape[1:].numel():
                raw = torch.from_numpy(self._overflow.disk.read(self._overflow.table, away).copy())
                rows = raw.view(self.rows.dtype).view(-1, *self.rows.shape[1:])
                self.rows[torch.from_numpy(self.places.of[away])] = rows
        found: Ids = self.places.of[nodes]
        return found

    def drop(self, nodes: Ids) -> None:
        """Forget the rows of distinct nodes, int64 `[k]`, that have one."""
        self.count -= nodes.size
        here = nodes
        if self._overflow is not None:
            here = nodes[self.places.of[nodes] >= 0]
            self._owner[self.places.of[here]] = -1
            there = nodes[self._on_disk[nodes] != _NOT]
            self._overflow.disk.delete(self._overflow.table, there)
            self._on_disk[nodes] = _NOT
        self.places.give_back(here)

    def _take(self, new: Ids, needed: Ids) -> None:
        """Give distinct nodes without a place one each; all of `needed` stay in memory."""
        missing = self.places.count + new.size - self.rows.shape[0]
        if missing > 0 and self._overflow is None:
            self._make_room(max(self.rows.shape[0] + missing, 2 * self.rows.shape[0]))
        elif self._overflow is not None:
            self._turn += 1
            here = self.places.of[needed]
            self._used[here[here >= 0]] = self._turn
            if missing > 0:
                self._find_room(missing)
        self.places.take(new)
        if self._overflow is not None:
            at = self.places.of[new]
            self._owner[at], self._used[at] = new, self._turn

    def _find_room(self, missing: int) -> None:
        """Grow up to the limit, then send rows to the disk; grow beyond it only if none may go."""
        room = self.rows.shape[0]
        if room < self._limit:
            more = min(self._limit, max(room + missing, 2 * room))
            self._make_room(more)
            missing -= more - room
        if missing > 0:
            room = self.rows.shape[0]
            may_go = np.flatnonzero((self._owner >= 0) & (self._used < self._turn))
            some = min(may_go.size, missing + room // 8)
            if some < may_go.size:
                may_go = may_go[np.argpartition(self._used[may_go], some)[:some]]
            self._send(may_go)
            if some < missing:
                self._make_room(room + missing - some)

    def _send(self, at: Ids) -> None:
        """Send the rows in some places to the disk, unless it has them."""
        assert self._overflow is not None
        nodes = self._owner[at]
        differ = self._on_disk[nodes] != _CURRENT
        if differ.any():
            rows = self.rows[torch.from_numpy(at[differ])]
            raw = rows.flatten(1).view(torch.uint8).numpy()
            self._overflow.disk.write(self._overflow.table, nodes[differ], raw)
        self._on_disk[nodes] = _CURRENT
        self._owner[at] = -1
        self.places.give_back(nodes)

    def _make_room(self, room: int) -> None:
        held = self.rows.shape[0]
        grown = self.rows.new_empty((room, *self.rows.shape[1:]))
        grown[:held] = self.rows
        self.rows = grown
        if self._overflow is not None:
            self._owner = np.concatenate([self._owner, np.full(room - held, -1)])
            self._used = np.concatenate([self._used, np.zeros(room - held, np.int64)])
