"""Attention, aggregated with whatever `aggr` the conv was given."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import softmax

from pyg_incremental.aggregate import Neighborhood, softmax_result
from pyg_incremental.aggregate.base import Loops
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.reduction import divided
from pyg_incremental.conv.row_local import reduced
from pyg_incremental.program import Value


def attended(
    call: ConvCall,
    message: Value,
    target: Value,
    edge: Value | None,
    loop: Value | None,
    loops: Loops,
) -> Value:
    """The weighted messages, aggregated, `[num_nodes, heads * channels]`.

    Args:
        call: The call of a conv with `heads`, `out_channels` and `negative_slope`.
        message: Values and the sources' logit parts, as in `SoftmaxSum`.
        target: The targets' logit parts.
        edge: The edges' logit parts, or None.
        loop: Logits of a self-loop that every node gets, or None.
        loops: Which edges count.
    """
    conv, heads, channels = call.conv, call.conv.heads, call.conv.out_channels
    if call.is_linear:
        state = call.softmax(message, target, edge, loop, conv.negative_slope, loops)
        total = call.map("attended", lambda s: softmax_result(s, heads), state)
        if call.is_sum:
            return total
        own = 0 if loop is None else 1
        return call.map("mean", lambda t, n: divided(t, n + own), total, call.degree(None, loops))
    module = call.check_row_local()

    def fn(around: Neighborhood) -> Tensor:
        messages, index = around.source[0], around.index
        width = heads * channels
        logits = messages[:, width:] + around.target[0][index]
        if around.edge:
            logits = logits + around.edge[0]
        if loop is not None:
            messages = torch.cat([messages, around.target[1]])
            logits = torch.cat([logits, around.target[2]])
            index = torch.cat([index, torch.arange(around.num_rows, device=index.device)])
            index, order = index.sort(stable=True)
            messages, logits = messages[order], logits[order]
        alpha = softmax(F.leaky_relu(logits, conv.negative_slope), index, num_nodes=around.num_rows)
        weighted = alpha.unsqueeze(-1) * messages[:, :width].view(-1, heads, channels)
        return reduced(module, weighted, index, around.num_rows, dim=0).flatten(1)

    targets = (target,) if loop is None else (target, message, loop)
    return call.rows("attended", fn, (message,), targets, () if edge is None else (edge,), loops)
