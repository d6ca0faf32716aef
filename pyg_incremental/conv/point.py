"""Convs of point clouds: PointNetConv and PPFConv.

    PointNet  out = global_nn(Aggr(local_nn(x_j, pos_j - pos_i)))
    PPF       out = global_nn(Aggr(local_nn(x_j, point pair features)))

Differences of rows are taken on the edge and not moved through the first linear layer: two large
coordinates that lie close together would lose their difference in the products.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.nn import PointNetConv, PPFConv
from torch_geometric.nn.conv.ppf_conv import point_pair_features

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.inner import row_wise
from pyg_incremental.conv.own_loop import reduced_with_loop
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import NotIncremental, Value


@register(PointNetConv)
def point_net(call: ConvCall) -> Value:
    """`PointNetConv` (Qi et al., 2017, Eq. 1, over the neighbours of a point)."""
    call.only("x", "pos")
    return _around_points(call, ("pos",), lambda far, own: far - own)


@register(PPFConv)
def ppf(call: ConvCall) -> Value:
    """`PPFConv` (Deng et al., 2018, Eq. 1 and Section 3.1)."""
    call.only("x", "pos", "normal")

    def features(pos_j: Tensor, normal_j: Tensor, pos_i: Tensor, normal_i: Tensor) -> Tensor:
        made: Tensor = point_pair_features(pos_i, pos_j, normal_i, normal_j)
        return made

    return _around_points(call, ("pos", "normal"), features)


def _around_points(
    call: ConvCall, names: tuple[str, ...], features: Callable[..., Tensor]
) -> Value:
    """`global_nn(Aggr(local_nn(x_j, features)))`, every point being its own neighbour, too.

    `features` takes the named rows at the source, then those at the target.
    """
    conv = call.conv
    local_nn, global_nn = row_wise(conv.local_nn, "local_nn"), row_wise(conv.global_nn, "global_nn")
    sources, targets = zip(*(call.both_ends(name) for name in names), strict=True)
    has_x = call.args.get("x") is not None
    if has_x:
        sources = (call.ends("x")[0], *sources)

    def message(*rows: Tensor) -> Tensor:
        shape = features(*rows[1:]) if has_x else features(*rows)
        made: Tensor = local_nn(torch.cat([rows[0], shape], dim=1) if has_x else shape)
        return made

    if conv.add_self_loops:
        call.only_coo()
        if call.source_kind != call.target_kind:
            raise NotIncremental("it adds loops between the nodes of two sets")
        around = call.without_loops()
        loop = call.map("loop", message, *sources, *targets, costly=True)
        out = reduced_with_loop(around, around.message(message, sources, targets), loop)
    else:
        out = call.reduce(call.message(message, sources, targets))
    if conv.global_nn is None:
        return out
    return call.map("out", global_nn, out, costly=True)
