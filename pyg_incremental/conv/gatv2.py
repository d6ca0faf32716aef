"""GATv2Conv (Brody et al., 2022).

out = Softmax(att . leaky_relu(lin_l(x_j) + lin_r(x_i) + lin_edge(e)), lin_l(x_j))
      + residual + bias
"""

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATv2Conv

from pyg_incremental.conv.attend import joined, settled
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.edge_attr import check_loops, edge_attr, loop_attr
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.conv.with_weights import ASKS, WithWeights, are_asked_for, weights_of
from pyg_incremental.program.steps import Value


@register(GATv2Conv)
def gatv2(call: ConvCall) -> Value | WithWeights:
    """`GATv2Conv` as steps: attention, then residual and bias.

    `lin_edge` runs wherever an edge is read: its results are too wide to be kept for every edge.
    """
    conv = call.conv
    call.only("x", "edge_attr", ASKS)
    is_asked, (source, own) = are_asked_for(call), call.both_ends()
    left = call.map("left", linear(conv.lin_l), source, costly=True)
    right = left
    if own is not source or not conv.share_weights:
        right = call.map("right", linear(conv.lin_r), own, costly=True)
    attr, loop = edge_attr(call), None
    lin_edge = None if attr is None else linear(conv.lin_edge)
    if conv.add_self_loops:
        check_loops(source, own)
        call = call.without_loops()
        loop = () if attr is None else (loop_attr(call, attr, right),)

    def terms(left: Tensor, right: Tensor, attr: Tensor | None = None) -> tuple[Tensor, Tensor]:
        rows = right + left
        if attr is not None and lin_edge is not None:
            rows = rows + lin_edge(attr)
        rows = F.leaky_relu(rows, conv.negative_slope).view(-1, conv.heads, conv.out_channels)
        return (rows * conv.att).sum(-1), left.view(-1, conv.heads, conv.out_channels)

    if is_asked and loop is not None:
        message = call.message(terms, (left,), (right,), (attr,), "attention")
        state = call.softmax_of(message, loop, "attention_softmax")
        rows = settled(call, conv.aggr_module, state, conv.heads, True, "attention")

        def logits(*rows: Tensor) -> Tensor:
            return terms(*rows)[0]

        weights = weights_of(call, logits, left, right, attr, loop, state)
        return WithWeights(joined(call, rows, own), *weights)
    rows = call.attend(terms, (left,), (right,), (attr,), heads=conv.heads, loop=loop)
    return joined(call, rows, own)
