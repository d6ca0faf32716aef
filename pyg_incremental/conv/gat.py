"""GATConv (Velickovic et al., 2018, Eq. 1 to 6).

    z = lin(x)      out = SoftmaxSum(z, leaky_relu(a_src[j] + a_dst[i] + a_edge)) + residual + bias

A row whose own `a_dst` changed is made afresh; everything else is retracted and inserted (NeutronRT's constrained models).
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv
from torch_geometric.utils import scatter, softmax

from pyg_incremental.aggregate import Neighborhood, softmax_result
from pyg_incremental.aggregate.base import Loops
from pyg_incremental.conv.call import ConvCall, NotIncremental, linear, reduced
from pyg_incremental.conv.registry import register
from pyg_incremental.program import Value


@register(GATConv)
def gat(call: ConvCall) -> Value:
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
        loop = _loop_logits(call, message, target, edge, part)
    inputs = [_attended(call, message, target, edge, loop, loops)]
    if conv.res is not None:
        inputs.append(call.map("res", linear(conv.res), x, costly=True))

    def out(rows: Tensor, residual: Tensor | None = None) -> Tensor:
        if not conv.concat:
            rows = rows.view(-1, heads, channels).mean(dim=1)
        if residual is not None:
            rows = rows + residual
        return rows if conv.bias is None else rows + conv.bias

    return call.map("out", out, *inputs)


def _attended(
    call: ConvCall,
    message: Value,
    target: Value,
    edge: Value | None,
    loop: Value | None,
    loops: Loops,
) -> Value:
    """The weighted messages, aggregated, `[num_nodes, heads * channels]`."""
    conv, heads, channels = call.conv, call.conv.heads, call.conv.out_channels
    if call.is_linear:
        state = call.softmax(message, target, edge, loop, conv.negative_slope, loops)
        total = call.map("attended", lambda s: softmax_result(s, heads), state)
        if call.is_sum:
            return total
        own = 0 if loop is None else 1
        return call.map(
            "mean", lambda t, n: t / (n + own).clamp(min=1), total, call.degree(None, loops)
        )
    module = call.check_row_local()

    def fn(around: Neighborhood) -> Tensor:
        messages, index = around.source[0], around.index
        width = heads * channels
        logits = messages[:, width:] + around.target[0][index]
        if around.edge:
            logits = logits + around.edge[0]
        if loop is not None:
            messages = torch.cat([messages, around.target[1]])
            logits = torch.cat([logits, around.target[2]])
            index = torch.cat([index, torch.arange(around.num_rows, device=index.device)])
            index, order = index.sort(stable=True)
            messages, logits = messages[order], logits[order]
        alpha = softmax(F.leaky_relu(logits, conv.negative_slope), index, num_nodes=around.num_rows)
        weighted = alpha.unsqueeze(-1) * messages[:, :width].view(-1, heads, channels)
        return reduced(module, weighted, index, around.num_rows, dim=0).flatten(1)

    targets = (target,) if loop is None else (target, message, loop)
    return call.rows("attended", fn, (message,), targets, () if edge is None else (edge,), loops)


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
