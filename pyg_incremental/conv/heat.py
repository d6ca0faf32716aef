"""HEATConv (Mo et al., 2021), where z is made by the linear layer of the node's type.

    e = [emb(type), emb(attr)]      logit = leaky_relu(att . [z_i, z_j, e])
    out = Softmax(logit, lin([z_j, emb(attr)])) + z_i

Both linear layers are sums of parts, so what belongs to a node is computed once for each node.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import HEATConv

from pyg_incremental.conv.attend import heads_joined
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import NotIncremental, Value


@register(HEATConv)
def heat(call: ConvCall) -> Value:
    """`HEATConv` as steps: attention, then the node itself."""
    conv, channels = call.conv, call.conv.out_channels
    call.only("x", "node_type", "edge_type", "edge_attr")
    kinds, attr = call.coo_edge("edge_type"), call.coo_edge("edge_attr")
    if kinds is None or attr is None:
        raise NotIncremental("it is called without edge types or attributes")
    z = call.map("z", conv.hetero_lin, call.node(), call.node("node_type"), costly=True)
    for layer in (conv.att, conv.lin, conv.edge_attr_emb):
        linear(layer)  # refuses anything else

    def sent(z: Tensor) -> Tensor:
        value = F.linear(z, conv.lin.weight[:, :channels], conv.lin.bias)
        return torch.cat([value, F.linear(z, conv.att.weight[:, channels : 2 * channels])], 1)

    def terms(sent: Tensor, at_i: Tensor, kind: Tensor, attr: Tensor) -> tuple[Tensor, Tensor]:
        attr = F.leaky_relu(conv.edge_attr_emb(attr), conv.negative_slope)
        value = sent[:, :channels] + F.linear(attr, conv.lin.weight[:, channels:])
        edge = F.linear(torch.cat([kind, attr], 1), conv.att.weight[:, 2 * channels :])
        logits = F.leaky_relu(at_i + sent[:, channels:] + edge, conv.negative_slope)
        return logits, value.unsqueeze(1).expand(-1, conv.heads, -1)

    kind = call.map(
        "kind", lambda types: F.leaky_relu(conv.edge_type_emb(types), conv.negative_slope), kinds
    )
    source = call.map("sent", sent, z, costly=True)
    target = call.map(
        "target", lambda z: F.linear(z, conv.att.weight[:, :channels]), z, costly=True
    )
    inputs = [call.attend(terms, (source,), (target,), (kind, attr), heads=conv.heads)]
    if conv.root_weight:
        inputs.append(z)

    def out(rows: Tensor, root: Tensor | None = None) -> Tensor:
        rows = heads_joined(conv, rows)
        if root is None:
            return rows
        return rows + (root.repeat(1, conv.heads) if conv.concat else root)

    return call.map("out", out, *inputs)
