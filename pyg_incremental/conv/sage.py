"""SAGEConv (Hamilton et al., 2017, Algorithm 1).

    out = lin_l(Aggr(x)) + lin_r(x)

For sum and mean `lin_l` moves in front of the aggregation when that makes rows no wider than twice
what they were: its matrix product then runs at the few changed sources and not at the many touched
targets.
"""

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import SAGEConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.push_down import pays
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value


@register(SAGEConv)
def sage(call: ConvCall) -> Value:
    """`SAGEConv` as steps: aggregated neighbours plus root term."""
    conv = call.conv
    call.only("x")
    x, own = call.ends()
    # A sparse matrix of PyTorch keeps its values in the product; a SparseTensor is stripped of
    # them.
    weight = call.matrix_weights() if call.fused and call.format != "sparse_tensor" else None
    project = linear(conv.lin) if conv.project else None
    source = (
        call.map("project", lambda x: project(x).relu(), x, costly=True)
        if project is not None
        else x
    )
    lin = conv.lin_l
    moved = call.is_linear and pays(lin.weight)
    if moved:
        source = call.map("lin_l", linear(lin, bias=False), source, costly=True)
    has_root = conv.root_weight and own is not None
    finish = _plain if moved else linear(lin, bias=not has_root)
    inputs = [call.reduce(source, weight)]
    if conv.root_weight and own is not None:
        # The bias of lin_l joins the root term, which is stored: one addition less at every touched
        # row.
        root = linear(conv.lin_r, bias_of=lin)
        inputs.append(call.map("root", root, own, costly=True))
    elif moved and lin.bias is not None:
        finish = lambda rows: rows + lin.bias  # noqa: E731

    if moved and has_root and not conv.normalize:
        return call.added("out", *inputs)

    def out(aggregated: Tensor, root: Tensor | None = None) -> Tensor:
        rows = finish(aggregated)
        if root is not None:
            rows = rows + root
        return F.normalize(rows, p=2.0, dim=-1) if conv.normalize else rows

    return call.map("out", out, *inputs, costly=not moved)


def _plain(rows: Tensor) -> Tensor:
    return rows
