"""Writes the operations of a row map that was traced down to ATen operations.

What rearranges, such as `view` or `slice`, is carried out on the positions of the elements and
costs nothing later; what computes becomes an operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.fused.registers import (
    STRIDE,
    Chosen,
    Register,
    Results,
    Space,
    UntranslatableError,
)
from pyg_incremental.kernels.compiled.row_ops import BLOCK, CODES

ROWS = 5
"""Register on which a function is traced."""
LONG = 8
"""An element that comes so many times over is repeated faster than it is looked up."""
aten = torch.ops.aten

_VIEWS = {
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default,
    aten.squeeze.dim, aten.squeeze.dims, aten.squeeze.default, aten.slice.Tensor,
    aten.select.int, aten.expand.default, aten.permute.default, aten.transpose.int, aten.t.default,
    aten.alias.default, aten.detach.default, aten.clone.default, aten.contiguous.default,
    aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int, aten.flatten.using_ints,
    aten.index_select.default, aten.lift_fresh_copy.default, aten.lift_fresh.default,
    aten.repeat.default, aten.chunk.default, aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default, aten.unsafe_chunk.default,
}  # fmt: skip
_ONE = {
    getattr(aten, name).default: name
    for name in (
        "abs", "relu", "exp", "log", "sqrt", "sigmoid", "tanh", "erf", "log1p", "expm1", "isnan",
        "isinf", "logical_not", "sign",
    )
} | {aten.bitwise_not.default: "logical_not"}  # fmt: skip
_TWO = {
    getattr(getattr(aten, name), kind): name
    for name in ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge")
    for kind in ("Tensor", "Scalar")
} | {
    aten.pow.Tensor_Tensor: "pow", aten.atan2.default: "atan2",
    aten.maximum.default: "maximum", aten.minimum.default: "minimum",
    aten.clamp_min.default: "maximum", aten.clamp_max.default: "minimum",
    aten.bitwise_and.Tensor: "mul", aten.bitwise_or.Tensor: "maximum",
}  # fmt: skip


def _times(index: Tensor) -> int:
    """How many times over each element of an index, `[width]`, comes: all as often, in a row."""
    changes = (index[1:] != index[:-1]).nonzero().flatten() + 1
    return math.gcd(len(index), *changes.tolist())


def _out_of_place(target: Any) -> Any:
    """The operation that writes to nothing, for one that some kernels of torch leave in a trace.

    Whoever reads what was written reads the result.
    """
    schema = getattr(target, "_schema", None)
    if schema is None or not schema.name.endswith("_") or not schema.is_mutable:
        return target
    found = getattr(aten, schema.name.removeprefix("aten::")[:-1], None)
    return getattr(found, schema.overload_name or "default", target)


class Translator:
    """Writes the operations of one traced function.

    Args:
        space: Takes registers and constants.
        dtype: That of all rows.
        composed: What writes operations that are made of others; it is given this translator first.
        wide: Whether `dtype` is float64, while some rows are of float32; nothing is computed of
            these before they are converted.

    Attributes:
        ops: The operations so far.
    """

    def __init__(
        self,
        space: Space,
        dtype: torch.dtype,
        composed: Mapping[Any, Callable[..., Any]],
        wide: bool = False,
    ) -> None:
        self.space = space
        self._composed, self._wide = composed, wide
        self._narrow: set[int] = set()
        self._numbers: dict[int, int] = {}
        self.dtype = dtype
        self.ops: list[list[int]] = []

    # Operands ------------------------------------------------------------------------------------

    def input(self, example: Tensor) -> Register:
        """The register of an input, `[ROWS, ...]`."""
        made = self.register(example.shape[1:])
        if example.dtype != self.dtype:
            self._narrow.add(made.at)
        return made

    def register(self, shape: Sequence[int]) -> Register:
        """A fresh register for rows `[...]` of that shape."""
        width = int(np.prod(shape, dtype=np.int64))
        place = torch.arange(width).view(1, *shape) + STRIDE * torch.arange(ROWS).view(
            -1, *[1] * len(shape)
        )
        return Register(self.space.room(BLOCK * width), width, place)

    def index(self, place: Tensor) -> Tensor:
        """Positions within a row, `[...]`, of integers `[ROWS, ...]` that are alike for all.

        Raises:
            UntranslatableError: If they are not: this is no row map.
        """
        if place.dim() == 0 or place.shape[0] != ROWS:
            raise UntranslatableError("a result has no row for each row")
        first = place[0]
        own = STRIDE * torch.arange(ROWS).view(-1, *[1] * first.dim())
        if not bool((place == first + own).all()):
            raise UntranslatableError("rows are mixed")
        return first

    def operand(self, value: Any, shape: torch.Size) -> int:
        """Where a value, broadcast to `shape` `[ROWS, ...]`, stands."""
        width = shape[1:].numel()
        if not isinstance(value, Register):
            if isinstance(value, Tensor) and value.dim() and value.dtype == torch.float64:
                self.refuse_other(value.dtype)
            constant = torch.as_tensor(value, dtype=self.dtype).expand(shape)
            if not bool(((constant == constant[:1]) | constant.isnan()).all()):
                raise UntranslatableError("a constant has rows")
            return self.space.constant(constant[0], BLOCK)
        index = self.index(value.place.expand(shape)).reshape(-1)
        if torch.equal(index, torch.arange(value.width)):
            return value.at
        out, name, times = self.register(shape[1:]), "copy", _times(index)
        if width and (times == width or times >= LONG):
            name, index = "repeat", index[::times]
        elif width and bool((index == index[0] + torch.arange(width)).all()):
            name, index = "slice", index[:1]
        at = self.space.positions(index)
        self.emit(name, out, value.at, value.width, index=at, inner=times)
        return out.at

    def emit(
        self, name: str, out: Register, a: int, a_width: int = 0, b: int = 0, c: int = 0,
        index: int = 0, inner: int = 0,
    ) -> None:  # fmt: skip
        """Write one operation; its columns are those of `kernels.compiled.row_ops`."""
        self.ops.append([CODES[name], out.at, out.width, a, a_width, b, c, index, inner])

    # Operations ----------------------------------------------------------------------------------

    def compute(self, name: str, *values: Any) -> Register:
        """An operation on elements, with broadcasting."""
        self.refuse_narrow(values)
        return self._computed(name, *values)

    def refuse_narrow(self, values: Sequence[Any]) -> None:
        """See that nothing is computed in another dtype than that which the function has it in.

        Raises:
            UntranslatableError: If something would be.
        """
        others = {*self._narrow, *self._numbers}
        if any(isinstance(v, Register) and v.at in others for v in values):
            raise UntranslatableError("it computes in two dtypes")

    def refuse_other(self, dtype: torch.dtype | None) -> None:
        """See that the function, too, computes in the dtype of all rows.

        Raises:
            UntranslatableError: If it asks for another one.
        """
        if dtype not in (None, self.dtype):
            raise UntranslatableError("it computes in two dtypes")

    def converted(self, value: Register, dtype: torch.dtype | None) -> Register:
        """The same rows in another dtype.

        Raises:
            UntranslatableError: If rows of that dtype are not known here.
        """
        is_narrow = value.at in self._narrow
        if dtype is None or (dtype == self.dtype and not is_narrow):
            return value
        if self._wide and dtype == self.dtype:
            return self._computed("mul", value, 1.0)  # from here on something else
        if not self._wide or dtype != torch.float32:
            raise UntranslatableError("rows change their dtype")
        made = self._computed("round", value)
        self._narrow.add(made.at)
        return made

    def _computed(self, name: str, *values: Any) -> Register:
        shapes = [
            v.place.shape if isinstance(v, Register) else torch.as_tensor(v).shape for v in values
        ]
        shape = torch.broadcast_shapes(*shapes)
        a, *rest = (self.operand(v, shape) for v in values)
        out = self.register(shape[1:])
        self.emit(name, out, a, 0, *rest)
        return out

    def reduce(self, name: str, value: Register, dims: Sequence[int], keep: bool) -> Register:
        """Sum or maximum over dimensions other than the rows."""
        self.refuse_narrow([value])
        dims = sorted(d % value.place.dim() for d in dims)
        if 0 in dims:
            raise UntranslatableError("rows are summed")
        kept = [d for d in range(value.place.dim()) if d not in dims]
        index = self.index(value.place.permute(*kept, *dims))
        shape = [value.place.shape[d] for d in kept[1:]]
        out = self.register(shape)
        count = index.numel() // max(out.width, 1)
        if not count:
            raise UntranslatableError("nothing to reduce")
        groups = index.reshape(-1, count)
        row = torch.arange(len(groups))[:, None]
        if name == "sum" and bool((groups == groups[:, :1] + torch.arange(count)).all()):
            name, groups = "total", groups[:, :1]
        elif name == "sum" and bool((groups == groups[:1] + row).all()):
            name, groups = "across", groups[:1]
        at = self.space.positions(groups.flatten())
        self.emit(name, out, value.at, value.width, index=at, inner=count)
        if keep:
            place = out.place
            for d in dims:
                place = place.unsqueeze(d)
            out = Register(out.at, out.width, place)
        return out

    def number(self, value: Register, bound: int) -> Register:
        """Say that a value is of integers from 0 to `bound`: nothing but a choice is made by it."""
        self._numbers[value.at] = bound
        return value

    def chosen(self, table: Tensor, number: Register) -> int:
        """Where the number of one part of a table `[count, ...]` stands for each row.

        Raises:
            UntranslatableError: If it may be no part, which compiled code would not notice.
        """
        count = len(table)
        if number.place.dim() != 1 or not self._numbers.get(number.at, count) < count:
            raise UntranslatableError("it looks up what may not be there")
        if table.dtype != self.dtype:
            raise UntranslatableError("it looks up what is of another dtype")
        return self.operand(number, number.place.shape)

    def row_of(self, table: Tensor, number: Register) -> Register:
        """A row of a table `[count, ...]` for each row."""
        out = self.register(table.shape[1:])
        at = self.chosen(table, number)
        self.emit("linear", out, out.at, 0, 0, self.space.constant(table), at)
        return out

    def product(self, value: Register, matrix: Tensor | Chosen, bias: Any) -> Register:
        """`value @ matrix + bias`: rows by `[inner, width]`, and `[width]` or None.

        Raises:
            UntranslatableError: If this is no product of rows and a matrix.
        """
        chosen = -1
        if isinstance(matrix, Chosen):
            chosen, matrix = self.chosen(matrix.table, matrix.number), matrix.table
        if not isinstance(matrix, Tensor) or value.place.dim() != 2 or isinstance(bias, Register):
            raise UntranslatableError("a product is not one of rows and a matrix")
        self.refuse_narrow([value])
        inner, width = matrix.shape[-2:]
        a = self.operand(value, value.place.shape)
        out = self.register([width])
        at = -1 if bias is None else self.space.constant(bias.expand(width))
        self.emit("linear", out, a, inner, self.space.constant(matrix), at, chosen, inner)
        return out

    def call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What one ATen operation gives."""
        flat = [a for arg in args for a in (arg if isinstance(arg, (list, tuple)) else [arg])]
        target = _out_of_place(target)
        if not any(isinstance(a, Register) for a in flat):
            return target(*args, **kwargs)
        if target in _VIEWS and isinstance(args[0], Register):
            source = args[0]
            made = target(source.place, *args[1:], **kwargs)
            if isinstance(made, Tensor):
                return Register(source.at, source.width, made)
            return Results(Register(source.at, source.width, part) for part in made)
        if target in _ONE:
            return self.compute(_ONE[target], args[0])
        if target in _TWO:
            if kwargs.get("alpha", 1) != 1 or kwargs.get("rounding_mode"):
                raise UntranslatableError(f"{target} with {kwargs}")
            return self.compute(_TWO[target], args[0], args[1])
        known = self._composed.get(target)
        if known is None:
            raise UntranslatableError(f"{target} is not known")
        return known(self, *args, **kwargs)


def side_by_side(t: Translator, values: Sequence[Any], dim: int = 0) -> Register:
    """Copies side by side along a dimension other than that of the rows."""
    t.refuse_narrow(values)
    shapes = [v.place.shape if isinstance(v, Register) else v.shape for v in values]
    dim %= len(shapes[0])
    if dim == 0:
        raise UntranslatableError("rows are put behind each other")
    shape = list(shapes[0])
    shape[dim] = sum(s[dim] for s in shapes)
    out = t.register(shape[1:])
    begin = 0
    for value, s in zip(values, shapes, strict=True):
        a = t.operand(value, torch.Size(s))
        where = t.index(out.place.narrow(dim, begin, s[dim]))
        begin += s[dim]
        part, name = Register(out.at, where.numel(), out.place), "place"
        where = where.flatten()
        if part.width and bool((where == where[0] + torch.arange(part.width)).all()):
            name, where = "insert", where[:1]
        t.emit(name, part, a, part.width, out.width, index=t.space.positions(where))
    return out
