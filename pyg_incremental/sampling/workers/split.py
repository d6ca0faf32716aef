"""What events say to each sampling worker: read once, numbered, sent to the owners of targets."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import as_edges
from pyg_incremental.delta.read.edges import check_edges
from pyg_incremental.delta.read.values import check_ids
from pyg_incremental.sampling.edges import SampledEdges
from pyg_incremental.sampling.features import Features
from pyg_incremental.sampling.read import parts_of
from pyg_incremental.sampling.strategy import strategy_of
from pyg_incremental.sampling.workers.messages import Part, SampleQuery
from pyg_incremental.sampling.workers.owners import SAMPLING, split

Ids = NDArray[np.int64]
_NO_EDGES = np.empty((2, 0), np.int64)


class Splitter:
    """Reads deltas as a `StreamingSampler` does, and gives edges the ids that it would give.

    Args:
        query: What is sampled.
        num_nodes: Number of nodes.
        next_id: The id of the next edge.

    Attributes:
        num_nodes: Number of nodes after the deltas that were read.
        next_id: The id of the next edge.
    """

    def __init__(self, query: SampleQuery, num_nodes: int = 0, next_id: int = 0) -> None:
        # A graph without edges checks what is added as the graph of a worker would.
        none = torch.empty((2, 0), dtype=torch.int64)
        strategy = strategy_of(query.strategy, query.seed)
        self._edges = SampledEdges(none, (0, 0), query.num_neighbors, strategy, query.data)
        self._x, self._owners = query.x, query.owners
        self._features = Features(query.x, 0)
        self.num_nodes, self.next_id = num_nodes, next_id

    def start(
        self, edge_index: Tensor, data: dict[str, Tensor], x: Tensor, parts: int
    ) -> list[Part]:
        """The edges and the features that are there at first.

        Raises:
            InvalidDeltaError: If they do not fit.
        """
        return self.read(GraphDelta(edge_index_add=edge_index, edge_data_add=data, x_add=x), parts)

    def expire(self, before: float, parts: int) -> list[Part]:
        """Edges with times below `before` leave.

        Raises:
            ValueError: If edges come without times.
        """
        self._edges.before(before)
        return [part._replace(before=before) for part in self.read(GraphDelta(), parts)]

    def read(self, delta: GraphDelta, parts: int) -> list[Part]:
        """What a delta says to each of `parts` sampling workers.

        Raises:
            InvalidDeltaError: If it does not fit; nothing was numbered then.
        """
        delta = delta.alone().both_directions()
        said = parts_of(delta, [None], [None], False)
        total, removed = self.num_nodes + said.new_nodes[None], said.removed[None]
        check_ids(removed, "nodes_del", total)
        gone = _NO_EDGES
        if delta.edge_index_del is not None:
            gone = as_edges(delta.edge_index_del, "edge_index_del")
            check_edges(gone, "edge_index_del", (self.num_nodes, self.num_nodes))
        changes = self._edges.resolve(
            GraphDelta(
                edge_index_add=delta.edge_index_add,
                edge_weight_add=delta.edge_weight_add,
                edge_data_add=delta.edge_data_add,
                edge_changes=delta.edge_changes,
            ),
            (total, total),
            (removed, removed),
        )
        features = self._features.read(delta, self.num_nodes)
        ids = np.arange(self.next_id, self.next_id + changes.ids.size)
        self.num_nodes, self.next_id = total, self.next_id + ids.size
        rows = self._x[:0] if features.rows is None else features.rows
        owned = zip(
            split(changes.added[1], parts, SAMPLING, self._owners),
            split(gone[1], parts, SAMPLING, self._owners),
            split(features.ids, parts, SAMPLING, self._owners),
            strict=True,
        )
        return [
            Part(
                added=changes.added[:, come],
                ids=ids[come],
                data={k: values[torch.from_numpy(come)] for k, values in changes.data.items()},
                gone=gone[:, go],
                oldest=delta.which == "oldest",
                removed=removed,
                nodes=features.ids[new],
                x=rows[torch.from_numpy(new)],
                num_nodes=total,
            )
            for come, go, new in owned
        ]
