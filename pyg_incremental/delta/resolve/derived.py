"""Edges that a model makes of those of other graphs: made once, and followed delta by delta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import scatter

from pyg_incremental.delta.given import pair_keys
from pyg_incremental.delta.resolve.edges import ResolvedEdges
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.graph.parallel import find_alike, occurrences
from pyg_incremental.graph.storage import Storage
from pyg_incremental.program.derived import LOOP, OWN_LOOP, Column, Derived, EdgeRows
from pyg_incremental.program.steps import Relation

_NONE = np.empty(0, np.int64)


class _Edges(NamedTuple):
    """Edges and their data.

    Attributes:
        ends: Sources and targets, int64 `[2, k]`.
        data: Data, `[k, ...]` by name.
    """

    ends: Ids
    data: Mapping[str, Tensor]

    def at(self, places: np.ndarray[Any, Any]) -> _Edges:
        """Some of them, by mask or place."""
        rows = torch.from_numpy(places)
        return _Edges(self.ends[:, places], {k: of[rows] for k, of in self.data.items()})


def with_derived(
    relations: Sequence[Relation],
    graphs: Mapping[str, DynamicGraph],
    num_nodes: Mapping[str, int],
    storage: Storage | None = None,
    device: torch.device | None = None,
) -> dict[str, DynamicGraph]:
    """The graphs that are there, and those that a model makes of them.

    Args:
        relations: What graphs there are, those that others are made of first.
        graphs: Those that are handed in; derived ones among them are made anew.
        num_nodes: How many nodes there are of each kind.
        storage: Where their arrays lie.
        device: Where the data of their edges are.
    """
    made = {r.graph for r in relations if r.derived is not None}
    found = {name: graph for name, graph in graphs.items() if name not in made}
    for r in relations:
        if r.derived is not None:
            first = _first(r.derived, found, num_nodes[r.source])
            room = max(num_nodes[r.source], num_nodes[r.target])
            edges = torch.from_numpy(np.ascontiguousarray(first.ends))
            data = {name: rows.to(device) for name, rows in first.data.items()}
            found[r.graph] = DynamicGraph(edges, room, data, False, storage)
    return found


def _first(derived: Derived, graphs: Mapping[str, DynamicGraph], num_nodes: int) -> _Edges:
    """All edges of a derived graph."""
    pieces = []
    for k, part in enumerate(derived.parts):
        pieces.append(_as_part(derived, graphs, k, _all(graphs[part.graph])))
    if derived.loops:
        pieces.append(_loops(derived, graphs, np.arange(num_nodes), None))
    made = _joined(pieces)
    return _merged(derived, made)[0] if derived.merged else made


def _all(graph: DynamicGraph) -> _Edges:
    slots = graph.slots_in_order()
    return _of_slots(graph, slots)


def _of_slots(graph: DynamicGraph, slots: Ids) -> _Edges:
    at = torch.from_numpy(slots)
    return _Edges(graph.ends_of(slots), {k: rows[at] for k, rows in graph.edge_data.items()})


def _joined(pieces: Sequence[_Edges]) -> _Edges:
    names = pieces[0].data
    return _Edges(
        np.concatenate([p.ends for p in pieces], 1),
        {k: torch.cat([p.data[k] for p in pieces]) for k in names},
    )


def _rows(rows: EdgeRows, edges: _Edges) -> Tensor:
    src, dst = torch.from_numpy(np.ascontiguousarray(edges.ends))
    return rows.fn(edges.data, src, dst)


def _as_part(derived: Derived, graphs: Mapping[str, DynamicGraph], k: int, edges: _Edges) -> _Edges:
    """Edges of the graph of a part as edges of the derived graph."""
    part = derived.parts[k]
    if part.keep is not None:
        edges = edges.at(_rows(part.keep, edges).cpu().numpy())
    data = _columns(derived, graphs, part.graph, edges, k)
    return _Edges(edges.ends[::-1] if part.turned else edges.ends, data)


def _columns(
    derived: Derived, graphs: Mapping[str, DynamicGraph], graph: str, edges: _Edges, part: int
) -> dict[str, Tensor]:
    """The data of derived edges that come from some edges of a graph."""
    count = edges.ends.shape[1]
    found = {}
    for name, column in derived.columns.items():
        if column.graph == graph:
            found[name] = _rows(column.rows, edges)
        else:
            found[name] = _zeros(column, graphs, count)
    if derived.part:
        found[derived.part] = torch.full((count,), part, dtype=torch.int64)
    return found


def _zeros(column: Column, graphs: Mapping[str, DynamicGraph], count: int) -> Tensor:
    none = _of_slots(graphs[column.graph], _NONE)
    like = _rows(column.rows, none)
    return like.new_zeros((count, *like.shape[1:]))


def _loops(
    derived: Derived,
    graphs: Mapping[str, DynamicGraph],
    nodes: Ids,
    changes: ResolvedEdges | None,
) -> _Edges:
    """The loops at some nodes, ascending int64 `[k]`, once the graph of their data has changed."""
    ends = np.stack([nodes, nodes])
    data = _columns(derived, graphs, "", _Edges(ends, {}), LOOP)
    if not derived.own:
        return _Edges(ends, data)
    graph = graphs[derived.own]
    there = nodes[nodes < graph.num_nodes]
    which, slots = occurrences(graph, there, there)
    own = _of_slots(graph, slots)
    if changes is not None:
        own = _changed(own, slots, changes)
        stays = ~np.isin(slots, changes.removed)
        which, own = which[stays], own.at(stays)
    owners = there[which]
    if changes is not None and changes.added.size:
        loops = changes.added[0] == changes.added[1]
        new = _Edges(changes.added, changes.added_data).at(loops)
        new = new.at(np.isin(new.ends[0], nodes))
        owners = np.concatenate([owners, new.ends[0]])
        own = _joined([own, new])
    # The youngest of each comes last.
    last = owners.size - 1 - np.unique(owners[::-1], return_index=True)[1]
    rows = _columns(derived, graphs, derived.own, own.at(last), OWN_LOOP)
    at = torch.from_numpy(np.searchsorted(nodes, owners[last]))
    for name, of in data.items():
        of[at] = rows[name]
    return _Edges(ends, data)


def _changed(edges: _Edges, slots: Ids, changes: ResolvedEdges) -> _Edges:
    """Edges in some slots, int64 `[k]`, with the data that changes give them."""
    order = np.argsort(changes.changed)
    at = np.searchsorted(changes.changed[order], slots).clip(max=max(order.size - 1, 0))
    hit = np.zeros(slots.size, bool)
    if order.size:
        hit = changes.changed[order][at] == slots
    if not hit.any():
        return edges
    here, there = torch.from_numpy(hit), torch.from_numpy(order[at[hit]])
    data = dict(edges.data)
    for name, rows in changes.changed_data.items():
        data[name] = data[name].clone()
        data[name][here] = rows[there].to(data[name].dtype)
    return _Edges(edges.ends, data)


def _merged(derived: Derived, edges: _Edges) -> tuple[_Edges, Ids]:
    """Edges of the same ends as one, and their keys, ascending."""
    keys, group = np.unique(pair_keys(edges.ends), return_inverse=True)
    at, count = torch.from_numpy(group.reshape(-1)), keys.size
    data = {}
    for name, rows in edges.data.items():
        reduce = derived.columns[name].reduce if name in derived.columns else "max"
        data[name] = scatter(rows, at.to(rows.device), 0, count, reduce or "max")
    return _Edges(np.stack([keys >> 32, keys & 0xFFFFFFFF]), data), keys


class Follower(NamedTuple):
    """A derived graph.

    Attributes:
        relation: What it is.
        graphs: All graphs.
    """

    relation: Relation
    graphs: Mapping[str, DynamicGraph]

    def follow(
        self, edges: Mapping[str, ResolvedEdges], num_nodes: int, new_nodes: int
    ) -> ResolvedEdges | None:
        """What becomes of its edges as those that it is made of change; None if nothing does.

        Args:
            edges: The changes of other graphs, which have not taken them yet.
            num_nodes: How many nodes there are.
            new_nodes: How many come.
        """
        derived = self.relation.derived
        assert derived is not None
        if derived.merged:
            return self._follow_merged(derived, edges)
        gone, came = self._events(derived, edges)
        if derived.loops:
            nodes = self._touched(derived, edges)
            if nodes.size:
                gone.append(_loops(derived, self.graphs, nodes, None))
            new = np.arange(num_nodes, num_nodes + new_nodes)
            nodes = np.concatenate([nodes, new])
            if nodes.size:
                changes = edges.get(derived.own)
                came.append(_loops(derived, self.graphs, nodes, changes))
        gone, came = [[e for e in side if e.ends.size] for side in (gone, came)]
        if not gone and not came:
            return None
        removed = self._slots(_joined(gone)) if gone else _NONE
        added = _joined(came) if came else _Edges(np.empty((2, 0), np.int64), {})
        own = self.graphs[self.relation.graph].edge_data
        data = {name: rows.to(own[name].device) for name, rows in added.data.items()}
        return ResolvedEdges(removed, np.ascontiguousarray(added.ends), data, _NONE, {})

    def _events(
        self, derived: Derived, edges: Mapping[str, ResolvedEdges]
    ) -> tuple[list[_Edges], list[_Edges]]:
        """The edges that leave and come, part by part; one that changes leaves and comes."""
        gone, came = [], []
        for k, part in enumerate(derived.parts):
            changes = edges.get(part.graph)
            if changes is None:
                continue
            graph = self.graphs[part.graph]
            slots = changes.removed
            if changes.changed.size and self._reads(derived, part.graph, k, changes):
                old = _of_slots(graph, changes.changed)
                new = _changed(old, changes.changed, changes)
                gone.append(_as_part(derived, self.graphs, k, old))
                came.append(_as_part(derived, self.graphs, k, new))
            if slots.size:
                gone.append(_as_part(derived, self.graphs, k, _of_slots(graph, slots)))
            if changes.added.size:
                new = _Edges(changes.added, changes.added_data)
                came.append(_as_part(derived, self.graphs, k, new))
        return gone, came

    def _reads(self, derived: Derived, graph: str, k: int, changes: ResolvedEdges) -> bool:
        """Whether a part asks for data that change."""
        read = [c.rows for c in derived.columns.values() if c.graph == graph]
        keep = derived.parts[k].keep
        read += [keep] if keep is not None else []
        return any(not rows.reads.isdisjoint(changes.changed_data) for rows in read)

    def _touched(self, derived: Derived, edges: Mapping[str, ResolvedEdges]) -> Ids:
        """The nodes that are there whose loop may get other data."""
        changes = edges.get(derived.own)
        if changes is None:
            return _NONE
        graph = self.graphs[derived.own]
        slots = np.concatenate([changes.removed, changes.changed])
        ends = np.concatenate([graph.ends_of(slots), changes.added], 1)
        nodes = np.unique(ends[0, ends[0] == ends[1]])
        return nodes[nodes < graph.num_nodes]

    def _slots(self, gone: _Edges) -> Ids:
        """Where the edges are that leave; edges of which steps see no difference are alike."""
        graph = self.graphs[self.relation.graph]
        src, dst = np.ascontiguousarray(gone.ends)
        if gone.data:
            found = find_alike(graph, src, dst, gone.data, (_NONE, _NONE), False)[0]
        else:
            found = graph.resolve_removal(src, dst, _NONE, _NONE)[0]
        assert found.min() >= 0, f"'{self.relation.graph}' lacks edges that it was given"
        return found

    def _follow_merged(
        self, derived: Derived, edges: Mapping[str, ResolvedEdges]
    ) -> ResolvedEdges | None:
        """The same where edges of the same ends are one: each is made anew of all that are left."""
        gone, came = self._events(derived, edges)
        touched = [e.ends for e in (*gone, *came) if e.ends.size]
        if not touched:
            return None
        keys = np.unique(pair_keys(np.concatenate(touched, 1)))
        after = []
        for k, part in enumerate(derived.parts):
            graph, changes = self.graphs[part.graph], edges.get(part.graph)
            src, dst = keys >> 32, keys & 0xFFFFFFFF
            pair = (dst, src) if part.turned else (src, dst)
            there = (pair[0] < graph.num_nodes) & (pair[1] < graph.num_nodes)
            slots = occurrences(graph, pair[0][there], pair[1][there])[1]
            now = _of_slots(graph, slots)
            if changes is not None:
                now = _changed(now, slots, changes).at(~np.isin(slots, changes.removed))
                if changes.added.size:
                    ends = changes.added[::-1] if part.turned else changes.added
                    new = _Edges(changes.added, changes.added_data)
                    now = _joined([now, new.at(np.isin(pair_keys(ends), keys))])
            after.append(_as_part(derived, self.graphs, k, now))
        now, left = _merged(derived, _joined(after))
        own = self.graphs[self.relation.graph]
        src, dst = keys >> 32, keys & 0xFFFFFFFF
        slots = np.full(keys.size, -1)
        there = (src < own.num_nodes) & (dst < own.num_nodes)
        slots[there] = own.find(src[there], dst[there])
        stays = np.isin(keys, left)
        place = np.searchsorted(left, keys).clip(max=max(left.size - 1, 0))
        new = now.at(place[stays & (slots < 0)])
        changed = stays & (slots >= 0) & bool(own.edge_data)
        return ResolvedEdges(
            slots[~stays & (slots >= 0)],
            np.ascontiguousarray(new.ends),
            dict(new.data),
            slots[changed],
            dict(now.at(place[changed]).data),
        )
