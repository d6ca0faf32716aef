"""GeneralConv (You et al., 2020, "Design Space for Graph Neural Networks").

    m(i, j, e) = lin_msg(x_j) [+ lin_msg_i(x_i), if messages are not directed] [+ lin_edge(e)]
    out = mean over heads of Aggr(m(i, j, e)), plain or weighted by attention, + lin_self(x_i)

The logit of attention is the leaky ReLU of `att . m(i, j, e)`, or of the scaled product of
`m(i, j, e)` and `m(j, i, e)`.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GeneralConv

from pyg_incremental.conv.attend import WIDER
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import NotIncremental, Value


@register(GeneralConv)
def general(call: ConvCall) -> Value:
    """`GeneralConv` as steps: messages or attention, then the mean of heads and the node itself."""
    conv = call.conv
    call.only("x", "edge_attr")
    if isinstance(conv.aggr_module, WIDER):
        raise NotIncremental(f"{conv.aggr_module} makes rows of another width than the heads have")
    source, own = call.both_ends()
    inputs = [_aggregated(call, source, own), own]
    if not isinstance(conv.lin_self, nn.Identity):
        inputs[1] = call.map("self", linear(conv.lin_self), own, costly=True)

    def out(rows: Tensor, own: Tensor) -> Tensor:
        rows = rows.view(-1, conv.heads, conv.out_channels).mean(dim=1) + own
        return F.normalize(rows, p=2, dim=-1) if conv.normalize_l2 else rows

    return call.map("out", out, *inputs)


def _aggregated(call: ConvCall, source: Value, own: Value) -> Value:
    """The heads before they are averaged, `[num_nodes, heads * channels]`."""
    conv, mutual = call.conv, not call.conv.directed_msg
    product = conv.attention and conv.attention_type == "dot_product"
    attr = call.coo_edge("edge_attr") if conv.in_edge_channels is not None else None
    lin_edge = None if attr is None else linear(conv.lin_edge)
    width = conv.heads * conv.out_channels
    there, here = [conv.lin_msg], [conv.lin_msg_i] if mutual else []
    if product:
        there, here = there + here, there + here
    sent = _layers(call, "sent", there, source)
    if attr is None and not (mutual or conv.attention):
        return call.reduce(sent)
    target = (_layers(call, "target", here, own),) if here else ()

    def both_ways(sent: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        """`m(i, j, e)`, and for attention by products `m(j, i, e)`, `[k, heads * channels]`."""
        there, back = sent[:, :width], rest[0][:, :width] if product else sent
        if mutual:
            there = there + rest[0][:, -width:]
            back = back + sent[:, -width:] if product else back
        if lin_edge is not None:
            edge = lin_edge(rest[-1])
            there, back = there + edge, back + edge if product else back
        return there, back

    def terms(*rows: Tensor) -> tuple[Tensor, Tensor]:
        there, back = (r.view(-1, conv.heads, conv.out_channels) for r in both_ways(*rows))
        if product:
            logits = (back * there).sum(-1) / conv.scaler
        else:
            logits = (there * conv.att_msg).sum(-1)
        return F.leaky_relu(logits, 0.2), there

    if conv.attention:
        return call.attend(terms, (sent,), target, (attr,), heads=conv.heads)
    return call.reduce(call.message(lambda *rows: both_ways(*rows)[0], (sent,), target, (attr,)))


def _layers(call: ConvCall, part: str, layers: Sequence[nn.Module], x: Value) -> Value:
    """Linear layers of the same rows, side by side."""
    run = [linear(layer) for layer in layers]
    return call.map(part, lambda x: torch.cat([lin(x) for lin in run], 1), x, costly=True)
