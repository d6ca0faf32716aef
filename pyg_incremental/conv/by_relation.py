"""Messages reduced by the type of their edge, each type for itself.

A row holds one block of channels for each relation. A message goes to the block of its relation;
the other blocks get the value that changes nothing there, never zero times the message, because
zero times NaN is NaN.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.ops import EdgeFunction, divided
from pyg_incremental.program.row_wise import as_it_is
from pyg_incremental.program.steps import NotIncremental, Value

_NOTHING: dict[type[torch.nn.Module], float] = {
    aggr.SumAggregation: 0.0,
    aggr.MeanAggregation: 0.0,
    aggr.MaxAggregation: -torch.inf,
    aggr.MinAggregation: torch.inf,
}


FEW = 64
"""Edges up to which a relation is looked for among all, which compiled code can do. More are looked
up: to look for them is as many times the work as there are relations."""


def relations(kinds: Tensor, count: int) -> Tensor:
    """Which of `count` relations each edge has, bool `[k, count]`; other types have none."""
    return kinds.view(-1, 1) == torch.arange(count, device=kinds.device)


def picked(rows: Tensor, kinds: Tensor, count: int) -> Tensor:
    """Of rows `[k, count * channels]` the channels of the relation of each edge, `[k, channels]`.

    They are zero where the type is none of `count`. Compiled code takes few edges at a time, and
    knows where a type is, but not what to look up.
    """
    each = rows.view(len(kinds), count, rows.shape[1] // count)
    if len(kinds) <= FEW:
        return torch.where(relations(kinds, count).unsqueeze(-1), each, 0.0).sum(1)
    known = ((kinds >= 0) & (kinds < count)).unsqueeze(-1)
    at = kinds.long().clamp(0, count - 1)
    return torch.where(known, each[torch.arange(len(kinds), device=kinds.device), at], 0.0)


def there_is(edge_type: Tensor, count: int) -> Tensor:
    """The types of some edges `[k]`, all of which have to lie in `[0, count)`.

    Raises:
        IndexError: If one does not, as in PyG.
    """
    if edge_type.numel():
        if len(edge_type) > FEW or edge_type.is_floating_point():
            low, high = (int(bound) for bound in edge_type.aminmax())
        else:  # PyTorch would take longer to begin
            some = edge_type.tolist()
            low, high = min(some), max(some)
        if low < 0 or high >= count:
            raise IndexError(
                f"'edge_type' names relation {low if low < 0 else high}, but there are {count}: "
                f"types lie in [0, {count})"
            )
    return edge_type


def reduced_by_relation(
    call: ConvCall,
    message: EdgeFunction,
    kinds: Value,
    count: int,
) -> Value:
    """Messages aggregated for each relation with the conv's `aggr`, `[num_nodes, count, channels]`.

    Args:
        call: The call.
        message: A function that gives `[k, channels]`, or `[k, count, channels]` if it differs
            between relations.
        kinds: The relation of each edge, see `typed`.
        count: The number of relations.

    Raises:
        NotIncremental: If the conv does not take the sum, mean, maximum or minimum.
    """
    module = call.conv.aggr_module
    kind = type(module)
    if kind not in _NOTHING:
        raise NotIncremental(f"{module} is not taken apart into relations")
    nothing = _NOTHING[kind]
    width = len(message.inputs)

    def blocks(*rows: Tensor) -> Tensor:
        made = message.fn(*rows[:width])
        made = made if made.dim() == 3 else made.unsqueeze(1)
        return torch.where(relations(rows[width], count).unsqueeze(-1), made, nothing)

    placed = EdgeFunction(blocks, message.source, message.target, (*message.edges, kinds))
    if kind is aggr.SumAggregation:
        total = call.total(placed, "relations")
        return call.map("by_relation", lambda rows: rows.unflatten(1, (count, -1)), total)
    dtype = call.dtype
    one = EdgeFunction(lambda k: relations(k, count).to(dtype), (), (), (kinds,))
    number = call.total(one, "numbers")

    def mean(total: Tensor, number: Tensor) -> Tensor:
        return divided(total.unflatten(1, (count, -1)), number.unsqueeze(-1))

    def there(rows: Tensor, number: Tensor) -> Tensor:
        rows = rows.unflatten(1, (count, -1))
        return torch.where(number.unsqueeze(-1) > 0, rows, 0.0)

    if kind is aggr.MeanAggregation:
        return call.map("by_relation", mean, call.total(placed, "relations"), number)
    found = call.extremum(placed, kind is aggr.MaxAggregation, "relations")
    return call.map("by_relation", there, found, number)


def typed(call: ConvCall, read: Callable[[Tensor], Tensor] = as_it_is) -> Value:
    """The relation of each edge, `[num_edges]`, in the dtype of the rows: all else is of that.

    It holds every number of a relation. A type is looked at once, when its edge comes.

    Args:
        call: The call; `edge_type` is one of its arguments.
        read: Applied to the types of some edges before.

    Raises:
        NotIncremental: If there is not one number per edge.
    """
    call.only_coo()
    edge_type = call.coo_edge("edge_type")
    if edge_type is None or call.example(edge_type).dim() != 1:
        raise NotIncremental("'edge_type' is not one number per edge")
    dtype = torch.promote_types(call.dtype, torch.float32)
    return call.map("kinds", lambda types: read(types).to(dtype), edge_type)
