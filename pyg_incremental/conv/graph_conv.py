"""GraphConv (Morris et al., 2019, Eq. 1).

    out = lin_rel(Aggr(weight * x)) + lin_root(x)

For sum and mean `lin_rel` moves in front of the aggregation when that pays (see `push_down`).
"""

from torch_geometric.nn import GraphConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.push_down import pays
from pyg_incremental.conv.registry import register
from pyg_incremental.program import Value


@register(GraphConv)
def graph_conv(call: ConvCall) -> Value:
    """`GraphConv` as steps: aggregated neighbours plus root term."""
    conv = call.conv
    call.only("x", "edge_weight")
    x = call.node()
    if call.is_coo or (not call.fused and call.args.get("edge_weight") is not None):
        weight = call.weight()
    else:
        weight = call.matrix_weights()
    lin = conv.lin_rel
    # The bias joins the root term, which is stored: one addition less at every touched row.
    root = call.map("root", linear(conv.lin_root, bias_of=lin), x, costly=True)
    if call.is_linear and pays(lin.weight):
        z = call.map("lin_rel", linear(lin, bias=False), x, costly=True)
        return call.map("out", lambda a, r: a + r, call.reduce(z, weight), root)
    rel = linear(lin, bias=False)
    return call.map("out", lambda a, r: rel(a) + r, call.reduce(x, weight), root, costly=True)
