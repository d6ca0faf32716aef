"""FeaStConv (Verma et al., 2018).

q = softmax over heads of u(x_j) - u(x_i) + c      out = Mean(sum over heads q_h W_h x_j) + bias
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import FeaStConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.edge_attr import check_loops
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.own_loop import reduced_with_loop
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value


@register(FeaStConv)
def feast(call: ConvCall) -> Value:
    """`FeaStConv` as steps: any aggregation of weighted messages, then the bias."""
    conv, heads = call.conv, call.conv.heads
    call.only("x")
    source, own = call.both_ends()
    lin, u = linear(conv.lin), linear(conv.u)
    sent = call.map("sent", lambda x: torch.cat([lin(x), u(x)], 1), source, costly=True)
    if own is source:
        target = call.map("target", lambda s: s[:, -heads:], sent)
    else:
        target = call.map("target", u, own, costly=True)

    def message(sent: Tensor, u_i: Tensor) -> Tensor:
        q = F.softmax(sent[:, -heads:] - u_i + conv.c, dim=1)
        return (sent[:, :-heads].view(-1, heads, conv.out_channels) * q.unsqueeze(-1)).sum(dim=1)

    if conv.add_self_loops:
        check_loops(source, own)
        call = call.without_loops()
    loop = call.map("loop", message, sent, target) if conv.add_self_loops else None
    rows = reduced_with_loop(call, call.message(message, (sent,), (target,)), loop)
    if conv.bias is None:
        return rows
    return call.map("out", lambda rows: rows + conv.bias, rows)
