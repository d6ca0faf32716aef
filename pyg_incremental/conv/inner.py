"""The networks that a conv holds, whether they are row-wise, and what it is called with."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.program.row_wise import as_it_is, why_not_row_wise
from pyg_incremental.program.steps import NotIncremental, Value


def row_wise(module: Any, name: str) -> Callable[..., Any]:
    """A network that computes each row from the same row of its input.

    Args:
        module: The network, a function, or None for the identity.
        name: What the conv calls it.

    Raises:
        NotIncremental: If it may mix rows.
    """
    if module is None:
        return as_it_is
    mixed = why_not_row_wise(module)
    if mixed:
        raise NotIncremental(f"its {name} mixes rows: {mixed}")
    applied: Callable[..., Any] = module
    return applied


def with_bias(call: ConvCall, rows: Value, root: Value | None = None) -> Value:
    """Aggregated rows, plus a root term if there is one, plus the conv's bias if it has one."""
    conv, inputs = call.conv, [rows, *([] if root is None else [root])]
    if len(inputs) == 1 and conv.bias is None:
        return rows

    def out(rows: Tensor, root: Tensor | None = None) -> Tensor:
        rows = rows if root is None else rows + root
        return rows if conv.bias is None else rows + conv.bias

    return call.map("out", out, *inputs)


def attributes(call: ConvCall, name: str = "edge_attr") -> Value | None:
    """The edge attributes that PyG would use, or None.

    Raises:
        NotIncremental: If they come from the values of a sparse adjacency.
    """
    given = call.coo_edge(name)
    if given is None and call.weights is not None and call.format == "sparse_tensor":
        raise NotIncremental(f"'{name}' comes from the values of a SparseTensor")
    return given
