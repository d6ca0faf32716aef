"""Aggregations in which every node also sends a message to itself.

Many convs add self-loops to the graph before they gather. Here the loops are no edges: the message
of a node to itself is a row of its own, joined to what came over the edges.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.reduction import as_function
from pyg_incremental.conv.row_local import is_row_local, reduced
from pyg_incremental.ops import Neighborhood
from pyg_incremental.ops.message import Message
from pyg_incremental.program.steps import NotIncremental, Value


def reduced_with_loop(
    call: ConvCall,
    message: Message,
    loop: Value | None,
    module: Any = None,
    part: str = "aggr",
) -> Value:
    """Messages over the edges and one of each node to itself, reduced, `[num_nodes, channels]`.

    Args:
        call: The call; self-loops of the graph count as edges, too, unless it leaves them out (see
            `ConvCall.without_loops`).
        message: As in `ConvCall.reduce`.
        loop: The message of each node to itself, `[num_nodes, channels]`, or None if there is none.
        module: An aggregation module; the conv's own `aggr_module` by default.
        part: Name of the steps.

    Raises:
        NotIncremental: If a row of the module's result depends on other rows' messages.
    """
    module = module or call.conv.aggr_module
    kind = type(module)
    if loop is None:
        return call.reduce(message, module=module, part=part)
    if kind is aggr.MultiAggregation:
        several = [
            reduced_with_loop(call, message, loop, m, f"{part}_{i}")
            for i, m in enumerate(module.aggrs)
        ]
        return call.map(f"{part}_combined", lambda *rows: module.combine(list(rows)), *several)
    if kind is aggr.SumAggregation:
        rows = call.reduce(message, module=module, part=part)
        return call.map(f"{part}_loop", torch.add, rows, loop)
    if kind is aggr.MeanAggregation:
        total = call.total(message, f"{part}_sum")
        return call.map(
            f"{part}_loop", lambda s, own, n: (s + own) / (n + 1), total, loop, call.degree()
        )
    if kind in (aggr.MaxAggregation, aggr.MinAggregation):
        choose = torch.maximum if kind is aggr.MaxAggregation else torch.minimum

        def chosen(rows: Tensor, own: Tensor, count: Tensor) -> Tensor:
            return torch.where(count > 0, choose(rows, own), own)

        rows = call.reduce(message, module=module, part=part)
        return call.map(f"{part}_loop", chosen, rows, loop, call.degree())
    return _by_rows(call, message, loop, module, part)


def _by_rows(call: ConvCall, message: Message, loop: Value, module: Any, part: str) -> Value:
    """Any other reduction: a row is computed again from all of its messages."""
    if not is_row_local(module):
        raise NotIncremental(f"{module} is not local to rows")
    function = as_function(message)

    def fn(around: Neighborhood) -> Tensor:
        *targets, own = around.target
        index = around.index
        rows = function.fn(*around.source, *(t[index] for t in targets), *around.edge)
        rows = torch.cat([rows.flatten(1), own])
        index = torch.cat([index, torch.arange(around.num_rows, device=index.device)])
        index, order = index.sort(stable=True)
        return reduced(module, rows[order], index, around.num_rows)

    targets = (*function.target, loop)
    return call.rows(part, fn, function.source, targets, function.edges)
