"""What a delta says of the edges of one graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta import (
    EDGE_DATA,
    GraphDelta,
    added_data,
    as_edges,
    edge_change_parts,
    last_of_each,
    pair_keys,
)
from pyg_incremental.edge_store import EdgeEvents, Edges, Ids
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.kernels.adjacency import out_of_range
from pyg_incremental.resolve_rows import ADVICE, rows_like
from pyg_incremental.typing import MAX_EDGES, MAX_NODES

_NONE = np.empty(0, np.int64)
_NO_EDGES = np.empty((2, 0), np.int64)


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

    def undone(self, graph: DynamicGraph, num_nodes: tuple[int, int]) -> dict[str, Any]:
        """The fields of a delta that undoes these changes, read off the graph before them.

        Args:
            graph: The graph.
            num_nodes: How many nodes there are at the sources and at the targets.
        """
        back: dict[str, Any] = {}
        changed, gone = self._undoable(graph)
        leaving = []
        if self.added.size:
            # Edges at new nodes leave with them.
            kept = (self.added[0] < num_nodes[0]) & (self.added[1] < num_nodes[1])
            leaving.append(self.added[:, kept])
        again = np.setdiff1d(self.changed, changed)
        if again.size:
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


def check_edges(
    edges: Ids,
    name: str,
    limits: tuple[int, int],
    kinds: tuple[str, str] = ("", ""),
    advice: tuple[str, str] = (ADVICE, ADVICE),
) -> None:
    """See that the ends of some edges, int64 `[2, k]`, exist."""
    if not edges.size:
        return
    for end, limit, kind, what in zip(edges, limits, kinds, advice, strict=True):
        at = out_of_range(end, limit)
        if at >= 0:
            u, v = edges[:, at]
            ids = f"ids of '{kind}' nodes" if kind else "node ids"
            raise InvalidDeltaError(
                f"{name}: edge {at} is ({u}, {v}), but {ids} lie in [0, {limit}); {what}"
            )


class EdgeResolver:
    """Checks what a delta says of the edges of one graph.

    Args:
        graph: The graph.
        unit_weights: Whether added edges weigh one if nothing is said.
        kinds: The kinds of nodes at the sources and at the targets, as messages name them.
        label: What messages put behind the name of a field, such as the edge type in brackets.
        advice: What messages say to do about ids that are too large, at each end.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        unit_weights: bool,
        kinds: tuple[str, str] = ("", ""),
        label: str = "",
        advice: tuple[str, str] = (ADVICE, ADVICE),
    ) -> None:
        self._graph = graph
        self._advice = advice
        self._unit_weights = unit_weights
        self._kinds = kinds
        self._label = label
        self._names = {short_name(name): name for name in graph.edge_data}

    def resolve(
        self,
        delta: GraphDelta,
        before: tuple[int, int],
        total: tuple[int, int],
        gone: tuple[Ids, Ids],
    ) -> ResolvedEdges:
        """Check everything.

        Args:
            delta: What happens to the edges.
            before: Number of nodes at the sources and at the targets.
            total: The same, new nodes included.
            gone: Nodes at the sources and at the targets of which all edges leave.

        Raises:
            InvalidDeltaError: With what is wrong, where, what was got and expected, and what to do.
        """
        graph = self._graph
        deleted = self._listed(delta.edge_index_del, "edge_index_del", before)
        added = self._listed(delta.edge_index_add, "edge_index_add", total)
        if graph.num_edges + added.shape[1] > MAX_EDGES or max(total) > MAX_NODES:
            raise InvalidDeltaError(
                f"the graph would have {max(total)} nodes and {graph.num_edges + added.shape[1]} "
                f"edges, more than the {MAX_NODES} that one process holds; partition it"
            )
        data = self._added_data(delta, added.shape[1])
        removed = with_nodes = _NONE
        some_gone = bool(gone[0].size or gone[1].size)
        if deleted.size or some_gone:
            old = [ids[ids < limit] for ids, limit in zip(gone, before, strict=True)]
            listed, with_nodes = graph.resolve_removal(deleted[0], deleted[1], *old)
            removed = self._found(listed, deleted, f"edge_index_del{self._label}", delta.missing)
        changed, changed_data = self._changes(delta, added, data, removed, with_nodes, total)
        if some_gone and added.size:
            stays = ~(np.isin(added[0], gone[0]) | np.isin(added[1], gone[1]))
            added = np.ascontiguousarray(added[:, stays])
            data = {k: v[torch.from_numpy(stays)] for k, v in data.items()}
        return ResolvedEdges(
            np.concatenate([removed, with_nodes]) if with_nodes.size else removed,
            added, data, changed, changed_data,
        )  # fmt: skip

    def _listed(self, value: Any, name: str, limits: tuple[int, int]) -> Ids:
        if value is None:
            return _NO_EDGES
        edges = as_edges(value, f"{name}{self._label}")
        check_edges(edges, f"{name}{self._label}", limits, self._kinds, self._advice)
        return edges

    @staticmethod
    def _found(slots: Ids, edges: Ids, name: str, missing: str) -> Ids:
        if not slots.size or slots.min() >= 0:
            return slots
        absent = np.flatnonzero(slots < 0)
        if missing == "error":
            u, v = edges[:, absent[0]]
            raise InvalidDeltaError(
                f"{name}: edge ({u}, {v}) at position {absent[0]} is not in the graph (or is "
                f"listed more often than it occurs); {absent.size} of {slots.size} are missing. "
                "Use missing='ignore' to skip them"
            )
        return slots[slots >= 0]

    def _added_data(self, delta: GraphDelta, count: int) -> dict[str, Tensor]:
        expected = self._graph.edge_data
        given = {self._names.get(k, k): v for k, v in added_data(delta.edge_data_add).items()}
        for key, name in EDGE_DATA.items():
            rows = getattr(delta, key)
            if rows is None:
                continue
            name = self._names.get(name, name)
            if name not in expected and len(expected) == 1 and not given:
                name = next(iter(expected))  # the only edge input, whatever it is called
            if name in given:
                raise InvalidDeltaError(
                    f"{key}{self._label}: '{name}' is given twice, here and in edge_data_add"
                )
            given[name] = rows
        if not expected and not given:
            return {}
        for name in given:
            if name not in expected:
                raise InvalidDeltaError(
                    f"{name}_add{self._label}: this model was first called without '{name}', so "
                    f"added edges cannot have one (edge inputs: {self._known()}); call the model "
                    f"again with '{name}' or leave it out"
                )
        data = {}
        for name, stored in expected.items():
            if name in given:
                field = f"{short_name(name)}_add{self._label}"
                data[name] = self._edge_rows(given[name], field, stored, count)
            elif self._unit_weights or not count:
                data[name] = stored.new_ones((count, *stored.shape[1:]))
            else:
                shape, short = [count, *stored.shape[1:]], short_name(name)
                how = f"edge_data_add={{'{short}': rows of shape {shape}}}"
                if f"{short}_add" in EDGE_DATA:
                    how = f"{short}_add of shape {shape} (or {how})"
                raise InvalidDeltaError(
                    f"edge_index_add{self._label}: {count} edges come without '{short}', which the "
                    f"model was first called with; pass {how}"
                )
        return data

    def _edge_rows(self, value: Any, name: str, like: Tensor, count: int) -> Tensor:
        rows = rows_like(value, name, like)
        if rows.shape != (count, *like.shape[1:]):
            if rows.numel() == count * like.shape[1:].numel() and rows.shape[:1] == (count,):
                return rows.reshape(count, *like.shape[1:])
            raise InvalidDeltaError(
                f"{name}: expected shape {[count, *like.shape[1:]]}, one row for each edge (got "
                f"{list(rows.shape)})"
            )
        return rows

    def _changes(
        self,
        delta: GraphDelta,
        added: Ids,
        data: dict[str, Tensor],
        removed: Ids,
        with_nodes: Ids,
        limits: tuple[int, int],
    ) -> tuple[Ids, dict[str, Tensor]]:
        if delta.edge_changes is None:
            return _NONE, {}
        edges, given = edge_change_parts(delta.edge_changes)
        check_edges(edges, f"edge_changes{self._label}[0]", limits, self._kinds, self._advice)
        rows = self._change_rows(given, edges.shape[1])
        keep = last_of_each(pair_keys(edges))
        edges, rows = edges[:, keep], {k: v[torch.from_numpy(keep)] for k, v in rows.items()}
        if added.size and edges.size:
            # The youngest occurrence of a pair is one that this very delta adds.
            keys = pair_keys(added)
            last = last_of_each(keys)
            order = np.argsort(keys[last])
            place = np.searchsorted(keys[last][order], pair_keys(edges)).clip(max=last.size - 1)
            at = last[order][place]
            own = keys[at] == pair_keys(edges)
            for name, values in rows.items():
                data[name] = data[name].clone()
                data[name][torch.from_numpy(at[own])] = values[torch.from_numpy(own)]
            edges, rows = edges[:, ~own], {k: v[torch.from_numpy(~own)] for k, v in rows.items()}
        slots = self._graph.resolve_change(edges[0], edges[1], removed)
        self._found(slots, edges, f"edge_changes{self._label}[0]", delta.missing)
        stays = (slots >= 0) & ~np.isin(slots, with_nodes)
        return slots[stays], {k: v[torch.from_numpy(stays)] for k, v in rows.items()}

    def _change_rows(self, given: Mapping[str, Any], count: int) -> dict[str, Tensor]:
        expected = self._graph.edge_data
        rows = {}
        for key, value in given.items():
            name, field = self._names.get(key, key), f"edge_changes{self._label}[1]"
            if name not in expected:
                raise InvalidDeltaError(
                    f"{field}: this model has no edge input '{key}' (edge inputs: {self._known()})"
                )
            rows[name] = self._edge_rows(value, f"{field}['{key}']", expected[name], count)
        return rows

    def _known(self) -> Any:
        return sorted(map(short_name, self._graph.edge_data)) or "none"


def short_name(name: str) -> str:
    """What the user calls an edge input: `edge_attr` for that of one edge type in a dict."""
    return name.rpartition("/")[2].removesuffix("_dict")
