"""PNAConv (Corso et al., 2020, Eq. 5 to 8).

    h = a_i + b_j + e_ji      out = lin(post(x, scalers(aggregators(rest(h)))))

The first layer of `pre_nn` is linear, so its parts at the target (a), at the source (b) and on the
edge (e) are computed once each. With one such layer, the usual case, there is no rest, and the
target's part is added behind the aggregators: nothing depends on the target any more.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import DegreeScalerAggregation, PNAConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.inner import attributes, row_wise
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.reduction import scaled_by
from pyg_incremental.conv.registry import register
from pyg_incremental.conv.shifted import reduced_with_shift
from pyg_incremental.program.steps import NotIncremental, Value


@register(PNAConv)
def pna(call: ConvCall) -> Value:
    """`PNAConv` as steps."""
    conv, module = call.conv, call.conv.aggr_module
    call.only("x", "edge_attr")
    x, edge = call.node(), attributes(call)
    if (edge is None) != (conv.edge_dim is None):
        raise NotIncremental("PyG takes edge_attr if and only if there is an edge_dim")
    if type(module) is not DegreeScalerAggregation:
        raise NotIncremental(f"{module} stands in the place of a DegreeScalerAggregation")
    firsts = [each[0] for each in conv.pre_nns]
    rest = [row_wise(each[1:], "pre_nn") for each in conv.pre_nns]
    for each in (*firsts, *conv.post_nns, conv.lin):
        row_wise(each, "network")
    a = call.map("target", partial(_first, conv, firsts, 0), x, costly=True)
    b = call.map("source", partial(_first, conv, firsts, 1), x, costly=True)
    edges: tuple[Value, ...] = ()
    if edge is not None:
        encode = linear(conv.edge_encoder)
        edges = (
            call.map("edge", lambda e: _shared(conv, firsts, 2, encode(e)), edge, costly=True),
        )
    aggregated = _aggregated(call, a, b, edges, rest)

    def out(x: Tensor, rows: Tensor, count: Tensor) -> Tensor:
        scaled = [rows * scaled_by(module, name, count) for name in module.scaler]
        # From [scaler, aggregator, tower, channel] to [tower, scaler, aggregator, channel].
        towers = torch.cat(scaled, 1).unflatten(1, (-1, conv.towers, conv.F_in)).transpose(1, 2)
        both = torch.cat([_tower_rows(conv, x), towers.flatten(2)], -1)
        made: Tensor = conv.lin(
            torch.cat([post(both[:, i]) for i, post in enumerate(conv.post_nns)], 1)
        )
        return made

    return call.map("out", out, x, aggregated, call.degree(), costly=True)


def _aggregated(
    call: ConvCall, a: Value, b: Value, edges: tuple[Value, ...], rest: Sequence[Any]
) -> Value:
    """Messages reduced by each aggregator, `[num_nodes, aggregators * towers * channels]`."""
    conv, inner = call.conv, call.conv.aggr_module.aggr
    if not len(rest[0]):
        plain = b if not edges else call.message(torch.add, (b,), (), edges)
        return reduced_with_shift(call, plain, a, inner)

    def message(far: Tensor, own: Tensor, edge: Tensor | None = None) -> Tensor:
        h = (far + own if edge is None else far + own + edge).unflatten(1, (conv.towers, -1))
        return torch.cat([tower(h[:, i]) for i, tower in enumerate(rest)], 1)

    return call.reduce(call.message(message, (b,), (a,), edges), module=inner)


def _first(conv: PNAConv, firsts: Sequence[nn.Linear], part: int, x: Tensor) -> Tensor:
    """The first layers' part 0 (target, with the bias) or 1 (source), `[n, towers * channels]`."""
    if not conv.divide_input:
        return _shared(conv, firsts, part, x)
    weight = torch.stack([_columns(conv, lin, part) for lin in firsts])
    rows = torch.einsum("ntf,tgf->ntg", _tower_rows(conv, x), weight).flatten(1)
    return rows if part else rows + torch.cat([lin.bias for lin in firsts])


def _shared(conv: PNAConv, firsts: Sequence[nn.Linear], part: int, rows: Tensor) -> Tensor:
    """The same part, for rows that all towers share."""
    weight = torch.cat([_columns(conv, lin, part) for lin in firsts])
    return F.linear(rows, weight, None if part else torch.cat([lin.bias for lin in firsts]))


def _columns(conv: PNAConv, lin: nn.Linear, part: int) -> Tensor:
    return lin.weight[:, part * conv.F_in : (part + 1) * conv.F_in]


def _tower_rows(conv: PNAConv, x: Tensor) -> Tensor:
    """The input of each tower, `[n, towers, channels]`."""
    if conv.divide_input:
        return x.view(len(x), conv.towers, conv.F_in)
    return x.unsqueeze(1).expand(-1, conv.towers, -1)
