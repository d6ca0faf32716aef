"""Convs that propagate once over the adjacency of `gcn_norm` (see `normalize`).

| conv | steps, with A the normalised adjacency |
|---|---|
| GCNConv (Kipf and Welling, 2017, Eq. 2) | `A lin(x) + bias` |
| LGConv (He et al., 2020, Eq. 3) | `A x`, no self-loops |
| GCN2Conv (Chen et al., 2020, Eq. 5) | `h M`, `h = (1 - alpha) A x + alpha x_0`, `M = (1 - beta) I + beta W` |
"""  # noqa: E501 - a table

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.nn import GCN2Conv, GCNConv, LGConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.normalize import gcn_hop, plain_hop
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value


@register(GCNConv)
def gcn(call: ConvCall) -> Value:
    """`GCNConv` as steps: normalised sum over the in-edges and a self-loop."""
    conv = call.conv
    call.only("x", "edge_weight")
    x = call.node()
    if conv.normalize:
        hop = gcn_hop(call, conv.add_self_loops, 2.0 if conv.improved else 1.0)
    else:
        hop = plain_hop(call)
    return hop(x, "hop", linear(conv.lin), biased=True)


@register(LGConv)
def lg(call: ConvCall) -> Value:
    """`LGConv` as steps: normalised sum over the in-edges."""
    call.only("x", "edge_weight")
    hop = gcn_hop(call, add_self_loops=False) if call.conv.normalize else plain_hop(call)
    return hop(call.node(), "hop")


@register(GCN2Conv)
def gcn2(call: ConvCall) -> Value:
    """`GCN2Conv` as steps; for a linear aggregation the product with `M` comes first."""
    conv = call.conv
    call.only("x", "x_0", "edge_weight")
    x, x_0 = call.node(), call.node("x_0")
    hop = gcn_hop(call, conv.add_self_loops) if conv.normalize else plain_hop(call)

    def mixed(name: str) -> Callable[[Tensor], Tensor]:
        def product(rows: Tensor) -> Tensor:
            weight = getattr(conv, name)
            return torch.addmm(rows, rows, weight, beta=1.0 - conv.beta, alpha=conv.beta)

        return product

    near, far = mixed("weight1"), mixed("weight1" if conv.weight2 is None else "weight2")
    first = call.map("first", lambda x: far(conv.alpha * x), x_0, costly=True)
    moved = call.is_linear
    rows = hop(x, "hop", near if moved else None)

    def out(rows: Tensor, first: Tensor) -> Tensor:
        rows = (1 - conv.alpha) * rows
        return (rows if moved else near(rows)) + first

    return call.map("out", out, rows, first, costly=not moved)
