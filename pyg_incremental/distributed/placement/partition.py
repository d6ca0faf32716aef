"""Which rank owns which node, and how good such a choice is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.distributed.errors import PartitionError
from pyg_incremental.distributed.placement import ldg
from pyg_incremental.distributed.placement.place import ROOM
from pyg_incremental.distributed.placement.union import Union
from pyg_incremental.program.steps import Relation

Method = Literal["metis", "hash", "ldg"]
METHODS = ("metis", "hash", "ldg")
MAX_PARTS = 2**15 - 1
PASSES = 3
"""How often LDG goes through the nodes: again, with all others in place, it places them better."""
CHUNK = 1 << 24


@dataclass(frozen=True)
class Partition:
    """Which rank owns which node.

    Attributes:
        owner: The part of every node, int16 `[num_nodes]`.
        num_parts: Number of parts; some may be empty.
        method: How it was made.
        edges_cut: Number of edges whose ends are in different parts.
        num_edges: Number of edges.
        sizes: Nodes in each part, int64 `[num_parts]`.
        in_edges: Edges that lead to the nodes of each part, int64 `[num_parts]`.
        ghosts: Nodes of other parts at which edges into each part start, int64 `[num_parts]`:
            the rows of which it keeps copies.
    """

    owner: Tensor = field(repr=False)
    num_parts: int
    method: str
    edges_cut: int
    num_edges: int
    sizes: Tensor
    in_edges: Tensor
    ghosts: Tensor

    @property
    def edge_cut(self) -> float:
        """The share of the edges whose ends are in different parts."""
        return self.edges_cut / max(1, self.num_edges)

    @property
    def balance(self) -> float:
        """Nodes of the largest part, in units of the mean; one is best."""
        return _largest(self.sizes)

    @property
    def edge_balance(self) -> float:
        """In-edges of the part with most of them, in units of the mean."""
        return _largest(self.in_edges)

    def __str__(self) -> str:
        return (
            f"{self.method}: {self.num_parts} parts of {len(self.owner):,} nodes, edge cut "
            f"{self.edges_cut:,} of {self.num_edges:,} ({100 * self.edge_cut:.1f} %), balance "
            f"{self.balance:.2f} (nodes), {self.edge_balance:.2f} (in-edges), ghosts "
            f"{self.ghosts.tolist()}"
        )


def _largest(counts: Tensor) -> float:
    total = int(counts.sum())
    return float(counts.max()) * len(counts) / total if total else 1.0


def partition(
    edge_index: Tensor, num_nodes: int, num_parts: int, method: Method = "metis", seed: int = 0
) -> Partition:
    """Split the nodes of a graph into parts with few edges between them.

    Args:
        edge_index: Sources and targets, int64 `[2, num_edges]`; may be memory-mapped.
        num_nodes: Number of nodes.
        num_parts: Number of parts.
        method: `'metis'` cuts fewest edges, balances nodes and in-edges together, and holds the
            graph twice (Karypis and Kumar, "A Fast and High Quality Multilevel Scheme for
            Partitioning Irregular Graphs", 1998; the `partition` extra); `'ldg'` streams (see
            `pyg_incremental.distributed.placement.ldg`); `'hash'` looks at no edge.
        seed: Seed of METIS and of the hash.

    Raises:
        PartitionError: If a number or an id does not fit.
        ImportError: If METIS is asked for and pymetis is not installed.
    """
    edges = _checked(edge_index, num_nodes)
    owner = partition_edges(edges, num_nodes, num_parts, method, seed)
    return assess(edges, owner, num_parts, method)


@dataclass(frozen=True)
class HeteroPartition:
    """Which rank owns which node of several kinds.

    Attributes:
        owner: The part of every node by kind, int16 `[num_nodes]`.
        union: The figures of the graph that all kinds of nodes and edges are together.
    """

    owner: dict[str, Tensor]
    union: Partition

    def __str__(self) -> str:
        return str(self.union)


def partition_hetero(
    edge_index: Mapping[tuple[str, str, str], Tensor],
    num_nodes: Mapping[str, int],
    num_parts: int,
    method: Method = "metis",
    seed: int = 0,
) -> HeteroPartition:
    """Split the nodes of several types into parts with few edges between them.

    All nodes and edges are taken for one graph; of a single type a part may have more than its
    share.

    Args:
        edge_index: For each edge type sources and targets, int64 `[2, num_edges]`.
        num_nodes: The number of nodes of each type.
        num_parts: Number of parts.
        method: As for `partition`.
        seed: Likewise.

    Raises:
        PartitionError: If a number or an id does not fit.
        ImportError: If METIS is asked for and pymetis is not installed.
    """
    union = Union(num_nodes)
    relations = []
    for key, edges in edge_index.items():
        source, target = key[0], key[-1]
        for kind, end in ((source, edges[:1]), (target, edges[1:])):
            if kind not in num_nodes:
                raise PartitionError(f"partition: of '{kind}' there is no number of nodes")
            _checked(torch.cat([end, end]), num_nodes[kind])
        relations.append((Relation(source=source, target=target), edges.numpy()))
    whole = union.edges(relations)
    owner = partition_edges(whole, union.total, num_parts, method, seed)
    by_kind = {kind: torch.from_numpy(ranks) for kind, ranks in union.split(owner).items()}
    return HeteroPartition(by_kind, assess(whole, owner, num_parts, method))


def partition_edges(
    edges: NDArray[np.int64], num_nodes: int, num_parts: int, method: Method, seed: int = 0
) -> NDArray[np.int16]:
    """The part of every node, as `partition` chooses it, int16 `[num_nodes]`.

    Raises:
        PartitionError: If the method, or the number of parts, cannot be.
    """
    if method not in METHODS:
        raise PartitionError(f"partition: expected a method among {METHODS} (got {method!r})")
    if not 1 <= num_parts <= MAX_PARTS:
        raise PartitionError(f"partition: expected 1 to {MAX_PARTS} parts (got {num_parts})")
    if num_parts == 1 or not num_nodes:
        return np.zeros(num_nodes, np.int16)
    if method == "hash":
        return hashed(np.arange(num_nodes), num_parts, seed)
    if method == "ldg":
        return _ldg(edges, num_nodes, num_parts)
    return _metis(edges, num_nodes, num_parts, seed)


def assess(
    edges: NDArray[np.int64], owner: NDArray[np.int16], num_parts: int, method: str
) -> Partition:
    """A partition with its figures, for a given choice of owners.

    Args:
        edges: int64 `[2, num_edges]`.
        owner: int16 `[num_nodes]`.
        num_parts: Number of parts.
        method: What to call it.
    """
    cut = 0
    in_edges = np.zeros(num_parts, np.int64)
    across: list[NDArray[np.int64]] = []
    for first in range(0, edges.shape[1], CHUNK):
        src, dst = edges[0, first : first + CHUNK], edges[1, first : first + CHUNK]
        to = owner[dst]
        in_edges += np.bincount(to, minlength=num_parts)
        far = owner[src] != to
        cut += int(far.sum())
        across.append(np.unique(to[far].astype(np.int64) * owner.size + src[far]))
    pairs = np.unique(np.concatenate(across)) if across else np.empty(0, np.int64)
    ghosts = np.bincount(pairs // max(1, owner.size), minlength=num_parts)
    sizes = np.bincount(owner, minlength=num_parts)
    return Partition(
        torch.from_numpy(owner), num_parts, method, cut, edges.shape[1], torch.from_numpy(sizes),
        torch.from_numpy(in_edges), torch.from_numpy(ghosts),
    )  # fmt: skip


def hashed(ids: NDArray[np.int64], num_parts: int, seed: int = 0) -> NDArray[np.int16]:
    """A part for each id, int64 `[k]`, by the id alone (the finaliser of splitmix64)."""
    z = ids.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    parts: NDArray[np.int16] = ((z ^ (z >> np.uint64(31))) % np.uint64(num_parts)).astype(np.int16)
    return parts


def _checked(edge_index: Tensor, num_nodes: int) -> NDArray[np.int64]:
    edges: NDArray[np.int64] = edge_index.numpy()
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype != np.int64:
        raise PartitionError(
            f"partition: edge_index must be int64 [2, num_edges] (got {edges.dtype} "
            f"{list(edges.shape)})"
        )
    if edges.size and (edges.min() < 0 or edges.max() >= num_nodes):
        raise PartitionError(
            f"partition: edge_index names node {edges.min() if edges.min() < 0 else edges.max()}, "
            f"but ids lie in [0, {num_nodes})"
        )
    return edges


def _ldg(edges: NDArray[np.int64], num_nodes: int, num_parts: int) -> NDArray[np.int16]:
    start, neighbor = ldg.both_ways(edges[0], edges[1], num_nodes)
    owner = np.full(num_nodes, ldg.NOWHERE, np.int16)
    sizes = np.zeros(num_parts, np.int64)
    room = max(1.0, ROOM * num_nodes / num_parts)
    for _ in range(PASSES):
        ldg.place(np.arange(num_nodes), start, neighbor, owner, sizes, room)
    return owner


def _metis(
    edges: NDArray[np.int64], num_nodes: int, num_parts: int, seed: int
) -> NDArray[np.int16]:
    try:
        import pymetis
    except ImportError as error:
        raise ImportError(
            "partition(method='metis') needs pymetis: pip install 'pyg-incremental[partition]', or "
            "use method='ldg'"
        ) from error
    src, dst = edges
    apart = src != dst
    low, high = np.minimum(src, dst)[apart], np.maximum(src, dst)[apart]
    pairs = np.unique(low * num_nodes + high)
    low, high = pairs // num_nodes, pairs % num_nodes
    start, neighbor = ldg.both_ways(low, high, num_nodes)
    graph = pymetis.CSRAdjacency(start, neighbor)
    # An update takes as long as its busiest rank, and most of that goes by the in-edges of a node.
    weights = 1 + np.bincount(dst, minlength=num_nodes)
    _, owner = pymetis.part_graph(
        num_parts, graph, vweights=weights, options=pymetis.Options(seed=seed)
    )
    return np.asarray(owner, np.int16)
