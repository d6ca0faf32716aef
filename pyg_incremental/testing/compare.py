"""The largest difference between two outputs, and where it is."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Largest allowed difference from a full pass, relative to max(1, |value|); 1e-2 for others."""


@dataclass(frozen=True, eq=False)
class Found:
    """What a comparison has found.

    Attributes:
        gap: The largest difference.
        row: The row of it if it is too large, or None.
        got: That row.
        expected: What it should be.
        where: Where that was, or what else went wrong.
    """

    gap: float = 0.0
    row: int | None = None
    got: Any = None
    expected: Any = None
    where: str = ""

    @property
    def wrong(self) -> bool:
        """Whether something is."""
        return self.row is not None or bool(self.where)

    def at(self, where: str) -> "Found":
        """The same with where it was."""
        return replace(self, where=f"{self.where} {where}".strip())


def compared(ours: Any, theirs: Any, tolerance: float | None) -> Found:
    """Two outputs of the same structure; NaN equals NaN, and infinity itself."""
    gap, wrong = 0.0, Found()
    for got, want in zip(pytree.tree_leaves(ours), pytree.tree_leaves(theirs), strict=True):
        if got.shape != want.shape or got.dtype is not want.dtype:
            shapes = [f"{t.dtype} {list(t.shape)}" for t in (got, want)]
            return Found(torch.inf, where=f"it is {shapes[0]} (expected {shapes[1]})")
        if not got.numel():
            continue
        limit = TOLERANCE.get(want.dtype, 1e-2) if tolerance is None else tolerance
        same = (got == want) | ((got != got) & (want != want))
        off = (got.double() - want.double()).abs().nan_to_num(torch.inf, torch.inf)
        off = off.masked_fill(same, 0)
        gap = max(gap, float(off.max()))
        allowed = limit * want.double().abs().nan_to_num(0, 0, 0).clamp(min=1)
        by_row = off.masked_fill(off <= allowed, 0).reshape(len(off), -1).amax(1)
        row = int(by_row.argmax())
        if by_row[row] > wrong.gap:
            wrong = Found(float(by_row[row]), row, got[row], want[row])
    return wrong if wrong.wrong else Found(gap)


def short(value: Any) -> str:
    """Numbers as a user would type them, four digits of each."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {short(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        left, right = "()" if isinstance(value, tuple) else "[]"
        return left + ", ".join(map(short, value)) + right
    return str(value)
