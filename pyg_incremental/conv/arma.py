"""ARMAConv (Bianchi et al., 2021, Eq. 13): stacks of `act(A x W + x_0 V + bias)`, and their mean.

A is the adjacency of `gcn_norm` without self-loops. The stacks travel side by side in one row.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.nn import ARMAConv, aggr

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.normalize import gcn_hop
from pyg_incremental.conv.registry import register
from pyg_incremental.program.row_wise import ACTIVATIONS, why_not_row_wise
from pyg_incremental.program.steps import NotIncremental, Value

_BY_CHANNEL = (
    aggr.SumAggregation, aggr.MeanAggregation, aggr.MaxAggregation, aggr.MinAggregation,
    aggr.VarAggregation, aggr.StdAggregation, aggr.MulAggregation, aggr.MedianAggregation,
)  # fmt: skip


@register(ARMAConv)
def arma(call: ConvCall) -> Value:
    """`ARMAConv` as steps: each layer is a hop, with the products in front of it."""
    conv = call.conv
    call.only("x", "edge_weight")
    call.only_coo()
    act = conv.act
    if isinstance(act, nn.Module) and (isinstance(act, nn.GLU) or not isinstance(act, ACTIVATIONS)):
        raise NotIncremental(f"its act {type(act).__name__} may mix channels or rows")
    if act is not None and why_not_row_wise(act):
        raise NotIncremental(f"its act mixes rows: {why_not_row_wise(act)}")
    if not _is_by_channel(conv.aggr_module):
        raise NotIncremental(f"{conv.aggr_module} does not work channel by channel")
    x, hop = call.node(), gcn_hop(call, add_self_loops=False)
    rows = x
    for t in range(conv.num_layers):
        at = 0 if conv.shared_weights else t
        root = call.map(f"root_{t}", _root(conv, at), x, costly=True)
        rows = hop(rows, f"hop_{t}", _product(conv, t))
        rows = call.map(f"layer_{t}", lambda h, r: h + r if act is None else act(h + r), rows, root)
    sizes = (conv.num_stacks, conv.out_channels)
    return call.map("out", lambda r: r.view(r.shape[0], *sizes).mean(dim=1), rows)


def _is_by_channel(module: nn.Module) -> bool:
    if type(module) is aggr.QuantileAggregation:
        return not isinstance(module._q, (list, tuple))
    return type(module) in _BY_CHANNEL


def _product(conv: ARMAConv, layer: int) -> Callable[[Tensor], Tensor]:
    """All stacks times their weights, `[n, channels]` or `[n, stacks * channels]`, side by side."""

    def first(x: Tensor) -> Tensor:
        return torch.einsum("nf,kfo->nko", x, conv.init_weight).flatten(1)

    def further(x: Tensor) -> Tensor:
        weight = conv.weight[0 if conv.shared_weights else layer - 1]
        x = x.view(x.shape[0], *weight.shape[:2])
        return torch.einsum("nkf,kfo->nko", x, weight).flatten(1)

    return further if layer else first


def _root(conv: ARMAConv, at: int) -> Callable[[Tensor], Tensor]:
    def root(x: Tensor) -> Tensor:
        rows = torch.einsum("nf,kfo->nko", x, conv.root_weight[at]).flatten(1)
        return rows if conv.bias is None else rows + conv.bias[at].reshape(1, -1)

    return root
