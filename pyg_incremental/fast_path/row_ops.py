"""A row map, any function of torch, as a list of the operations of `kernels.compiled.row_ops`.

The function is traced on a few rows down to ATen operations. What rearranges, such as `view` or
`slice`, is carried out on the positions of the elements and costs nothing later; what computes
becomes an operation. The list is then held against the function itself: a function whose list gives
something else, or that has an operation unknown here, stays with torch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from pyg_incremental.kernels.address import zeros
from pyg_incremental.kernels.compiled.row_ops import BLOCK, CODES, COLUMNS, run_rows

ROWS = 5
"""Rows on which a function is traced; positions of different rows are told apart by `STRIDE`."""
STRIDE = 1 << 32
_LINE = 16
"""Elements of float32 in a cache line."""
aten = torch.ops.aten


class UntranslatableError(Exception):
    """A function has no list of operations."""


@dataclass
class Space:
    """What the operations of one model share, while it is written.

    Attributes:
        size: Length of the flat array of registers and constants.
        constants: Constants and where they stand in it.
        index: Positions that operations read from.
    """

    size: int = 0
    constants: list[tuple[int, Tensor]] = field(default_factory=list)
    index: list[Tensor] = field(default_factory=list)
    index_size: int = 0

    def room(self, count: int) -> int:
        """Where `count` fresh elements stand: from the beginning of a cache line on."""
        at, self.size = self.size, self.size + -(-count // _LINE) * _LINE
        return at

    def constant(self, values: Tensor, times: int = 1) -> int:
        """Where a constant stands, repeated some times."""
        at = self.room(values.numel() * times)
        self.constants.append((at, values.detach().reshape(-1).repeat(times)))
        return at

    def positions(self, index: Tensor) -> int:
        """Where an index stands."""
        at, self.index_size = self.index_size, self.index_size + index.numel()
        self.index.append(index.reshape(-1))
        return at

    def arrays(self, dtype: torch.dtype) -> tuple[Any, Any]:
        """The flat array and the index, as kernels take them."""
        space = zeros(torch.empty(0, dtype=dtype).numpy().dtype, self.size)
        for at, values in self.constants:
            space[at : at + values.numel()] = values.to(dtype)
        index = torch.cat([torch.empty(0, dtype=torch.int64), *self.index])
        return space, index.numpy()


@dataclass(frozen=True)
class RowOps:
    """The operations of one map.

    Attributes:
        ops: int64 `[k, COLUMNS]`.
        inputs: Where the registers of the inputs stand.
        output: Where that of the result stands.
        has_product: Whether there is a matrix product among them.
    """

    ops: np.ndarray[Any, np.dtype[np.int64]]
    inputs: tuple[int, ...]
    output: int
    has_product: bool


@dataclass(frozen=True)
class _Rows:
    """A tensor with a row for each row: its elements in the register at `at`.

    `place[r, ...]` is the position of an element of row `r` in its row, plus `r * STRIDE`.
    """

    at: int
    width: int
    place: Tensor


class _Parts(tuple[Any, ...]):
    """Several results of one operation."""

    __slots__ = ()


_VIEWS = {
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default,
    aten.squeeze.dim, aten.squeeze.dims, aten.squeeze.default, aten.slice.Tensor,
    aten.select.int, aten.expand.default, aten.permute.default, aten.transpose.int, aten.t.default,
    aten.alias.default, aten.detach.default, aten.clone.default, aten.contiguous.default,
    aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int, aten.flatten.using_ints,
    aten.index_select.default, aten.lift_fresh_copy.default, aten.lift_fresh.default,
    aten.repeat.default, aten.chunk.default,
}  # fmt: skip
_ONE = {
    getattr(aten, name).default: name
    for name in (
        "neg", "abs", "relu", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sigmoid", "tanh", "erf",
        "log1p", "expm1", "isnan", "isinf", "logical_not", "sign",
    )
} | {aten.bitwise_not.default: "logical_not"}  # fmt: skip
_TWO = {
    getattr(getattr(aten, name), kind): name
    for name in ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge")
    for kind in ("Tensor", "Scalar")
} | {
    aten.pow.Tensor_Tensor: "pow",
    aten.maximum.default: "maximum", aten.minimum.default: "minimum",
    aten.clamp_min.default: "maximum", aten.clamp_max.default: "minimum",
    aten.logical_and.default: "mul", aten.bitwise_and.Tensor: "mul",
    aten.logical_or.default: "maximum", aten.bitwise_or.Tensor: "maximum",
}  # fmt: skip


class _Translator:
    """Writes the operations of one traced function."""

    def __init__(self, space: Space, dtype: torch.dtype) -> None:
        self.space = space
        self.dtype = dtype
        self.ops: list[list[int]] = []
        self.has_product = False

    # Operands ------------------------------------------------------------------------------------

    def input(self, example: Tensor) -> _Rows:
        """The register of an input."""
        return self._register(example.shape[1:])

    def _register(self, shape: Sequence[int]) -> _Rows:
        width = int(np.prod(shape, dtype=np.int64))
        place = torch.arange(width).view(1, *shape) + STRIDE * torch.arange(ROWS).view(
            -1, *[1] * len(shape)
        )
        return _Rows(self.space.room(BLOCK * width), width, place)

    def _index(self, place: Tensor) -> Tensor:
        """Positions within a row, `[...]`, the same for every row; else this is no row map."""
        if place.dim() == 0 or place.shape[0] != ROWS:
            raise UntranslatableError("a result has no row for each row")
        first = place[0]
        own = STRIDE * torch.arange(ROWS).view(-1, *[1] * first.dim())
        if not bool((place == first + own).all()):
            raise UntranslatableError("rows are mixed")
        return first

    def _operand(self, value: Any, shape: torch.Size) -> int:
        """Where a value, broadcast to `shape` `[ROWS, ...]`, stands."""
        width = shape[1:].numel()
        if not isinstance(value, _Rows):
            constant = torch.as_tensor(value, dtype=self.dtype).expand(shape)
            if not bool(((constant == constant[:1]) | constant.isnan()).all()):
                raise UntranslatableError("a constant has rows")
            return self.space.constant(constant[0], BLOCK)
        index = self._index(value.place.expand(shape)).reshape(-1)
        if torch.equal(index, torch.arange(value.width)):
            return value.at
        out = self._register(shape[1:])
        name, count = "copy", width
        if width and bool((index == index[0]).all()):
            name, count = "splat", 1
        elif width and bool((index == index[0] + torch.arange(width)).all()):
            name, count = "slice", 1
        self._emit(name, out, value.at, value.width, index=self.space.positions(index[:count]))
        return out.at

    def _emit(
        self, name: str, out: _Rows, a: int, a_width: int = 0, b: int = 0, c: int = 0,
        index: int = 0, inner: int = 0,
    ) -> None:  # fmt: skip
        self.ops.append([CODES[name], out.at, out.width, a, a_width, b, c, index, inner])

    # Operations ----------------------------------------------------------------------------------

    def compute(self, name: str, *values: Any) -> _Rows:
        """An operation on elements, with broadcasting."""
        shapes = [
            v.place.shape if isinstance(v, _Rows) else torch.as_tensor(v).shape for v in values
        ]
        shape = torch.broadcast_shapes(*shapes)
        a, *rest = (self._operand(v, shape) for v in values)
        out = self._register(shape[1:])
        self._emit(name, out, a, 0, *rest)
        return out

    def reduce(self, name: str, value: _Rows, dims: Sequence[int], keep: bool) -> _Rows:
        """Sum or maximum over dimensions other than the rows."""
        dims = sorted(d % value.place.dim() for d in dims)
        if 0 in dims:
            raise UntranslatableError("rows are summed")
        kept = [d for d in range(value.place.dim()) if d not in dims]
        index = self._index(value.place.permute(*kept, *dims))
        shape = [value.place.shape[d] for d in kept[1:]]
        out = self._register(shape)
        count = index.numel() // max(out.width, 1)
        if not count:
            raise UntranslatableError("nothing to reduce")
        at = self.space.positions(index)
        self._emit(name, out, value.at, value.width, index=at, inner=count)
        if keep:
            place = out.place
            for d in dims:
                place = place.unsqueeze(d)
            out = _Rows(out.at, out.width, place)
        return out

    def product(self, value: _Rows, matrix: Tensor, bias: Any) -> _Rows:
        """`value @ matrix + bias`."""
        if not isinstance(matrix, Tensor) or value.place.dim() != 2 or isinstance(bias, _Rows):
            raise UntranslatableError("a product is not one of rows and a matrix")
        inner, width = matrix.shape
        a = self._operand(value, value.place.shape)
        out = self._register([width])
        at = -1 if bias is None else self.space.constant(bias.expand(width))
        self._emit("linear", out, a, inner, self.space.constant(matrix), at, inner=inner)
        self.has_product = True
        return out

    def call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What one ATen operation gives."""
        flat = [a for arg in args for a in (arg if isinstance(arg, (list, tuple)) else [arg])]
        if target is operator.getitem:
            return args[0][args[1]]
        if not any(isinstance(a, _Rows) for a in flat):
            return target(*args, **kwargs)
        if target in _VIEWS:
            source = args[0]
            made = target(source.place, *args[1:], **kwargs)
            if isinstance(made, Tensor):
                return _Rows(source.at, source.width, made)
            return _Parts(_Rows(source.at, source.width, part) for part in made)
        if target in _ONE:
            return self.compute(_ONE[target], args[0])
        if target in _TWO:
            if kwargs.get("alpha", 1) != 1 or kwargs.get("rounding_mode"):
                raise UntranslatableError(f"{target} with {kwargs}")
            return self.compute(_TWO[target], args[0], args[1])
        known = _COMPOSED.get(target)
        if known is None:
            raise UntranslatableError(f"{target} is not known")
        return known(self, *args, **kwargs)


# Operations that are made of others ###############################################################


def _cat(t: _Translator, values: Sequence[Any], dim: int = 0) -> _Rows:
    """Copies side by side."""
    shapes = [v.place.shape if isinstance(v, _Rows) else v.shape for v in values]
    dim %= len(shapes[0])
    if dim == 0:
        raise UntranslatableError("rows are put behind each other")
    shape = list(shapes[0])
    shape[dim] = sum(s[dim] for s in shapes)
    out = t._register(shape[1:])
    begin = 0
    for value, s in zip(values, shapes, strict=True):
        a = t._operand(value, torch.Size(s))
        where = t._index(out.place.narrow(dim, begin, s[dim]))
        begin += s[dim]
        part = _Rows(out.at, where.numel(), out.place)
        t._emit("place", part, a, part.width, out.width, index=t.space.positions(where))
    return out


def _where(t: _Translator, condition: Any, a: Any, b: Any) -> _Rows:
    return t.compute("where", condition, a, b)


def _masked_fill(t: _Translator, value: Any, mask: Any, fill: Any) -> _Rows:
    return t.compute("where", mask, fill, value)


def _clamp(t: _Translator, value: Any, low: Any = None, high: Any = None) -> Any:
    if low is not None:
        value = t.compute("maximum", value, low)
    return value if high is None else t.compute("minimum", value, high)


def _leaky_relu(t: _Translator, value: Any, slope: float = 0.01) -> _Rows:
    return t.compute("where", t.compute("gt", value, 0.0), value, t.compute("mul", value, slope))


def _elu(
    t: _Translator, value: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> _Rows:
    low = t.compute("mul", t.compute("expm1", t.compute("mul", value, input_scale)), alpha * scale)
    return t.compute("where", t.compute("gt", value, 0.0), t.compute("mul", value, scale), low)


def _silu(t: _Translator, value: Any) -> _Rows:
    return t.compute("mul", value, t.compute("sigmoid", value))


def _gelu(t: _Translator, value: Any, approximate: str = "none") -> _Rows:
    if approximate != "none":
        raise UntranslatableError("gelu is approximated")
    half = t.compute("add", t.compute("erf", t.compute("mul", value, 0.5**0.5)), 1.0)
    return t.compute("mul", t.compute("mul", value, 0.5), half)


def _sum(t: _Translator, value: Any, dims: Any, keep: bool = False, dtype: Any = None) -> _Rows:
    return t.reduce("sum", value, dims, keep)


def _mean(t: _Translator, value: Any, dims: Any, keep: bool = False, dtype: Any = None) -> _Rows:
    shape = value.place.shape
    count = int(np.prod([shape[d] for d in dims]))
    return t.compute("div", t.reduce("sum", value, dims, keep), float(count))


def _amax(t: _Translator, value: Any, dims: Any = (), keep: bool = False) -> _Rows:
    return t.reduce("amax", value, dims, keep)


def _norm(
    t: _Translator, value: Any, order: float = 2, dims: Any = None, keep: bool = False, **_: Any
) -> _Rows:
    if order != 2 or not dims:
        raise UntranslatableError("only the Euclidean norm of rows is known")
    return t.compute("sqrt", t.reduce("sum", t.compute("mul", value, value), dims, keep))


def _softmax(t: _Translator, value: Any, dim: int, half: bool = False) -> _Rows:
    exp = t.compute("exp", t.compute("sub", value, t.reduce("amax", value, [dim], True)))
    return t.compute("div", exp, t.reduce("sum", exp, [dim], True))


def _log_softmax(t: _Translator, value: Any, dim: int, half: bool = False) -> _Rows:
    shifted = t.compute("sub", value, t.reduce("amax", value, [dim], True))
    total = t.reduce("sum", t.compute("exp", shifted), [dim], True)
    return t.compute("sub", shifted, t.compute("log", total))


def _pow(t: _Translator, value: Any, exponent: float) -> _Rows:
    """Torch has these exponents computed otherwise, which shows at infinities."""
    if exponent == 2:
        return t.compute("mul", value, value)
    name = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(exponent)
    return t.compute("pow", value, exponent) if name is None else t.compute(name, value)


def _native_batch_norm(
    t: _Translator, value: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    if training:
        raise UntranslatableError("rows are normalized over a batch")
    return _batch_norm(t, value, weight, bias, mean, var, momentum, eps)


def _batch_norm(
    t: _Translator, value: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float,
    eps: float,
) -> Any:  # fmt: skip
    factor = torch.rsqrt(var + eps) * (1.0 if weight is None else weight)
    out = t.compute("mul", t.compute("sub", value, mean), factor)
    return _Parts((out if bias is None else t.compute("add", out, bias), None, None))


def _layer_norm(t: _Translator, value: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    dims = list(range(value.place.dim() - len(shape), value.place.dim()))
    centred = t.compute("sub", value, _mean(t, value, dims, True))
    var = _mean(t, t.compute("mul", centred, centred), dims, True)
    out = t.compute("mul", centred, t.compute("rsqrt", t.compute("add", var, eps)))
    out = out if weight is None else t.compute("mul", out, weight)
    return _Parts((out if bias is None else t.compute("add", out, bias), None, None))


def _like(fill: float) -> Callable[..., Tensor]:
    return lambda t, value, **_: torch.full(value.place.shape, fill, dtype=t.dtype)


def _same(t: _Translator, value: Any, **kwargs: Any) -> Any:
    if kwargs.get("dtype", t.dtype) != t.dtype:
        raise UntranslatableError("rows change their dtype")
    return value


_COMPOSED: dict[Any, Callable[..., Any]] = {
    aten.mm.default: lambda t, a, b: t.product(a, b, None),
    aten.addmm.default: lambda t, c, a, b: t.product(a, b, c),
    aten.cat.default: _cat,
    aten.pow.Tensor_Scalar: _pow,
    aten.native_batch_norm.default: _native_batch_norm,
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
    aten.linalg_vector_norm.default: _norm,
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _log_softmax,
    aten._native_batch_norm_legit_no_training.default: _batch_norm,
    aten.native_layer_norm.default: _layer_norm,
    aten.zeros_like.default: _like(0.0),
    aten.ones_like.default: _like(1.0),
    aten._to_copy.default: _same,
    aten.square.default: lambda t, a: t.compute("mul", a, a),
    aten.rsub.Scalar: lambda t, a, b: t.compute("sub", b, a),
}


def translate(fn: Callable[..., Any], rows: Sequence[Tensor], space: Space) -> RowOps:
    """The operations of a row map.

    Args:
        fn: The map: tensors `[k, ...]` to a tensor `[k, ...]`.
        rows: Rows to try it on, `[n, ...]` of one floating dtype for every input.
        space: Takes registers and constants.

    Raises:
        UntranslatableError: If the function has none; `space` is as it was.
    """
    dtype = rows[0].dtype
    if any(r.dtype != dtype for r in rows):
        raise UntranslatableError("inputs differ in dtype")
    before = space.size, len(space.constants), len(space.index), space.index_size
    try:
        examples = _examples(rows)
        found = _written(fn, [e[:ROWS] for e in examples], space, dtype)
        _hold_against(fn, examples, found, space, dtype)
    except Exception as error:
        space.size, constants, index, space.index_size = before
        del space.constants[constants:], space.index[index:]
        if isinstance(error, UntranslatableError):
            raise
        raise UntranslatableError(f"{type(error).__name__}: {error}") from error
    return found


def _examples(rows: Sequence[Tensor]) -> list[Tensor]:
    """Rows as they are, then random ones, zeros, and some that are not finite."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for given in rows:
        like = given[:8]
        drawn = torch.randn(12, *like.shape[1:], generator=generator, dtype=torch.float64)
        drawn[6] = 0
        if drawn[0].numel():
            flat = drawn.view(12, -1)
            flat[7, 0], flat[8, -1], flat[9, 0] = torch.inf, -torch.inf, torch.nan
            flat[10] *= 1e3
        found.append(torch.cat([drawn.to(like.dtype), like.repeat(2, *[1] * (like.dim() - 1))]))
    return found


def _written(
    fn: Callable[..., Any], examples: list[Tensor], space: Space, dtype: torch.dtype
) -> RowOps:
    pure = functionalize(fn, remove="mutations")
    graph = make_fx(lambda *rows: pure(*rows))(*examples)
    translator = _Translator(space, dtype)
    found: dict[fx.Node, Any] = {}
    waiting = iter(examples)
    inputs = []
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            found[node] = translator.input(next(waiting))
            inputs.append(found[node].at)
        elif node.op == "get_attr":
            found[node] = getattr(graph, node.target).detach()
        elif node.op == "call_function":
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), found.__getitem__)
            found[node] = translator.call(node.target, tuple(args), dict(kwargs))
        elif node.op == "output":
            result = found[node.args[0]]
            if not isinstance(result, _Rows):
                raise UntranslatableError("the result does not depend on the rows")
            output = translator._operand(result, result.place.shape)
    ops = np.array(translator.ops, np.int64).reshape(-1, COLUMNS)
    return RowOps(ops, tuple(inputs), output, translator.has_product)


def _hold_against(
    fn: Callable[..., Any], examples: list[Tensor], found: RowOps, space: Space, dtype: torch.dtype
) -> None:
    """See that the operations give what the function gives."""
    flat, index = space.arrays(dtype)
    whole = torch.from_numpy(flat)
    for rows in (1, len(examples[0])):
        for at, example in zip(found.inputs, examples, strict=True):
            given = example[-rows:].reshape(-1)
            whole[at : at + given.numel()] = given
        run_rows(flat, found.ops, 0, len(found.ops), index, rows)
        expected = fn(*(e[-rows:].clone() for e in examples))
        if expected.dtype != dtype or expected.shape[0] != rows:
            raise UntranslatableError("the result has another dtype or other rows")
        got = whole[found.output : found.output + expected.numel()].view(expected.shape)
        bound = (
            {"rtol": 1e-4, "atol": 1e-4}
            if dtype == torch.float32
            else {"rtol": 1e-10, "atol": 1e-10}
        )
        if not torch.allclose(got, expected, equal_nan=True, **bound):
            raise UntranslatableError("the operations give something else")
