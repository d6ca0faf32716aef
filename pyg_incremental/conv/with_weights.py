"""Attention weights that a conv with self-loops of its own returns beside its rows.

Such a conv takes the self-loops out of the graph and puts one at each node behind its edges. It
returns these edges, `[2, n]`, and a weight for each of them and each head. Here the weights are
read off the state of the softmax: along the edges that came, and at the nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.program.steps import NotIncremental, Value

ASKS = "return_attention_weights"
"""The argument by which they are asked for; PyG looks whether it is true."""


@dataclass(frozen=True)
class WithWeights:
    """What a conv returns with its attention weights.

    Attributes:
        rows: Its rows, `[num_nodes, ...]`.
        edges: The weights of all edges, `[num_edges, heads]`; those of self-loops mean nothing.
        loops: The weights of the loops that the conv adds, `[num_nodes, heads]`.
    """

    rows: Value
    edges: Value
    loops: Value


def adds_loops_to_weights(conv: torch.nn.Module) -> bool:
    """Whether a conv returns, with its weights, edges that have loops of its own behind them."""
    return isinstance(conv, (GATConv, GATv2Conv)) and conv.add_self_loops


def are_asked_for(call: ConvCall) -> bool:
    """Whether a call asks for attention weights.

    Raises:
        NotIncremental: If it does, and the weights are not those of all edges and a loop each.
    """
    if not call.args.get(ASKS):
        return False
    if not adds_loops_to_weights(call.conv):
        raise NotIncremental("what it does inside tells its attention weights")
    if not (call.is_coo and call.is_linear) or call.turned or call.relation.derived is not None:
        raise NotIncremental("it returns attention weights of edges in another order")
    return True


def weights_of(
    call: ConvCall,
    logits: Callable[..., Tensor],
    source: Value,
    target: Value,
    edge: Value | None,
    loop: tuple[Value, ...],
    state: Value,
) -> tuple[Value, Value]:
    """The weights of edges, `[num_edges, heads]`, and of the loops at nodes, `[num_nodes, heads]`.

    Args:
        call: The call of the conv.
        logits: Of rows at the source, at the target and on the edge, `[k, heads]`.
        source: The rows at the source.
        target: The rows at the target.
        edge: The rows of edges, or None.
        loop: The edge rows of the loops, or nothing.
        state: What `Primitives.softmax` or `Primitives.softmax_of` returned.

    Raises:
        NotIncremental: If the edge rows are made of node rows, of which loops have none.
    """
    if call.reads_ends(edge):
        raise NotIncremental("edge rows made of node rows have none for self-loops")
    heads, graph, name = call.conv.heads, call.relation.graph, call.name

    def total(state: Tensor) -> Tensor:
        """The logarithm of the sum of all weights, whatever the reference of a row is."""
        return state[:, -heads:] + state[:, -2 * heads : -heads].log()

    def weights(source: Tensor, target: Tensor, total: Tensor, *edge: Tensor) -> Tensor:
        return (logits(source, target, *edge) - total).exp()

    totals = call.map("totals", total, state)
    along = [
        call.program.gather(f"{name}.weights_{i}", rows, graph, at_target != call.reverse)
        for i, (rows, at_target) in enumerate(((source, False), (target, True), (totals, True)))
    ]
    more = () if edge is None else (edge,)
    return (
        call.map("weights", weights, *along, *more),
        call.map("loop_weights", weights, source, target, totals, *loop),
    )
