"""GCNConv (Kipf and Welling, 2017, Eq. 2): `A lin(x) + bias`, A the adjacency of `gcn_norm`."""

from torch_geometric.nn import GCNConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.normalize import gcn_hop, plain_hop
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value


@register(GCNConv)
def gcn(call: ConvCall) -> Value:
    """`GCNConv` as steps: normalised sum over the in-edges and a self-loop."""
    conv = call.conv
    call.only("x", "edge_weight")
    x = call.node()
    if conv.normalize:
        hop = gcn_hop(call, conv.add_self_loops, 2.0 if conv.improved else 1.0)
    else:
        hop = plain_hop(call)
    return hop(x, "hop", linear(conv.lin), biased=True)
