"""Which aggregation modules compute each row from that row's messages only, and how to run one."""

import torch
from torch import Tensor
from torch_geometric.nn import aggr

_ROW_LOCAL = (
    aggr.SumAggregation, aggr.MeanAggregation, aggr.MaxAggregation, aggr.MinAggregation,
    aggr.MulAggregation, aggr.VarAggregation, aggr.StdAggregation, aggr.SoftmaxAggregation,
    aggr.PowerMeanAggregation, aggr.MedianAggregation, aggr.QuantileAggregation,
)  # fmt: skip


def is_row_local(module: torch.nn.Module | None, flat: bool = False) -> bool:
    """Whether an aggregation module computes each row from that row's messages only.

    LSTM and GRU do not: they pad to the largest degree. So does a sort; see `sorting`.

    Args:
        module: The module.
        flat: Whether it will be given messages `[num_edges, channels]`, which some insist on.
    """
    if isinstance(module, aggr.MultiAggregation):
        return all(is_row_local(m, flat) for m in module.aggrs)
    if isinstance(module, aggr.DegreeScalerAggregation):
        return is_row_local(module.aggr, flat)
    return type(module) in _ROW_LOCAL or (flat and type(module) is aggr.Set2Set)


def reduced(
    module: torch.nn.Module, messages: Tensor, index: Tensor, num_rows: int, dim: int = -2
) -> Tensor:
    """Messages reduced by an aggregation module, `[num_rows, ...]`.

    `index` names the row of each message, ascending, int64 `[num_edges]`. Rows without a message
    are left out, because some modules fail on them if they come first or last; what such a row gets
    is found between two rows that have one.
    """
    rows, place = index.unique_consecutive(return_inverse=True)
    if rows.shape[0] == num_rows:
        out: Tensor = module(messages, index, dim_size=num_rows, dim=dim)
        return out
    two = messages.new_zeros((2, *messages.shape[1:]))
    alone: Tensor = module(two, torch.tensor([0, 2], device=index.device), dim_size=3, dim=dim)
    full = alone[1:2].repeat(num_rows, *[1] * (alone.dim() - 1))
    if rows.shape[0]:
        full[rows] = module(messages, place, dim_size=rows.shape[0], dim=dim)
    return full
