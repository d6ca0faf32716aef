"""Rows as they travel between ranks: of any dtype and shape, wherever their bytes begin."""

import numpy as np
import pytest
import torch

from pyg_incremental.distributed.link import _bytes_of, _rows_of
from pyg_incremental.kernels.lent import Lent

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
