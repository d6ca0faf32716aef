"""Loops over the channels of a row run on vectors: in code for x86, that shows in what they become.

An index that may count from the end, as any signed one that does not begin at 0, keeps a loop from
it, and takes four times as long.
"""

import platform
import re

import numpy as np
import pytest
from numba import config, njit

from pyg_incremental.kernels.compiled.rows import size_of
from pyg_incremental.kernels.compiled.softmax import add_term, softmax_exchange, softmax_term

pytestmark = [
    pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled"),
    pytest.mark.skipif(
        platform.machine() not in ("x86_64", "AMD64"), reason="looks for instructions of x86"
    ),
]
FLOATS, WIDE = np.ones(64, np.float32), np.ones(64)


def exchange(row, low, now, before, heads, channels):
    softmax_exchange(row, low, 1, heads, channels, now, 0.5, before, 0.25)


def term(row, low, now, before, heads, channels):
    softmax_term(row, low, 1, heads, channels, now, -0.5, 1)


def added(row, low, now, sums, heads, channels):
    add_term(sums, 1, heads, channels, now, -0.5)


def magnitude(row, low, now, before, heads, channels):
    return size_of(now[:channels], before)


@pytest.mark.parametrize(
    ("kernel", "last", "multiplies"),
    [
        (exchange, FLOATS, "mulpd"), (term, FLOATS, "mulpd"), (added, WIDE, "mulpd"),
        (magnitude, FLOATS, "mulps"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_a_loop_over_channels_multiplies_several_at_once(kernel, last, multiplies):
    compiled = njit(kernel)
    compiled(FLOATS.copy(), FLOATS.copy(), FLOATS.copy(), last.copy(), 4, 8)
    (code,) = compiled.inspect_asm().values()
    assert re.search(rf"\bv?{multiplies}\b|\bvfn?m(add|sub)\d+{multiplies[-2:]}\b", code)
