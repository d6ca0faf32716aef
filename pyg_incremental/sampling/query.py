"""One query: hop by hop from the seeds on, by what is ready for each hop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.sampling.read import EdgeType, NodeType, ends_of

Ids = NDArray[np.int64]
_NONE = np.empty(0, np.int64)
_BITS = 32
NO_LISTS = Adjacency(
    start=np.empty(0, np.int64),
    degree=np.empty(0, np.int32),
    capacity=np.empty(0, np.int32),
    neighbor=np.empty(0, np.int32),
    edge=np.empty(0, np.int32),
)
"""What stands for lists where none are read."""


class HopEdges(NamedTuple):
    """The sampled in-edges of some nodes.

    Attributes:
        edges: Where the source and the target of each edge stand among the nodes of their types,
            and its id, int64 `[3, e]`.
        new: The sources that were not known, in the order in which they were found, int64 `[r]`;
            nodes that were found are written with their query, see `kernels.expand`.
    """

    edges: Ids
    new: Ids


class HopSource(Protocol):
    """Has the samples of the targets of one edge type ready."""

    def hop(self, hop: int, frontier: Ids, offset: int, known: Ids) -> HopEdges:
        """The sampled in-edges of some nodes.

        Args:
            hop: Which hop it is, from zero on.
            frontier: The nodes that were found last, int64 `[m]`.
            offset: Where the first of them stands among the nodes of its type.
            known: All that were found of the type of the sources, int64 `[n]`.
        """
        ...


@dataclass
class _Nodes:
    """The nodes of one type that were found, hop by hop, and how many."""

    parts: list[Ids]
    counts: list[int]

    def add(self, found: Ids) -> None:
        self.parts.append(found)
        self.counts.append(found.size)

    def ids(self) -> Tensor:
        return torch.from_numpy(node_of(_joined(self.parts)))

    def batch(self) -> Tensor:
        return torch.from_numpy(query_of(_joined(self.parts)))


@dataclass
class _Edges:
    """The edges of one type that were sampled, hop by hop, and how many."""

    parts: list[Ids]
    counts: list[int]

    def add(self, edges: Ids) -> None:
        self.parts.append(edges)
        self.counts.append(edges.shape[1])

    def joined(self) -> tuple[Tensor, Tensor, Tensor]:
        row, col, edge = torch.from_numpy(np.concatenate(self.parts, axis=1))
        return row, col, edge


@dataclass
class Sample:
    """What a query found."""

    nodes: dict[NodeType, _Nodes]
    edges: dict[EdgeType, _Edges]
    disjoint: bool

    def output(self) -> SamplerOutput:
        """In PyG's form, for a graph of one type."""
        nodes, edges = self.nodes[None], self.edges[None]
        row, col, edge = edges.joined()
        return SamplerOutput(
            node=nodes.ids(),
            row=row,
            col=col,
            edge=edge,
            batch=nodes.batch() if self.disjoint else None,
            num_sampled_nodes=nodes.counts,
            num_sampled_edges=edges.counts,
        )

    def hetero_output(self) -> HeteroSamplerOutput:
        """In PyG's form, by type."""
        parts = {kind: found.joined() for kind, found in self.edges.items()}
        batch = {kind: found.batch() for kind, found in self.nodes.items()}
        return HeteroSamplerOutput(
            node={kind: found.ids() for kind, found in self.nodes.items()},
            row={kind: part[0] for kind, part in parts.items()},
            col={kind: part[1] for kind, part in parts.items()},
            edge={kind: part[2] for kind, part in parts.items()},
            batch=batch if self.disjoint else None,
            num_sampled_nodes={kind: found.counts for kind, found in self.nodes.items()},
            num_sampled_edges={kind: found.counts for kind, found in self.edges.items()},
        )


def expand(
    seeds: Mapping[NodeType, Ids],
    node_types: Sequence[NodeType] | Mapping[NodeType, int],
    sources: Mapping[EdgeType, HopSource],
    num_hops: int,
    disjoint: bool,
) -> Sample:
    """Go all hops from the seeds on; each node is expanded by the hop after the one it is found in.

    Args:
        seeds: Node ids by type, int64 `[k]`.
        node_types: All types of nodes.
        sources: The edges of each type.
        num_hops: How many hops.
        disjoint: Whether every seed has a subgraph of its own.
    """
    nodes = {kind: _Nodes([_NONE], [0]) for kind in node_types}
    first = 0
    for kind, ids in seeds.items():
        # Seeds of all types are numbered one after the other, as PyG's link loaders expect it.
        own = with_queries(ids, first) if disjoint else ids
        nodes[kind] = _Nodes([own], [ids.size])
        first += ids.size
    edges = {kind: _Edges([], []) for kind in sources}
    for hop in range(num_hops):
        ends = {kind: found.parts[-1] for kind, found in nodes.items()}
        begin = {kind: sum(found.counts[:-1]) for kind, found in nodes.items()}
        more: dict[NodeType, list[Ids]] = {kind: [] for kind in nodes}
        for edge_type, sampled in sources.items():
            source, target = ends_of(edge_type)
            known = _joined([*nodes[source].parts, *more[source]])
            found = sampled.hop(hop, ends[target], begin[target], known)
            edges[edge_type].add(found.edges)
            more[source].append(found.new)
        for kind, new in more.items():
            nodes[kind].add(_joined(new))
    return Sample(nodes, edges, disjoint)


def with_queries(seeds: Ids, first: int = 0) -> Ids:
    """Seeds of which each is a query of its own, numbered from `first` on, int64 `[k]`."""
    found: Ids = (np.arange(first, first + seeds.size) << _BITS) | seeds
    return found


def node_of(found: Ids) -> Ids:
    """The ids of nodes that were found, int64 `[n]`."""
    ids: Ids = found & (2**_BITS - 1)
    return ids


def query_of(found: Ids) -> Ids:
    """The queries of nodes that were found, int64 `[n]`."""
    queries: Ids = found >> _BITS
    return queries


def _joined(parts: Sequence[Ids]) -> Ids:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else _NONE
