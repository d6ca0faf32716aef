"""A row map, any function of torch, as a list of the operations of `kernels.compiled.row_ops`.

The function is run on a few rows, and each ATen operation that is found (see `listing`) is written
down (see `translator`). What was written is then held against the function itself: if it gives
something else, or has an operation unknown here, the function stays with torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from pyg_incremental.fused.composed import COMPOSED
from pyg_incremental.fused.listing import Made, listed
from pyg_incremental.fused.registers import Register, RowOps, Space, UntranslatableError
from pyg_incremental.fused.translator import ROWS, Translator
from pyg_incremental.kernels.compiled.row_ops import COLUMNS, run_rows
from pyg_incremental.kernels.locks import ONE_TRACER


def translate(
    fn: Callable[..., Any], rows: Sequence[Tensor], space: Space, wide: bool = False
) -> RowOps:
    """The operations of a row map.

    Args:
        fn: The map: tensors `[k, ...]` to a tensor `[k, ...]`.
        rows: Register to try it on, `[n, ...]` of one floating dtype for every input.
        space: Takes registers and constants.
        wide: Whether it computes in float64; rows are of that or of float32 then.

    Raises:
        UntranslatableError: If the function has none; `space` is as it was.
    """
    dtype = torch.float64 if wide else rows[0].dtype
    if any(r.dtype != dtype and not (wide and r.dtype == torch.float32) for r in rows):
        raise UntranslatableError("inputs differ in dtype")
    before = space.size, len(space.constants), len(space.index), space.index_size
    try:
        examples = _examples(rows)
        with ONE_TRACER:
            found = _written(fn, [e[:ROWS] for e in examples], space, dtype, wide)
        _hold_against(fn, examples, found, space, dtype)
    except Exception as error:
        space.size, constants, index, space.index_size = before
        del space.constants[constants:], space.index[index:]
        if isinstance(error, UntranslatableError):
            raise
        raise UntranslatableError(f"{type(error).__name__}: {error}") from error
    return found


def _examples(rows: Sequence[Tensor]) -> list[Tensor]:
    """Register as they are, then random ones, zeros, and some that are not finite."""
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
    fn: Callable[..., Any], examples: list[Tensor], space: Space, dtype: torch.dtype, wide: bool
) -> RowOps:
    operations, returned = listed(fn, examples)
    translator = Translator(space, dtype, COMPOSED, wide)
    inputs = [translator.input(example) for example in examples]
    found: list[Any] = []

    def value(given: Any) -> Any:
        if not isinstance(given, Made):
            return given
        made: Any = inputs[-1 - given.by] if given.by < 0 else found[given.by]
        return made if given.part is None else made[given.part]

    for operation in operations:
        args, kwargs = tree_map(value, (operation.args, operation.kwargs))
        found.append(translator.call(operation.function, args, kwargs))
    result = value(returned)
    shape = result.place.shape if isinstance(result, Register) else result.shape
    output = translator.operand(result, shape)
    ops = np.array(translator.ops, np.int64).reshape(-1, COLUMNS)
    return RowOps(ops, tuple(r.at for r in inputs), output, wide)


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
        is_narrow = found.wide and expected.dtype == torch.float32
        if (expected.dtype != dtype and not is_narrow) or expected.shape[0] != rows:
            raise UntranslatableError("the result has another dtype or other rows")
        got = whole[found.output : found.output + expected.numel()].view(expected.shape)
        near = 1e-6 if is_narrow else 1e-4 if dtype == torch.float32 else 1e-10
        bound, expected = {"rtol": near, "atol": near}, expected.to(dtype)
        if not expected.numel():
            continue
        # A sum of many elements is as far off as the largest of them allows.
        size = expected.reshape(rows, -1).nan_to_num(0, 0, 0).abs().amax(1, keepdim=True).clamp(1)
        got, expected = got.reshape(rows, -1) / size, expected.reshape(rows, -1) / size
        if not torch.allclose(got, expected, equal_nan=True, **bound):
            raise UntranslatableError("the operations give something else")
