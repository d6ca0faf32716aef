"""Attention aggregated with something else than a sum or mean: row by row."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.utils import softmax

from pyg_incremental.aggregate import Neighborhood
from pyg_incremental.aggregate.message import EdgeFunction
from pyg_incremental.conv.row_local import is_row_local, reduced
from pyg_incremental.program import NotIncremental, Value

if TYPE_CHECKING:
    from pyg_incremental.conv.call import ConvCall


def by_rows(
    call: "ConvCall",
    module: torch.nn.Module,
    message: EdgeFunction,
    loop: tuple[Value, ...] | None,
    part: str,
) -> Value:
    """Softmax-weighted messages reduced by a module, each row from its in-edges.

    Arguments as in `ConvCall.attend`.
    """
    if not is_row_local(module):
        raise NotIncremental(f"{module} is not local to rows")
    sources, targets = len(message.source), len(message.target)

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
        alpha = softmax(logits, index, num_nodes=around.num_rows)
        weighted = alpha.unsqueeze(-1) * values
        return reduced(module, weighted, index, around.num_rows, dim=0).flatten(1)

    targets_read = (*message.target, *(() if loop is None else (*message.source, *loop)))
    return call.rows(part, fn, message.source, targets_read, message.edges)
