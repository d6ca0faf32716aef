"""Rows and values as they travel between ranks: of any dtype, wherever their bytes begin."""

import numpy as np
import pytest
import torch

from pyg_incremental.distributed.boundary.link import _bytes_of, _rows_of
from pyg_incremental.encoding import framing
from pyg_incremental.kernels.lent import Lent


def packed(value, lent):
    return framing.packed(value, lambda size: lent.array(np.uint8, size))


DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.int8, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("tail", [(), (1,), (3,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("offset", [0, 4])
def test_rows_arrive_as_they_were_sent(dtype, tail, offset):
    rows = (torch.arange(9 * int(np.prod(tail))).reshape(9, *tail) % 7 - 3).to(dtype)
    here, there = np.array([7, 2, 2]), np.array([5, 1, 0], np.int32)
    sent = _bytes_of(rows, here, there, Lent())
    behind_others = torch.cat([torch.zeros(offset, dtype=torch.uint8), sent])[offset:]
    ids, got = _rows_of(behind_others, rows)
    assert ids.tolist() == [5, 1, 0]
    assert got.dtype == dtype
    assert torch.equal(got, rows[here])


VALUES = {
    "short ids": np.arange(-3, 40),
    "long ids": np.arange(40) + 2**40,
    "just too long": np.array([*range(20), 2**31]),
    "just short enough": np.array([*range(20), -(2**31), 2**31 - 1]),
    "few ids": np.array([7]),
    "no ids": np.empty((2, 0), np.int64),
    "pairs": np.arange(40).reshape(2, 20),
    "turned": np.arange(40).reshape(2, 20).T,
    "every other": np.arange(60)[::2],
    "other integers": np.arange(20, dtype=np.int32),
    "a flag": np.array([True, False, True]),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_arrays_arrive_as_they_were_sent(value):
    first, (got, _) = framing.unpacked(packed(["first", (value, "last")], Lent()))
    assert first == "first"
    assert got.dtype == value.dtype
    assert got.shape == value.shape
    assert (got == value).all()
    assert got.flags.writeable


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64], ids=str)
def test_tensors_arrive_as_they_were_sent(dtype):
    values = [torch.arange(40).reshape(8, 5).to(dtype), torch.empty(0, 3, dtype=dtype)]
    values.append(values[0].t())
    for value in values:
        got = framing.unpacked(packed({"rows": value}, Lent()))["rows"]
        assert got.dtype == dtype
        assert torch.equal(got, value)


def test_one_element_of_any_stride():
    """Torch calls it contiguous, whatever stride it has from the rows that it was taken from."""
    value = torch.arange(3).view(3, 1).t()[0:1].t()[1]
    value = value.as_strided((1,), (3,))
    got = framing.unpacked(packed({"rows": value}, Lent()))["rows"]
    assert torch.equal(got, value)


def test_what_was_received_is_not_written_to_by_what_is_sent_next():
    lent = Lent()
    got = framing.unpacked(packed(np.arange(50) + 2**40, lent))
    for _ in range(4):
        packed(np.zeros(50, np.int64) + 2**40, lent)
    assert (got == np.arange(50) + 2**40).all()


class CannotTravel(Exception):
    def __reduce__(self):
        raise TypeError("no")


def test_errors_travel_even_if_they_cannot():
    got = framing.unpacked(packed(CannotTravel("here"), Lent()))
    assert isinstance(got, RuntimeError)
    assert str(got) == "CannotTravel: here"


class OfAUser(ValueError):
    pass


def test_an_error_that_is_not_known_everywhere_becomes_the_nearest_one_that_is():
    got = framing.unpacked(packed(OfAUser("here"), Lent()))
    assert type(got) is ValueError
    assert str(got) == "OfAUser: here"
