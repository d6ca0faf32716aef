"""SAGEConv (Hamilton et al., 2017, Algorithm 1).

    out = lin_l(Aggr(x)) + lin_r(x)

For sum and mean `lin_l` moves in front of the aggregation when that makes rows no wider than twice what they were: its matrix
product then runs at the few changed sources and not at the many touched targets.
"""

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import SAGEConv

from pyg_incremental.conv.call import ConvCall, linear
from pyg_incremental.conv.registry import register
from pyg_incremental.conv.push_down import pays
from pyg_incremental.program import Value


@register(SAGEConv)
def sage(call: ConvCall) -> Value:
    conv = call.conv
    call.only("x")
    x = call.node()
    # A sparse matrix of PyTorch keeps its values in the product; a SparseTensor is stripped of them.
    weight = call.matrix_weights() if call.fused and call.program.format != "sparse_tensor" else None
    project = linear(conv.lin) if conv.project else None
    source = call.map("project", lambda x: project(x).relu(), x, costly=True) if project is not None else x
    lin, bias = conv.lin_l, conv.lin_l.bias is not None
    if call.is_linear and pays(lin.weight):
        z = call.map("lin_l", linear(lin, bias=False), source, costly=True)
        aggregated = call.reduce(z, weight)
        rest = (lambda a: a + lin.bias) if bias else (lambda a: a)
        costly = False
    else:
        aggregated = call.reduce(source, weight)
        rest, costly = linear(lin), True
    inputs = [aggregated]
    if conv.root_weight:
        inputs.append(call.map("lin_r", linear(conv.lin_r), x, costly=True))

    def out(aggregated: Tensor, root: Tensor | None = None) -> Tensor:
        rows = rest(aggregated)
        if root is not None:
            rows = rows + root
        return F.normalize(rows, p=2.0, dim=-1) if conv.normalize else rows

    return call.map("out", out, *inputs, costly=costly)
