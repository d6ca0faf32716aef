"""Attention by how alike two nodes are: AGNNConv and SuperGATConv.

AGNN (Thekumparampil et al., 2018): the logit is `beta cos(x_i, x_j)`, the value is `x_j`.

SuperGAT (Kim and Oh, 2021), z = lin(x): the logit is the leaky ReLU of
`z_i . z_j / sqrt(channels)` (SD) or `(a_l . z_j + a_r . z_i) sigmoid(z_i . z_j)` (MX), the value is
`z_j`. What it adds in training, self-supervision by sampled edges, does not touch the output.
"""

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import AGNNConv, SuperGATConv

from pyg_incremental.conv.attend import joined
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import NotIncremental, Value


@register(AGNNConv)
def agnn(call: ConvCall) -> Value:
    """`AGNNConv` as one attention over normalised features."""
    conv = call.conv
    call.only("x")
    x = call.node()
    if call.example(x).dim() != 2:
        raise NotIncremental("its features have more than one dimension")

    def terms(x_j: Tensor, x_i: Tensor) -> tuple[Tensor, Tensor]:
        cosine = (F.normalize(x_i, dim=-1) * F.normalize(x_j, dim=-1)).sum(-1, keepdim=True)
        return conv.beta * cosine, x_j.unsqueeze(1)

    return _attended(call, terms, x, heads=1)


@register(SuperGATConv)
def supergat(call: ConvCall) -> Value:
    """`SuperGATConv` in eval mode as steps: attention, then the bias."""
    conv, heads, channels = call.conv, call.conv.heads, call.conv.out_channels
    call.only("x", "batch")
    x = call.node()
    z = call.map("z", linear(conv.lin), x, costly=True)
    mixed = conv.attention_type == "MX"

    def terms(z_j: Tensor, z_i: Tensor) -> tuple[Tensor, Tensor]:
        z_j, z_i = z_j.view(-1, heads, channels), z_i.view(-1, heads, channels)
        alike = (z_i * z_j).sum(-1)
        if mixed:
            parts = (z_j * conv.att_l).sum(-1) + (z_i * conv.att_r).sum(-1)
            logits = parts * alike.sigmoid()
        else:
            logits = alike / math.sqrt(channels)
        return F.leaky_relu(logits, conv.negative_slope), z_j

    return joined(call, _attended(call, terms, z, heads), x)


def _attended(
    call: ConvCall,
    terms: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    x: Value,
    heads: int,
) -> Value:
    """Attention between rows of one value, self-loops included if the conv adds them."""
    if call.conv.add_self_loops:
        return call.without_loops().attend(terms, (x,), (x,), heads=heads, loop=())
    return call.attend(terms, (x,), (x,), heads=heads)
