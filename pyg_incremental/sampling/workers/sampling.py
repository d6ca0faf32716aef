"""A sampling worker: edges of its nodes, their samples and features, and who needs them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.call.checked import Checked
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.distributed.wire.rounds import Rounds
from pyg_incremental.files import snapshot
from pyg_incremental.sampling.edges import ID, KEY, SampledEdges
from pyg_incremental.sampling.read import EdgeType, NodeType, ends_of
from pyg_incremental.sampling.tables import FeatureTable
from pyg_incremental.sampling.workers.messages import (
    NO_IDS,
    EdgePart,
    SampleQuery,
    TypedCounts,
    WorkerDelta,
    summed_by_type,
)
from pyg_incremental.sampling.workers.owners import SAMPLING, owner_of
from pyg_incremental.sampling.workers.publish import Publisher, by_owner

Ids = NDArray[np.int64]
_FORM = {
    "num_nodes": {object: int}, "missing": int, "edges": {object: {str: Tensor}},
    "nodes": {object: Tensor}, "x": {object: Tensor},
}  # fmt: skip


class SamplingWorker:
    """Holds the edges that are kept for the nodes that it owns, and keeps their samples.

    Args:
        query: What is sampled.
        part: The number of this worker.
        parts: How many there are.

    Attributes:
        missing: Edges that were to be deleted, and were not there.
    """

    def __init__(self, query: SampleQuery, part: int, parts: int) -> None:
        self._query, self._part, self._parts = query, part, parts
        self._routes = query.routes
        self.missing = 0
        self._num_nodes: dict[NodeType, int] = dict.fromkeys(query.x, 0)
        none = torch.empty((2, 0), dtype=torch.int64)
        self._edges = {
            kind: self._sampled(kind, none, NO_IDS, query.data[kind])
            for kind in query.num_neighbors
        }
        self._features = {kind: FeatureTable(0, x) for kind, x in query.x.items()}
        self._publisher: Publisher | None = None
        self._forget_changes()

    def _sampled(
        self, kind: EdgeType, edges: Tensor, ids: Ids, data: dict[str, Tensor]
    ) -> SampledEdges:
        query = self._query
        source, target = ends_of(kind)
        ends = self._routes[kind].sources(self._num_nodes[source]), self._num_nodes[target]
        fanouts, strategy = query.num_neighbors[kind], query.strategies()[kind]
        return SampledEdges(edges, ends, fanouts, strategy, data, ids=ids)

    def _forget_changes(self) -> None:
        self._touched: dict[EdgeType, list[Ids]] = {kind: [] for kind in self._edges}
        self._new_rows: dict[NodeType, list[Ids]] = {kind: [] for kind in self._features}

    @property
    def num_edges(self) -> int:
        """How many edges are kept here; a record may be one at each of its ends."""
        return sum(edges.graph.num_edges for edges in self._edges.values())

    @property
    def subscriptions(self) -> list[int]:
        """How many nodes of this worker each serving worker has samples of, over all hops."""
        return [] if self._publisher is None else self._publisher.subscriptions

    # Events --------------------------------------------------------------------------------------

    def apply(self, parts: Sequence[WorkerDelta]) -> None:
        """Take in what deltas say, one after the other; a round tells who needs to know."""
        for part in parts:
            self._num_nodes = {kind: own.total for kind, own in part.nodes.items()}
            for kind, said in part.edges.items():
                self._touched[kind] += self._take(kind, said, part)
            for name, own in part.nodes.items():
                self._features[name].grow(own.total)
                self._features[name].put(own.ids, own.x)
                self._new_rows[name].append(own.ids)

    def _take(self, kind: EdgeType, said: EdgePart, part: WorkerDelta) -> list[Ids]:
        """Take in edges of one type; nodes whose samples may have changed."""
        delta = GraphDelta(
            edge_index_add=torch.from_numpy(said.added),
            edge_index_del=torch.from_numpy(said.gone),
            edge_data_add=said.data,
            missing="ignore",
            which="oldest" if part.oldest else "newest",
        )
        source, target = (part.nodes[end] for end in ends_of(kind))
        edges, route = self._edges[kind], self._routes[kind]
        ends = route.sources(source.total), target.total
        removed = route.as_sources(source.removed), target.removed
        changes = edges.resolve(delta, ends, removed, said.ids)
        if not any(gone.size for gone in removed):
            left = edges.graph.slots.src[changes.gone].astype(np.int64)
            self.missing += route.missing(said.gone, left)
        touched = [edges.commit(changes, ends)]
        if part.before is not None:
            touched.append(edges.take_out(edges.before(part.before)))
        return touched

    # Rounds --------------------------------------------------------------------------------------

    def round(self, rounds: Rounds, seeds: list[TypedCounts], fresh: bool) -> None:
        """Publish what has changed since the last round; all workers of both kinds take part.

        Args:
            rounds: The conversation: sampling workers have the first ranks, serving ones the rest.
            seeds: For each serving worker, what is added to how often nodes are its seeds.
            fresh: Whether serving workers begin with nothing.
        """
        query, publisher = self._query, self._publisher
        if fresh or publisher is None:
            publisher = Publisher(query, self._num_nodes, len(seeds))
        self._publisher = None  # until the round is through
        changed, new_rows = _distinct(self._touched), _distinct(self._new_rows)
        self._forget_changes()
        publisher.begin(changed, self._num_nodes)
        counts, others = seeds, [None] * (rounds.size - self._parts)
        for hop in range(query.num_hops):
            found = publisher.hop(hop, counts, self._edges)
            got = rounds.swap([*by_owner(found, query, self._parts), *others])
            every = got[: self._parts]
            counts = [
                summed_by_type([said[server] for said in every]) for server in range(len(seeds))
            ]
        messages = publisher.features(counts, new_rows, self._features)
        rounds.swap([*([None] * self._parts), *messages])
        self._publisher = publisher

    # Checkpoints ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write edges and features; returns the checksum.

        Raises:
            OSError: If the file cannot be written.
        """
        edges = {kind: own.graph.state() for kind, own in self._edges.items()}
        for state in edges.values():
            del state[KEY]
        own = {
            kind: np.flatnonzero(table.store.has(np.arange(self._num_nodes[kind])))
            for kind, table in self._features.items()
        }
        content: dict[str, Any] = {
            "num_nodes": self._num_nodes,
            "missing": self.missing,
            "edges": edges,
            "nodes": {kind: torch.from_numpy(ids) for kind, ids in own.items()},
            "x": {kind: self._features[kind].rows(ids) for kind, ids in own.items()},
        }
        return snapshot.write(path, content)

    def load(self, files: Sequence[tuple[str, str]]) -> None:
        """Take what is this worker's from the files of all sampling workers, whoever wrote them.

        Args:
            files: Their paths and checksums.

        Raises:
            StateFileError: If a file is damaged or another one.
        """
        self.missing = 0
        edges: dict[EdgeType, list[dict[str, Tensor]]] = {kind: [] for kind in self._edges}
        rows: dict[NodeType, list[tuple[Ids, Tensor]]] = {kind: [] for kind in self._features}
        for path, checksum in files:
            content = snapshot.read(path, checksum)
            self._refuse_other(content, path)
            self._num_nodes = content["num_nodes"]
            for kind, state in content["edges"].items():
                mine = self._mine(state["edge_index"][1].numpy(), ends_of(kind)[1])
                edges[kind].append({k: v[..., mine] for k, v in state.items()})
            for name, nodes in content["nodes"].items():
                own = self._mine(nodes.numpy(), name)
                rows[name].append((nodes[own].numpy(), content["x"][name][own]))
            self.missing += content["missing"] if self._part == 0 or len(files) == 1 else 0
        self._edges = {kind: self._joined(kind, states) for kind, states in edges.items()}
        for name, some in rows.items():
            self._features[name] = FeatureTable(self._num_nodes[name], self._query.x[name])
            for ids, x in some:
                self._features[name].put(ids, x)
        self._publisher = None
        self._forget_changes()

    def _joined(self, kind: EdgeType, states: list[dict[str, Tensor]]) -> SampledEdges:
        """The edges of one type from several files."""
        state = {k: torch.cat([part[k] for part in states], -1) for k in states[0]}
        ids = state.pop(ID)
        order = torch.argsort(ids)  # of one file they are in it already; ages follow ids
        edges = state.pop("edge_index")[:, order].contiguous()
        data = {k: v[order] for k, v in state.items()}
        return self._sampled(kind, edges, ids[order].numpy(), data)

    def _refuse_other(self, content: dict[str, Any], path: str) -> None:
        """See that what a file holds fits; that of edges is seen to where they are taken."""
        checked, query = Checked(path), self._query
        checked.fits(content, _FORM, "")
        for name, expected in (("edges", query.data), ("nodes", query.x), ("num_nodes", query.x)):
            checked.same(list(content[name]), list(expected), f"types of {name}")
        checked.same(list(content["x"]), list(query.x), "types of x")
        for kind, like in query.data.items():
            _refuse_edges(checked, content["edges"][kind], like)
        for held, x in query.x.items():
            nodes, rows, total = (content[of][held] for of in ("nodes", "x", "num_nodes"))
            if nodes.dtype != torch.int64 or nodes.dim() != 1 or (nodes.diff() <= 0).any():
                raise checked.refuse("ids of nodes do not ascend")
            if nodes.numel() and not 0 <= int(nodes[0]) <= int(nodes[-1]) < total:
                raise checked.refuse("there are features of nodes that are not there")
            checked.same((rows.dtype, rows.shape), (x.dtype, (len(nodes), *x.shape[1:])), "x")

    def _mine(self, nodes: Ids, kind: NodeType) -> Tensor:
        """Where the nodes of this worker stand among some of a type, int64 `[k]`."""
        owner = owner_of(nodes, self._parts, SAMPLING, self._query.owners_of(kind))
        return torch.from_numpy(np.flatnonzero(owner == self._part))


def _distinct(found: Mapping[Any, list[Ids]]) -> dict[Any, Ids]:
    return {kind: np.unique(np.concatenate([NO_IDS, *ids])) for kind, ids in found.items()}


def _refuse_edges(checked: Checked, state: dict[str, Tensor], like: dict[str, Tensor]) -> None:
    """See that the edges of one type hang together."""
    checked.same(sorted(state), sorted([*like, "edge_index", ID]), "data of edges")
    ids = state[ID]
    if ids.dtype != torch.int64 or ids.dim() != 1 or (ids.diff() <= 0).any():
        raise checked.refuse("ids of edges do not ascend")
    if state["edge_index"].shape != (2, ids.numel()):
        raise checked.refuse("there are not as many edges as ids")
    for name, values in like.items():
        found = state[name]
        checked.same((found.dtype, found.shape), (values.dtype, ids.shape), name)
