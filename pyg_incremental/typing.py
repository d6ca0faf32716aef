"""Aliases, numerical limits, and which optional packages are there."""

from importlib.util import find_spec
from typing import Any, Literal

import torch

Array = Any
"""A NumPy array (compiled kernels) or a tensor (reference kernels): what a kernel takes."""

BackendName = Literal["auto", "compiled", "reference"]
StoreName = Literal["fast", "minimal"]
Format = Literal["coo", "csr", "csc", "sparse_tensor"]

HAS_TORCH_SPARSE = find_spec("torch_sparse") is not None

MAX_NODES = 2**31 - 1
MAX_EDGES = 2**31 - 1

DRIFT_LIMIT = {torch.float32: 2.0**22, torch.float64: 2.0**16}
"""How much magnitude may move through an accumulated row before it is summed afresh.

The unit is the row's own magnitude. Every addition leaves a rounding error of at most one unit in
the last place of what is added or of the row. Rows in float32 are kept in two halves, so that unit
is 2^-48 of the row, and a row is kept within 2e-8 of a fresh sum, relative to the row; in float64,
within 2e-11.
"""
