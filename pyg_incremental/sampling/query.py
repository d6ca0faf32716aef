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

from pyg_incremental.sampling.read import EdgeType, NodeType, ends_of

Ids = NDArray[np.int64]
_NONE = np.empty(0, np.int64)


class HopEdges(NamedTuple):
    """The sampled in-edges of some nodes.

    Attributes:
        row: Where the source of each edge stands among the nodes of its type, int64 `[e]`.
        col: Where its target stands, int64 `[e]`.
        edge: Its id, int64 `[e]`.
        new: The sources that were not known, in the order in which they were found, int64 `[r]`.
        new_batch: The query of each, int64 `[r]`.
    """

    row: Ids
    col: Ids
    edge: Ids
    new: Ids
    new_batch: Ids


class HopSource(Protocol):
    """Has the samples of the targets of one edge type ready."""

    def hop(
        self, hop: int, frontier: tuple[Ids, Ids], offset: int, known: tuple[Ids, Ids]
    ) -> HopEdges:
        """The sampled in-edges of some nodes.

        Args:
            hop: Which hop it is, from zero on.
            frontier: The nodes and the query of each, int64 `[m]`.
            offset: Where the first of them stands among the nodes of its type.
            known: The nodes that are known of the type of the sources, likewise.
        """
        ...


@dataclass
class _Nodes:
    """The nodes of one type that were found: their ids and queries hop by hop, and how many."""

    ids: list[Ids]
    queries: list[Ids]
    counts: list[int]

    def add(self, ids: Ids, queries: Ids) -> None:
        self.ids.append(ids)
        self.queries.append(queries)
        self.counts.append(ids.size)

    def known(self, ids: list[Ids], queries: list[Ids]) -> tuple[Ids, Ids]:
        return _joined([*self.ids, *ids]), _joined([*self.queries, *queries])

    def joined(self) -> Tensor:
        return torch.from_numpy(_joined(self.ids))

    def batch(self) -> Tensor:
        return torch.from_numpy(_joined(self.queries))


@dataclass
class _Edges:
    """The edges of one type that were sampled, hop by hop, and how many."""

    parts: list[tuple[Ids, Ids, Ids]]
    counts: list[int]

    def add(self, found: HopEdges) -> None:
        self.parts.append(found[:3])
        self.counts.append(found.row.size)

    def joined(self) -> tuple[Tensor, Tensor, Tensor]:
        row, col, edge = (torch.from_numpy(_joined(p)) for p in zip(*self.parts, strict=True))
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
            node=nodes.joined(),
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
            node={kind: found.joined() for kind, found in self.nodes.items()},
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
    nodes: dict[NodeType, _Nodes] = {kind: _Nodes([_NONE], [_NONE], [0]) for kind in node_types}
    first = 0
    for kind, ids in seeds.items():
        # Seeds of all types are numbered one after the other, as PyG's link loaders expect it.
        queries = np.arange(first, first + ids.size) if disjoint else np.zeros_like(ids)
        nodes[kind] = _Nodes([ids], [queries], [ids.size])
        first += ids.size
    edges = {kind: _Edges([], []) for kind in sources}
    for hop in range(num_hops):
        ends = {kind: (found.ids[-1], found.queries[-1]) for kind, found in nodes.items()}
        begin = {kind: sum(found.counts[:-1]) for kind, found in nodes.items()}
        more: dict[NodeType, tuple[list[Ids], list[Ids]]] = {kind: ([], []) for kind in nodes}
        for edge_type, own in sources.items():
            source, target = ends_of(edge_type)
            known = nodes[source].known(*more[source])
            found = own.hop(hop, ends[target], begin[target], known)
            edges[edge_type].add(found)
            more[source][0].append(found.new)
            more[source][1].append(found.new_batch)
        for kind, (new, new_queries) in more.items():
            nodes[kind].add(_joined(new), _joined(new_queries))
    return Sample(nodes, edges, disjoint)


def _joined(parts: Sequence[Ids]) -> Ids:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else _NONE
