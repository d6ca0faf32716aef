"""GENConv (Li et al., 2020, "DeeperGCN").

out = mlp(x_i + norm(Aggr(relu(x_j + e) + eps)))
"""

from torch import Tensor
from torch_geometric.nn import GENConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program.row_wise import why_not_row_wise
from pyg_incremental.program.steps import NotIncremental, Value


@register(GENConv)
def gen(call: ConvCall) -> Value:
    """`GENConv` as steps: aggregated messages, normalised, added to the node, then the MLP.

    Without edge attributes a message is a node value.
    """
    conv = call.conv
    call.only("x", "edge_attr")
    mixed = next(filter(None, map(why_not_row_wise, conv.mlp)), "")
    if mixed:
        raise NotIncremental(f"its mlp mixes rows: {mixed}")
    source, own = call.ends()
    root = own
    if hasattr(conv, "lin_src"):
        source = call.map("lin_src", linear(conv.lin_src), source, costly=True)
    beside = source if own is None else own  # PyG measures the root before `lin_dst`
    attr = _edge_attr(call)
    if attr is None:
        sent = call.map("sent", lambda x: x.relu() + conv.eps, source)
        rows = call.reduce(sent)
    else:
        lin_edge = linear(conv.lin_edge) if hasattr(conv, "lin_edge") else None

        def message(x: Tensor, attr: Tensor) -> Tensor:
            rows: Tensor = attr if lin_edge is None else lin_edge(attr)
            rows = (x + rows).relu() + conv.eps
            return rows

        rows = call.reduce(call.message(message, (source,), (), (attr,)))
    if hasattr(conv, "lin_aggr_out"):
        rows = call.map("lin_aggr_out", linear(conv.lin_aggr_out), rows, costly=True)
    if hasattr(conv, "msg_norm"):
        rows = call.map("norm", lambda x, m: conv.msg_norm(x, m), beside, rows)
    if root is not None and hasattr(conv, "lin_dst"):
        root = call.map("lin_dst", linear(conv.lin_dst), root, costly=True)
    added = (rows,) if root is None else (rows, root)

    def out(rows: Tensor, root: Tensor | None = None) -> Tensor:
        result: Tensor = conv.mlp(rows if root is None else rows + root)
        return result

    return call.map("out", out, *added, costly=True)


def _edge_attr(call: ConvCall) -> Value | None:
    attr = call.coo_edge("edge_attr")
    if call.format == "sparse_tensor" and call.weights is not None:
        raise NotIncremental("the values of its sparse tensor are added to the features")
    if attr is not None and not call.example(attr).dtype.is_floating_point:
        raise NotIncremental("'edge_attr' is not a floating-point tensor")
    return attr
