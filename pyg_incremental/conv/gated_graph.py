"""Convs that combine a sum with the node's own features by a learned row map of their own.

| conv | result |
|---|---|
| GatedGraphConv (Li et al., 2016, Eqs. 2-6) | `x <- GRU(Aggr(w x W_l), x)`, once per layer |
| MFConv (Duvenaud et al., 2015, Algorithm 2) | `lin_l[d](Aggr(x)) + lin_r[d](x)`, d the degree |
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GatedGraphConv, MFConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.normalize import plain_hop
from pyg_incremental.conv.numbered import Numbered, bucket
from pyg_incremental.conv.registry import register
from pyg_incremental.program.row_wise import why_not_row_wise
from pyg_incremental.program.steps import NotIncremental, Value


@register(GatedGraphConv)
def gated_graph(call: ConvCall) -> Value:
    """`GatedGraphConv` as steps: each layer is a hop and a GRU cell."""
    conv = call.conv
    call.only("x", "edge_weight")
    mixed = why_not_row_wise(conv.rnn)
    if mixed:
        raise NotIncremental(f"its rnn mixes rows: {mixed}")
    x, hop = call.node(), plain_hop(call)
    missing = conv.out_channels - call.example(x).shape[1]
    if missing:
        x = call.map("padded", lambda x: F.pad(x, (0, missing)), x)
    for layer in range(conv.num_layers):
        rows = hop(x, f"hop_{layer}", _times(conv, layer))
        x = call.map(f"gru_{layer}", lambda m, x: conv.rnn(m, x), rows, x, costly=True)
    return x


def _times(conv: GatedGraphConv, layer: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x @ conv.weight[layer]


@register(MFConv)
def mf(call: ConvCall) -> Value:
    """`MFConv` as steps: a changed degree picks other weights for its row, and only there."""
    conv = call.conv
    call.only("x")
    call.only_coo()
    source, target = call.ends()
    own = [] if target is None else [target]
    layers, parts = [conv.lins_l, conv.lins_r], ["left", "right"]
    products = Numbered(call, layers[: 1 + len(own)], parts[: 1 + len(own)])

    def out(degree: Tensor, *given: Tensor) -> Tensor:
        return products(bucket(degree, conv.max_degree + 1), *given)

    inputs = call.degree(), call.reduce(source), *own, *products.tables
    return call.map("out", out, *inputs, costly=True)
