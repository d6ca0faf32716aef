"""Functions that row maps compute on vectors: as near the true value as their docstrings say."""

import numpy as np
import pytest
import torch
from numba import config

from pyg_incremental.kernels.compiled.row_ops import CODES, COLUMNS, run_rows

FUNCTIONS = {
    "exp": (np.exp, 1.0),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 2.5),
    "tanh": (np.tanh, 2.0),
    "expm1": (np.expm1, 2.0),
    "erf": (lambda x: torch.erf(torch.from_numpy(x)).numpy(), 2.5),
}
"""In float64, and how many units in the last place float32 may be off."""
NOT_FINITE = [np.inf, -np.inf, np.nan]


def computed(name, x, y=None):
    """One operation on registers of one row."""
    space = np.concatenate([np.zeros_like(x), x, x if y is None else y])
    ops = np.zeros((1, COLUMNS), np.int64)
    ops[0, :6] = CODES[name], 0, len(x), len(x), len(x), 2 * len(x)
    run_rows(space, ops, 0, 1, np.zeros(1, np.int64), 1)
    return space[: len(x)]


@pytest.mark.kernels
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_thousandth_number_of_float32(name):
    function, within = FUNCTIONS[name]
    step = 100_003 if config.DISABLE_JIT else 1009
    size = np.arange(0, 0x7F800000, step, dtype=np.uint32).view(np.float32)
    x = np.concatenate([size, -size, np.float32(NOT_FINITE)])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = function(x.astype(np.float64))
        rounded = expected.astype(np.float32)
        got = computed(name, x)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        off = np.abs(got - expected) / unit
    # Below the smallest normal number PyTorch's sigmoid is 0, too: `exp(-x)` overflows.
    is_normal = np.abs(expected) >= np.finfo(np.float32).tiny
    assert np.array_equal(np.isnan(got), np.isnan(rounded))
    assert np.array_equal(got[np.isinf(rounded)], rounded[np.isinf(rounded)])
    assert off[np.isfinite(rounded) & is_normal].max() <= within
    small = ~np.isnan(expected) & ~is_normal
    assert np.abs(got[small] - expected[small]).max() <= np.finfo(np.float32).tiny


@pytest.mark.kernels
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_is_that_of_c(name):
    x = np.concatenate([np.linspace(-800, 800, 4001), np.linspace(-1, 1, 4001), NOT_FINITE])
    if config.DISABLE_JIT:  # Python raises where compiled code says infinity
        x = x[(abs(x) < 709) | ~np.isfinite(x)]
    with np.errstate(over="ignore"):
        expected = FUNCTIONS[name][0](x)
    np.testing.assert_allclose(computed(name, x), expected, rtol=1e-15, atol=1e-300)


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["tanh", "expm1", "erf"])
def test_the_sign_of_zero_is_kept(name, dtype):
    assert np.signbit(computed(name, dtype([-0.0, 0.0]))).tolist() == [True, False]


COMPARED = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "minimum": np.minimum, "maximum": np.maximum,
}  # fmt: skip


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", COMPARED)
def test_any_two_numbers_are_compared(name, dtype):
    some = dtype([-np.inf, -1.5, -0.0, 0.0, 1e-40, 2.0, np.inf, np.nan])
    a, b = np.repeat(some, len(some)), np.tile(some, len(some))
    got = computed(name, a, b)
    assert np.array_equal(got, COMPARED[name](a, b).astype(dtype), equal_nan=True)
