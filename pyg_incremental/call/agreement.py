"""How closely an output agrees with that of the original model: what `verify` returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_incremental.call.full_pass import AGREE, difference


class Gap(NamedTuple):
    """The largest difference of two outputs, in plain numbers.

    Attributes:
        absolute: The largest absolute difference of two elements.
        relative: The largest difference in a row, as a part of the scale of that row.
        row: That row, or -1 if nothing differs.
        output: The output that it belongs to; -1 likewise.
        num_rows: How many rows that has.
        is_fine: Whether no more differs than two ways to compute the same may.
    """

    absolute: float
    relative: float
    row: int
    output: int
    num_rows: int
    is_fine: bool


class Agreement(float):
    """How closely the output agrees with a full pass of the original model.

    It is a number, the largest absolute difference of two elements, and compares and formats as
    one: `inc.verify() < 1e-5`, `f"{inc.verify():.1e}"`.

    The scale of a row is its largest element in the full pass, or what that is in a typical row of
    the output, if this is more: an output that goes to 1e6 may differ by more than one that goes to
    1. NaN and infinities have to be the same.

    Args:
        gap: How far the two are apart.
        node: The node with the largest difference, or None if nothing differs, or if it is no row
            of a node.

    Attributes:
        relative: The largest difference in a row, as a part of the scale of that row.
        node: That node.
        output: The number of the output that it belongs to, or None if nothing differs.
        is_fine: Whether `relative` is no more than rounding: at most 1e-3 in float32, 1e-8 in
            float64, and 0.1 in fewer bits.
    """

    __slots__ = ("_gap", "is_fine", "node", "output", "relative")
    relative: float
    node: int | None
    output: int | None
    is_fine: bool

    def __new__(cls, gap: Gap, node: int | None) -> Agreement:
        """Make one of plain numbers."""
        made = super().__new__(cls, gap.absolute)
        output = gap.output if gap.output >= 0 else None
        values = gap, gap.is_fine, node, output, gap.relative
        for name, value in zip(cls.__slots__, values, strict=True):
            object.__setattr__(made, name, value)
        return made

    @property
    def absolute(self) -> float:
        """The largest absolute difference of two elements, a plain number."""
        return float(self)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"what verify() has found does not change, {name!r} neither")

    def __reduce__(self) -> tuple[Any, ...]:
        return Agreement, (self._gap, self.node)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        where = "" if self.node is None else f", node {self.node}"
        said = "fine" if self.is_fine else "more than rounding"
        return f"{float(self):.3g} ({self.relative:.1e} of its row{where}): {said}"

    __str__ = __repr__


def gap_of(ours: Any, theirs: Any) -> Gap:
    """How far two outputs of the same structure are apart; see `Agreement`."""
    absolute, worst = difference(ours, theirs), Gap(0.0, 0.0, -1, -1, 0, is_fine=True)
    pairs = zip(pytree.tree_leaves(ours), pytree.tree_leaves(theirs), strict=True)
    for output, (x, y) in enumerate(pairs):
        if not isinstance(x, Tensor):
            continue
        relative, row = (torch.inf, 0) if x.shape != y.shape else _worst_row(x, y)
        fine = relative <= AGREE.get(y.dtype, 0.1 if _is_inexact(y) else 0.0)
        if (worst.is_fine, relative) > (fine, worst.relative):  # what is not fine comes first
            worst = Gap(0.0, relative, row, output, len(x) if x.dim() else 1, fine)
    return worst._replace(absolute=absolute)


def _is_inexact(rows: Tensor) -> bool:
    return rows.dtype.is_floating_point or rows.is_complex()


def _worst_row(x: Tensor, y: Tensor) -> tuple[float, int]:
    """The largest difference in a row as a part of its scale, and that row."""
    if not y.numel():
        return 0.0, -1
    wide = torch.complex128 if y.is_complex() else torch.float64
    same = (x == y) | ((x != x) & (y != y))
    gap = torch.where(same, 0.0, (x.to(wide) - y.to(wide)).abs())
    gap = gap.nan_to_num(nan=torch.inf).reshape(len(y) if y.dim() else 1, -1).amax(1)
    size = y.to(wide).abs().nan_to_num(0, 0, 0).reshape(len(gap), -1).amax(1)
    typical = size.masked_fill(size == 0, torch.nan).nanmedian().nan_to_num(0)
    part = torch.where(gap == 0, 0.0, gap / torch.maximum(size, typical))
    relative, row = part.max(0)
    return float(relative), int(row) if float(relative) else -1
