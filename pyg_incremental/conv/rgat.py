"""RGATConv (Busbridge et al., 2019).

    z_r = x W_r      logit of an edge of type r: from q . z_r[i], k . z_r[j] and the edge attributes
    out = Softmax over all in-edges, or over those of each type (z_r[j])

The rows of a node are there once for each relation; an edge picks those of its type.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import RGATConv

from pyg_incremental.conv.by_relation import picked, there_is, typed
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.edge_attr import edge_attr
from pyg_incremental.conv.registry import register
from pyg_incremental.conv.within import added_up, apart
from pyg_incremental.ops import EdgeFunction, divided
from pyg_incremental.program.steps import NotIncremental, Value

MOST_RELATIONS = 16
"""Up to how many relations a softmax within each is kept; every edge carries all of them."""


@register(RGATConv)
def rgat(call: ConvCall) -> Value:
    """`RGATConv` as steps: rows for each relation, attention, then what `mod` says."""
    conv, heads = call.conv, call.conv.heads * call.conv.dim
    count, width = conv.num_relations, conv.heads * conv.out_channels
    call.only("x", "edge_type", "edge_attr")
    x, attr = call.node(), edge_attr(call)
    if call.coo_edge("edge_type") is None or not call.example(x).dtype.is_floating_point:
        raise NotIncremental("it is called without edge types or with node indices")
    within = conv.attention_mechanism == "within-relation"
    _refuse_attention(call, within)
    kinds = typed(call, lambda types: there_is(types, count))

    def sent(x: Tensor) -> Tensor:
        z = _of_each_relation(conv, x)
        return torch.cat([z.flatten(1), (z @ conv.k).flatten(1)], 1)

    def queries(rows: Tensor) -> Tensor:
        q: Tensor = rows[:, : count * width].view(-1, count, width) @ conv.q
        return q.flatten(1)

    def values(rows: Tensor, kinds: Tensor) -> Tensor:
        z = picked(rows[:, : count * width], kinds, count).view(
            -1, conv.heads, 1, conv.out_channels
        )
        return z.expand(-1, -1, conv.dim, -1).reshape(-1, heads, conv.out_channels)

    def terms(
        rows: Tensor, q: Tensor, kinds: Tensor, edge: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        q, k = picked(q, kinds, count), picked(rows[:, count * width :], kinds, count)
        if conv.attention_mode == "additive-self-attention":
            logits = F.leaky_relu(q + k if edge is None else q + k + edge, conv.negative_slope)
        else:
            logits = q * k if edge is None else q * k * edge
        return logits, values(rows, kinds)

    source = call.map("sent", sent, x, costly=True)
    target = call.map("queries", queries, source, costly=True)
    edge = None
    if attr is not None:
        edge = call.map("edge", lambda a: conv.lin_edge(a) @ conv.e, attr)
    if within:
        message = call.message(apart(terms, 2, count), (source,), (target,), (kinds, edge))
        state = call.softmax_of(message, None, "softmax")
        rows = call.map("attention", lambda s: added_up(s, heads, count), state)
        if call.is_mean:
            rows = call.map("mean", divided, rows, call.degree(None))
    else:
        rows = call.attend(terms, (source,), (target,), (kinds, edge), heads=heads)
    rows = _modified(call, rows, lambda: call.message(values, (source,), (), (kinds,), "plain"))

    def out(rows: Tensor) -> Tensor:
        if not conv.concat:
            rows = rows.view(-1, conv.heads, conv.dim * conv.out_channels).mean(dim=1)
        return rows if conv.bias is None else rows + conv.bias

    return call.map("out", out, rows)


def _refuse_attention(call: ConvCall, within: bool) -> None:
    """Refuse attention that no steps are known for; `within` is one softmax for each relation."""
    conv = call.conv
    if conv.mod == "f-additive":
        raise NotIncremental("mod='f-additive' asks whether an attention weight is exactly zero")
    if (within or conv.mod is not None) and not call.is_linear:
        raise NotIncremental(f"its attention is reduced by {conv.aggr_module}")
    if within and conv.num_relations > MOST_RELATIONS:
        raise NotIncremental(f"it has a softmax for each of {conv.num_relations} relations")


def _of_each_relation(conv: Any, x: Tensor) -> Tensor:
    """`x W_r`, `[k, num_relations, heads * channels]`."""
    if conv.num_blocks is not None:
        blocks = x.view(-1, conv.num_blocks, conv.in_channels // conv.num_blocks)
        return torch.einsum("nbi,rbio->nrbo", blocks, conv.weight).flatten(2)
    weight = conv.weight if conv.num_bases is None else torch.tensordot(conv.att, conv.basis, 1)
    return torch.einsum("ni,rio->nro", x, weight)


def _modified(call: ConvCall, rows: Value, plain: Callable[[], EdgeFunction]) -> Value:
    """What `mod` adds to the attention, or multiplies it by (Zhang and Xie, 2020).

    It is about the number of in-edges, which a softmax does not tell.
    """
    conv, heads = call.conv, call.conv.heads * call.conv.dim
    if conv.mod == "additive":
        total = call.reduce(plain(), part="plain")
        return call.map("modified", lambda r, s: r + s * conv.w.repeat(heads), rows, total)
    if conv.mod == "f-scaled":
        return call.map("modified", torch.mul, rows, call.degree(None))
    if conv.mod != "scaled":
        return rows

    def scaled(rows: Tensor, degree: Tensor) -> Tensor:
        factor: Tensor = (degree @ conv.l1 + conv.b1).relu() @ conv.l2 + conv.b2
        return (rows.view(len(rows), -1, conv.out_channels) * factor[:, None]).flatten(1)

    return call.map("modified", scaled, rows, call.degree(None))
