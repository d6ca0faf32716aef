"""What a delta says of the edges of one graph, held against the edges that are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta.given import field_of, last_of_each, pair_keys
from pyg_incremental.delta.intake import Intake
from pyg_incremental.delta.read.edges import GivenEdges, short_name
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import EdgeEvents, Edges, Ids
from pyg_incremental.graph.parallel import find_alike, find_oldest, find_removed, occurrences
from pyg_incremental.typing import MAX_EDGES, MAX_NODES

_NONE = np.empty(0, np.int64)
_NO_DATA: Mapping[str, Any] = {}


@dataclass
class ResolvedEdges:
    """Valid changes of edges.

    Attributes:
        removed: Slots that leave.
        added: Edges to add, int64 `[2, k]`.
        added_data: Their data by name.
        changed: Slots that get new data.
        changed_data: The data by name.
    """

    removed: Ids
    added: Ids
    added_data: dict[str, Tensor]
    changed: Ids
    changed_data: dict[str, Tensor]

    def apply(self, graph: DynamicGraph) -> EdgeEvents:
        """Change the graph; the slots that left have to be released when the update is through."""
        removed = graph.edges(self.removed)
        if self.removed.size:
            graph.remove(self.removed)
        slots = (
            graph.add(self.added[0], self.added[1], self.added_data) if self.added.size else _NONE
        )
        overwritten = {}
        if self.changed.size:
            at = torch.from_numpy(self.changed)
            overwritten = {name: graph.edge_data[name][at] for name in self.changed_data}
            graph.write(self.changed, self.changed_data)
        added = Edges(slots, self.added[0], self.added[1])
        return EdgeEvents(removed, added, graph.edges(self.changed), overwritten)

    def remade(self, graph: DynamicGraph, order: int, num_nodes: int) -> DynamicGraph:
        """A new graph with these changes, whatever an interrupt has left of them in `graph`.

        Args:
            graph: The graph.
            order: The age of the first edge that these changes add.
            num_nodes: Number of nodes.
        """
        if self.changed.size:
            graph.write(self.changed, self.changed_data)
        return graph.remade(num_nodes, self.removed, order, self.added, self.added_data)

    def _undoable(self, graph: DynamicGraph) -> tuple[Ids, Ids]:
        """Slots whose data are to be changed back, and slots to be added again, oldest first.

        Only the youngest edge of a pair can be changed. So where another edge of the pair comes
        back, the changed one is deleted and added again before it.
        """
        changed, gone = self.changed, np.sort(self.removed)
        if changed.size and gone.size:
            covered = np.isin(pair_keys(_pairs(graph, changed)), pair_keys(_pairs(graph, gone)))
            changed, gone = changed[~covered], np.concatenate([gone, changed[covered]])
        return changed, gone[np.argsort(graph.slots.order[gone], kind="stable")]

    def undone(
        self, graph: DynamicGraph, num_nodes: tuple[int, int], any_of_pair: bool = False
    ) -> dict[str, Any]:
        """The fields of a delta that undoes these changes, read off the graph before them.

        Args:
            graph: The graph.
            num_nodes: How many nodes there are at the sources and at the targets.
            any_of_pair: Whether the changes may be about another edge of a pair than the youngest.
                All edges of such a pair leave then, and come again in the order in which they came.
        """
        back: dict[str, Any] = {}
        changed, gone = self._undoable(graph)
        leaving = []
        if any_of_pair:
            touched = np.concatenate([self.removed, self.changed])
            keys = np.unique(pair_keys(_pairs(graph, touched)))
            gone = occurrences(graph, keys >> 32, keys & 0xFFFFFFFF)[1]
            leaving.append(_pairs(graph, np.setdiff1d(gone, self.removed)))
            gone, changed = gone[np.argsort(graph.slots.order[gone], kind="stable")], _NONE
        if self.added.size:
            # Edges at new nodes leave with them.
            kept = (self.added[0] < num_nodes[0]) & (self.added[1] < num_nodes[1])
            leaving.append(self.added[:, kept])
        again = np.setdiff1d(self.changed, changed)
        if again.size and not any_of_pair:
            leaving.append(_pairs(graph, again))
        if leaving:
            back["edge_index_del"] = torch.from_numpy(np.concatenate(leaving, 1))
        if gone.size:
            back["edge_index_add"] = torch.from_numpy(_pairs(graph, gone))
            at = torch.from_numpy(gone)
            back["edge_data_add"] = {name: rows[at] for name, rows in graph.edge_data.items()}
        if changed.size:
            slots = torch.from_numpy(changed)
            data = {name: graph.edge_data[name][slots] for name in self.changed_data}
            back["edge_changes"] = (torch.from_numpy(_pairs(graph, changed)), data)
        return back


def _pairs(graph: DynamicGraph, slots: Ids) -> Ids:
    """The ends of some edges, int64 `[2, k]`."""
    edges = graph.edges(slots)
    return np.stack([edges.src, edges.dst])


class FoundEdges(NamedTuple):
    """What is there of the edges that a delta names; nothing has been changed yet.

    Attributes:
        given: What was said; its `added_data` hold what is said of edges that it adds itself.
        deleted: The slot of each edge to delete, -1 for one that is not there, int64 `[m]`.
        with_nodes: The slots that leave with their nodes.
        changed: The slot of each edge that gets new data, likewise, int64 `[r]`.
        changed_at: Which of the edges to change these are; the others are added by the delta.
    """

    given: GivenEdges
    deleted: Ids
    with_nodes: Ids
    changed: Ids
    changed_at: Ids

    def resolved(self, gone: tuple[Ids, Ids]) -> ResolvedEdges:
        """The changes; edges that are not there are left out.

        Args:
            gone: Nodes, int64 `[d]`, at the sources and at the targets of which all edges leave.
        """
        given, deleted = self.given, self.deleted
        if deleted.size and deleted.min() < 0:
            deleted = deleted[deleted >= 0]
        added, data = given.added, given.added_data
        if added.size and (gone[0].size or gone[1].size):
            stays = ~(np.isin(added[0], gone[0]) | np.isin(added[1], gone[1]))
            added = np.ascontiguousarray(added[:, stays])
            data = {k: v[torch.from_numpy(stays)] for k, v in data.items()}
        changed, changed_data = self.changed, given.changed_data
        if given.changed.size:
            stays = changed >= 0
            if self.with_nodes.size:
                stays &= ~np.isin(changed, self.with_nodes)
            at = torch.from_numpy(self.changed_at[stays])
            changed, changed_data = changed[stays], {k: v[at] for k, v in changed_data.items()}
        removed = np.concatenate([deleted, self.with_nodes]) if self.with_nodes.size else deleted
        return ResolvedEdges(removed, added, data, changed, changed_data)


def find_edges(
    graph: DynamicGraph,
    given: GivenEdges,
    before: tuple[int, int],
    gone: tuple[Ids, Ids],
    oldest: bool = False,
) -> FoundEdges:
    """Look for the edges that a delta names.

    Args:
        graph: The graph.
        given: What is said of its edges.
        before: Number of nodes at the sources and at the targets, without new ones.
        gone: Nodes, int64 `[d]`, at the sources and at the targets of which all edges leave.
        oldest: Whether the oldest edge of a pair is meant, not the youngest.
    """
    deleted = with_nodes = _NONE
    if given.deleted.size or gone[0].size or gone[1].size:
        old = gone[0][gone[0] < before[0]], gone[1][gone[1] < before[1]]
        src, dst = given.deleted
        deleted, with_nodes = (
            find_alike(graph, src, dst, given.deleted_data, old, oldest)
            if given.deleted_data
            else find_removed(graph, src, dst, old, oldest)
        )
    if not given.changed.size:
        return FoundEdges(given, deleted, with_nodes, _NONE, _NONE)
    if oldest:
        left = find_oldest(graph, given.changed[0], given.changed[1], deleted[deleted >= 0])
        given, at = _of_new_edges(given, left >= 0)
        return FoundEdges(given, deleted, with_nodes, left[at], at)
    given, at = _of_new_edges(given)
    src, dst = given.changed[:, at]
    changed = graph.resolve_change(src, dst, deleted[deleted >= 0])
    return FoundEdges(given, deleted, with_nodes, changed, at)


def _of_new_edges(given: GivenEdges, is_old: Any = None) -> tuple[GivenEdges, Ids]:
    """Changes of edges that the delta itself adds become part of their data.

    The youngest occurrence of a pair is the one that is changed, and that is the last one added.

    Args:
        given: What is said.
        is_old: If the oldest is changed: which of the edges to change were there before, bool
            `[r]`. Of the others it is the first one added.

    Returns:
        What is said, and the places of all other changes.
    """
    edges, added = given.changed, given.added
    if not added.size:
        return given, np.arange(edges.shape[1])
    keys = pair_keys(added)
    last = last_of_each(keys)
    if is_old is not None:
        last = np.sort(np.unique(keys, return_index=True)[1])
    order = np.argsort(keys[last])
    place = np.searchsorted(keys[last][order], pair_keys(edges)).clip(max=last.size - 1)
    at = last[order][place]
    own = keys[at] == pair_keys(edges)
    if is_old is not None:
        own &= ~is_old
    data = dict(given.added_data)
    for name, values in given.changed_data.items():
        data[name] = data[name].clone()
        data[name][torch.from_numpy(at[own])] = values[torch.from_numpy(own)]
    return (
        GivenEdges(given.deleted, added, data, edges, given.changed_data, given.deleted_data),
        np.flatnonzero(~own),
    )


def refuse_absent(found: FoundEdges, label: str, intake: Intake) -> None:
    """See that the edges that are named are there.

    Args:
        found: What was found.
        label: What stands behind the names of fields.
        intake: What becomes of edges that are not there.

    Raises:
        InvalidDeltaError: With the first of them.
    """
    given, at = found.given, found.changed_at
    _refuse_absent(
        f"edge_index_del{label}", found.deleted, given.deleted, given.deleted_data, None, intake
    )
    _refuse_absent(f"edge_changes{label}[0]", found.changed, given.changed[:, at], {}, at, intake)


def _refuse_absent(
    name: str,
    slots: Ids,
    edges: Ids,
    data: Mapping[str, Tensor],
    places: Ids | None,
    intake: Intake,
) -> None:
    """The same of one field; its edges, `[2, k]`, stand at some places of it, if not at all."""
    if not slots.size or slots.min() >= 0:
        return
    absent = np.flatnonzero(slots < 0)
    here = np.arange(slots.size) if places is None else places

    def reason(at: int, place: int) -> str:
        i = int(np.flatnonzero(here == at)[0])
        like = {short_name(k): rows[i].tolist() for k, rows in data.items()}
        pair = int(edges[0, i]), int(edges[1, i])
        return absent_text(name, pair, place, absent.size, slots.size, like)

    intake.fitting(field_of(name), here[absent], int(here.max()) + 1, reason)


def absent_text(
    field: str,
    pair: tuple[int, int],
    place: int,
    count: int,
    listed: int,
    like: Mapping[str, Any] = _NO_DATA,
) -> str:
    """What to say of edges that are not there.

    Args:
        field: The field of the delta.
        pair: The ends of the first of them.
        place: Its place among those listed.
        count: How many are not there.
        listed: How many are listed.
        like: The data that the first one has to have, by name.
    """
    data = f" with {', '.join(f'{k} {v}' for k, v in like.items())}" if like else ""
    return (
        f"{field}: edge {pair}{data} at position {place} is not in the graph (or is listed more "
        f"often than it occurs); {count} of {listed} are missing. Use missing='ignore' to skip them"
    )


def refuse_too_many(graph: DynamicGraph, added: int, num_nodes: int) -> None:
    """See that a graph still fits into one process.

    Raises:
        InvalidDeltaError: If it does not.
    """
    if graph.num_edges + added > MAX_EDGES or num_nodes > MAX_NODES:
        raise InvalidDeltaError(
            f"the graph would have {num_nodes} nodes and {graph.num_edges + added} edges, more "
            f"than the {MAX_NODES} that one process holds; partition it"
        )
