"""GATConv (Velickovic et al., 2018, Eq. 1 to 6).

    z = lin(x)      out = SoftmaxSum(z, leaky_relu(a_src[j] + a_dst[i] + a_edge)) + residual + bias

A row whose own `a_dst` changed is made afresh; everything else is retracted and inserted
(NeutronRT's constrained models).
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.nn import GATConv
from torch_geometric.utils import scatter

from pyg_incremental.aggregate import Neighborhood
from pyg_incremental.aggregate.base import Loops
from pyg_incremental.conv.attention import attended
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program import NotIncremental, Value

Part = Callable[[Tensor, Tensor], Tensor]
"""Rows `[k, heads * channels]` and an attention vector become logit parts, `[k, heads]`."""


@register(GATConv)
def gat(call: ConvCall) -> Value:
    """`GATConv` as steps: softmax-weighted sum of `z`, then residual and bias."""
    conv, heads, channels = call.conv, call.conv.heads, call.conv.out_channels
    call.only("x", "edge_attr")
    x = call.node()
    loops: Loops = "drop" if conv.add_self_loops else "keep"

    def part(z: Tensor, att: Tensor) -> Tensor:
        return (z.view(-1, heads, channels) * att).sum(-1)

    lin = linear(conv.lin if conv.lin is not None else conv.lin_src)
    message = call.map("z", lambda x: _with_part(lin(x), part, conv.att_src), x, costly=True)
    if conv.lin is not None:
        target = call.map("target", lambda m: part(m[:, : heads * channels], conv.att_dst), message)
    else:
        lin_dst = linear(conv.lin_dst)
        target = call.map("target", lambda x: part(lin_dst(x), conv.att_dst), x, costly=True)
    edge = _edge_logits(call, part)
    loop = None
    if conv.add_self_loops:
        loop = _loop_logits(call, message, target, part)
    inputs = [attended(call, message, target, edge, loop, loops)]
    if conv.res is not None:
        inputs.append(call.map("res", linear(conv.res), x, costly=True))

    def out(rows: Tensor, residual: Tensor | None = None) -> Tensor:
        if not conv.concat:
            rows = rows.view(-1, heads, channels).mean(dim=1)
        if residual is not None:
            rows = rows + residual
        return rows if conv.bias is None else rows + conv.bias

    return call.map("out", out, *inputs)


def _with_part(z: Tensor, part: Part, att: Tensor) -> Tensor:
    return torch.cat([z, part(z, att)], 1)


def _edge_attr(call: ConvCall) -> Value | None:
    """The edge attributes that PyG would use, or None."""
    if call.conv.lin_edge is None:
        return None
    given = call.edge("edge_attr")
    if call.is_coo:
        return given
    if given is not None:
        raise NotIncremental("edge_attr beside a sparse matrix is in the order of its entries")
    if call.format == "sparse_tensor" and not call.conv.add_self_loops:
        return call.weights
    return None


def _edge_logits(call: ConvCall, part: Part) -> Value | None:
    conv, attr = call.conv, _edge_attr(call)
    if attr is None:
        return None
    return call.map("edge", lambda a: part(conv.lin_edge(_columns(a)), conv.att_edge), attr)


def _columns(attr: Tensor) -> Tensor:
    return attr.view(-1, 1) if attr.dim() == 1 else attr


def _loop_logits(call: ConvCall, message: Value, target: Value, part: Part) -> Value:
    """Logit of the self-loop that every node gets.

    Its attributes are filled in as `fill_value` says.
    """
    conv = call.conv
    width = conv.heads * conv.out_channels
    attr, fill = _edge_attr(call), conv.fill_value
    if attr is None:
        return call.map("loop", lambda m, t: m[:, width:] + t, message, target)
    if isinstance(fill, str):

        def filled(around: Neighborhood) -> Tensor:
            attr_rows = _columns(around.edge[0])
            rows: Tensor = scatter(attr_rows, around.index, 0, around.num_rows, reduce=fill)
            return rows

        # PyG always gathers over the second row of `edge_index` here, whatever `flow` says.
        loop_attr = call.rows("fill", filled, edges=(attr,), loops="drop", reverse=False)
        return call.map(
            "loop",
            lambda m, t, a: m[:, width:] + t + part(conv.lin_edge(a), conv.att_edge),
            message, target, loop_attr,
        )  # fmt: skip

    def with_constant(m: Tensor, t: Tensor) -> Tensor:
        row = torch.as_tensor(fill, dtype=m.dtype, device=m.device)
        row = row.expand(1, conv.edge_dim) if row.dim() == 0 else row.view(1, -1)
        return m[:, width:] + t + part(conv.lin_edge(row), conv.att_edge)

    return call.map("loop", with_constant, message, target)
