"""GATConv (Velickovic et al., 2018, Eq. 1 to 6).

    z = lin(x)      out = SoftmaxSum(z, leaky_relu(a_src[j] + a_dst[i] + a_edge)) + residual + bias

A row whose own `a_dst` changed is made afresh; everything else is retracted and inserted
(NeutronRT's constrained models). The logits are sums of parts, which the kernel of `SoftmaxSum`
adds up itself; under another `aggr` than sum and mean they are a function of the edge like any
other attention.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv

from pyg_incremental.conv.attend import joined, settled
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.edge_attr import check_loops, edge_attr, loop_attr
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.conv.with_weights import ASKS, WithWeights, are_asked_for, weights_of
from pyg_incremental.program.steps import Value


@register(GATConv)
def gat(call: ConvCall) -> Value | WithWeights:
    """`GATConv` as steps: softmax-weighted sum of `z`, then residual and bias."""
    conv, heads, channels = call.conv, call.conv.heads, call.conv.out_channels
    width = heads * channels
    call.only("x", "edge_attr", ASKS)
    is_asked, (source, own) = are_asked_for(call), call.both_ends()

    def part(z: Tensor, att: Tensor) -> Tensor:
        """Logit parts `[k, heads]` of rows `[k, heads * channels]`."""
        return (z.view(-1, heads, channels) * att).sum(-1)

    def edge_part(attr: Tensor) -> Tensor:
        return part(conv.lin_edge(attr), conv.att_edge)

    def with_part(x: Tensor) -> Tensor:
        z = lin(x)
        return torch.cat([z, part(z, conv.att_src)], 1)

    lin = linear(conv.lin if conv.lin is not None else conv.lin_src)
    message = call.map("z", with_part, source, costly=True)
    if conv.lin is not None and own is source:
        target = call.map("target", lambda m: part(m[:, :width], conv.att_dst), message)
    else:
        lin_dst = lin if conv.lin is not None else linear(conv.lin_dst)
        target = call.map("target", lambda x: part(lin_dst(x), conv.att_dst), own, costly=True)
    attr, edge = edge_attr(call), None
    loop: tuple[Value, ...] | None = None
    if attr is not None:
        edge = call.map("edge", edge_part, attr)
    if conv.add_self_loops:
        check_loops(source, own)
        call, loop = call.without_loops(), ()
        if attr is not None:
            loop = (call.map("loop_edge", edge_part, loop_attr(call, attr, message)),)
    rows, state = _attended(call, message, target, edge, loop)
    out = joined(call, rows, own)
    if not is_asked or state is None or loop is None:
        return out

    def logits(m: Tensor, *parts: Tensor) -> Tensor:
        return F.leaky_relu(sum(parts, m[:, width:]), conv.negative_slope)

    return WithWeights(out, *weights_of(call, logits, message, target, edge, loop, state))


def _attended(
    call: ConvCall,
    message: Value,
    target: Value,
    edge: Value | None,
    loop: tuple[Value, ...] | None,
) -> tuple[Value, Value | None]:
    """The weighted messages, aggregated, `[num_nodes, heads * channels]`, and the softmax's state.

    `message` holds values and logit parts of the source, the others logit parts; `loop` is that of
    a self-loop at every node, if it has one, or None if there are no such loops.
    """
    conv, heads = call.conv, call.conv.heads
    width = heads * conv.out_channels
    if call.is_linear and not call.reads_ends(edge):
        logit = None
        if loop is not None:
            logit = call.map(
                "loop", lambda m, t, *e: m[:, width:] + sum(e, t), message, target, *loop
            )
        state = call.softmax(message, target, edge, logit, conv.negative_slope)
        looped = loop is not None
        return settled(call, conv.aggr_module, state, heads, looped, "attended"), state

    def terms(m: Tensor, *parts: Tensor) -> tuple[Tensor, Tensor]:
        logits = F.leaky_relu(sum(parts, m[:, width:]), conv.negative_slope)
        return logits, m[:, :width].view(-1, heads, conv.out_channels)

    return call.attend(terms, (message,), (target,), (edge,), heads=heads, loop=loop), None
