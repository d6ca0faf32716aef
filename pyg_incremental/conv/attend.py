"""What attention becomes once each row has its softmax: any `aggr`, and heads joined."""

from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import aggr
from torch_geometric.utils import softmax

from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.primitives import Primitives
from pyg_incremental.conv.row_local import is_row_local, reduced
from pyg_incremental.ops import Neighborhood, divided, softmax_result
from pyg_incremental.ops.message import EdgeFunction
from pyg_incremental.program.steps import NotIncremental, Value
from pyg_incremental.typing import Format

WIDER = (aggr.MultiAggregation, aggr.DegreeScalerAggregation)
"""Modules whose rows are not as wide as those they are given."""


def settled(
    call: Primitives, module: torch.nn.Module, state: Value, heads: int, looped: bool, part: str
) -> Value:
    """What the state of a softmax stands for under a sum or mean, `[num_nodes, heads * channels]`.

    Args:
        call: The call of the conv.
        module: An aggregation module, one of these two.
        state: What `Primitives.softmax` or `Primitives.softmax_of` returned.
        heads: Number of heads.
        looped: Whether every node has a self-loop that is not among the edges.
        part: Name of the steps.
    """
    finish = partial(finished, heads=heads, by_pointer=has_pointer(call.conv, call.format))
    total = call.map(part, finish, state)
    if type(module) is aggr.SumAggregation:
        return total
    own = int(looped)
    return call.map(f"{part}_mean", lambda t, n: divided(t, n + own), total, call.degree(None))


def finished(state: Tensor, heads: int, by_pointer: bool) -> Tensor:
    """What the state of a softmax stands for, `[k, heads * channels]`; see `has_pointer`."""
    rows = softmax_result(state, heads)
    if not by_pointer:
        return rows
    sunk = (state[:, -heads:] == -torch.inf).repeat_interleave(rows.shape[1] // heads, 1)
    return torch.where(sunk, state[:, : rows.shape[1]], rows)


def has_pointer(conv: Any, fmt: Format) -> bool:
    """Whether PyG takes the softmax over runs of sorted edges.

    A row whose logits are all minus infinity then has weights of zero, and else of NaN. Of a matrix
    of PyTorch only a `propagate` that PyG has generated for the class hands on the runs.
    """
    handed_on = {"coo": False, "sparse_tensor": True}.get(fmt, _is_generated(conv))
    hooks = (conv.message, conv.edge_update)
    return handed_on and any("ptr" in signature(hook).parameters for hook in hooks)


def _is_generated(conv: Any) -> bool:
    made = (f"{kind.__module__}_{kind.__name__}_" for kind in type(conv).__mro__)
    return str(conv.propagate.__module__).startswith(tuple(made))


def by_rows(
    call: Primitives,
    module: torch.nn.Module,
    message: EdgeFunction,
    loop: tuple[Value, ...] | None,
    part: str,
) -> Value:
    """Softmax-weighted messages reduced by any module, each row from its in-edges.

    Arguments as in `Primitives.attend`.
    """
    if not is_row_local(module):
        raise NotIncremental(f"{module} is not local to rows")
    if isinstance(module, WIDER):
        raise NotIncremental(f"{module} makes rows of another width than the heads have")
    sources, targets = len(message.source), len(message.target)
    by_pointer = has_pointer(call.conv, call.format)

    def fn(around: Neighborhood) -> Tensor:
        source, index, edge = around.source, around.index, around.edge
        own = around.target
        if loop is not None:
            count = around.num_rows
            index = torch.cat([index, torch.arange(count, device=index.device)])
            index, order = index.sort(stable=True)
            looped = own[targets : targets + sources]
            source = tuple(torch.cat([s, o])[order] for s, o in zip(source, looped, strict=True))
            filled = own[targets + sources :]
            edge = tuple(torch.cat([e, o])[order] for e, o in zip(edge, filled, strict=True))
        logits, values = message.fn(*source, *(t[index] for t in own[:targets]), *edge)
        pointer = None
        if by_pointer:
            counts = torch.bincount(index, minlength=around.num_rows)
            pointer = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        alpha = softmax(logits, index, pointer, around.num_rows)
        weighted = alpha.unsqueeze(-1) * values
        return reduced(module, weighted, index, around.num_rows, dim=0).flatten(1)

    targets_read = (*message.target, *(() if loop is None else (*message.source, *loop)))
    return call.rows(part, fn, message.source, targets_read, message.edges)


def joined(call: Primitives, rows: Value, target: Value) -> Value:
    """Heads side by side or averaged, then residual and bias, if the conv has them.

    Args:
        call: The call of a conv with `heads`, `out_channels` and `concat`.
        rows: The heads, `[num_nodes, heads * out_channels]`.
        target: What the conv's `res` is applied to.
    """
    conv, inputs = call.conv, [rows]
    if getattr(conv, "res", None) is not None:
        inputs.append(call.map("res", linear(conv.res), target, costly=True))

    def out(rows: Tensor, residual: Tensor | None = None) -> Tensor:
        if not conv.concat:
            rows = rows.view(-1, conv.heads, conv.out_channels).mean(dim=1)
        if residual is not None:
            rows = rows + residual
        return rows if conv.bias is None else rows + conv.bias

    return call.map("out", out, *inputs)
