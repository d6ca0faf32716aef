"""Rows that grow in place keep what they hold."""

import copy
import pickle

import numpy as np
import pytest

from pyg_incremental.sampling import room as module
from pyg_incremental.sampling.room import RowBuffer


@pytest.mark.parametrize("how", ["in place", "no pages", "no moving"])
def test_growing(how, monkeypatch):
    if how == "no pages":
        monkeypatch.setattr(module, "_PRIVATE", 0)
    if how == "no moving":
        monkeypatch.setattr(module.mmap, "mmap", _Fixed)
    room, expected = RowBuffer(), np.empty((0, 3), np.int64)
    for count in (1, 10, 5, 3_000, 3_001, 200_000, 1_000_000):
        room.grow(count)
        assert room.rows.shape[0] == max(count, len(expected))
        assert np.array_equal(room.rows[: len(expected)], expected)
        room.rows[:] = np.arange(room.rows.size).reshape(-1, 3) + count
        expected = room.rows.copy()
    moved = how == "in place" and room._pages is not None
    assert moved == (how == "in place")


class _Fixed(module.mmap.mmap):
    def resize(self, size):
        raise SystemError("mmap: resizing not available--no mremap()")


def test_pages_move_and_are_not_copied():
    room = RowBuffer(100_000)
    pages = room._pages
    room.rows[:] = 7
    room.grow(10_000_000)
    assert room._pages is pages
    assert (room.rows[:100_000] == 7).all()


def test_rows_that_somebody_holds_stay():
    room = RowBuffer(100_000)
    room.rows[:] = 7
    held = room.rows
    room.grow(200_000)
    room.rows[:] = 8
    assert (held == 7).all()
    for other in (copy.deepcopy(room), pickle.loads(pickle.dumps(room))):
        assert np.array_equal(other.rows, room.rows)
        other.grow(300_000)
        assert (other.rows[:200_000] == 8).all()
