"""Rows that a delta brings, checked against those that are there."""

from typing import Any

import torch
from torch import Tensor

from pyg_incremental.delta.describe import as_ids, as_tensor
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
    """See that node ids lie in `[0, limit)`."""
    if not ids.size:
        return
    at = out_of_range(ids, limit)
    if at >= 0:
        raise InvalidDeltaError(
            f"{name}: node id {ids[at]} at position {at} is not in [0, {limit}); the graph has "
            f"{limit} nodes{', those of x_add included' if ids[at] >= limit else ''}: {advice}"
        )


def rows_like(value: Any, name: str, like: Tensor) -> Tensor:
    """A tensor of the dtype and device of `like`.

    Lists and arrays are converted, tensors have to fit.
    """
    t = as_tensor(value, name)
    if not isinstance(value, Tensor):
        return t.to(like.device, like.dtype)
    if t.is_sparse or t.layout is not torch.strided:
        raise InvalidDeltaError(
            f"{name}: expected a dense tensor (got layout {t.layout}); use .to_dense()"
        )
    if t.dtype != like.dtype:
        raise InvalidDeltaError(
            f"{name}: expected dtype {like.dtype}, that of the first pass (got {t.dtype}); use "
            f".to({like.dtype})"
        )
    if t.device != like.device:
        raise InvalidDeltaError(
            f"{name}: expected device '{like.device}', that of the first pass (got "
            f"'{t.device}'); use .to('{like.device}')"
        )
    return t
