"""Products of rows and matrices, in whatever order their dimensions come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.fused.registers import STRIDE, Chosen, Register, UntranslatableError
from pyg_incremental.fused.translator import ROWS, Translator, side_by_side


def addmm(t: Translator, c: Any, a: Any, b: Any, beta: float = 1.0, alpha: float = 1.0) -> Register:
    """`beta * c + alpha * a @ b`."""
    if isinstance(c, Tensor) and isinstance(b, Tensor):
        return mm(t, a, b * alpha, c * beta)
    made = mm(t, a, b * alpha if isinstance(b, Tensor) else b, None)
    return t.compute("add", made, t.compute("mul", c, beta) if beta != 1 else c)


def mm(t: Translator, a: Any, b: Any, bias: Any = None) -> Register:
    """`a @ b + bias`; the rows of `a` may be several for each row."""
    if not isinstance(a, Register) or not isinstance(b, Tensor):
        raise UntranslatableError("a product is not one of rows and a matrix")
    if a.place.shape[0] == ROWS:
        return t.product(a, b, bias)
    made = _product(t, a, b)
    return made if bias is None else _added(t, made, bias)


def bmm(t: Translator, a: Any, b: Any) -> Register:
    """`a[i] @ b[i]` for each i, where `b` does not depend on rows, both do, or `b` is chosen."""
    if not isinstance(a, Register):
        raise UntranslatableError("a product begins with a matrix")
    if isinstance(b, Chosen):
        each = [t.product(_with(a, a.place[:, i]), b, None) for i in range(a.place.shape[1])]
        return stack(t, each, 1)
    if isinstance(b, Register):
        if a.place.shape[0] != ROWS or b.place.shape[0] != ROWS:
            raise UntranslatableError("rows are not the first dimension of a product")
        far = Register(a.at, a.width, a.place.unsqueeze(3))
        return t.reduce("sum", t.compute("mul", far, _with(b, b.place.unsqueeze(1))), [2], False)
    if bool((_row_of(a.place[:1]) == 0).all()):
        if not bool((b == b[:1]).all()):
            raise UntranslatableError("a matrix depends on the row")
        return _product(t, a, b[0])
    count, _, width = b.shape
    if bool((a.place == a.place[:1]).all()):  # one product does
        wide = _product(t, _with(a, a.place[0]), torch.cat([*b], 1))
        place = wide.place.unflatten(-1, (count, width))
        return _with(wide, place.permute(1, 0, 2))
    made = [_product(t, _with(a, a.place[i]), b[i]) for i in range(count)]
    return _joined(t, made)


def stack(t: Translator, values: Sequence[Any], dim: int = 0) -> Register:
    """Values beside each other in a new dimension."""
    shape = values[0].place.shape if isinstance(values[0], Register) else values[0].shape
    dim %= len(shape) + 1
    if len(values) == 1 and isinstance(values[0], Register):
        return _with(values[0], values[0].place.unsqueeze(dim))
    return side_by_side(
        t,
        [
            _with(v, v.place.unsqueeze(dim)) if isinstance(v, Register) else v.unsqueeze(dim)
            for v in values
        ],
        dim,
    )


def cross(t: Translator, a: Any, b: Any, *, dim: int = -1) -> Register:
    """The vector product of three components."""
    dim %= a.place.dim()

    def turned(value: Any, by: int) -> Any:
        if not isinstance(value, Register):
            return value.roll(by, dim)
        return _with(value, value.place.roll(by, dim))

    left = t.compute("mul", turned(a, -1), turned(b, 1))
    return t.compute("sub", left, t.compute("mul", turned(a, 1), turned(b, -1)))


def _with(value: Register, place: Tensor) -> Register:
    return Register(value.at, value.width, place)


def _row_of(place: Tensor) -> Tensor:
    return torch.div(place, STRIDE, rounding_mode="floor")


def _product(t: Translator, a: Register, matrix: Tensor) -> Register:
    """`a @ matrix`, `[..., width]`; each row has a part in as many vectors `[..., inner]`."""
    leading, width = a.place.shape[:-1], matrix.shape[1]
    vectors = a.place.reshape(-1, a.place.shape[-1])
    if not vectors.numel():
        raise UntranslatableError("a product of nothing")
    row = _row_of(vectors[:, 0])
    counts = torch.bincount(row, minlength=ROWS)
    each = int(counts[0])
    if len(counts) != ROWS or not bool((counts == each).all()):
        raise UntranslatableError("rows are mixed")
    order = row.argsort(stable=True).view(ROWS, each)
    made = [t.product(_with(a, vectors[order[:, i]]), matrix, None) for i in range(each)]
    out = made[0] if each == 1 else side_by_side(t, made, 1)
    place = torch.empty(len(vectors), width, dtype=torch.int64)
    place[order.flatten()] = out.place.reshape(ROWS * each, width)
    return _with(out, place.view(*leading, width))


def _joined(t: Translator, parts: Sequence[Register]) -> Register:
    """Values of one shape as one, in a new first dimension."""
    shape = parts[0].place.shape
    row = _row_of(parts[0].place).flatten()
    order = row.argsort(stable=True).view(ROWS, -1)
    flat = [_with(p, p.place.flatten()[order]) for p in parts]
    out = side_by_side(t, flat, 1)
    pieces = out.place.view(ROWS, len(parts), -1)
    place = torch.empty(len(parts), row.numel(), dtype=torch.int64)
    for i in range(len(parts)):
        place[i, order.flatten()] = pieces[:, i].flatten()
    return _with(out, place.view(len(parts), *shape))


def _added(t: Translator, made: Register, bias: Any) -> Register:
    """`made + bias` where rows are several for each row."""
    row = _row_of(made.place).flatten()
    order = row.argsort(stable=True).view(ROWS, -1)
    if not isinstance(bias, Tensor):
        raise UntranslatableError("a bias depends on the row")
    spread = bias.expand(made.place.shape).flatten()[order]
    out = t.compute("add", _with(made, made.place.flatten()[order]), spread)
    place = torch.empty(row.numel(), dtype=torch.int64)
    place[order.flatten()] = out.place.flatten()
    return _with(out, place.view(made.place.shape))
