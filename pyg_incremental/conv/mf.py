"""MFConv (Duvenaud et al., 2015, Algorithm 2).

out = lin_l[d](Aggr(x)) + lin_r[d](x), where d is the degree
"""

from torch import Tensor
from torch_geometric.nn import MFConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.numbered import Numbered, bucket
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value


@register(MFConv)
def mf(call: ConvCall) -> Value:
    """`MFConv` as steps: a changed degree picks other weights for its row, and only there."""
    conv = call.conv
    call.only("x")
    call.only_coo()
    source, target = call.ends()
    own = [] if target is None else [target]
    layers, parts = [conv.lins_l, conv.lins_r], ["left", "right"]
    products = Numbered(call, layers[: 1 + len(own)], parts[: 1 + len(own)])

    def out(degree: Tensor, *given: Tensor) -> Tensor:
        return products(bucket(degree, conv.max_degree + 1), *given)

    inputs = call.degree(), call.reduce(source), *own, *products.tables
    return call.map("out", out, *inputs, costly=True)
