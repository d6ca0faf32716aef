"""RGCNConv and FastRGCNConv (Schlichtkrull et al., 2018, Eq. 2 to 4).

    h_r = Aggr over the edges of relation r (x_j)      out = Sum_r(h_r W_r) + x W_0 + bias

For sum and mean `W_r` moves in front of the aggregation when that makes rows no wider than twice
what they were. With a sum the relations then meet in one block of channels.
"""

from typing import Any

import torch
import torch_geometric
from torch import Tensor
from torch_geometric.nn import FastRGCNConv, RGCNConv, aggr

from pyg_incremental.call.full_pass import plainly
from pyg_incremental.conv.by_relation import picked, reduced_by_relation, there_is, typed
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.inner import with_bias
from pyg_incremental.conv.registry import register
from pyg_incremental.ops import EdgeFunction
from pyg_incremental.program.row_wise import as_it_is
from pyg_incremental.program.steps import Domain, NotIncremental, Value


@register(RGCNConv)
def rgcn(call: ConvCall) -> Value:
    """`RGCNConv` as steps: aggregated neighbours of each relation, and a root term."""
    conv = call.conv
    call.only("x", "edge_type")
    source, target = call.both_ends()
    count = conv.num_relations
    if not call.example(source).dtype.is_floating_point:
        raise NotIncremental("integers stand for learned rows of the nodes")
    if not call.is_sum and _may_meet(conv):
        return _on_all_rows(call)
    kinds = typed(call, lambda types: _as_pyg_reads(conv, types))
    if call.is_linear and conv.out_channels <= 2 * conv.in_channels_l:
        rows = _pushed_down(call, source, kinds, count)
    else:
        each = EdgeFunction(as_it_is, (source,), (), ())
        rows = reduced_by_relation(call, each, kinds, count)
        rows = call.map("total", lambda h: _transformed(conv, h).sum(1), rows, costly=True)
    if conv.root is None:
        return with_bias(call, rows)
    return with_bias(call, rows, call.map("root", lambda x: x @ conv.root, target, costly=True))


register(FastRGCNConv)(rgcn)


def _may_meet(conv: Any) -> bool:
    """Whether PyG may send all relations through one kernel of pyg-lib.

    It then also aggregates them together, so that a mean is one over all in-edges. Whether it does
    is decided by the size of the whole graph.
    """
    return (
        bool(torch_geometric.typing.WITH_SEGMM)
        and torch_geometric.backend.use_segment_matmul is not False
        and type(conv).forward is RGCNConv.forward
        and conv.num_bases is None
        and conv.num_blocks is None
    )


def _on_all_rows(call: ConvCall) -> Value:
    (source, target), edge_type = call.both_ends(), call.coo_edge("edge_type")
    if edge_type is None:
        raise NotIncremental("it is called without edge types")

    def run(x: Tensor, own: Tensor, edge_index: Tensor, edge_type: Tensor) -> Any:
        with plainly(call.conv):
            return call.conv(x if source is target else (x, own), edge_index, edge_type)

    inputs = (source, target, call.args["edge_index"], edge_type)
    reason = f"{call.name}: pyg-lib may aggregate all relations together, by the size of the graph"
    return call.program.whole(
        f"{call.name}.forward", run, inputs, Domain.NODE, reason, call.target_kind
    )


def _pushed_down(call: ConvCall, source: Value, kinds: Value, count: int) -> Value:
    """Transformed at the source, once for each relation."""
    conv = call.conv

    def transformed(x: Tensor) -> Tensor:
        return _transformed(conv, x.unsqueeze(1).expand(-1, count, -1)).flatten(1)

    z = call.map("z", transformed, source, costly=True)
    if call.is_sum:
        return call.reduce(
            call.message(lambda z, kinds: picked(z, kinds, count), (z,), (), (kinds,))
        )
    each = EdgeFunction(lambda z: z.unflatten(1, (count, -1)), (z,), (), ())
    rows = reduced_by_relation(call, each, kinds, count)
    return call.map("total", lambda h: h.sum(1), rows)


def _as_pyg_reads(conv: Any, types: Tensor) -> Tensor:
    """The types of some edges `[k]`, where PyG takes them.

    `FastRGCNConv` looks a weight up for each edge, so that a sum counts from the end below zero.
    `RGCNConv` runs through its relations, but mostly counts their edges before, which fails.
    """
    count = conv.num_relations
    if isinstance(conv, FastRGCNConv):
        is_sum = type(conv.aggr_module) is aggr.SumAggregation
        return there_is(torch.where(types < 0, types + count, types) if is_sum else types, count)
    counts = conv.num_blocks is None and torch_geometric.backend.use_segment_matmul is None
    return there_is(types, count) if counts else types


def _transformed(conv: Any, rows: Tensor) -> Tensor:
    """Rows `[k, relations, in]` times the weight of each relation, `[k, relations, out]`."""
    weight = conv.weight
    if conv.num_blocks is not None:
        rows = rows.unflatten(2, (conv.num_blocks, -1))
        return torch.einsum("krbc,rbcd->krbd", rows, weight).flatten(2)
    if conv.num_bases is not None:
        weight = (conv.comp @ weight.view(conv.num_bases, -1)).view(
            conv.num_relations, conv.in_channels_l, conv.out_channels
        )
    return torch.einsum("krc,rcd->krd", rows, weight)
