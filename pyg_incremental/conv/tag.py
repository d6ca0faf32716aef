"""Convs that propagate several times over the adjacency of `gcn_norm`, and read every hop.

| conv | result, with A the adjacency of `gcn_norm` |
|---|---|
| TAGConv (Du et al., 2017, Eq. 4) | `sum_k lin_k(A^k x)` |
| SSGConv (Zhu and Koniusz, 2021, Eq. 6) | `lin(alpha x + (1 - alpha) / K sum_k A^k x)` |
| MixHopConv (Abu-El-Haija et al., 2019, Eq. 5) | `lin_p(A^p x)` for each power p, side by side |
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.nn import MixHopConv, SSGConv, TAGConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.inner import with_bias
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.normalize import gcn_hop, plain_hop
from pyg_incremental.conv.powers import comes_first, mapped_sum, nested, powers
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value


@register(TAGConv)
def tag(call: ConvCall) -> Value:
    """`TAGConv` as steps: a linear layer for each number of hops."""
    conv = call.conv
    call.only("x", "edge_weight")
    x, lins = call.node(), list(conv.lins)
    hop = gcn_hop(call, add_self_loops=False) if conv.normalize else plain_hop(call)
    if len(lins) == 1 or comes_first(call, lins[0], len(lins) - 1):
        terms = [call.map(f"lin_{k}", linear(lin), x, costly=True) for k, lin in enumerate(lins)]
        return with_bias(call, nested(hop, terms))
    return with_bias(call, mapped_sum(call, lins, powers(hop, x, len(lins) - 1)))


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
    if not before:
        return call.map("out", linear(conv.lin), rows, costly=True)
    if conv.lin.bias is None:
        return rows
    return call.map("out", lambda rows: rows + conv.lin.bias, rows)


@register(MixHopConv)
def mix_hop(call: ConvCall) -> Value:
    """`MixHopConv` as steps: a linear layer for each power, side by side."""
    conv = call.conv
    call.only("x", "edge_weight")
    x, hop = call.node(), gcn_hop(call, conv.add_self_loops)
    used, width = sorted(set(conv.powers)), conv.out_channels
    far = [p for p in used if p]
    lins = {p: linear(conv.lins[p]) for p in used}
    if not (call.is_linear and len(far) * width <= 2 * conv.lins[used[0]].weight.shape[1]):
        states = powers(hop, x, max(used))

        def out(*rows: Tensor) -> Tensor:
            return torch.cat([lins[p](rows[p]) for p in conv.powers], dim=-1)

        return with_bias(call, call.map("powers", out, *states, costly=True))
    # All powers travel side by side; after p hops the columns of power p have arrived.
    parts = {}
    if 0 in lins:
        parts[0] = call.map("lin_0", lins[0], x, costly=True)
    if far:
        rows = call.map("lins", _beside([lins[p] for p in far]), x, costly=True)
    for k in range(1, max(used) + 1):
        rows = hop(rows, f"hop_{k}")
        if k in far:
            parts[k] = call.map(f"power_{k}", lambda r: r[:, :width], rows)
            if k < max(used):
                rows = call.map(f"further_{k}", lambda r: r[:, width:], rows)
    places = [used.index(p) for p in conv.powers]
    joined = call.map(
        "powers", lambda *rows: torch.cat([rows[i] for i in places], dim=-1),
        *(parts[p] for p in used),
    )  # fmt: skip
    return with_bias(call, joined)


def _beside(maps: list[Callable[[Tensor], Tensor]]) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.cat([fn(x) for fn in maps], dim=-1)
