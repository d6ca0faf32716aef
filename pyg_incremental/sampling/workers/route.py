"""At which of its ends a record is kept: by target, by source, or at both (Helios, section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.sampling.kernels.rows import EDGE, PLACE
from pyg_incremental.sampling.read import EdgeType, ends_of

Ids = NDArray[np.int64]
EdgesBy = Literal["target", "source", "both"]
_NAMES = ("target", "source", "both")


class KeptEdges(NamedTuple):
    """Records as the edges that are kept of them, each by its target.

    Attributes:
        edges: Sources and targets, int64 `[2, k]`.
        ids: Their ids, int64 `[k]`, ascending.
        data: What they come with, by name, `[k]`.
    """

    edges: Ids
    ids: Ids
    data: dict[str, Tensor]


class Route(NamedTuple):
    """How the records of one edge type become the edges of one type that are sampled.

    Whatever is kept leads from the node that is found to the node whose sample it is in, and lies
    with the owner of the latter. By source it is the record turned round. At both ends of records
    between nodes of one type, a record is two edges that are sampled as one type: source `u` and id
    `i` are written `2 * u` and `2 * i` in the edge as it was, and one more in the edge turned
    round. So a pair of nodes that leaves is one pair at each end, whichever records lead back, and
    the two edges draw apart. A loop has one end. There may be 2^30 nodes then.

    Attributes:
        records: The type of the records.
        kind: The type of the edges that are kept of them.
        by: At which ends.
        counts: Whether records that were to leave and are not there are counted here, and not on
            another route of theirs.
    """

    records: EdgeType
    kind: EdgeType
    by: str
    counts: bool

    def take(self, edges: Ids, ids: Ids, data: dict[str, Tensor]) -> KeptEdges:
        """What is kept of records, int64 `[2, k]`, with their ids, `[k]`, and data, `[k]`."""
        if self.by == "target":
            return KeptEdges(edges, ids, data)
        if self.by == "source":
            return KeptEdges(np.ascontiguousarray(edges[::-1]), ids, data)
        at, turned = _twice(edges)
        rows = torch.from_numpy(at)
        kept = self.leaving(edges)
        return KeptEdges(kept, 2 * ids[at] + turned, {k: v[rows] for k, v in data.items()})

    def leaving(self, edges: Ids) -> Ids:
        """What is kept of records that leave, int64 `[2, m]`."""
        if self.by != "both":
            return edges if self.by == "target" else np.ascontiguousarray(edges[::-1])
        at, turned = _twice(edges)
        source, target = edges[turned, at], edges[1 - turned, at]
        return np.stack([2 * source + turned, target])

    def sources(self, count: int) -> int:
        """How many sources there are of so many nodes."""
        return 2 * count if self.by == "both" else count

    def as_sources(self, nodes: Ids) -> Ids:
        """Nodes, int64 `[n]`, ascending, as sources of edges that are kept."""
        if self.by != "both":
            return nodes
        both: Ids = np.repeat(2 * nodes, 2)
        both[1::2] += 1
        return both

    def missing(self, gone: Ids, sources: Ids) -> int:
        """How many records were to leave and are not there.

        Args:
            gone: What is kept of those that were to leave, int64 `[2, m]`.
            sources: The sources of what has left, int64 `[r]`.
        """
        if not self.counts:
            return 0
        if self.by != "both":
            return int(gone.shape[1] - sources.size)
        return int(np.count_nonzero(gone[0] % 2 == 0) - np.count_nonzero(sources % 2 == 0))

    def found(self, sampled: Ids) -> Ids:
        """Sampled edges, int64 `[e, 3]`, with nodes and records as everybody else calls them."""
        if self.by == "both":
            sampled[:, [EDGE, PLACE]] >>= 1
        return sampled


def routes_of(edges_by: Mapping[EdgeType, str]) -> dict[EdgeType, Route]:
    """The routes by the type of the edges that are sampled.

    Edges turned round are of the type that PyG's `ToUndirected` calls them; those of one node type
    are merged with the others, as there.

    Args:
        edges_by: At which ends records of each type are kept.

    Raises:
        ValueError: If two types come out the same.
    """
    found: dict[EdgeType, Route] = {}
    for records, by in edges_by.items():
        source, target = ends_of(records)
        merged = by == "both" and source == target
        if by != "source":
            _add(found, Route(records, records, "both" if merged else "target", True))
        if by != "target" and not merged:
            _add(found, Route(records, turned_round(records), "source", by == "source"))
    return found


def _add(found: dict[EdgeType, Route], route: Route) -> None:
    if route.kind in found:
        raise ValueError(
            f"edges_by: expected one type of records for edges of type {route.kind!r} (got both "
            f"{found[route.kind].records!r} and {route.records!r}); keep them by target, or rename "
            "one of them"
        )
    found[route.kind] = route


def turned_round(kind: EdgeType) -> EdgeType:
    """The type of the edges of a type turned round."""
    return (kind[2], f"rev_{kind[1]}", kind[0]) if kind else None


def edges_by_type(given: Any, kinds: list[EdgeType]) -> dict[EdgeType, str]:
    """At which ends records of each type are kept: one word for all, or one for each type.

    Raises:
        ValueError: If it is something else.
    """
    named = dict(given) if isinstance(given, Mapping) else dict.fromkeys(kinds, given)
    unknown = [kind for kind in named if kind not in kinds]
    wrong = [by for by in named.values() if by not in _NAMES]
    if unknown or wrong:
        types = f" by edge type, of {kinds}" if None not in kinds else ""
        raise ValueError(
            f"edges_by: expected 'target', 'source' or 'both'{types} (got {given!r}); types that "
            "are not named are kept by target"
        )
    return {kind: named.get(kind, "target") for kind in kinds}


def fanouts_by_route(given: Any, routes: Mapping[EdgeType, Route]) -> Any:
    """Numbers of neighbours; edges turned round that are not named have those of their records."""
    if not isinstance(given, Mapping):
        return given
    found = dict(given)
    for kind, route in routes.items():
        if kind not in found and route.records in found:
            found[kind] = found[route.records]
            if route.records not in routes:
                del found[route.records]
    return found


def _twice(edges: Ids) -> tuple[Ids, Ids]:
    """Where each edge stands once for each of its ends, and which of the two it is, `[e]` each."""
    at, turned = np.divmod(np.arange(2 * edges.shape[1]), 2)
    kept = (turned == 0) | (edges[0] != edges[1])[at]
    return at[kept], turned[kept]
