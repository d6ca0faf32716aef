"""Operations of a traced model that write to what they are given."""

import operator
from collections.abc import Callable
from typing import Any

from torch import fx

from pyg_incremental.calls.traced import NotTraceable
from pyg_incremental.row_wise import FRESH_MODULES, VIEWS


def is_in_place(node: fx.Node, fn: Any) -> bool:
    """Whether an operation writes to its first argument."""
    name = str(node.target) if node.op == "call_method" else getattr(fn, "__name__", "")
    return (
        (name.endswith("_") and not name.endswith("__"))
        or fn in (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow)
        or bool(node.kwargs.get("inplace", False))
        or bool(getattr(fn, "inplace", False))
    )


def overwrite(
    node: fx.Node, env: dict[fx.Node, Any], callable_of: Callable[[fx.Node], Any]
) -> None:
    """Whoever reads what an in-place operation has written to from here on reads its result.

    Args:
        node: The operation.
        env: What every node stands for.
        callable_of: The module, function or method name that a node calls.

    Raises:
        NotTraceable: If something else may share the memory.
    """
    target = node.args[0]
    if not isinstance(target, fx.Node):
        raise NotTraceable(f"'{node.name}' writes in place to something that is not a plain tensor")
    before = env[target]
    shared = [n for n, v in env.items() if v is before and n is not node]
    for n in shared:
        views = [
            u
            for u in (*n.users, n)
            if u is not node and u.op != "placeholder" and _may_view(u, callable_of(u))
        ]
        if views:
            raise NotTraceable(
                f"'{node.name}' writes in place to '{n.name}', of which '{views[0].name}' may be a "
                "view"
            )
    for n in shared:
        env[n] = env[node]


def _may_view(node: fx.Node, fn: Any) -> bool:
    """Whether the result of an operation may share memory with its argument."""
    if node.op == "call_module":
        return not isinstance(fn, FRESH_MODULES)
    name = fn if isinstance(fn, str) else getattr(fn, "__name__", "")
    return name in VIEWS
