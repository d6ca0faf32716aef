"""A sampling worker: edges to its nodes, their samples and features, and who needs them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pyg_incremental.call.checked import Checked
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.distributed.wire.rounds import Rounds
from pyg_incremental.files import snapshot
from pyg_incremental.sampling.edges import ID, KEY, SampledEdges
from pyg_incremental.sampling.strategy import strategy_of
from pyg_incremental.sampling.tables import FeatureTable
from pyg_incremental.sampling.workers.messages import NO_IDS, Counts, Part, SampleQuery, summed
from pyg_incremental.sampling.workers.owners import SAMPLING, owner_of, split
from pyg_incremental.sampling.workers.publish import Publisher, split_counts

Ids = NDArray[np.int64]
_FORM = {
    "num_nodes": int, "missing": int, "edges": {str: torch.Tensor}, "nodes": torch.Tensor,
    "x": torch.Tensor,
}  # fmt: skip


class SamplingWorker:
    """Holds the in-edges of the nodes that it owns, and keeps their samples.

    Args:
        query: What is sampled.
        part: The number of this worker.
        parts: How many there are.

    Attributes:
        missing: Edges that were to be deleted, and were not there.
    """

    def __init__(self, query: SampleQuery, part: int, parts: int) -> None:
        self._query, self._part, self._parts = query, part, parts
        self.missing = 0
        self._take(np.empty((2, 0), np.int64), NO_IDS, query.data, 0)
        self._features = FeatureTable(0, query.x)
        self._publisher: Publisher | None = None
        self._forget_changes()

    def _take(self, edges: Ids, ids: Ids, data: dict[str, torch.Tensor], num_nodes: int) -> None:
        query = self._query
        strategy = strategy_of(query.strategy, query.seed)
        ends = num_nodes, num_nodes
        self._edges = SampledEdges(
            torch.from_numpy(edges), ends, query.num_neighbors, strategy, data, ids=ids
        )

    def _forget_changes(self) -> None:
        self._touched: list[Ids] = []
        self._new_rows: list[Ids] = []

    @property
    def num_edges(self) -> int:
        """How many edges lead to nodes of this worker."""
        return self._edges.graph.num_edges

    @property
    def subscriptions(self) -> list[int]:
        """How many samples of this worker each serving worker has."""
        return [] if self._publisher is None else self._publisher.subscriptions

    # Events --------------------------------------------------------------------------------------

    def apply(self, parts: Sequence[Part]) -> None:
        """Take in what deltas say, one after the other; a round tells who needs to know."""
        for part in parts:
            delta = GraphDelta(
                edge_index_add=torch.from_numpy(part.added),
                edge_index_del=torch.from_numpy(part.gone),
                edge_data_add=part.data,
                missing="ignore",
                which="oldest" if part.oldest else "newest",
            )
            ends, edges = (part.num_nodes, part.num_nodes), self._edges
            changes = edges.resolve(delta, ends, (part.removed, part.removed), part.ids)
            if not part.removed.size:
                self.missing += part.gone.shape[1] - changes.gone.size
            self._touched.append(edges.commit(changes, ends))
            if part.before is not None:
                self._touched.append(edges.take_out(edges.before(part.before)))
            self._features.grow(part.num_nodes)
            self._features.put(part.nodes, part.x)
            self._new_rows.append(part.nodes)

    # Rounds --------------------------------------------------------------------------------------

    def round(self, rounds: Rounds, seeds: list[Counts], fresh: bool) -> None:
        """Publish what has changed since the last round; all workers of both kinds take part.

        Args:
            rounds: The conversation: sampling workers have the first ranks, serving ones the rest.
            seeds: For each serving worker, what is added to how often nodes are its seeds.
            fresh: Whether serving workers begin with nothing.
        """
        edges, publisher = self._edges, self._publisher
        num_nodes = edges.num_nodes[0]
        if fresh or publisher is None:
            publisher = Publisher(edges.fanouts, num_nodes, len(seeds))
        self._publisher = None  # until the round is through
        changed = np.unique(np.concatenate([NO_IDS, *self._touched]))
        new_rows = np.unique(np.concatenate([NO_IDS, *self._new_rows]))
        self._forget_changes()
        publisher.begin(changed, num_nodes)
        counts, others = seeds, [None] * (rounds.size - self._parts)
        for hop in range(len(edges.fanouts)):
            found = publisher.hop(hop, counts, edges.rows)
            owned = [split(ids, self._parts, SAMPLING, self._query.owners) for ids, _ in found]
            got = rounds.swap([*split_counts(found, owned), *others])
            every = got[: self._parts]
            counts = [summed([said[server] for said in every]) for server in range(len(seeds))]
        messages = publisher.features(counts, new_rows, self._features, self._query.x)
        rounds.swap([*([None] * self._parts), *messages])
        self._publisher = publisher

    # Checkpoints ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write edges and features; returns the checksum.

        Raises:
            OSError: If the file cannot be written.
        """
        state = self._edges.graph.state()
        del state[KEY]
        num_nodes = self._edges.num_nodes[0]
        own = np.flatnonzero(self._features.store.has(np.arange(num_nodes)))
        content: dict[str, Any] = {
            "num_nodes": num_nodes,
            "missing": self.missing,
            "edges": state,
            "nodes": torch.from_numpy(own),
            "x": self._features.rows(own),
        }
        return snapshot.write(path, content)

    def load(self, files: Sequence[tuple[str, str]]) -> None:
        """Take what is this worker's from the files of all sampling workers, whoever wrote them.

        Args:
            files: Their paths and checksums.

        Raises:
            StateFileError: If a file is damaged or another one.
        """
        kept: list[dict[str, Any]] = []
        self.missing, num_nodes = 0, 0
        for path, checksum in files:
            content = snapshot.read(path, checksum)
            self._refuse_other(content, path)
            state, num_nodes = content["edges"], content["num_nodes"]
            mine = torch.from_numpy(self._mine(state["edge_index"][1].numpy()))
            own = torch.from_numpy(self._mine(content["nodes"].numpy()))
            kept.append(
                {
                    "edges": {k: v[..., mine] for k, v in state.items()},
                    "nodes": content["nodes"][own],
                    "x": content["x"][own],
                }
            )
            self.missing += content["missing"] if self._part == 0 or len(files) == 1 else 0
        state = {k: torch.cat([part["edges"][k] for part in kept], -1) for k in kept[0]["edges"]}
        ids = state.pop(ID)
        order = torch.argsort(ids)  # of one file they are in it already; ages follow ids
        data = {k: v[order] for k, v in state.items() if k != "edge_index"}
        edges = np.ascontiguousarray(state["edge_index"][:, order].numpy())
        self._take(edges, ids[order].numpy(), data, num_nodes)
        self._features = FeatureTable(num_nodes, self._query.x)
        for part in kept:
            self._features.put(part["nodes"].numpy(), part["x"])
        self._publisher = None
        self._forget_changes()

    def _refuse_other(self, content: dict[str, Any], path: str) -> None:
        """See that what a file holds fits; that of edges is seen to where they are taken."""
        checked, query = Checked(path), self._query
        checked.fits(content, _FORM, "")
        state, ids = content["edges"], content["edges"].get(ID)
        checked.same(sorted(state), sorted([*query.data, "edge_index", ID]), "data of edges")
        if ids.dtype != torch.int64 or ids.dim() != 1 or (ids.diff() <= 0).any():
            raise checked.refuse("ids of edges do not ascend")
        if state["edge_index"].shape != (2, ids.numel()):
            raise checked.refuse("there are not as many edges as ids")
        for name, values in query.data.items():
            found = state[name]
            checked.same((found.dtype, found.shape), (values.dtype, ids.shape), name)
        nodes, x = content["nodes"], content["x"]
        if nodes.dtype != torch.int64 or nodes.dim() != 1 or (nodes.diff() <= 0).any():
            raise checked.refuse("ids of nodes do not ascend")
        if nodes.numel() and not 0 <= int(nodes[0]) <= int(nodes[-1]) < content["num_nodes"]:
            raise checked.refuse("there are features of nodes that are not there")
        checked.same((x.dtype, x.shape), (query.x.dtype, (len(nodes), *query.x.shape[1:])), "x")

    def _mine(self, nodes: Ids) -> Ids:
        owner = owner_of(nodes, self._parts, SAMPLING, self._query.owners)
        found: Ids = np.flatnonzero(owner == self._part)
        return found
