"""Messages `m + own`, where `own` is a row of the target: reduced without reading the target.

    Sum(m + own) = Sum(m) + n own       Mean, Max, Min(m + own) = Mean, Max, Min(m) + own
    Var, Std(m + own) = Var, Std(m)

So a row whose own part changed is added to, and not read again over its in-edges.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.reduction import as_function
from pyg_incremental.ops.message import EdgeFunction, Message
from pyg_incremental.program.steps import Value

_SHIFTED = (
    aggr.SumAggregation, aggr.MeanAggregation, aggr.MaxAggregation, aggr.MinAggregation,
    aggr.VarAggregation, aggr.StdAggregation,
)  # fmt: skip


def reduced_with_shift(
    call: ConvCall, message: Message, own: Value, module: Any, part: str = "aggr"
) -> Value:
    """The messages plus a row of the target, reduced by `module`, `[num_nodes, channels]`.

    Args:
        call: The call.
        message: What travels along the edges.
        own: What is added to every message into a node, `[num_nodes, channels]`.
        module: The aggregation module.
        part: Name of the steps.
    """
    if type(module) is aggr.MultiAggregation:
        several = [
            reduced_with_shift(call, message, own, m, f"{part}_{i}")
            for i, m in enumerate(module.aggrs)
        ]
        return call.map(f"{part}_combined", lambda *rows: module.combine(list(rows)), *several)
    if type(module) not in _SHIFTED:
        inner = as_function(message)

        def added(*rows: Tensor) -> Tensor:
            at = len(inner.source)
            made: Tensor = inner.fn(*rows[:at], *rows[at + 1 :])
            return made + rows[at]

        whole = EdgeFunction(added, inner.source, (own, *inner.target), inner.edges)
        return call.reduce(whole, module=module, part=part)
    rows, count = call.reduce(message, module=module, part=part), call.degree()
    if type(module) in (aggr.MaxAggregation, aggr.MinAggregation):
        total = call.total(message, f"{part}_sum")
        return call.map(f"{part}_shifted", _extremum, rows, own, count, total)
    finish = {aggr.SumAggregation: _sum, aggr.MeanAggregation: _mean}.get(type(module), _spread)
    return call.map(f"{part}_shifted", finish, rows, own, count)


def _sum(rows: Tensor, own: Tensor, count: Tensor) -> Tensor:
    return rows + torch.where(count > 0, count * own, 0.0)


def _mean(rows: Tensor, own: Tensor, count: Tensor) -> Tensor:
    return rows + torch.where(count > 0, own, 0.0)


def _spread(rows: Tensor, own: Tensor, count: Tensor) -> Tensor:
    """What is not finite in the own row makes every message so, and no spread is left."""
    return torch.where((count > 0) & ~own.isfinite(), torch.nan, rows)


def _extremum(rows: Tensor, own: Tensor, count: Tensor, total: Tensor) -> Tensor:
    """An infinite own row plus the opposite infinity of any message is NaN: the sum knows that."""
    shifted = torch.where(own.isfinite(), rows, total) + own
    return torch.where(count > 0, shifted, rows)
