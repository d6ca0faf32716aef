"""GCNConv (Kipf and Welling, 2017, Eq. 2) with `gcn_norm` as PyG 2.8 computes it.

    deg = Sum(weight) + loop      dinv = deg ** -0.5      z = lin(x) * dinv
    out = (Sum(weight * z) + loop * z) * dinv + bias

The degree is an aggregation like any other, so a changed degree dirties the rows that read it and
nothing else is needed.
"""

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from pyg_incremental.aggregate import Neighborhood
from pyg_incremental.aggregate.base import Loops
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.conv.row_local import reduced
from pyg_incremental.program import NotIncremental, Value


@register(GCNConv)
def gcn(call: ConvCall) -> Value:
    """`GCNConv` as steps: normalised sum over the in-edges and a self-loop."""
    conv = call.conv
    call.only("x", "edge_weight")
    x = call.node()
    if not conv.normalize:
        weight = call.weight() if call.is_coo else call.matrix_weights()
        z = call.map("lin", linear(conv.lin), x, costly=True)
        return _with_bias(call, call.reduce(z, weight))
    weight, loops, loop = _normalization(call)
    degree = call.degree(weight, loops)
    if isinstance(loop, Value):
        dinv = call.map(
            "dinv", lambda d, w: _inverse_sqrt(d + w), degree, loop, shared="dinv_weighted"
        )
    else:
        dinv = call.map("dinv", lambda d: _inverse_sqrt(d + loop), degree, shared=f"dinv_{loop:g}")
    if not call.is_sum:
        return _with_bias(call, _by_rows(call, x, dinv, weight, loops, loop))
    lin = linear(conv.lin)
    z = call.map("z", lambda x, d: lin(x) * d, x, dinv, costly=True)
    total = call.sum(z, weight, loops)
    if isinstance(loop, Value):
        return call.map(
            "out", lambda s, z, d, w: _biased(conv, (s + w * z) * d), total, z, dinv, loop
        )
    if loop:
        return call.map("out", lambda s, z, d: _biased(conv, (s + loop * z) * d), total, z, dinv)
    return call.map("out", lambda s, d: _biased(conv, s * d), total, dinv)


def _normalization(call: ConvCall) -> tuple[Value | None, Loops, Value | float]:
    """The weights, which self-loops count as edges, and the weight of the loop at every node.

    What an explicit self-loop means depends on the format (audit of PyG 2.8.1): COO keeps the
    weight of the last one, CSR adds to it, SparseTensor replaces it. `improved` is ignored by COO
    without weights, because the ones come after the loops.
    """
    conv = call.conv
    fill = 2.0 if conv.improved else 1.0
    weight = call.weight() if call.is_coo else call.matrix_weights()
    if not conv.add_self_loops:
        return weight, "keep", 0.0
    if call.format == "csr":
        return weight, "keep", fill
    if call.format == "csc":
        raise NotIncremental("gcn_norm does not take CSC matrices")
    if not call.is_coo:
        return weight, "drop", fill
    if weight is None:
        return None, "drop", 1.0

    def last_or_fill(around: Neighborhood) -> Tensor:
        values = around.edge[0].new_full((around.num_rows, 1), fill)
        by_age = around.order.argsort()
        for_row, value = around.index[by_age], around.edge[0][by_age]
        # Of equal indices the last one has to win, so all but the youngest loop of each row are
        # left out.
        youngest = torch.zeros(around.num_rows, dtype=torch.int64, device=values.device)
        youngest.scatter_reduce_(
            0, for_row, torch.arange(len(for_row), device=values.device), "amax"
        )
        rows = for_row.unique()
        values[rows, 0] = value[youngest[rows]]
        return values

    loop = call.rows(f"loop_{fill:g}", last_or_fill, edges=(weight,), loops="only")
    return weight, "drop", loop


def _inverse_sqrt(degree: Tensor) -> Tensor:
    out = degree.pow(-0.5)
    return out.masked_fill_(out == torch.inf, 0.0)


def _biased(conv: GCNConv, rows: Tensor) -> Tensor:
    return rows if conv.bias is None else rows + conv.bias


def _with_bias(call: ConvCall, rows: Value) -> Value:
    return (
        call.map("out", lambda rows: _biased(call.conv, rows), rows)
        if call.conv.bias is not None
        else rows
    )


def _by_rows(
    call: ConvCall, x: Value, dinv: Value, weight: Value | None, loops: Loops, loop: Value | float
) -> Value:
    """Any other reduction of the normalised messages, self-loop included."""
    module = call.check_row_local()
    if call.format == "csr" and loop:
        raise NotIncremental("CSR merges a self-loop with the added one into a single message")
    z = call.map("lin", linear(call.conv.lin), x, costly=True)

    constant = 0.0 if isinstance(loop, Value) else loop

    def fn(around: Neighborhood) -> Tensor:
        own_z, own_dinv, *own_loop = around.target
        index = around.index
        norm = around.source[1] * own_dinv[index]
        if around.edge:
            norm = norm * around.edge[0][:, None]
        messages = norm * around.source[0]
        if loop:
            w = own_loop[0] if own_loop else constant
            messages = torch.cat([messages, own_dinv * w * own_dinv * own_z])
            index = torch.cat([index, torch.arange(around.num_rows, device=index.device)])
            index, order = index.sort(stable=True)
            messages = messages[order]
        return reduced(module, messages, index, around.num_rows)

    targets = (z, dinv, loop) if isinstance(loop, Value) else (z, dinv)
    return call.rows("aggr", fn, (z, dinv), targets, () if weight is None else (weight,), loops)
