"""Tensors inside tuples, lists, dicts and slices."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


def leaves(value: Any) -> list[Any]:
    """What is inside, in order."""
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves(part)]
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves(part)]
    if isinstance(value, slice):
        return [leaf for part in (value.start, value.stop, value.step) for leaf in leaves(part)]
    return [value]


def rebuilt(value: Any, fn: Callable[[Any], Any]) -> Any:
    """The same with `fn` applied to its parts; a value without parts stays."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(fn, value))
    if isinstance(value, tuple):
        return tuple(map(fn, value))
    if isinstance(value, list):
        return list(map(fn, value))
    if isinstance(value, dict):
        return {k: fn(v) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(fn(value.start), fn(value.stop), fn(value.step))
    return value


def holds_tensors(value: Any) -> bool:
    """Whether there is a tensor inside."""
    return any(isinstance(leaf, Tensor) for leaf in leaves(value))


def tensors_as(fn: Callable[[Tensor, Any], Any], value: Any, told: Any) -> Any:
    """`fn(tensor, what is told of it)` in place of each tensor, of any shape.

    `told` has the same structure as `value`.
    """
    if isinstance(value, Tensor):
        return fn(value, told)
    if isinstance(value, dict):
        return {k: tensors_as(fn, v, told[k]) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [tensors_as(fn, v, t) for v, t in zip(value, told, strict=True)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def alike(fakes: Any, real: Any, may_be: Callable[[Any, int], bool]) -> bool:
    """Whether one is the other without values: the structure, dtypes and sizes are the same."""
    if isinstance(real, Tensor):
        return (
            isinstance(fakes, Tensor)
            and fakes.dtype == real.dtype
            and fakes.dim() == real.dim()
            and all(map(may_be, fakes.shape, real.shape))
        )
    if isinstance(real, dict):
        return isinstance(fakes, dict) and list(fakes) == list(real) and all(
            alike(fakes[k], real[k], may_be) for k in real
        )  # fmt: skip
    if isinstance(real, (tuple, list)):
        return isinstance(fakes, (tuple, list)) and len(fakes) == len(real) and all(
            alike(f, r, may_be) for f, r in zip(fakes, real, strict=True)
        )  # fmt: skip
    return True
