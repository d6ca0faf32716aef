"""Convs that propagate several times over the adjacency A of `gcn_norm`, with one result.

| conv | result |
|---|---|
| SGConv (Wu et al., 2019, Eq. 8) | `lin(A^K x)` |
| SSGConv (Zhu and Koniusz, 2021, Eq. 6) | `lin(alpha x + (1 - alpha) / K sum_k A^k x)` |
| APPNP (Gasteiger et al., 2019, Eq. 4) | `h <- (1 - alpha) A h + alpha x`, K times |
"""

from typing import Any

from torch import Tensor
from torch_geometric.nn import APPNP, SGConv, SSGConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.normalize import gcn_hop, plain_hop
from pyg_incremental.conv.powers import comes_first, nested, powers
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value


@register(SGConv)
def sg(call: ConvCall) -> Value:
    """`SGConv` as steps: K hops and a linear layer."""
    conv = call.conv
    call.only("x", "edge_weight")
    x, hop = call.node(), gcn_hop(call, conv.add_self_loops)
    if not comes_first(call, conv.lin, conv.K):
        return call.map("out", linear(conv.lin), powers(hop, x, conv.K)[-1], costly=True)
    z = call.map("lin", linear(conv.lin, bias=False), x, costly=True)
    return _with_bias_of(call, conv.lin, powers(hop, z, conv.K)[-1])


@register(SSGConv)
def ssg(call: ConvCall) -> Value:
    """`SSGConv` as steps: the mean of K hops, and a linear layer."""
    conv = call.conv
    call.only("x", "edge_weight")
    x, hop = call.node(), gcn_hop(call, conv.add_self_loops)
    before = comes_first(call, conv.lin, conv.K)
    if before:
        x = call.map("lin", linear(conv.lin, bias=False), x, costly=True)
    share = (1 - conv.alpha) / max(conv.K, 1)
    if call.is_linear and conv.K:
        hops = [hop(nested(hop, [x] * conv.K), "hop_0")]
    else:
        hops = powers(hop, x, conv.K)[1:]

    def mixed(x: Tensor, *rows: Tensor) -> Tensor:
        out: Tensor = conv.alpha * x
        for row in rows:
            out = out + share * row
        return out

    rows = call.map("mixed", mixed, x, *hops)
    if before:
        return _with_bias_of(call, conv.lin, rows)
    return call.map("out", linear(conv.lin), rows, costly=True)


@register(APPNP)
def appnp(call: ConvCall) -> Value:
    """`APPNP` as steps: K hops, each mixed with the features."""
    conv = call.conv
    call.only("x", "edge_weight")
    hop = gcn_hop(call, conv.add_self_loops) if conv.normalize else plain_hop(call)
    x = rows = call.node()
    for k in range(conv.K):
        rows = call.map(
            f"mixed_{k + 1}",
            lambda h, x: h * (1 - conv.alpha) + conv.alpha * x,
            hop(rows, f"hop_{k + 1}"), x,
        )  # fmt: skip
    return rows


def _with_bias_of(call: ConvCall, lin: Any, rows: Value) -> Value:
    if lin.bias is None:
        return rows
    return call.map("out", lambda rows: rows + lin.bias, rows)
