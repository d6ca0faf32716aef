"""The networks that a conv holds: whether they are row-wise, and a linear layer taken apart."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
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


def linear_parts(
    module: Any, widths: Sequence[int], bias_at: int = 0
) -> list[Callable[[Tensor], Tensor]]:
    """A linear layer on a concatenation as one linear map for each part.

    `lin(cat(a, b, ...)) = lin_a(a) + lin_b(b) + ...`, so what is constant at a node or on an edge
    is multiplied there once, and not on every edge.

    Args:
        module: The layer, whose weight is `[out, sum of widths]`.
        widths: The number of columns of each part.
        bias_at: The part that takes the bias.

    Raises:
        NotIncremental: If it is not a plain linear layer of that many columns.
    """
    linear(module)
    held = module._parameters
    if module.weight.shape[1] != sum(widths):
        raise NotIncremental(f"a linear layer does not fit {widths} columns: {module}")
    columns = [slice(a, b) for a, b in pairwise(accumulate(widths, initial=0))]

    def part(at: int, columns: slice) -> Callable[[Tensor], Tensor]:
        def run(rows: Tensor) -> Tensor:
            weight = held["weight"]
            assert weight is not None
            bias = held.get("bias") if at == bias_at else None
            return F.linear(rows, weight[:, columns], bias)

        return run

    return [part(i, c) for i, c in enumerate(columns)]


def side_by_side(*maps: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The results of several maps of the same rows, one beside the other."""
    return lambda rows: torch.cat([run(rows) for run in maps], 1)


def with_bias(call: ConvCall, rows: Value, root: Value | None = None) -> Value:
    """Aggregated rows, plus a root term if there is one, plus the conv's bias if it has one."""
    conv, inputs = call.conv, [rows, *([] if root is None else [root])]
    if len(inputs) == 1 and conv.bias is None:
        return rows

    def out(rows: Tensor, root: Tensor | None = None) -> Tensor:
        rows = rows if root is None else rows + root
        return rows if conv.bias is None else rows + conv.bias

    return call.map("out", out, *inputs)


def widths(call: ConvCall, *values: Value | None) -> list[int]:
    """The number of columns of each value; those that are None are left out."""
    return [call.example(v).shape[1] for v in values if v is not None]


def attributes(call: ConvCall, name: str = "edge_attr") -> Value | None:
    """The edge attributes that PyG would use, or None.

    Raises:
        NotIncremental: If they come from the values of a sparse adjacency.
    """
    given = call.coo_edge(name)
    if given is None and call.weights is not None and call.format == "sparse_tensor":
        raise NotIncremental(f"'{name}' comes from the values of a SparseTensor")
    return given


def needed(call: ConvCall, name: str = "edge_attr") -> Value:
    """The edge attributes, which have to be there."""
    value = attributes(call, name)
    if value is None:
        raise NotIncremental(f"it is called without '{name}'")
    return value
