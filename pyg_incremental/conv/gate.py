"""GATEConv (Xiong et al., 2019), the first layer of `AttentiveFP`: attention with edge attributes.

    h_ji = leaky_relu(lin1([x_j, e]))      logit = leaky_relu(att_l . h_ji + att_r . x_i)
    out_i = Softmax(logit, lin2(x_j)) + bias

`lin1` is a sum of two parts, so what belongs to a node is computed once for each node.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.models.attentive_fp import GATEConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import NotIncremental, Value


@register(GATEConv)
def gate(call: ConvCall) -> Value:
    """`GATEConv` as steps: attention, then the bias."""
    conv = call.conv
    call.only("x", "edge_attr")
    attr = call.coo_edge("edge_attr")
    if attr is None:
        raise NotIncremental("it is called without edge attributes")
    for layer in (conv.lin1, conv.lin2):
        linear(layer)  # refuses anything else
    out_channels, in_channels = conv.lin2.out_features, conv.att_r.shape[1]

    def sent(x: Tensor) -> Tensor:
        return torch.cat([conv.lin2(x), F.linear(x, conv.lin1.weight[:, :in_channels])], 1)

    def terms(sent: Tensor, at_i: Tensor, attr: Tensor) -> tuple[Tensor, Tensor]:
        value, hidden = sent[:, :out_channels], sent[:, out_channels:]
        edge = F.linear(attr, conv.lin1.weight[:, in_channels:])
        logit = F.linear(F.leaky_relu(hidden + edge), conv.att_l)
        return F.leaky_relu(logit + at_i), value.unsqueeze(1)

    source = call.map("source", sent, call.node(), costly=True)
    target = call.map("target", lambda x: F.linear(x, conv.att_r), call.node(), costly=True)
    summed = call.attend(terms, (source,), (target,), (attr,), heads=1)
    return call.map("out", lambda rows: rows + conv.bias, summed)
