"""GraphConv (Morris et al., 2019, Eq. 1).

    out = lin_rel(Aggr(weight * x)) + lin_root(x)

For sum and mean `lin_rel` moves in front of the aggregation when that pays (see `push_down`).
"""

from torch_geometric.nn import GraphConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.push_down import pays
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value


@register(GraphConv)
def graph_conv(call: ConvCall) -> Value:
    """`GraphConv` as steps: aggregated neighbours plus root term."""
    conv = call.conv
    call.only("x", "edge_weight")
    x, own = call.ends()
    if call.is_coo or (not call.fused and call.args.get("edge_weight") is not None):
        weight = call.weight()
    else:
        weight = call.matrix_weights()
    lin = conv.lin_rel
    moved = call.is_linear and pays(lin.weight)
    source, rel = x, linear(lin, bias=own is None)
    if moved:
        source = call.map("lin_rel", linear(lin, bias=False), x, costly=True)
        rel = lambda rows: rows if own is not None or lin.bias is None else rows + lin.bias  # noqa: E731
    total = call.reduce(source, weight)
    if own is None:
        return call.map("out", rel, total, costly=not moved)
    # The bias joins the root term, which is stored: one addition less at every touched row.
    root = call.map("root", linear(conv.lin_root, bias_of=lin), own, costly=True)
    if moved:
        return call.added("out", total, root)
    return call.map("out", lambda a, r: rel(a) + r, total, root, costly=True)
