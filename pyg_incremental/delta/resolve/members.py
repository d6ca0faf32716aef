"""Nodes that come to a graph, or go to another: the edges that `batch` stands for follow."""

import numpy as np
from torch import Tensor

from pyg_incremental.delta.resolve.edges import ResolvedEdges
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.dynamic import DynamicGraph

_NONE = np.empty(0, np.int64)


def follow_members(
    name: str, graph: DynamicGraph, before: tuple[int, int], ids: Tensor, rows: Tensor
) -> tuple[ResolvedEdges, int]:
    """The edges that leave and come as rows of an input change, and how many graphs are new.

    Args:
        name: The input.
        graph: One edge from each node to its graph.
        before: The numbers of nodes and of graphs.
        ids: Distinct nodes, int64 `[c]`, new ones included.
        rows: Their graphs, int64 `[c]`.

    Raises:
        InvalidDeltaError: If a graph is named that cannot be there.
    """
    nodes, graphs = ids.cpu().numpy(), rows.cpu().numpy()
    known = nodes[nodes < before[0]]
    limit = before[1] + nodes.size
    wrong = np.flatnonzero((graphs < 0) | (graphs >= limit))
    if wrong.size:
        at = int(wrong[0])
        raise InvalidDeltaError(
            f"'{name}': node {nodes[at]} is put into graph {graphs[at]}, but there are {before[1]} "
            f"graphs, and so many nodes make at most {nodes.size} new ones (expected an id in "
            f"[0, {limit})); number graphs without gaps"
        )
    _, slots = graph.resolve_removal(_NONE, _NONE, known, _NONE)
    edges = graph.edges(slots)
    was = np.full(max(before[0], int(nodes.max(initial=-1)) + 1), -1)
    was[edges.src] = edges.dst
    moves = was[nodes] != graphs
    stays = np.isin(edges.src, nodes[~moves])
    added = np.stack([nodes[moves], graphs[moves]])
    more = max(0, int(graphs.max(initial=-1)) + 1 - before[1])
    return ResolvedEdges(slots[~stays], added, {}, _NONE, {}), more
