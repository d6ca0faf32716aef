"""The model on the k-hop neighbourhood of what a delta can reach: what users write today."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import k_hop_subgraph

from benchmarks.peers.edge_list import EdgeList
from benchmarks.peers.full_pass import check_room
from pyg_incremental import GraphDelta


class KHop:
    """Finds the rows that a delta can reach, cuts out what they see, and runs the model on that."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.hops = len(model.convs)
        self.is_gcn = isinstance(model.convs[0], GCNConv)

    @property
    def sees(self) -> int:
        """How many hops away an output row looks; GCN also at the degrees of the farthest nodes."""
        return self.hops + self.is_gcn

    def bootstrap(self, x: Tensor, edge_index: Tensor) -> None:
        check_room(self.model, x, edge_index)
        self.edges = EdgeList(x, edge_index)
        self.out = self.model(self.edges.x, self.edges.edge_index)

    def apply(self, delta: GraphDelta) -> None:
        self.edges.apply(delta)
        ids = reached(delta, self.edges.edge_index, len(self.out), self.hops, self.is_gcn)
        self.out[ids] = self.compute(ids)

    def compute(self, ids: Tensor) -> Tensor:
        """The output of some nodes."""
        # directed: every in-edge of all but the outermost nodes, and no other edge
        nodes, edge_index, at, _ = k_hop_subgraph(
            ids, self.sees, self.edges.edge_index,
            relabel_nodes=True, num_nodes=len(self.out), directed=True,
        )  # fmt: skip
        return self.model(self.edges.x[nodes], edge_index)[at]

    def output(self) -> Tensor:
        return self.out


def reached(
    delta: GraphDelta, edge_index: Tensor, num_nodes: int, hops: int, is_gcn: bool
) -> Tensor:
    """Ids of the output rows that a delta can change, ascending; `edge_index` is that after it."""
    none = torch.empty(0, dtype=torch.int64)
    edges = [e[1] for e in (delta.edge_index_add, delta.edge_index_del) if e is not None]
    targets = torch.cat([none, *edges])
    changed = none if delta.x_changes is None else delta.x_changes[0]
    # the first hop of a changed edge is the edge itself, unless a degree changes messages with it
    seeds = torch.cat([changed, targets]) if is_gcn else changed
    if len(seeds):
        seeds = _onwards(seeds, 1, edge_index, num_nodes)
    return _onwards(torch.cat([seeds, targets]), hops - 1, edge_index, num_nodes)


def _onwards(ids: Tensor, hops: int, edge_index: Tensor, num_nodes: int) -> Tensor:
    if not hops:
        return ids.unique()
    flow = "target_to_source"
    return k_hop_subgraph(ids, hops, edge_index, num_nodes=num_nodes, flow=flow, directed=True)[0]
