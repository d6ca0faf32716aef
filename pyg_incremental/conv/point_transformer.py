"""PointTransformerConv (Zhao et al., 2021).

d = pos_nn(pos_i - pos_j)
out = Softmax(attn_nn(lin_dst(x_i) - lin_src(x_j) + d), lin(x_j) + d), channel by channel
"""

import torch
from torch import Tensor
from torch_geometric.nn import PointTransformerConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.edge_attr import check_loops
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program.row_wise import why_not_row_wise
from pyg_incremental.program.steps import NotIncremental, Value


@register(PointTransformerConv)
def point_transformer(call: ConvCall) -> Value:
    """`PointTransformerConv` as one attention in which every channel is a head."""
    conv, width = call.conv, call.conv.out_channels
    call.only("x", "pos")
    source, own = call.both_ends()
    pos_source, pos_own = call.both_ends("pos")
    for part in (conv.pos_nn, conv.attn_nn):
        mixed = "" if part is None else why_not_row_wise(part)
        if mixed:
            raise NotIncremental(f"it computes attention by something that mixes rows: {mixed}")
    lin, lin_src = linear(conv.lin), linear(conv.lin_src)

    def sent(x: Tensor, pos: Tensor) -> Tensor:
        return torch.cat([lin(x), lin_src(x), pos], 1)

    def terms(sent: Tensor, alpha_i: Tensor, pos_i: Tensor) -> tuple[Tensor, Tensor]:
        value, alpha_j, pos_j = sent.split([width, width, sent.shape[1] - 2 * width], 1)
        delta = conv.pos_nn(pos_i - pos_j)
        logits = alpha_i - alpha_j + delta
        if conv.attn_nn is not None:
            logits = conv.attn_nn(logits)
        return logits, (value + delta).view(-1, logits.shape[1], width // logits.shape[1])

    message = call.map("sent", sent, source, pos_source, costly=True)
    target = call.map("target", linear(conv.lin_dst), own, costly=True)
    heads = _heads(call, target)
    loop = None
    if conv.add_self_loops:
        check_loops(source, own)
        call, loop = call.without_loops(), ()
    return call.attend(terms, (message,), (target, pos_own), heads=heads, loop=loop)


def _heads(call: ConvCall, target: Value) -> int:
    """Number of logits of an edge: one for every channel, or one for all."""
    conv = call.conv
    width: int = conv.out_channels
    if conv.attn_nn is None:
        return width
    logits: Tensor = conv.attn_nn(torch.zeros_like(call.example(target)))
    heads = logits.shape[1]
    if heads not in (1, width):
        raise NotIncremental(f"its attn_nn returns {heads} channels, not {width}")
    return heads
