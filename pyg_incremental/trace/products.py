"""Products of all rows with all others: `h[users] @ h[items].t()`, or `h @ h.t()`."""

from __future__ import annotations

import re
from typing import Any

from torch import fx

from pyg_incremental.ops.products import Products, all_with_all
from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.trace.ids import swaps
from pyg_incremental.trace.names import name_of
from pyg_incremental.trace.sides import Sides
from pyg_incremental.trace.written import Written

_ALL_WITH_ALL = re.compile(r"(\w)(\w),(?!\1)(?!\2)(\w)\2->\1\3")


def of_all_rows(written: Written, node: fx.Node) -> Sides | Value | None:
    """What an operation makes of rows that are turned, or of all with all; None if it is neither.

    Args:
        written: What is written so far.
        node: The operation.
    """
    if node.op != "call_function" or not node.args:
        return None
    name = name_of(node.target)  # type: ignore[arg-type]
    if swaps(node, name):
        rows = _rows(written, node.args[0])
        return None if rows is None else Sides(rows)
    first, other = _factors(written, node, name)
    if first is None or other is None or not written.examples[other].is_floating_point():
        return None
    out = written.program.value(node.name, Domain.WHOLE)
    made = (first, other)
    return written.program.add(None, lambda: Products(out, made, all_with_all, pure=True))


def _factors(written: Written, node: fx.Node, name: str) -> tuple[Value | None, Value | None]:
    """The rows all of which an operation multiplies with all others, if it does that."""
    if name in ("matmul", "mm") and len(node.all_input_nodes) == len(node.args) == 2:
        other = written.env[node.args[1]]  # type: ignore[index]
        flat = isinstance(other, Sides) and written.recorded.real[node.args[1]].dim() == 2  # type: ignore[index]
        return _rows(written, node.args[0]), other.rows if flat else None
    if name == "linear" and len(node.args) == 2 and not node.kwargs:
        return _rows(written, node.args[0]), _rows(written, node.args[1])
    if name == "einsum" and len(node.args) == 3:
        equation = str(node.args[0]).replace(" ", "")
        if _ALL_WITH_ALL.fullmatch(equation):
            return _rows(written, node.args[1]), _rows(written, node.args[2])
    return None, None


def _rows(written: Written, argument: Any) -> Value | None:
    """Rows `[n, channels]` of nodes or edges, if an argument is that."""
    held = written.env.get(argument) if isinstance(argument, fx.Node) else None
    if not isinstance(held, Value) or held.domain is Domain.WHOLE:
        return None
    return held if written.recorded.real[argument].dim() == 2 else None
