"""The linear layer on a row of the adjacency that LINKX (Lim et al., 2021, Section 4) begins with.

    out = A W + bias

`W` has one row for each node, so that this is a sum over the in-edges like any other; what is sent
is a parameter.
"""

from torch_geometric.nn.models.linkx import SparseLinear

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.inner import with_bias
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value


@register(SparseLinear)
def sparse_linear(call: ConvCall) -> Value:
    """`SparseLinear` as steps: the learned rows of the in-neighbours added up."""
    call.only("edge_weight")
    rows = call.learned("weight")
    if call.is_coo or (not call.fused and call.args.get("edge_weight") is not None):
        weight = call.weight()
    else:
        weight = call.matrix_weights()
    return with_bias(call, call.reduce(rows, weight))
