"""What workers say to each other, in the form in which ranks and files have values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.encoding.framing import record
from pyg_incremental.sampling.read import EdgeType, NodeType
from pyg_incremental.sampling.strategy import Strategy, strategies_of
from pyg_incremental.sampling.workers.route import Route, routes_of

Ids = NDArray[np.int64]
Counts = tuple[Ids, Ids]
"""Distinct nodes and how much is added to a count of each, int64 `[k]`."""
TypedCounts = dict[NodeType, Counts]
"""The same by node type; types that are not there have none."""
NO_IDS = np.empty(0, np.int64)
NO_COUNTS: Counts = (NO_IDS, NO_IDS)


@record
class SampleQuery(NamedTuple):
    """The query that is kept ready, as the coordinator registers it.

    The type of the nodes and of the edges of a homogeneous graph is None. Edge types are those of
    the edges that are sampled, which differ from those of records that are kept by source.

    Attributes:
        num_neighbors: How many in-edges of each type are sampled in each hop.
        strategy: Which ones.
        seed: What samples are drawn from.
        data: What edges of each type come with, by name: tensors of their dtype, `[0]`.
        x: Features of the kind that nodes of each type have, `[0, num_features]`.
        memory: How many bytes of rows a serving worker has in memory; None for no limit.
        owners: The part of each of the first nodes of a type, int64 `[n]`, see `owners.owner_of`.
        edges_by: At which ends records of each type are kept: `'target'`, `'source'` or `'both'`.
    """

    num_neighbors: dict[EdgeType, list[int]]
    strategy: str
    seed: int
    data: dict[EdgeType, dict[str, Tensor]]
    x: dict[NodeType, Tensor]
    memory: int | None
    owners: dict[NodeType, Ids]
    edges_by: dict[EdgeType, str]

    @property
    def routes(self) -> dict[EdgeType, Route]:
        """How records become the edges of each type."""
        return routes_of(self.edges_by)

    @property
    def num_hops(self) -> int:
        """How many hops there are, of every edge type."""
        return len(next(iter(self.num_neighbors.values())))

    def strategies(self) -> dict[EdgeType, Strategy]:
        """What samples the edges of each type."""
        kinds = list(self.num_neighbors)
        return dict(zip(kinds, strategies_of(self.strategy, self.seed, len(kinds)), strict=True))

    def owners_of(self, kind: NodeType) -> Ids:
        """The parts of the first nodes of a type."""
        return self.owners.get(kind, NO_IDS)


@record
class EdgePart(NamedTuple):
    """What one delta says to one sampling worker of the edges of one type.

    Attributes:
        added: Edges to nodes of the worker, int64 `[2, k]`, as their `Route` writes them.
        ids: Their ids, int64 `[k]`, ascending, likewise.
        data: What they come with.
        gone: Edges to nodes of the worker that leave, int64 `[2, m]`.
    """

    added: Ids
    ids: Ids
    data: dict[str, Tensor]
    gone: Ids


@record
class NodePart(NamedTuple):
    """What one delta says to one sampling worker of the nodes of one type.

    Attributes:
        removed: Nodes of which all edges leave, of all workers, int64 `[d]`.
        ids: Nodes of the worker with new features, int64 `[r]`.
        x: Their features, `[r, num_features]`.
        total: Number of nodes from here on.
    """

    removed: Ids
    ids: Ids
    x: Tensor
    total: int


@record
class WorkerDelta(NamedTuple):
    """What one delta says to one sampling worker.

    Attributes:
        edges: Of the edges of each type.
        nodes: Of the nodes of each type.
        oldest: Whether the oldest edge of a pair leaves, and not the newest.
        before: Edges with times below this one leave; None for none.
    """

    edges: dict[EdgeType, EdgePart]
    nodes: dict[NodeType, NodePart]
    oldest: bool
    before: float | None = None


@record
class HopRows(NamedTuple):
    """Samples of one hop for a serving worker.

    Attributes:
        nodes: Whose they are, int64 `[k]`.
        held: How many edges each has, int64 `[k]`.
        edges: Ids and sources of the edges, int64 `[e, 2]`.
        gone: Nodes whose samples nobody needs there any more, int64 `[m]`.
    """

    nodes: Ids
    held: Ids
    edges: Ids
    gone: Ids


@record
class NodeRows(NamedTuple):
    """Features of nodes of one type for a serving worker.

    Attributes:
        nodes: Nodes with features that are new there, int64 `[r]`.
        x: The features, `[r, num_features]`.
        gone: Nodes whose features nobody needs there any more, int64 `[m]`.
        total: Number of nodes.
    """

    nodes: Ids
    x: Tensor
    gone: Ids
    total: int


@record
class Publication(NamedTuple):
    """What one sampling worker sends one serving worker in a round.

    Attributes:
        edges: The samples of each hop, by edge type.
        nodes: The features, by node type.
    """

    edges: dict[EdgeType, list[HopRows]]
    nodes: dict[NodeType, NodeRows]


@record
class NodeAnswer(NamedTuple):
    """The nodes of one type in a sample.

    Attributes:
        node: Their ids, int64 `[n]`, hop by hop.
        x: Features, `[n, num_features]`.
        counts: How many there are in each hop.
    """

    node: Tensor
    x: Tensor
    counts: list[int]


@record
class EdgeAnswer(NamedTuple):
    """The edges of one type in a sample.

    Attributes:
        edge_index: The edges as places among the nodes of their types, int64 `[2, e]`, hop by hop.
        edge: Their ids, int64 `[e]`.
        counts: How many there are in each hop.
    """

    edge_index: Tensor
    edge: Tensor
    counts: list[int]


@record
class Answer(NamedTuple):
    """The sample of some seeds, with features and its round.

    Attributes:
        nodes: The nodes, by type.
        edges: The edges, by type.
        round: The round whose changes are all in it.
    """

    nodes: dict[NodeType, NodeAnswer]
    edges: dict[EdgeType, EdgeAnswer]
    round: int


def summed(counts: list[Counts]) -> Counts:
    """Several counts as one."""
    counts = [count for count in counts if count[0].size]
    if len(counts) < 2:
        return counts[0] if counts else NO_COUNTS
    ids, at = np.unique(np.concatenate([ids for ids, _ in counts]), return_inverse=True)
    total = np.zeros(ids.size, np.int64)
    np.add.at(total, at, np.concatenate([count for _, count in counts]))
    return ids, total


def summed_by_type(counts: list[TypedCounts]) -> TypedCounts:
    """The same of each node type."""
    kinds = dict.fromkeys(kind for some in counts for kind in some)
    return {kind: summed([some[kind] for some in counts if kind in some]) for kind in kinds}
