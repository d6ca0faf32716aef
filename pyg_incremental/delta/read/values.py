"""Rows that a delta brings, checked against those that are there."""

from typing import Any

import torch
from torch import Tensor

from pyg_incremental.delta.given import as_ids, as_tensor
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.kernels.adjacency import out_of_range

ADVICE = "add nodes with x_add"


def checked_ids(value: Any, name: str, limit: int, advice: str = ADVICE) -> Ids:
    """Node ids, int64 `[k]`.

    Raises:
        InvalidDeltaError: If they are no integers, or not in `[0, limit)`.
    """
    ids = as_ids(value, name)
    check_ids(ids, name, limit, advice)
    return ids


def check_ids(ids: Ids, name: str, limit: int, advice: str = ADVICE) -> None:
    """See that node ids, int64 `[k]`, lie in `[0, limit)`.

    Raises:
        InvalidDeltaError: If one does not.
    """
    if not ids.size:
        return
    at = out_of_range(ids, limit)
    if at >= 0:
        raise InvalidDeltaError(
            f"{name}: node id {ids[at]} at position {at} is not in [0, {limit}); the graph has "
            f"{limit} nodes{', those of x_add included' if ids[at] >= limit else ''}: {advice}"
        )


def rows_like(value: Any, name: str, like: Tensor) -> Tensor:
    """A tensor of any shape, of the dtype and device of `like`.

    Whether it comes as a tensor, an array or a list, numbers of another dtype of the same kind are
    rounded, such as float64 to float32, and those of another kind are refused, such as floats in
    the place of integers. A tensor has to be on the right device.

    Raises:
        InvalidDeltaError: If it does not fit.
    """
    t = as_tensor(value, name)
    if not isinstance(value, Tensor):
        return _of_dtype(t.to(like.device), name, like.dtype)
    if t.is_sparse or t.layout is not torch.strided:
        raise InvalidDeltaError(
            f"{name}: expected a dense tensor (got layout {t.layout}); use .to_dense()"
        )
    if t.device != like.device:
        raise InvalidDeltaError(
            f"{name}: expected device '{like.device}', that of the first pass (got "
            f"'{t.device}'); use .to('{like.device}')"
        )
    return _of_dtype(t, name, like.dtype)


def _of_dtype(t: Tensor, name: str, dtype: torch.dtype) -> Tensor:
    """Numbers of the dtype of the first pass, rounded where that is all it takes."""
    if t.dtype == dtype or not t.numel():
        return t.to(dtype)
    if not torch.can_cast(t.dtype, dtype):
        raise InvalidDeltaError(
            f"{name}: expected dtype {dtype}, that of the first pass (got {t.dtype}, which would "
            f"lose more than digits); use .to({dtype}) if that is meant"
        )
    made = t.to(dtype)
    floats = dtype.is_floating_point or dtype.is_complex
    lost = made.isinf() & ~t.isinf() if floats else made.to(t.dtype) != t
    if lost.any():
        first = t[lost].flatten()[0].item()
        raise InvalidDeltaError(
            f"{name}: {first} does not fit into {dtype}, that of the first pass"
        )
    return made
