"""Convs whose messages over the adjacency of `gcn_norm` depend on both ends.

| conv | message from j to i, with A the normalised adjacency |
|---|---|
| FAConv (Bo et al., 2021, Eq. 7) | `A_ji tanh(att_l(x_j) + att_r(x_i)) x_j` |
| DNAConv (Fey, 2019, Eq. 5) | `A_ji Attention(x_i of the last layer, x_j of all layers)` |
"""

from torch import Tensor
from torch_geometric.nn import DNAConv, FAConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.normalize import gcn_hop, plain_hop
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import NotIncremental, Value


@register(FAConv)
def fa(call: ConvCall) -> Value:
    """`FAConv` as steps: a hop of gated features, plus a share of the first ones."""
    conv = call.conv
    call.only("x", "x_0", "edge_weight")
    x, x_0 = call.node(), call.node("x_0")
    hop = gcn_hop(call, conv.add_self_loops) if conv.normalize else plain_hop(call)
    left = call.map("att_l", linear(conv.att_l), x, costly=True)
    right = call.map("att_r", linear(conv.att_r), x, costly=True)
    rows = hop.gather("hop", lambda x, a, b: x * (a + b).tanh(), x, (left,), (right,))
    if conv.eps == 0.0:
        return rows
    return call.map("out", lambda r, x: r + conv.eps * x, rows, x_0)


@register(DNAConv)
def dna(call: ConvCall) -> Value:
    """`DNAConv` as steps: queries, keys and values are made once for each node."""
    conv, attention = call.conv, call.conv.multi_head
    call.only("x", "edge_weight")
    x = call.node()
    layers, channels = call.example(x).shape[1:]
    sizes = (attention.heads, channels // attention.heads)
    if attention._forward_hooks or attention._forward_pre_hooks:
        raise NotIncremental("hooks watch its attention")
    hop = gcn_hop(call, conv.add_self_loops) if conv.normalize else plain_hop(call)
    query = call.map("query", lambda x: attention.lin_q(x[:, -1:]).flatten(1), x, costly=True)
    key = call.map("key", lambda x: attention.lin_k(x).flatten(1), x, costly=True)
    value = call.map("value", lambda x: attention.lin_v(x).flatten(1), x, costly=True)

    def heads(rows: Tensor, entries: int) -> Tensor:
        return rows.view(rows.shape[0], entries, *sizes).transpose(1, 2)

    def attended(value: Tensor, key: Tensor, query: Tensor) -> Tensor:
        rows: Tensor = attention.compute_attention(
            heads(query, 1), heads(key, layers), heads(value, layers)
        )
        return rows.reshape(rows.shape[0], channels)

    return hop.gather("hop", attended, value, (key,), (query,))
