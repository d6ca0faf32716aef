"""The part of a graph that one rank owns."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.program.steps import Relation

Ids = NDArray[np.int64]
Owner = NDArray[np.int16]


@dataclass
class Shard:
    """What one rank owns of the graphs of a call.

    Attributes:
        rank: The number of the part.
        size: The number of parts.
        owner: For each kind the part of every node, int16 `[num_nodes]`.
        ids: For each kind the nodes that this part owns, ascending, int64 `[n]`.
        nodes: Their rows of each node input, `[n, ...]`.
        edge_index: For each graph their in-edges in global ids, int64 `[2, k]`.
        edges: For each graph the data of these edges by name, `[k, ...]`.
    """

    rank: int
    size: int
    owner: dict[str, Owner] = field(repr=False)
    ids: dict[str, Ids] = field(repr=False)
    nodes: dict[str, Tensor] = field(repr=False)
    edge_index: dict[str, Tensor] = field(repr=False)
    edges: dict[str, dict[str, Tensor]] = field(repr=False)

    def to(self, device: torch.device) -> "Shard":
        """The same with all rows on some device; ids stay on the host."""
        return replace(
            self,
            nodes={k: t.to(device) for k, t in self.nodes.items()},
            edges={g: {k: t.to(device) for k, t in d.items()} for g, d in self.edges.items()},
        )


@dataclass
class ShardEdges:
    """All edges of one kind.

    Attributes:
        relation: What they connect.
        edge_index: int64 `[2, num_edges]`.
        data: Their data by name, `[num_edges, ...]`.
    """

    relation: Relation
    edge_index: Tensor
    data: Mapping[str, Tensor]


def shard_of(
    rank: int,
    size: int,
    owner: dict[str, Owner],
    nodes: Mapping[str, tuple[str, Tensor]],
    graphs: Iterable[ShardEdges],
) -> Shard:
    """The part of one rank, cut out of graphs that are all there.

    Args:
        rank: The number of the part.
        size: The number of parts.
        owner: For each kind the part of every node, int16 `[num_nodes]`.
        nodes: For each node input its kind, and its rows, `[num_nodes, ...]`.
        graphs: The graphs.
    """
    ids = {kind: np.flatnonzero(ranks == rank) for kind, ranks in owner.items()}
    rows = {name: t[torch.from_numpy(ids[kind])] for name, (kind, t) in nodes.items()}
    shard = Shard(rank, size, owner, ids, rows, {}, {})
    for graph in graphs:
        name, to = graph.relation.graph, owner[graph.relation.target]
        at = torch.from_numpy(np.flatnonzero(to[graph.edge_index[1].numpy()] == rank))
        shard.edge_index[name] = graph.edge_index[:, at]
        shard.edges[name] = {k: t[at] for k, t in graph.data.items()}
    return shard
