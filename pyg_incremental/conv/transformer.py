"""TransformerConv (Shi et al., 2021).

out = Softmax(query_i . (key_j + e) / sqrt(channels), value_j + e),   root term, gate
"""

import math

import torch
from torch import Tensor
from torch_geometric.nn import TransformerConv

from pyg_incremental.conv.attend import heads_joined
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.edge_attr import edge_attr
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import NotIncremental, Value


@register(TransformerConv)
def transformer(call: ConvCall) -> Value:
    """`TransformerConv` as steps: attention, then the root term, added or gated."""
    conv, heads, channels = call.conv, call.conv.heads, call.conv.out_channels
    call.only("x", "edge_attr")
    if conv.lin_edge is None and call.args.get("edge_attr") is not None:
        raise NotIncremental("'edge_attr' is given without an edge_dim")
    source, own = call.both_ends()
    key, value = linear(conv.lin_key), linear(conv.lin_value)
    sent = call.map("sent", lambda x: torch.cat([key(x), value(x)], 1), source, costly=True)
    query = call.map("query", linear(conv.lin_query), own, costly=True)
    attr = edge_attr(call)
    lin_edge = None if attr is None else linear(conv.lin_edge)

    def terms(sent: Tensor, query: Tensor, attr: Tensor | None = None) -> tuple[Tensor, Tensor]:
        key, value = (t.reshape(-1, heads, channels) for t in sent.chunk(2, 1))
        if attr is not None and lin_edge is not None:
            edge = lin_edge(attr).view(-1, heads, channels)
            key, value = key + edge, value + edge
        logits = (query.view(-1, heads, channels) * key).sum(-1) / math.sqrt(channels)
        return logits, value

    inputs = [call.attend(terms, (sent,), (query,), (attr,), heads=heads)]
    if conv.root_weight:
        inputs.append(call.map("root", linear(conv.lin_skip), own, costly=True))

    def out(rows: Tensor, root: Tensor | None = None) -> Tensor:
        rows = heads_joined(conv, rows)
        if root is None:
            return rows
        if conv.lin_beta is None:
            return rows + root
        beta: Tensor = conv.lin_beta(torch.cat([rows, root, rows - root], dim=-1)).sigmoid()
        return beta * root + (1 - beta) * rows

    return call.map("out", out, *inputs, costly=conv.lin_beta is not None)
