"""ATen operations that are made of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.fused.products import addmm, bmm, cross, mm, stack
from pyg_incremental.fused.registers import Chosen, Register, Results, UntranslatableError
from pyg_incremental.fused.translator import Translator, side_by_side

aten = torch.ops.aten


def _logical(name: str) -> Callable[..., Register]:
    """An operation on truth values; of numbers, that is whether they are not zero."""
    return lambda t, a, b: t.compute(name, t.compute("ne", a, 0.0), t.compute("ne", b, 0.0))


def _where(t: Translator, condition: Any, a: Any, b: Any) -> Register:
    return t.compute("where", condition, a, b)


def _masked_fill(t: Translator, value: Any, mask: Any, fill: Any) -> Register:
    return t.compute("where", mask, fill, value)


def _clamp(t: Translator, value: Any, low: Any = None, high: Any = None) -> Any:
    if low is not None:
        value = t.compute("maximum", value, low)
    return value if high is None else t.compute("minimum", value, high)


def _leaky_relu(t: Translator, value: Any, slope: float = 0.01) -> Register:
    return t.compute("where", t.compute("gt", value, 0.0), value, t.compute("mul", value, slope))


def _elu(
    t: Translator, value: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Register:
    low = t.compute("mul", t.compute("expm1", t.compute("mul", value, input_scale)), alpha * scale)
    return t.compute("where", t.compute("gt", value, 0.0), t.compute("mul", value, scale), low)


def _silu(t: Translator, value: Any) -> Register:
    return t.compute("mul", value, t.compute("sigmoid", value))


def _gelu(t: Translator, value: Any, approximate: str = "none") -> Register:
    if approximate != "none":
        raise UntranslatableError("gelu is approximated")
    half = t.compute("add", t.compute("erf", t.compute("mul", value, 0.5**0.5)), 1.0)
    made = t.compute("mul", t.compute("mul", value, 0.5), half)
    limit = torch.nn.functional.gelu(torch.full((64,), torch.inf, dtype=t.dtype))
    if bool(limit.isnan().all()):  # as some of its loops over vectors have it
        made = t.compute("where", t.compute("isinf", value), torch.nan, made)
    return made


def _sum(t: Translator, value: Any, dims: Any, keep: bool = False, dtype: Any = None) -> Register:
    t.refuse_other(dtype)
    return t.reduce("sum", value, dims, keep)


def _mean(t: Translator, value: Any, dims: Any, keep: bool = False, dtype: Any = None) -> Register:
    t.refuse_other(dtype)
    shape = value.place.shape
    count = int(np.prod([shape[d] for d in dims]))
    return t.compute("div", t.reduce("sum", value, dims, keep), float(count))


def _amax(t: Translator, value: Any, dims: Any = (), keep: bool = False) -> Register:
    return t.reduce("amax", value, dims, keep)


def _max(t: Translator, value: Any, dim: int, keep: bool = False) -> Results:
    """The largest elements; of which dimension they are of nobody may ask."""
    return Results((t.reduce("amax", value, [dim], keep), None))


def _norm(
    t: Translator, value: Any, order: float = 2, dims: Any = None, keep: bool = False,
    dtype: Any = None,
) -> Register:  # fmt: skip
    t.refuse_other(dtype)
    if order != 2 or not dims:
        raise UntranslatableError("only the Euclidean norm of rows is known")
    return t.compute("sqrt", t.reduce("sum", t.compute("mul", value, value), dims, keep))


def _softmax(t: Translator, value: Any, dim: int, half: bool = False) -> Register:
    exp = t.compute("exp", t.compute("sub", value, t.reduce("amax", value, [dim], True)))
    return t.compute("div", exp, t.reduce("sum", exp, [dim], True))


def _log_softmax(t: Translator, value: Any, dim: int, half: bool = False) -> Register:
    shifted = t.compute("sub", value, t.reduce("amax", value, [dim], True))
    total = t.reduce("sum", t.compute("exp", shifted), [dim], True)
    return t.compute("sub", shifted, t.compute("log", total))


def _pow(t: Translator, value: Any, exponent: float) -> Register:
    """Torch has these exponents computed otherwise, which shows at infinities."""
    if exponent == 2:
        return t.compute("mul", value, value)
    if exponent == -1:
        return _reciprocal(t, value)
    if exponent in (0.5, -0.5):
        return t.compute("sqrt", value) if exponent > 0 else _rsqrt(t, value)
    return t.compute("pow", value, exponent)


def _reciprocal(t: Translator, value: Any) -> Register:
    return t.compute("div", 1.0, value)


def _rsqrt(t: Translator, value: Any) -> Register:
    return _reciprocal(t, t.compute("sqrt", value))


def _native_batch_norm(
    t: Translator, value: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    if training:
        raise UntranslatableError("rows are normalized over a batch")
    return _batch_norm(t, value, weight, bias, mean, var, momentum, eps)


def _batch_norm(
    t: Translator, value: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float,
    eps: float,
) -> Any:  # fmt: skip
    factor = torch.rsqrt(var + eps) * (1.0 if weight is None else weight)
    out = t.compute("mul", t.compute("sub", value, mean), factor)
    return Results((out if bias is None else t.compute("add", out, bias), None, None))


def _layer_norm(t: Translator, value: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    dims = list(range(value.place.dim() - len(shape), value.place.dim()))
    centred = t.compute("sub", value, _mean(t, value, dims, True))
    var = _mean(t, t.compute("mul", centred, centred), dims, True)
    out = t.compute("mul", centred, _rsqrt(t, t.compute("add", var, eps)))
    out = out if weight is None else t.compute("mul", out, weight)
    return Results((out if bias is None else t.compute("add", out, bias), None, None))


def _like(fill: float) -> Callable[..., Tensor]:
    return lambda t, value, **given: _full_like(t, value, fill, **given)


def _made(fill: float) -> Callable[..., Tensor]:
    return lambda t, value, shape, **given: _new_full(t, value, shape, fill, **given)


def _full_like(t: Translator, value: Any, fill: float, **given: Any) -> Tensor:
    return _new_full(t, value, value.place.shape, fill, **given)


def _new_full(
    t: Translator, value: Any, shape: Any, fill: float, dtype: Any = None, **_: Any
) -> Tensor:
    return torch.full(shape, fill, dtype=dtype or t.dtype)


def _softplus(t: Translator, value: Any, beta: float = 1.0, threshold: float = 20.0) -> Register:
    scaled = t.compute("mul", value, beta)
    low = t.compute("div", t.compute("log1p", t.compute("exp", scaled)), beta)
    return t.compute("where", t.compute("gt", scaled, threshold), value, low)


def _bucketize(
    t: Translator, value: Any, bounds: Any, *, out_int32: bool = False, right: bool = False
) -> Register:
    """How many of some bounds, which ascend, are below a value; with `right`, or are equal to it.

    NaN is behind all of them.
    """
    if not isinstance(value, Register) or not isinstance(bounds, Tensor):
        raise UntranslatableError("bounds depend on rows")
    far = Register(value.at, value.width, value.place.unsqueeze(-1))
    below = t.compute("lt", far, bounds) if right else t.compute("le", far, bounds)
    passed = t.compute("logical_not", below)
    return t.number(t.reduce("sum", passed, [-1], False), len(bounds))


def _index(t: Translator, table: Any, indices: Any) -> Register | Chosen:
    """Rows of a table, or matrices, of which each row names one."""
    first, *more = indices
    if more or not isinstance(table, Tensor) or not isinstance(first, Register):
        raise UntranslatableError("rows are looked up")
    return t.row_of(table, first) if table.dim() < 3 else Chosen(table, first)


def _index_select(t: Translator, table: Any, dim: int, index: Any) -> Register | Chosen:
    if dim != 0:
        raise UntranslatableError("columns are looked up")
    return _index(t, table, [index])


COMPOSED: dict[Any, Callable[..., Any]] = {
    aten.mm.default: mm,
    aten.addmm.default: addmm,
    aten.bmm.default: bmm,
    aten.bucketize.Tensor: _bucketize,
    aten.index.Tensor: _index,
    aten.index_select.default: _index_select,
    aten.embedding.default: lambda t, table, index, *_: _index(t, table, [index]),
    aten.cat.default: side_by_side,
    aten.stack.default: stack,
    aten.linalg_cross.default: cross,
    aten.neg.default: lambda t, a: t.compute("mul", a, -1.0),
    aten.reciprocal.default: _reciprocal,
    aten.rsqrt.default: _rsqrt,
    aten.softplus.default: _softplus,
    aten.new_zeros.default: _made(0.0),
    aten.new_ones.default: _made(1.0),
    aten.pow.Tensor_Scalar: _pow,
    aten.native_batch_norm.default: _native_batch_norm,
    aten.logical_and.default: _logical("mul"),
    aten.logical_or.default: _logical("maximum"),
    aten.where.self: _where,
    aten.where.ScalarSelf: _where,
    aten.where.ScalarOther: _where,
    aten.where.Scalar: _where,
    aten.masked_fill.Scalar: _masked_fill,
    aten.masked_fill.Tensor: _masked_fill,
    aten.clamp.default: _clamp,
    aten.leaky_relu.default: _leaky_relu,
    aten.elu.default: _elu,
    aten.silu.default: _silu,
    aten.gelu.default: _gelu,
    aten.sum.dim_IntList: _sum,
    aten.mean.dim: _mean,
    aten.amax.default: _amax,
    aten.max.dim: _max,
    aten.linalg_vector_norm.default: _norm,
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _log_softmax,
    aten._native_batch_norm_legit_no_training.default: _batch_norm,
    aten.native_layer_norm.default: _layer_norm,
    aten.zeros_like.default: _like(0.0),
    aten.ones_like.default: _like(1.0),
    aten.full_like.default: _full_like,
    aten.new_full.default: _new_full,
    aten._to_copy.default: lambda t, a, **kwargs: t.converted(a, kwargs.get("dtype")),
    aten.square.default: lambda t, a: t.compute("mul", a, a),
    aten.rsub.Scalar: lambda t, a, b: t.compute("sub", b, a),
}
