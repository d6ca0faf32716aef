"""The graph that a conv propagates over: as it is, or as `gcn_norm` of PyG 2.8 makes it.

    deg = Sum(weight) + loop      dinv = deg ** -0.5
    out = (Sum(weight * dinv * x) + loop * dinv * x) * dinv

This is the normalised adjacency of Kipf and Welling, 2017, Eq. 2.

The degree is an aggregation like any other, so a changed degree dirties the rows that read it and
nothing else is needed.
"""

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.hop import Hop
from pyg_incremental.conv.last_loop import last_loop
from pyg_incremental.program.steps import NotIncremental, Value


def gcn_hop(
    call: ConvCall,
    add_self_loops: bool,
    fill: float = 1.0,
    module: torch.nn.Module | None = None,
    weight: Value | None = None,
) -> Hop:
    """Propagation over what `gcn_norm` makes of the graph.

    Args:
        call: The call.
        add_self_loops: Whether every node gets a self-loop.
        fill: Its weight; ignored by COO without weights, because the ones come after the loops.
        module: An aggregation module; the conv's own by default.
        weight: The edge weights; those that the conv is called with by default.
    """
    if weight is None:
        weight = call.weight() if call.is_coo else call.matrix_weights()
    drop, loop = _loops(call, add_self_loops, fill, weight)
    module = module or call.conv.aggr_module
    if loop and call.format == "csr" and type(module) is not aggr.SumAggregation:
        raise NotIncremental("CSR merges a self-loop with the added one into a single message")
    call = call.without_loops() if drop else call
    degree = call.degree(weight)
    if isinstance(loop, Value):
        dinv = call.map("", lambda d, w: inverse_sqrt(d + w), degree, loop, shared="dinv_weighted")
    else:
        dinv = call.map("", lambda d: inverse_sqrt(d + loop), degree, shared=f"dinv_{loop:g}")
    return Hop(call, weight, dinv, dinv, loop, module)


def plain_hop(call: ConvCall) -> Hop:
    """Propagation over the graph as it was handed in, with its edge weights."""
    if call.is_coo:
        return Hop(call, call.weight())
    if not call.fused:
        call.coo_edge("edge_weight")  # `message_and_aggregate` does not see it
    return Hop(call, call.matrix_weights())


def _loops(
    call: ConvCall, add_self_loops: bool, fill: float, weight: Value | None
) -> tuple[bool, Value | float]:
    """Whether self-loops of the graph leave, and the weight of the loop that every node gets.

    What an explicit self-loop means depends on the format (audit of PyG 2.8.1): COO keeps the
    weight of the last one, CSR adds to it, SparseTensor replaces it.
    """
    if call.format == "csc":
        raise NotIncremental("gcn_norm does not take CSC matrices")
    if not add_self_loops:
        return False, 0.0
    if not call.is_coo:
        return call.format != "csr", fill
    if weight is None:
        return True, 1.0
    return True, last_loop(call, weight, fill)


def inverse_sqrt(degree: Tensor) -> Tensor:
    """`degree ** -0.5`, `[k, 1]`, and zero where the degree is."""
    out = degree.pow(-0.5)
    return out.masked_fill_(out == torch.inf, 0.0)


def inverse(degree: Tensor) -> Tensor:
    """`1 / degree`, `[k, 1]`, and zero where the degree is."""
    out = 1.0 / degree
    return out.masked_fill_(out == torch.inf, 0.0)
