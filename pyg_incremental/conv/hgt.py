"""HGTConv (Hu et al., 2020, Eq. 2 to 5): attention over the in-edges of all relations at once.

    k, q, v = lin(x)                        for each type of nodes
    k_r, v_r = W_k[r] k * p[r] / sqrt(d), W_v[r] v      for each relation r, at its source
    S_r = softmax-weighted sum of v_r, with logits q_i . k_r
    out = skip(lin(gelu(all S_r as one)), x)

The softmax of a row runs over several graphs, and every graph keeps its own numerator, mass and
reference. They become one by a row map, because sums that are scaled alike can be added.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import HGTConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.ops import softmax_result
from pyg_incremental.program.steps import Domain, NotIncremental, Value


@register(HGTConv)
def hgt(call: ConvCall) -> dict[str, Value]:
    """`HGTConv` as steps: one softmax state for each relation, joined at its target."""
    conv = call.conv
    call_args = dict(call.args)
    x = _values(call_args.pop("x_dict", None), "x_dict")
    graphs = _values(call_args.pop("edge_index_dict", None), "edge_index_dict")
    if any(v is not None for v in call_args.values()) or conv.flow != "source_to_target":
        raise NotIncremental("it is called with more than features and edges, or against the edges")
    if list(graphs) != [e for e in conv.edge_types if e in graphs]:
        # PyG looks up the weights of a relation as if the edge types came in this order.
        raise NotIncremental("the edge types come in another order than in its metadata")
    kqv = {
        kind: call.map(f"{kind}.kqv", linear(lin), x[kind], costly=True)
        for kind, lin in conv.kqv_lin.lins.items()
        if kind in x
    }
    out = {}
    for kind, rows in kqv.items():
        if kind not in conv.dst_node_types:
            continue
        q = call.map(f"{kind}.q", lambda rows: rows.tensor_split(3, 1)[1].contiguous(), rows)
        states = [
            _state(call, edge_type, graph, kqv[edge_type[0]], q)
            for edge_type, graph in graphs.items()
            if edge_type[-1] == kind
        ]
        out[kind] = _finished(call, kind, x[kind], states)
    return out


def _values(argument: object, name: str) -> Mapping[Any, Value]:
    if not isinstance(argument, Mapping) or not all(
        isinstance(v, Value) and v.domain is not Domain.EDGE for v in argument.values()
    ):
        raise NotIncremental(f"'{name}' is not a dict of node features or of graphs handed in")
    return argument


def _state(call: ConvCall, edge_type: tuple[str, ...], graph: Value, kqv: Value, q: Value) -> Value:
    """Numerator, mass and reference of one relation."""
    conv, heads = call.conv, call.conv.heads
    relation, at = call.program.graphs[graph], conv.edge_types_map[edge_type]
    count, channels, name = len(conv.edge_types), conv.out_channels // heads, "__".join(edge_type)

    def kv(rows: Tensor) -> Tensor:
        k, _, v = (part.view(-1, heads, channels) for part in rows.tensor_split(3, 1))
        scale = conv.p_rel[name].view(heads, 1) / math.sqrt(channels)
        k = torch.einsum("nhc,hcd->nhd", k, conv.k_rel.weight[at::count]) * scale
        v = torch.einsum("nhc,hcd->nhd", v, conv.v_rel.weight[at::count])
        return torch.cat([k.flatten(1), v.flatten(1)], 1)

    def attend(kv: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        k, v = kv.view(-1, 2, heads, channels).unbind(1)
        return (q.view(-1, heads, channels) * k).sum(-1), v

    over = replace(call, relation=relation)
    source = over.map(f"{name}.kv", kv, kqv, costly=True)
    return over.softmax_of(over.message(attend, (source,), (q,)), None, f"{name}.softmax")


def _finished(call: ConvCall, kind: str, x: Value, states: list[Value]) -> Value:
    conv, lin = call.conv, linear(call.conv.out_lin.lins[kind])

    def out(x: Tensor, *states: Tensor) -> Tensor:
        rows = joined(states, conv.heads) if states else x.new_zeros(len(x), conv.out_channels)
        rows = lin(F.gelu(rows))
        if rows.shape[-1] != x.shape[-1]:
            return rows
        alpha = conv.skip[kind].sigmoid()
        mixed: Tensor = alpha * rows + (1 - alpha) * x
        return mixed

    return call.map(f"{kind}.out", out, x, *states, costly=True)


def joined(states: tuple[Tensor, ...], heads: int) -> Tensor:
    """The softmax-weighted sum over all edges of several graphs, `[k, heads * channels]`.

    Args:
        states: For each graph numerator, mass and reference, `[k, heads * (channels + 2)]`.
        heads: Number of heads.
    """
    if len(states) == 1:
        return softmax_result(states[0], heads)
    parts = torch.stack(states)
    sums, reference = parts[..., :-heads], parts[..., -heads:]
    numerator, mass = sums[..., :-heads].unflatten(-1, (heads, -1)), sums[..., -heads:]
    reference = reference.masked_fill(mass == 0, -torch.inf)  # a row without edges there
    top = reference.amax(0)
    scale = torch.exp(reference - top.masked_fill(top == -torch.inf, 0))
    total = (mass * scale).sum(0).unsqueeze(-1)
    rows: Tensor = (numerator * scale.unsqueeze(-1)).sum(0)
    result: Tensor = torch.where(total == 0, 0.0, rows / total).flatten(1)
    return result
