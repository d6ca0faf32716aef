"""Messages from the source row and edge attributes: GMMConv and SplineConv.

    GMM     e = gaussians(edge_attr)    out = Aggr(sum_k (x g_k)_j e_k) + root(x) + bias
    Spline  out = Aggr(weighted(x_j, edge_attr)) + lin(x) + bias

What comes from the attributes alone is a row map over edges: it is stored, and computed once for
each edge. No target is read, so a changed row is retracted and inserted along its out-edges only.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GMMConv, SplineConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.inner import needed, with_bias
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value


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
