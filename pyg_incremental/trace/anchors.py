"""A first and a last node, each with an edge from the other, around the nodes of a graph.

Some convs fail where the first rows have no in-edges (a quantile looks in front of the list), and
some where there is no edge at all. What runs between such nodes does not meet that.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def anchored(
    nodes: Sequence[Sequence[Tensor]], edges: Sequence[Tensor], graph: Tensor
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """A graph with an anchor at both ends; its own nodes stand at `1 .. num_nodes`.

    The edge into the first node comes first, and that into the last one last, so that sorted edges
    stay sorted. Both anchors have the rows of the first node, their edges those of the first edge.

    Args:
        nodes: For each node value its rows `[num_nodes, ...]`, in parts to be joined.
        edges: Rows `[num_edges, ...]` of each edge value.
        graph: int64 `[2, num_edges]`.

    Returns:
        The same with the anchors, node values joined.
    """
    made = []
    for parts in nodes:
        anchor = _first_of(next((part for part in parts if len(part)), parts[0]))
        made.append(torch.cat([anchor, *parts, anchor]))
    last = made[0].shape[0] - 1
    ends = graph.new_tensor([[last, 0], [0, last]])
    joined = torch.cat([ends[:, :1], graph + 1, ends[:, 1:]], 1)
    return made, [torch.cat([_first_of(e), e, _first_of(e)]) for e in edges], joined


def _first_of(rows: Tensor) -> Tensor:
    """The first of some rows, `[1, ...]`; zeros if there is none."""
    return rows[:1] if len(rows) else rows.new_zeros(1, *rows.shape[1:])
