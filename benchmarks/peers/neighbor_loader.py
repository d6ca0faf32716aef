"""PyG's NeighborLoader over the rows that a delta can reach, with all of their neighbours."""

from __future__ import annotations

import warnings

from torch import Tensor, nn
from torch_geometric import typing
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from benchmarks.peers.k_hop import KHop
from benchmarks.peers.protocol import Skipped


class Loader(KHop):
    """Like `KHop`, but the neighbourhood is collected by PyG's compiled sampler, in one batch."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
            raise Skipped("neither pyg-lib nor torch_sparse is installed")

    def compute(self, ids: Tensor) -> Tensor:
        edges = self.edges
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Using 'NeighborSampler' without a 'pyg-lib'")
            loader = NeighborLoader(
                Data(x=edges.x, edge_index=edges.edge_index),
                num_neighbors=[-1] * self.sees,
                input_nodes=ids,
                batch_size=max(1, len(ids)),
                is_sorted=True,  # so that the graph is not sorted again for each delta
            )
        batch = next(iter(loader))
        return self.model(batch.x, batch.edge_index)[: batch.batch_size]
