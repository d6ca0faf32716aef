"""GINConv (Xu et al., 2019, Eq. 4.1).

    out = nn((1 + eps) * x + Sum(x))

When `nn` begins with a linear layer, that layer moves in front of the sum: `z = x W`,
`out = rest((1 + eps) * z + Sum(z) + b)`.
"""

from typing import Any

from torch import Tensor
from torch_geometric.nn import GINConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.push_down import split_first_linear
from pyg_incremental.conv.registry import register
from pyg_incremental.ops import OwnMessage
from pyg_incremental.program.row_wise import why_not_row_wise
from pyg_incremental.program.steps import NotIncremental, Value


@register(GINConv)
def gin(call: ConvCall) -> Value:
    """`GINConv` as steps: `nn` of a node's own features and the sum of its neighbours'."""
    conv = call.conv
    call.only("x")
    x, own = call.ends()
    weight = call.matrix_weights() if call.fused and call.format != "sparse_tensor" else None
    mixed = why_not_row_wise(conv.nn)
    if mixed:
        raise NotIncremental(f"its nn mixes rows: {mixed}")
    split = split_first_linear(conv.nn) if call.is_sum and own in (x, None) else None
    if split is None:
        inputs = [call.reduce(x, weight), *([] if own is None else [own])]

        def whole(total: Tensor, *own: Tensor) -> Tensor:
            out: Tensor = conv.nn(total + (1 + conv.eps) * own[0] if own else total)
            return out

        return call.map("out", whole, *inputs, costly=True)
    lin: Any = split[0]
    rest = split[1]
    z = call.map("lin", linear(lin, bias=False), x, costly=True)

    costly = any(p.dim() > 1 for p in conv.nn.parameters() if p is not lin.weight)

    def biased(total: Tensor) -> Tensor:
        return rest(total if lin.bias is None else total + lin.bias)

    if own is None:
        return call.map("out", biased, call.sum(z, weight), costly=costly)
    mine = OwnMessage(lambda: 1 + conv.eps, lambda: lin.bias)
    rows = call.added("rows", call.sum(z, weight), call.map("own", mine, z))
    return rows if conv.nn is lin else call.map("out", rest, rows, costly=costly)
