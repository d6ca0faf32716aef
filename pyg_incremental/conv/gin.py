"""GINConv (Xu et al., 2019, Eq. 4.1).

    out = nn((1 + eps) * x + Sum(x))

When `nn` begins with a linear layer, that layer moves in front of the sum: `z = x W`,
`out = rest((1 + eps) * z + Sum(z) + b)`.
"""

from torch import Tensor
from torch_geometric.nn import GINConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.push_down import split_first_linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program import NotIncremental, Value
from pyg_incremental.row_wise import why_not_row_wise


@register(GINConv)
def gin(call: ConvCall) -> Value:
    """`GINConv` as steps: `nn` of a node's own features and the sum of its neighbours'."""
    conv = call.conv
    call.only("x")
    x = call.node()
    weight = (
        call.matrix_weights() if call.fused and call.program.format != "sparse_tensor" else None
    )
    mixed = why_not_row_wise(conv.nn)
    if mixed:
        raise NotIncremental(f"its nn mixes rows: {mixed}")
    split = split_first_linear(conv.nn) if call.is_sum else None
    if split is None:
        return call.map(
            "out",
            lambda x, s: conv.nn(s + (1 + conv.eps) * x),
            x,
            call.reduce(x, weight),
            costly=True,
        )
    lin, rest = split
    z = call.map("lin", linear(lin, bias=False), x, costly=True)

    def out(z: Tensor, total: Tensor) -> Tensor:
        rows = total + (1 + conv.eps) * z
        return rest(rows if lin.bias is None else rows + lin.bias)

    return call.map("out", out, z, call.sum(z, weight))
