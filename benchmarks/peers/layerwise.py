"""What the peers share that keep messages and rows of every layer."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers.adjacency import Adjacency
from benchmarks.peers.changes import NO_NODES, Changes, Ids, changes_of
from benchmarks.peers.layers import Aggr, RowMap, layers_of
from benchmarks.peers.pull import Rows, pull
from benchmarks.peers.touched import Touched
from pyg_incremental import GraphDelta

CHUNK = 65_536  # rows at a time in the first pass


class LayerWise:
    """The graph, and of each layer the messages and the rows that its end reads.

    A subclass says in `start_rows` how rows come about at first and in `update` how they change.
    """

    def __init__(self, model: nn.Module, products_first: bool = False) -> None:
        self.layers = layers_of(model, products_first)
        self.is_gcn = self.layers[0].aggr is Aggr.GCN

    def bootstrap(self, x: Tensor, edge_index: Tensor) -> None:
        """A full pass, some rows at a time."""
        num_nodes = len(x)
        self.graph = Adjacency(edge_index.numpy(), num_nodes)
        self.touched = Touched(num_nodes)
        self.no_rows = x[:0]
        # 1 / sqrt(degree) of every node, before the present delta and after it
        degree = self.graph.inn.degree + 1 if self.is_gcn else NO_NODES
        self.scale = (degree**-0.5).astype(x.numpy().dtype)
        self.scale_before = self.scale.copy()
        self.sent: list[Tensor] = []
        self.kept: list[Tensor] = []
        self.arrays: list[Rows] = []  # what is sent, as the kernels see it
        rows = x.clone()
        for at, layer in enumerate(self.layers):
            self.sent.append(rows if layer.send is None else _chunked(layer.send, rows))
            self.arrays.append(self.sent[at].numpy())
            self.kept.append(self.sent[at] if layer.keep is None else _chunked(layer.keep, rows))
            pieces = [
                self.finish(at, ids, self.start_rows(at, ids))
                for ids in np.split(np.arange(num_nodes), range(CHUNK, num_nodes, CHUNK))
            ]
            rows = torch.cat(pieces)
        self.out = rows

    def output(self) -> Tensor:
        return self.out

    def apply(self, delta: GraphDelta) -> None:
        """Update the graph, then the rows of layer after layer."""
        changes = changes_of(delta, self.no_rows)
        self.graph.apply(changes)
        rescaled = self.rescale(changes)
        ids, rows = changes.nodes, changes.rows
        for at in range(len(self.layers)):
            ids, rows = self.update(at, ids, rows, changes, rescaled)
        self.out[torch.from_numpy(ids)] = rows
        self.graph.settle(changes)
        self.scale_before[rescaled] = self.scale[rescaled]

    def rescale(self, changes: Changes) -> Ids:
        """GCN: the nodes that got another degree, for which `scale` is set anew."""
        if not self.is_gcn:
            return NO_NODES
        found = self.touched
        found.clear()
        found.add(changes.added[1])
        found.add(changes.deleted[1])
        ids = found.ids()
        self.scale[ids] = (self.graph.inn.degree[ids] + 1) ** -0.5
        return ids

    def start_rows(self, at: int, ids: Ids) -> Rows:
        """The aggregated rows of some nodes in the first pass."""
        return self.pull(at, ids)

    def update(
        self, at: int, ids: Ids, rows: Tensor, changes: Changes, rescaled: Ids
    ) -> tuple[Ids, Tensor]:
        """From the nodes with new inputs of a layer to those with new outputs."""
        raise NotImplementedError

    def messages(self, at: int, rows: Tensor) -> Tensor:
        """The messages of some input rows."""
        send = self.layers[at].send
        return rows if send is None else send(rows)

    def keep(self, at: int, ids: Ids, rows: Tensor) -> None:
        """Write down what the layer's end reads of new input rows, unless it is the message."""
        keep = self.layers[at].keep
        if keep is not None and ids.size:
            self.kept[at][torch.from_numpy(ids)] = keep(rows)

    def pull(self, at: int, ids: Ids) -> Rows:
        return pull(self.layers[at], self.arrays[at], self.scale, ids, self.graph.inn)

    def finish(self, at: int, ids: Ids, aggregated: Rows) -> Tensor:
        """From aggregated rows to the rows that come out."""
        layer = self.layers[at]
        kept = self.kept[at]
        kept = kept[torch.from_numpy(ids)] if layer.reads_kept else kept[:0]
        rows = layer.finish(torch.from_numpy(aggregated), kept)
        return rows.relu_() if at < len(self.layers) - 1 else rows


def _chunked(fn: RowMap, rows: Tensor) -> Tensor:
    return torch.cat([fn(part) for part in rows.split(CHUNK)])
