"""A delta in the ids of one rank: what it has been told, held against its own edges."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.delta.given import last_of_each, pair_keys
from pyg_incremental.delta.read.edges import GivenEdges
from pyg_incremental.delta.read.nodes import GivenNodes
from pyg_incremental.delta.read.reader import DeltaReader
from pyg_incremental.delta.resolve.edges import (
    FoundEdges,
    ResolvedEdges,
    find_edges,
    refuse_too_many,
)
from pyg_incremental.distributed.boundary.link import Link
from pyg_incremental.distributed.boundary.rewrite import Direction, suffix_of
from pyg_incremental.distributed.delta.parcel import Absent, EdgeParcel, Parcel
from pyg_incremental.distributed.numbering.ids import joined
from pyg_incremental.distributed.numbering.local_ids import FarIds, NearIds
from pyg_incremental.distributed.part.region import Boundary, Region
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.kernels.jit import njit

Ids = NDArray[np.int64]
_Ends = tuple[NearIds | FarIds, NearIds | FarIds]


@dataclass
class LocalDelta:
    """A valid delta on one rank; nothing has been changed yet.

    Attributes:
        near: The local ids of own nodes of each kind, new ones included.
        far: The local ids of far nodes of each local graph, new ghosts included.
        rows: For each node input local ids and new rows.
        edges: What happens to the edges of each local graph.
        boundaries: What happens at each boundary.
        absent: Edges that are not there, where that is an error.
    """

    near: dict[str, NearIds]
    far: dict[Direction, FarIds] = field(default_factory=dict)
    rows: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    edges: dict[Direction, ResolvedEdges] = field(default_factory=dict)
    boundaries: dict[Direction, Boundary] = field(default_factory=dict)
    absent: list[Absent] = field(default_factory=list)


class Merger:
    """Puts together what a rank has been told.

    Args:
        region: The nodes and edges of this rank.
        reader: Knows the node inputs, and how messages name things.
    """

    def __init__(self, region: Region, reader: DeltaReader) -> None:
        self._region, self._reader = region, reader

    def merge(self, received: Iterable[Parcel | None], missing: str) -> LocalDelta:
        """The delta, of the parts in the order of the ranks.

        Args:
            received: What each rank has told this one.
            missing: What to do about edges that are not there.
        """
        region, parcels = self._region, [p for p in received if p is not None]
        found = LocalDelta({})
        for kind, own in region.own.items():
            new = np.sort(joined(p.new[kind] for p in parcels if kind in p.new))
            ghosts = (link.ghosts.end for link in region.links.values() if link.own is own)
            found.near[kind] = NearIds(own, new, ghosts)
        removed = {
            kind: np.unique(joined(p.removed[kind] for p in parcels if kind in p.removed))
            for kind in region.own
        }
        if parcels:
            for kind in region.own:
                found.rows |= self._rows(kind, parcels, found.near[kind], removed[kind])
        for d in region.links:
            self._edges(d, parcels, found, removed, missing)
        return found

    def _rows(
        self, kind: str, parcels: list[Parcel], near: NearIds, removed: Ids
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """New rows of own nodes: of new ones, changed ones, and zeros for removed ones."""
        order = torch.from_numpy(
            np.argsort(joined(p.new[kind] for p in parcels if kind in p.new), kind="stable")
        )
        like = self._reader.nodes[kind].like
        new, changed = {}, {}
        for name in like:
            added = [p.new_rows[name] for p in parcels if name in p.new_rows]
            if added:
                new[name] = torch.cat(added)[order]
            given = [p.rows[name] for p in parcels if name in p.rows]
            if given:
                ids = near.find(joined(ids for ids, _ in given))
                changed[name] = ids, torch.cat([rows for _, rows in given])
        gone = near.find(removed)
        return GivenNodes(new, changed, gone[gone >= 0]).rows(like, near.first)

    def _edges(
        self,
        d: Direction,
        parcels: list[Parcel],
        found: LocalDelta,
        removed: Mapping[str, Ids],
        missing: str,
    ) -> None:
        """What happens to the edges of one local graph, and at its boundary."""
        region, (name, out) = self._region, d
        graph, link = region.graphs[d], region.links[d]
        near_kind, far_kind = region.kinds(d)
        parts = [p.edges[d] for p in parcels if d in p.edges]
        given, *places = _joined(parts, graph, suffix_of(d))
        near = found.near[near_kind]
        far = FarIds(found.near[far_kind], link.ghosts, given.added[1 if out else 0])
        found.far[d] = far
        found.boundaries[d] = boundary = Boundary(far.offered, far.end)
        ends: _Ends = (near, far) if out else (far, near)
        here, there = _known(near, removed[near_kind]), _known(far, removed[far_kind])
        gone = (here, there) if out else (there, here)
        if not parts and not gone[0].size and not gone[1].size:
            return
        come = near.find(given.added[0 if out else 1])
        added = np.stack([come, far.named] if out else [far.named, come])
        local = GivenEdges(
            _translated(given.deleted, ends), added, given.added_data,
            _translated(given.changed, ends), given.changed_data,
        )  # fmt: skip
        refuse_too_many(graph, local.added.shape[1], max(near.end, far.end))
        before = region.own[near_kind].end, link.ghosts.end
        held = find_edges(graph, local, before if out else before[::-1], gone)
        if missing == "error" and not out:
            label = self._reader.edges[name].label
            listed = [p.listed[name] for p in parcels if name in p.listed]
            found.absent += _absent(held, given, places, label, listed)
        found.edges[d] = resolved = held.resolved(gone)
        _count(boundary, link, graph, resolved, far.new, out, local.added.shape[1])


def _joined(
    parts: list[EdgeParcel], graph: DynamicGraph, suffix: str
) -> tuple[GivenEdges, Ids, Ids]:
    """All that is said, under the names of a local graph, each changed edge once.

    Returns:
        What is said, and the places in the lists that were given of edges to delete and to change.
    """

    def pairs(which: list[Ids]) -> Ids:
        return np.concatenate([np.empty((2, 0), np.int64), *which], 1)

    def rows(which: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        names = {name: None for part in which for name in part}
        return {f"{n}{suffix}": torch.cat([p[n] for p in which if n in p]) for n in names}

    given = [p.given for p in parts]
    added = rows([s.added_data for s in given]) or {k: t[:0] for k, t in graph.edge_data.items()}
    changed, data = pairs([s.changed for s in given]), rows([s.changed_data for s in given])
    changed_at = joined(p.changed_at for p in parts)
    if len(parts) > 1 and changed.size:
        keep = last_of_each(pair_keys(changed))
        changed, changed_at = changed[:, keep], changed_at[keep]
        data = {k: v[torch.from_numpy(keep)] for k, v in data.items()}
    return (
        GivenEdges(
            pairs([s.deleted for s in given]), pairs([s.added for s in given]), added, changed, data
        ),
        joined(p.deleted_at for p in parts),
        changed_at,
    )


def _known(end: NearIds | FarIds, ids: Ids) -> Ids:
    """The local ids of those nodes that are known here, ascending."""
    local = end.find(ids)
    return np.sort(local[local >= 0])


def _translated(edges: Ids, ends: _Ends) -> Ids:
    """Edges in local ids, int64 `[2, k]`; an end that is not known here is one without edges."""
    local = np.empty(edges.shape, np.int64)
    for ids, end, row in zip(edges, ends, local, strict=True):
        row[:] = end.find(ids)
        row[row < 0] = end.end
    return local


def _absent(
    there: FoundEdges,
    given: GivenEdges,
    places: Sequence[Ids],
    label: str,
    listed: Iterable[tuple[int, int]],
) -> list[Absent]:
    """Which of the edges to delete or to change are not there.

    Args:
        there: What was found.
        given: What was said, in global ids.
        places: The places of these edges in the lists that were given.
        label: How messages name the graph.
        listed: How many edges each part lists to be deleted and changed.
    """
    at = there.changed_at
    named = (
        (f"edge_index_del{label}", there.deleted, given.deleted, places[0]),
        (f"edge_changes{label}[0]", there.changed, given.changed[:, at], places[1][at]),
    )
    counts = [sum(counts) for counts in zip((0, 0), *listed, strict=True)]
    found = []
    for (name, slots, edges, where), count in zip(named, counts, strict=True):
        lost = np.flatnonzero(slots < 0)
        if lost.size:
            first = lost[np.argmin(where[lost])]
            u, v = edges[:, first].tolist()
            found.append(Absent(name, int(where[first]), (u, v), lost.size, count))
    return found


def _count(
    boundary: Boundary,
    link: Link,
    graph: DynamicGraph,
    resolved: ResolvedEdges,
    new: Ids,
    out: bool,
    given: int,
) -> None:
    """Which ghosts come, and which lose their last edge; so many edges were `given` to come."""
    end = 1 if out else 0
    boundary.come, boundary.come_local = new, boundary.offered
    if new.size and resolved.added.shape[1] < given:
        needed = np.isin(boundary.offered, resolved.added[end])
        boundary.come, boundary.come_local = new[needed], boundary.offered[needed]
    if not resolved.removed.size:
        return
    far = (graph.slots.dst if out else graph.slots.src)[resolved.removed].astype(np.int64)
    degree = (graph.inn if out else graph.out).degree
    boundary.leave = _losing_all(far[link.ghosts.is_ghost(far)], resolved.added[end], degree)


@njit(cache=True)
def _losing_all(gone: Ids, come: Ids, degree: NDArray[np.int32]) -> Ids:
    """Nodes that as many edges leave as they have, and to which none come; far ends of both."""
    gone, come = np.sort(gone), np.sort(come)
    lost, n, count = np.empty(gone.size, np.int64), 0, 0
    for i in range(gone.size):
        count += 1
        if i + 1 == gone.size or gone[i + 1] != gone[i]:
            if count == degree[gone[i]]:
                at = np.searchsorted(come, gone[i])
                if at == come.size or come[at] != gone[i]:
                    lost[n] = gone[i]
                    n += 1
            count = 0
    return lost[:n]
