"""EGConv (Tailor et al., 2022, Eq. 5): several aggregations of shared bases, combined by each node.

out_i = sum over heads, bases and aggregators of  comb_lin(x_i) * Aggr(bases_lin(x))_i
"""

from functools import partial

import torch
from torch import Tensor
from torch_geometric.nn import EGConv, aggr

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.inner import with_bias
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.normalize import gcn_hop
from pyg_incremental.conv.own_loop import reduced_with_loop
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import NotIncremental, Value

_SUM = aggr.SumAggregation()
_MEAN = aggr.MeanAggregation()
_PLAIN = {
    "sum": _SUM,
    "mean": _MEAN,
    "max": aggr.MaxAggregation(),
    "min": aggr.MinAggregation(),
}


@register(EGConv)
def eg(call: ConvCall) -> Value:
    """`EGConv` as steps: one aggregation of the bases for each aggregator."""
    conv = call.conv
    call.only("x")
    names = conv.aggregators
    if names != ["symnorm"]:
        call.only_coo()
    x, width = call.node(), conv.out_channels // conv.num_heads
    bases = call.map("bases", linear(conv.bases_lin), x, costly=True)
    weights = call.map("comb", linear(conv.comb_lin), x, costly=True)
    hop = None
    if "symnorm" in names:
        hop = gcn_hop(call, conv.add_self_loops, module=_SUM)
        call = hop.call
    elif conv.add_self_loops:
        raise NotIncremental(
            "without 'symnorm' PyG adds self-loops up to the largest id that has an edge, so one "
            "edge changes many rows; pass add_self_loops=False"
        )
    own = bases if conv.add_self_loops else None
    parts = []
    for name in names:
        if name == "symnorm":
            assert hop is not None
            parts.append(hop(bases, "symnorm"))
        elif name in _PLAIN:
            parts.append(reduced_with_loop(call, bases, own, _PLAIN[name], name))
        else:
            parts.append(_spread(call, bases, own is not None, name))

    def out(weights: Tensor, *aggregated: Tensor) -> Tensor:
        rows, terms = weights.shape[0], conv.num_bases * len(names)
        mixing = weights.view(rows, conv.num_heads, terms)
        stacked = torch.stack(aggregated, 1).view(rows, terms, width)
        return torch.matmul(mixing, stacked).flatten(1)

    return with_bias(call, call.map("combined", out, weights, *parts, costly=True))


def _spread(call: ConvCall, bases: Value, has_own: bool, name: str) -> Value:
    """Variance or its root, from means of x and x^2 in float64: their difference is small."""
    moments = call.map("moments", lambda x: torch.cat([x, x * x], 1).double(), bases)
    means = reduced_with_loop(call, moments, moments if has_own else None, _MEAN, "moments_mean")
    finish = partial(_std if name == "std" else _var, dtype=call.dtype)
    return call.map(name, finish, means)


def _var(means: Tensor, dtype: torch.dtype) -> Tensor:
    mean, mean_of_squares = means.chunk(2, 1)
    return (mean_of_squares - mean * mean).to(dtype)


def _std(means: Tensor, dtype: torch.dtype) -> Tensor:
    return _var(means, torch.float64).clamp(min=1e-5).sqrt().to(dtype)
