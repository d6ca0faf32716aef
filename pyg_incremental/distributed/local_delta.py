"""A delta in the ids of one rank: what it has been told, held against its own edges."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.delta import GraphDelta
from pyg_incremental.distributed.ids import joined
from pyg_incremental.distributed.link import Link
from pyg_incremental.distributed.local_ids import Own
from pyg_incremental.distributed.rewrite import Direction, suffix_of
from pyg_incremental.distributed.route import Absent, EdgeParcel, Parcel
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.resolve_edges import EdgeResolver, ResolvedEdges
from pyg_incremental.resolve_nodes import NodeResolver

Ids = NDArray[np.int64]
_NONE = np.empty(0, np.int64)


@dataclass
class Boundary:
    """What a delta does to the ghosts of one link.

    Attributes:
        offered: Local ids that new ghosts may have.
        come: New ghosts: global ids, and their local ids among those offered.
        come_local: Likewise.
        leave: Local ids of ghosts that no edge needs any more.
        end: Ids of far nodes lie below, once the delta is in.
    """

    offered: Ids
    come: Ids
    come_local: Ids
    leave: Ids
    end: int


@dataclass
class LocalDelta:
    """A valid delta on one rank; nothing has been changed yet.

    Attributes:
        new_ids: Global ids of new own nodes, ascending.
        first: The local id of the first of them.
        limit: Local ids of own nodes lie below, and a gap.
        rows: For each node input local ids and new rows.
        edges: What happens to the edges of each local graph.
        boundaries: What happens at each boundary.
        absent: Edges that are not there, where that is an error.
    """

    new_ids: Ids
    first: int
    limit: int
    rows: dict[str, tuple[Tensor, Tensor]]
    edges: dict[Direction, ResolvedEdges]
    boundaries: dict[Direction, Boundary]
    absent: list[Absent]


class Merger:
    """Puts together what a rank has been told.

    Args:
        own: The nodes that it owns.
        links: Its boundaries.
        graphs: Its local graphs, by direction.
        nodes: Node inputs without rows, `[0, ...]`.
    """

    def __init__(
        self,
        own: Own,
        links: Mapping[Direction, Link],
        graphs: Mapping[Direction, DynamicGraph],
        nodes: Mapping[str, Tensor],
    ) -> None:
        self._own, self._links, self._graphs = own, links, graphs
        self._nodes = NodeResolver(nodes)
        self._like = nodes
        self._edges = {d: EdgeResolver(g, False) for d, g in graphs.items()}

    def merge(self, told: list[Parcel | None], missing: str) -> LocalDelta:
        """The delta, of the parts in the order of the ranks."""
        own, parcels = self._own, [p for p in told if p is not None]
        new_ids = np.sort(joined(p.new_ids for p in parcels))
        first, limit = self._room(new_ids.size)
        end = own.end if not new_ids.size else first + new_ids.size

        def near(ids: Ids) -> Ids:
            local = own.find(ids)
            if new_ids.size:
                at = np.searchsorted(new_ids, ids).clip(max=new_ids.size - 1)
                local = np.where(new_ids[at] == ids, first + at, local)
            return local

        removed = np.unique(joined(p.removed for p in parcels))
        removed_near = near(removed)
        found = LocalDelta(new_ids, first, limit, {}, {}, {}, [])
        if parcels:
            found.rows = self._rows(parcels, new_ids, near, removed_near, first)
        listed = (sum(p.listed[0] for p in parcels), sum(p.listed[1] for p in parcels))
        for d in self._links:
            parts = [p.edges[d[1]] for p in parcels if d[1] in p.edges]
            self._merge_edges(found, d, parts, near, removed, removed_near, end, missing, listed)
        return found

    def _room(self, count: int) -> tuple[int, int]:
        """Where new own nodes go, and where the gap behind them ends."""
        own = self._own
        if own.end + count <= own.limit:
            return own.end, own.limit
        first = max([own.end, *(link.ghosts.end for link in self._links.values())])
        return first, own.limit_after(first + count)

    def _rows(
        self, parcels: list[Parcel], new_ids: Ids, near: Any, removed: Ids, first: int
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """New rows of own nodes: of new ones, changed ones, and zeros for removed ones."""
        order = np.argsort(joined(p.new_ids for p in parcels), kind="stable")
        x_add, changes = {}, {}
        for name in self._like:
            added = [p.new_rows[name] for p in parcels if name in p.new_rows]
            if added:
                x_add[name] = torch.cat(added)[torch.from_numpy(order)]
            given = [p.rows[name] for p in parcels if name in p.rows]
            if given:
                ids = near(joined(ids for ids, _ in given))
                changes[name] = (torch.from_numpy(ids), torch.cat([rows for _, rows in given]))
        gone = removed[removed >= 0]
        nodes = self._nodes.resolve(
            changes, x_add, torch.from_numpy(gone) if gone.size else None,
            first if new_ids.size else self._own.end,
        )  # fmt: skip
        return nodes.rows

    def _merge_edges(
        self,
        found: LocalDelta,
        d: Direction,
        parts: list[EdgeParcel],
        near: Any,
        removed: Ids,
        removed_near: Ids,
        end: int,
        missing: str,
        listed: tuple[int, int],
    ) -> None:
        link, graph, out = self._links[d], self._graphs[d], d[1]
        near_end = 0 if out else 1
        added = _pairs(p.added for p in parts)
        far_added = added[1 - near_end]
        held = self._far(link, near, far_added)
        new = np.unique(far_added[held < 0])
        offered = link.ghosts.offer(new.size, found.limit)

        def far(ids: Ids) -> Ids:
            local = self._far(link, near, ids)
            if new.size:
                at = np.searchsorted(new, ids).clip(max=new.size - 1)
                local = np.where((local < 0) & (new[at] == ids), offered[at], local)
            return local

        far_end = max([link.ghosts.end, found.limit, *(offered[-1:] + 1).tolist()])
        boundary = Boundary(offered, _NONE, _NONE, _NONE, far_end)
        found.boundaries[d] = boundary
        removed_far = far(removed)
        gone_near = np.sort(removed_near[removed_near >= 0])
        gone_far = np.sort(removed_far[removed_far >= 0])
        if not parts and not gone_far.size and not gone_near.size:
            return

        def local(edges: Ids) -> Ids:
            pair = [near(edges[1]), far(edges[0])] if not out else [near(edges[0]), far(edges[1])]
            return np.stack(pair if out else pair[::-1])

        deleted, changed = _pairs(p.deleted for p in parts), _pairs(p.changed for p in parts)
        there = [self._there(local(e), out) for e in (deleted, changed)]
        places = joined(p.deleted_at for p in parts), joined(p.changed_at for p in parts)
        known = [e[:, ok] for e, ok in zip((local(deleted), local(changed)), there, strict=True)]
        suffix = suffix_of(d)
        changed_data = _rows_of([p.changed_data for p in parts], suffix)
        delta = GraphDelta(
            edge_index_del=torch.from_numpy(known[0]),
            edge_index_add=torch.from_numpy(local(added)),
            edge_data_add=_rows_of([p.added_data for p in parts], suffix),
            edge_changes=(
                torch.from_numpy(known[1]),
                {k: v[torch.from_numpy(there[1])] for k, v in changed_data.items()},
            ) if changed.size else None,
            missing="ignore",
        )  # fmt: skip
        ends = (link.ghosts.end, self._own.end), (far_end, end)
        gone = (gone_far, gone_near)
        if out:
            ends, gone = (ends[0][::-1], ends[1][::-1]), gone[::-1]
        if missing == "error" and not out:
            if not all(ok.all() for ok in there):
                for which, pairs in enumerate((deleted, changed)):
                    self._note(found, which, pairs, places[which], ~there[which], listed)
                if found.absent:
                    return
            try:
                resolved = self._edges[d].resolve(_strict(delta), ends[0], ends[1], gone)
            except InvalidDeltaError:
                self._diagnose(
                    found, graph, known, (deleted, changed), places, local(added), listed
                )
                if not found.absent:
                    raise
                return
        else:
            resolved = self._edges[d].resolve(delta, ends[0], ends[1], gone)
        found.edges[d] = resolved
        self._count(boundary, link, graph, resolved, new, out)

    def _far(self, link: Link, near: Any, ids: Ids) -> Ids:
        local: Ids = near(ids)
        ghosts = link.ghosts.find(ids)
        return np.where(local < 0, ghosts, local)

    @staticmethod
    def _there(edges: Ids, out: bool) -> NDArray[np.bool_]:
        """Which edges have a far end that is known at all."""
        mask: NDArray[np.bool_] = edges[1 if out else 0] >= 0
        return mask

    @staticmethod
    def _note(
        found: LocalDelta,
        which: int,
        pairs: Ids,
        places: Ids,
        absent: NDArray[np.bool_],
        listed: tuple[int, int],
    ) -> None:
        if absent.any():
            at = int(np.flatnonzero(absent)[np.argmin(places[absent])])
            field = ("edge_index_del", "edge_changes[0]")[which]
            pair = int(pairs[0, at]), int(pairs[1, at])
            found.absent.append(
                Absent(field, int(places[at]), pair, int(absent.sum()), listed[which])
            )

    def _diagnose(
        self,
        found: LocalDelta,
        graph: DynamicGraph,
        known: list[Ids],
        pairs: tuple[Ids, Ids],
        places: tuple[Ids, Ids],
        added: Ids,
        listed: tuple[int, int],
    ) -> None:
        """Find out which of the edges are not there."""
        slots, _ = graph.resolve_removal(known[0][0], known[0][1], _NONE, _NONE)
        self._note(found, 0, pairs[0], places[0], slots < 0, listed)
        if found.absent or not known[1].size:
            return
        left = graph.resolve_change(known[1][0], known[1][1], slots)
        own = np.isin(known[1][0] << 32 | known[1][1], added[0] << 32 | added[1])
        self._note(found, 1, pairs[1], places[1], (left < 0) & ~own, listed)

    @staticmethod
    def _count(
        boundary: Boundary,
        link: Link,
        graph: DynamicGraph,
        resolved: ResolvedEdges,
        new: Ids,
        out: bool,
    ) -> None:
        """Which ghosts come, and which lose their last edge."""
        end = 1 if out else 0
        needed = np.isin(boundary.offered, resolved.added[end])
        boundary.come, boundary.come_local = new[needed], boundary.offered[needed]
        if not resolved.removed.size:
            return
        gone = graph.edges(resolved.removed)
        lost, less = np.unique(gone.dst if out else gone.src, return_counts=True)
        ghosts = link.ghosts.is_ghost(lost)
        lost, less = lost[ghosts], less[ghosts]
        degree = (graph.inn if out else graph.out).degree[lost]
        boundary.leave = lost[(degree == less) & ~np.isin(lost, resolved.added[end])]


def _strict(delta: GraphDelta) -> GraphDelta:
    return GraphDelta(
        edge_index_del=delta.edge_index_del, edge_index_add=delta.edge_index_add,
        edge_data_add=delta.edge_data_add, edge_changes=delta.edge_changes, missing="error",
    )  # fmt: skip


def _pairs(parts: Any) -> Ids:
    found = list(parts)
    return np.concatenate(found, 1) if found else np.empty((2, 0), np.int64)


def _rows_of(parts: list[dict[str, Tensor]], suffix: str) -> dict[str, Tensor]:
    """Edge data of all parts, under the names of a local graph."""
    names = {name: None for part in parts for name in part}
    return {f"{n}{suffix}": torch.cat([p[n] for p in parts if n in p]) for n in names}
