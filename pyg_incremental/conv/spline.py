"""SplineConv (Fey et al., 2018, Eq. 2): `Aggr(weighted(x_j, edge_attr)) + lin(x) + bias`.

The weights lie on a grid of B-splines of the attributes. No target is read, so a changed row is
retracted and inserted along its out-edges only.
"""

from torch_geometric.nn import SplineConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.inner import attributes, with_bias
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import NotIncremental, Value


@register(SplineConv)
def spline(call: ConvCall) -> Value:
    """`SplineConv` as steps: weighted neighbours, then the root term and the bias."""
    conv = call.conv
    call.only("x", "edge_attr")
    (source, target), attr = call.ends(), attributes(call)
    if attr is None:
        raise NotIncremental("it is called without 'edge_attr'")
    rows = call.reduce(call.message(conv.message, (source,), (), (attr,)))
    if not conv.root_weight or target is None:
        return with_bias(call, rows)
    return with_bias(call, rows, call.map("root", linear(conv.lin), target, costly=True))
