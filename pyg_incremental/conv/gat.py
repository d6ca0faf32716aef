"""GATConv (Velickovic et al., 2018, Eq. 1 to 6).

    z = lin(x)      out = SoftmaxSum(z, leaky_relu(a_src[j] + a_dst[i] + a_edge)) + residual + bias

A row whose own `a_dst` changed is made afresh; everything else is retracted and inserted (NeutronRT's constrained models).
"""

import torch
from torch import Tensor
from torch_geometric.nn import GATConv
from torch_geometric.utils import scatter

from pyg_incremental.aggregate import Neighborhood, softmax_result
from pyg_incremental.aggregate.base import Loops
from pyg_incremental.conv.call import ConvCall, NotIncremental, linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program import Value


@register(GATConv)
def gat(call: ConvCall) -> Value:
    conv, heads, channels = call.conv, call.conv.heads, call.conv.out_channels
    call.only("x", "edge_attr")
    if not call.is_sum:
        raise NotIncremental(f"attention with aggr={conv.aggr!r}")
    if conv.lin is None:
        raise NotIncremental("it was built for bipartite graphs")
    x = call.node()
    loops: Loops = "drop" if conv.add_self_loops else "keep"
    att_source, att_target = conv.att_src, conv.att_dst
    if call.reverse:  # PyG lifts position 1 of the pair (source, target) to the sending end then
        att_source, att_target = att_target, att_source

    def part(z: Tensor, att: Tensor) -> Tensor:
        return (z.view(-1, heads, channels) * att).sum(-1)

    lin = linear(conv.lin)
    message = call.map("z", lambda x: _with_part(lin(x), part, att_source), x, costly=True)
    target = call.map("target", lambda m: part(m[:, : heads * channels], att_target), message)
    edge = _edge_logits(call, part)
    loop = None
    if conv.add_self_loops:
        loop = _loop_logits(call, message, target, edge, part)
    state = call.softmax(message, target, edge, loop, conv.negative_slope, loops)
    inputs = [state]
    if conv.res is not None:
        inputs.append(call.map("res", linear(conv.res), x, costly=True))

    def out(state: Tensor, residual: Tensor | None = None) -> Tensor:
        rows = softmax_result(state, heads)
        if not conv.concat:
            rows = rows.view(-1, heads, channels).mean(dim=1)
        if residual is not None:
            rows = rows + residual
        return rows if conv.bias is None else rows + conv.bias

    return call.map("out", out, *inputs)


def _with_part(z: Tensor, part, att: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
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
    if call.program.format == "sparse_tensor" and not call.conv.add_self_loops:
        return call.weights
    return None


def _edge_logits(call: ConvCall, part) -> Value | None:  # type: ignore[no-untyped-def]
    conv, attr = call.conv, _edge_attr(call)
    if attr is None:
        return None
    return call.map("edge", lambda a: part(conv.lin_edge(_columns(a)), conv.att_edge), attr)


def _columns(attr: Tensor) -> Tensor:
    return attr.view(-1, 1) if attr.dim() == 1 else attr


def _loop_logits(call: ConvCall, message: Value, target: Value, edge: Value | None, part) -> Value:  # type: ignore[no-untyped-def]
    """Logit of the self-loop that every node gets; its attributes are filled in as `fill_value` says."""
    conv = call.conv
    width = conv.heads * conv.out_channels
    if edge is None:
        return call.map("loop", lambda m, t: m[:, width:] + t, message, target)
    attr, fill = _edge_attr(call), conv.fill_value
    assert attr is not None  # there are edge logits
    if isinstance(fill, str):

        def filled(around: Neighborhood) -> Tensor:
            return scatter(_columns(around.edge[0]), around.index, 0, around.num_rows, reduce=fill)

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
