"""Messages gated by both ends of an edge: CGConv and ResGatedGraphConv.

    CG        f, s = parts of lin_f, lin_s      out = bn(Aggr(sigmoid(f) softplus(s))) + x
    ResGated  k, q, v = parts of lin_key, lin_query, lin_value
              out = Aggr(act(k_i + q_j) v_j) + lin_skip(x) + bias

Every linear layer on a concatenation is taken apart: one part at the target, one at the source, one
on the edge, each computed once and stored. The message itself only adds and multiplies them.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import CGConv, ResGatedGraphConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.inner import (
    attributes,
    linear_parts,
    row_wise,
    side_by_side,
    widths,
    with_bias,
)
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import NotIncremental, Value


@register(CGConv)
def cg(call: ConvCall) -> Value:
    """`CGConv` (Xie and Grossman, 2018, Eq. 5)."""
    conv = call.conv
    call.only("x", "edge_attr")
    source, target = call.both_ends()
    edge = attributes(call)
    parts = widths(call, target, source, edge)
    at_target, at_source, *on_edge = (
        side_by_side(*maps)
        for maps in zip(
            *(linear_parts(lin, parts) for lin in (conv.lin_f, conv.lin_s)), strict=True
        )
    )
    message = call.message(
        _gated,
        (call.map("source", at_source, source, costly=True),),
        (call.map("target", at_target, target, costly=True),),
        () if edge is None else (call.map("edge", on_edge[0], edge, costly=True),),
    )
    norm = row_wise(conv.bn, "batch norm")
    return call.map("out", lambda rows, x: norm(rows) + x, call.reduce(message), target)


def _gated(source: Tensor, target: Tensor, edge: Tensor | None = None) -> Tensor:
    both = source + target if edge is None else source + target + edge
    gate, core = both.chunk(2, 1)
    return gate.sigmoid() * F.softplus(core)


@register(ResGatedGraphConv)
def res_gated(call: ConvCall) -> Value:
    """`ResGatedGraphConv` (G-GCN; Bresson and Laurent, 2017, Eq. 11 and 12)."""
    conv = call.conv
    call.only("x", "edge_attr")
    source, target = call.both_ends()
    edge = attributes(call)
    if (edge is None) != (conv.edge_dim is None):
        raise NotIncremental("PyG takes edge_attr if and only if there is an edge_dim")
    act = row_wise(conv.act, "act")
    width = conv.out_channels
    key = linear_parts(conv.lin_key, widths(call, target, edge))
    query = linear_parts(conv.lin_query, widths(call, source, edge))
    value = linear_parts(conv.lin_value, widths(call, source, edge))

    def gated(source: Tensor, key: Tensor, edge: Tensor | None = None) -> Tensor:
        query, value = (source if edge is None else source + edge).split(width, 1)
        rows: Tensor = act(key + query) * value
        return rows

    edges: tuple[Value, ...] = ()
    if edge is not None:

        def on_edge(e: Tensor) -> Tensor:
            return torch.cat([key[1](e) + query[1](e), value[1](e)], 1)

        edges = (call.map("edge", on_edge, edge, costly=True),)
    message = call.message(
        gated,
        (call.map("source", side_by_side(query[0], value[0]), source, costly=True),),
        (call.map("target", key[0], target, costly=True),),
        edges,
    )
    rows = call.reduce(message)
    if not conv.root_weight:
        return with_bias(call, rows)
    return with_bias(call, rows, call.map("skip", linear(conv.lin_skip), target, costly=True))
