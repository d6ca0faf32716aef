"""Messages from the source row and edge attributes: GINEConv, NNConv, GMMConv and SplineConv.

    GINE    e = lin(edge_attr)      out = nn(Aggr(relu(x_j + e)) + (1 + eps) x)
    NN      e = nn(edge_attr)       out = Aggr(x_j e) + lin(x) + bias
    GMM     e = gaussians(edge_attr)    out = Aggr(sum_k (x g_k)_j e_k) + root(x) + bias
    Spline  out = Aggr(weighted(x_j, edge_attr)) + lin(x) + bias

What comes from the attributes alone is a row map over edges: it is stored, and computed once for
each edge. No target is read, so a changed row is retracted and inserted along its out-edges only.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GINEConv, GMMConv, NNConv, SplineConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.inner import needed, row_wise, with_bias
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value


@register(GINEConv)
def gine(call: ConvCall) -> Value:
    """`GINEConv` (Hu et al., 2020, Section 3): GIN with edge attributes behind a ReLU."""
    conv = call.conv
    call.only("x", "edge_attr")
    source, target = call.ends()
    edge = needed(call)
    nn = row_wise(conv.nn, "nn")
    if conv.lin is not None:
        edge = call.map("edge", linear(conv.lin), edge, costly=True)
    inputs = [call.reduce(call.message(_gine_message, (source,), (), (edge,)))]

    def out(rows: Tensor, own: Tensor | None = None) -> Tensor:
        made: Tensor = nn(rows if own is None else rows + (1 + conv.eps) * own)
        return made

    return call.map("out", out, *inputs, *([] if target is None else [target]), costly=True)


def _gine_message(x: Tensor, edge: Tensor) -> Tensor:
    return (x + edge).relu()


@register(NNConv)
def nn_conv(call: ConvCall) -> Value:
    """`NNConv` (Gilmer et al., 2017, Section 5): a matrix for each edge, made by a network."""
    conv = call.conv
    call.only("x", "edge_attr")
    nn = row_wise(conv.nn, "nn")
    shape = (-1, conv.in_channels_l, conv.out_channels)
    matrix = call.map("edge", lambda e: nn(e).view(shape), needed(call), costly=True)
    root = linear(conv.lin) if conv.root_weight else None
    return _with_root(call, _product, call.ends()[0], matrix, root)


def _product(x: Tensor, matrix: Tensor) -> Tensor:
    return torch.matmul(x.unsqueeze(1), matrix).squeeze(1)


@register(GMMConv)
def gmm(call: ConvCall) -> Value:
    """`GMMConv` (MoNet; Monti et al., 2017, Eq. 8 to 11): a mixture of Gaussians of attributes."""
    conv = call.conv
    call.only("x", "edge_attr")

    def gaussians(edge: Tensor) -> Tensor:
        mean, spread = conv.mu, conv.sigma
        edge = edge.view(len(edge), *[1] * (mean.dim() - 1), conv.dim)
        distance: Tensor = -0.5 * (edge - mean).pow(2) / (1e-15 + spread.pow(2))
        return distance.sum(-1).exp()

    def matrices(edge: Tensor) -> Tensor:
        each = gaussians(edge)
        summed: Tensor = (each * conv.g.view(each.shape[1:])).sum(-1)
        return summed

    source, edge, root = call.ends()[0], needed(call), linear(conv.root)
    if conv.separate_gaussians:
        made = call.map("edge", matrices, edge, costly=True)
        return _with_root(call, _over_channels, source, made, root)
    z = call.map("z", lambda x: torch.matmul(x, conv.g), source, costly=True)
    return _with_root(call, _over_kernels, z, call.map("edge", gaussians, edge), root)


def _over_channels(x: Tensor, matrix: Tensor) -> Tensor:
    return (x.unsqueeze(2) * matrix).sum(1)


def _over_kernels(x: Tensor, gaussian: Tensor) -> Tensor:
    kernels: Tensor = x.unflatten(1, (gaussian.shape[1], -1))
    return (kernels * gaussian.unsqueeze(2)).sum(1)


@register(SplineConv)
def spline(call: ConvCall) -> Value:
    """`SplineConv` (Fey et al., 2018, Eq. 2): weights on a grid of B-splines of attributes."""
    conv = call.conv
    call.only("x", "edge_attr")
    root = linear(conv.lin) if conv.root_weight else None
    return _with_root(call, conv.message, call.ends()[0], needed(call), root)


def _with_root(
    call: ConvCall,
    fn: Callable[..., Any],
    source: Value,
    edge: Value,
    root: Callable[[Tensor], Tensor] | None,
) -> Value:
    """`Aggr(fn(x_j, e)) + root(x) + bias`."""
    target = call.ends()[1]
    rows = call.reduce(call.message(fn, (source,), (), (edge,)))
    if root is None or target is None:
        return with_bias(call, rows)
    return with_bias(call, rows, call.map("root", root, target, costly=True))
