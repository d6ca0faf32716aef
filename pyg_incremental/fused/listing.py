"""The ATen operations of a function, listed while it runs on some rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functionalize
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from pyg_incremental.fused.registers import UntranslatableError


@dataclass(frozen=True)
class Made:
    """What an operation gives.

    Attributes:
        by: The position of the operation; inputs count from -1 down.
        part: Which of its results, or None if it is the only one.
    """

    by: int
    part: int | None = None


@dataclass(frozen=True)
class Operation:
    """One operation; its arguments have a `Made` in place of what others give."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Listing(TorchDispatchMode):
    """Lists what is called while it is active.

    `make_fx` finds the same, and spends most of its time on a graph, its code, and a description of
    every result, none of which is needed here.

    Args:
        inputs: The tensors that a function is given, `[num_rows, ...]`.

    Attributes:
        operations: What was called, in order. What depends on no input was carried out.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []
        # Each tensor is held, so that no other one gets its address.
        self._made = {id(t): (t, Made(-1 - i)) for i, t in enumerate(inputs)}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """One operation, or what it is composed of."""
        kwargs = kwargs or {}
        with self:
            composed = func.decompose(*args, **kwargs)
        if composed is not NotImplemented:
            return composed
        given = pytree.tree_map(self.named, (args, kwargs))
        if func._schema.is_mutable:  # a constant is listed as it is before
            given = pytree.tree_map_only(Tensor, Tensor.clone, given)
        if not any(isinstance(a, Made) for a in pytree.tree_leaves(given)):
            return func(*args, **kwargs)
        if torch.Tag.data_dependent_output in func.tags:
            raise UntranslatableError(f"what it does depends on a value, which {func} reads")
        result = func(*args, **kwargs)
        at = len(self.operations)
        self.operations.append(Operation(func, *given))
        if isinstance(result, Tensor):
            self._made[id(result)] = result, Made(at)
        elif isinstance(result, (tuple, list)):
            self._made |= {id(t): (t, Made(at, i)) for i, t in enumerate(result)}
        return result

    def named(self, value: Any) -> Any:
        """What a value was made by; itself, if it depends on no input."""
        if not isinstance(value, Tensor):
            return value
        known = self._made.get(id(value))
        return value.detach() if known is None else known[1]


def listed(fn: Callable[..., Any], rows: Sequence[Tensor]) -> tuple[list[Operation], Any]:
    """The operations of a function, and what it returns: what was made, or a constant.

    Args:
        fn: The function; what it writes to is no longer written to in what is listed.
        rows: What it is run on, `[num_rows, ...]`.

    Raises:
        UntranslatableError: If what it does depends on values.
    """
    pure = functionalize(fn, remove="mutations")
    with Listing(rows) as listing:
        result = pure(*rows)
    return listing.operations, listing.named(result)
