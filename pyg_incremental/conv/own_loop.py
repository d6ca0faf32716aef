"""One more message at every node, from the node itself, beside those over the edges."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from pyg_incremental.aggregate.message import Message
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.program import NotIncremental, Value


def reduced_with_loop(
    call: ConvCall,
    message: Message,
    loop: Value,
    module: Any = None,
    part: str = "aggr",
) -> Value:
    """Messages and the one of a self-loop at every node, reduced, `[num_nodes, channels]`.

    Args:
        call: The call, `without_loops` if the conv replaces those that are there.
        message: What travels along the edges.
        loop: The message of the self-loop of each node, `[num_nodes, channels]`.
        module: An aggregation module; the conv's own `aggr_module` by default.
        part: Name of the steps.

    Raises:
        NotIncremental: If a further message cannot be added to what the module has made.
    """
    module = module or call.conv.aggr_module
    if type(module) is aggr.MultiAggregation:
        several = [
            reduced_with_loop(call, message, loop, m, f"{part}_{i}")
            for i, m in enumerate(module.aggrs)
        ]
        return call.map(f"{part}_combined", lambda *rows: module.combine(list(rows)), *several)
    if type(module) is aggr.SumAggregation:
        return call.map(
            f"{part}_loop", torch.add, call.reduce(message, module=module, part=part), loop
        )
    if type(module) is aggr.MeanAggregation:
        total = call.total(message, f"{part}_sum")
        return call.map(
            f"{part}_loop", lambda s, own, n: (s + own) / (n + 1), total, loop, call.degree()
        )
    if type(module) in (aggr.MaxAggregation, aggr.MinAggregation):
        choose = torch.maximum if type(module) is aggr.MaxAggregation else torch.minimum

        def chosen(rows: Tensor, own: Tensor, count: Tensor) -> Tensor:
            return torch.where(count > 0, choose(rows, own), own)

        rows = call.reduce(message, module=module, part=part)
        return call.map(f"{part}_loop", chosen, rows, loop, call.degree())
    raise NotIncremental(f"no message can be added to the result of {module}")
