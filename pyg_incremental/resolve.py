"""A delta held against the graph.

It is checked whole, before anything is touched, and turned into slots and rows.
"""

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
    as_ids,
    as_tensor,
    edge_change_parts,
    last_of_each,
    pair_keys,
    x_change_parts,
)
from pyg_incremental.edge_store import EdgeEvents, Edges, Ids
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.kernels.adjacency import out_of_range
from pyg_incremental.typing import MAX_EDGES, MAX_NODES

_NONE = np.empty(0, np.int64)
_NO_EDGES = np.empty((2, 0), np.int64)


@dataclass
class ResolvedDelta:
    """A valid delta.

    Attributes:
        new_nodes: Number of nodes to append.
        removed: Slots that leave.
        added: Edges to add, int64 `[2, k]`.
        added_data: Their data by name.
        changed: Slots that get new data.
        changed_data: The data by name.
        x_ids: Distinct nodes with new features, new nodes included.
        x_rows: Their features.
    """

    new_nodes: int
    removed: Ids
    added: Ids
    added_data: dict[str, Tensor]
    changed: Ids
    changed_data: dict[str, Tensor]
    x_ids: Tensor
    x_rows: Tensor

    def apply(self, graph: DynamicGraph) -> EdgeEvents:
        """Change the graph; the slots that left have to be released when the update is through."""
        if self.new_nodes:
            graph.add_nodes(self.new_nodes)
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

    def data_now(self, graph: DynamicGraph) -> dict[str, Tensor]:
        """See that the changed edges have their new data; returns those of the added ones."""
        if self.changed.size:
            graph.write(self.changed, self.changed_data)
        return self.added_data


class Resolver:
    """Checks deltas against one graph and its node features.

    Args:
        graph: The graph.
        x: The node features, of which shape, dtype and device are expected of new rows.
        refuse_nodes: Why nodes cannot be added, or an empty string.
        unit_weights: Whether added edges weigh one if nothing is said.
    """

    def __init__(
        self, graph: DynamicGraph, x: Tensor, refuse_nodes: str, unit_weights: bool
    ) -> None:
        self._graph = graph
        self._x = x
        self._refuse_nodes = refuse_nodes
        self._unit_weights = unit_weights
        self._no_ids = torch.from_numpy(_NONE)

    def resolve(self, delta: GraphDelta) -> ResolvedDelta:
        """Check everything.

        Raises:
            InvalidDeltaError: With what is wrong, where, what was got and expected, and what to do.
        """
        if delta.missing not in ("error", "ignore"):
            raise InvalidDeltaError(
                f"missing: expected 'error' or 'ignore' (got {delta.missing!r})"
            )
        delta = delta.both_directions() if delta.undirected else delta
        graph = self._graph
        before = graph.num_nodes
        x_new = self._new_rows(delta)
        new_nodes = x_new.shape[0]
        total = before + new_nodes
        removed_nodes = _NONE
        if delta.nodes_del is not None:
            removed_nodes = np.unique(self.ids(delta.nodes_del, "nodes_del", total))
        deleted = self._edges(delta.edge_index_del, "edge_index_del", before)
        added = self._edges(delta.edge_index_add, "edge_index_add", total)
        if graph.num_edges + added.shape[1] > MAX_EDGES or total > MAX_NODES:
            raise InvalidDeltaError(
                f"the graph would have {total} nodes and {graph.num_edges + added.shape[1]} edges, "
                f"more than the {MAX_NODES} that one process holds; partition it"
            )
        data = self._added_data(delta, added.shape[1])
        removed = with_nodes = _NONE
        if deleted.size or removed_nodes.size:
            old = removed_nodes[removed_nodes < before]
            listed, with_nodes = graph.resolve_removal(deleted[0], deleted[1], old)
            removed = self._found(listed, deleted, "edge_index_del", delta.missing)
        changed, changed_data = self._changes(delta, added, data, removed, with_nodes, total)
        if removed_nodes.size and added.size:
            stays = ~np.isin(added, removed_nodes).any(axis=0)
            added = np.ascontiguousarray(added[:, stays])
            data = {k: v[torch.from_numpy(stays)] for k, v in data.items()}
        x_ids, x_rows = self._x_rows(delta, x_new, removed_nodes, before)
        return ResolvedDelta(
            new_nodes, np.concatenate([removed, with_nodes]) if with_nodes.size else removed,
            added, data, changed, changed_data, x_ids, x_rows,
        )  # fmt: skip

    # Nodes ---------------------------------------------------------------------------------------

    def _new_rows(self, delta: GraphDelta) -> Tensor:
        if delta.x_add is None:
            return self._x
        rows = self._rows(delta.x_add, "x_add")
        if rows.shape[0] and self._refuse_nodes:
            raise InvalidDeltaError(f"x_add: {self._refuse_nodes}")
        return rows

    def _rows(self, value: Any, name: str) -> Tensor:
        rows = self._like(value, name, self._x)
        if rows.numel() == 0 and rows.dim() == 1:
            return self._x[:0]
        if rows.dim() != self._x.dim() or rows.shape[1:] != self._x.shape[1:]:
            shape = ", ".join(["k", *map(str, self._x.shape[1:])])
            raise InvalidDeltaError(f"{name}: expected shape [{shape}] (got {list(rows.shape)})")
        return rows

    def _x_rows(
        self, delta: GraphDelta, x_new: Tensor, gone: Ids, before: int
    ) -> tuple[Tensor, Tensor]:
        ids, rows = [], []
        count = x_new.shape[0]
        if count:
            ids.append(np.arange(before, before + count))
            rows.append(x_new)
        if delta.x_changes is not None:
            some, values = x_change_parts(delta.x_changes)
            self._check_ids(some, "x_changes[0]", before + count)
            some_rows = self._rows(values, "x_changes[1]")
            if some_rows.shape[0] != some.size:
                raise InvalidDeltaError(
                    f"x_changes: expected one row for each of the {some.size} ids "
                    f"(got {some_rows.shape[0]} rows)"
                )
            if some.size:
                ids.append(some)
                rows.append(some_rows)
        if gone.size:
            ids.append(gone)
            rows.append(self._x.new_zeros((gone.size, *self._x.shape[1:])))
        if not ids:
            return self._no_ids, self._x
        every = ids[0] if len(ids) == 1 else np.concatenate(ids)
        values = rows[0] if len(rows) == 1 else torch.cat(rows)
        if every.size < 2:
            return torch.from_numpy(every), values
        keep = last_of_each(every)
        if keep.size < every.size:
            every, values = every[keep], values[torch.from_numpy(keep)]
        return torch.from_numpy(every), values

    def ids(self, value: Any, name: str, limit: int | None = None) -> Ids:
        """Node ids, checked."""
        ids = as_ids(value, name)
        self._check_ids(ids, name, self._graph.num_nodes if limit is None else limit)
        return ids

    @staticmethod
    def _check_ids(ids: Ids, name: str, limit: int) -> None:
        if not ids.size:
            return
        at = out_of_range(ids, limit)
        if at >= 0:
            raise InvalidDeltaError(
                f"{name}: node id {ids[at]} at position {at} is not in [0, {limit}); the graph has "
                f"{limit} nodes{', those of x_add included' if ids[at] >= limit else ''}: add "
                "nodes with x_add"
            )

    # Edges ---------------------------------------------------------------------------------------

    def _edges(self, value: Any, name: str, limit: int) -> Ids:
        if value is None:
            return _NO_EDGES
        edges = as_edges(value, name)
        if not edges.size:
            return edges
        at = out_of_range(edges.reshape(-1), limit)
        if at >= 0:
            at %= edges.shape[1]
            u, v = edges[:, at]
            raise InvalidDeltaError(
                f"{name}: edge {at} is ({u}, {v}), but node ids lie in [0, {limit}); add nodes "
                "with x_add"
            )
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
        given = dict(added_data(delta.edge_data_add)) if delta.edge_data_add is not None else {}
        for key, name in EDGE_DATA.items():
            rows = getattr(delta, key)
            if rows is None:
                continue
            if name not in expected and len(expected) == 1 and not given:
                name = next(iter(expected))  # the only edge input, whatever it is called
            if name in given:
                raise InvalidDeltaError(
                    f"{key}: '{name}' is given twice, here and in edge_data_add"
                )
            given[name] = rows
        if not expected and not given:
            return {}
        for name in given:
            if name not in expected:
                raise InvalidDeltaError(
                    f"{name}_add: this model was first called without '{name}', so added edges "
                    f"cannot have one (edge inputs: {sorted(expected) or 'none'}); call the model "
                    f"again with '{name}' or leave it out"
                )
        data = {}
        for name, stored in expected.items():
            if name in given:
                data[name] = self._edge_rows(given[name], f"{name}_add", stored, count)
            elif self._unit_weights or not count:
                data[name] = stored.new_ones((count, *stored.shape[1:]))
            else:
                shape = [count, *stored.shape[1:]]
                how = f"edge_data_add={{'{name}': rows of shape {shape}}}"
                if f"{name}_add" in EDGE_DATA:
                    how = f"{name}_add of shape {shape} (or {how})"
                raise InvalidDeltaError(
                    f"edge_index_add: {count} edges come without '{name}', which the model was "
                    f"first called with; pass {how}"
                )
        return data

    def _edge_rows(self, value: Any, name: str, like: Tensor, count: int) -> Tensor:
        rows = self._like(value, name, like)
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
        limit: int,
    ) -> tuple[Ids, dict[str, Tensor]]:
        if delta.edge_changes is None:
            return _NONE, {}
        edges, given = edge_change_parts(delta.edge_changes)
        self._edges(edges, "edge_changes[0]", limit)
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
        self._found(slots, edges, "edge_changes[0]", delta.missing)
        stays = (slots >= 0) & ~np.isin(slots, with_nodes)
        return slots[stays], {k: v[torch.from_numpy(stays)] for k, v in rows.items()}

    def _change_rows(self, given: Mapping[str, Any], count: int) -> dict[str, Tensor]:
        expected = self._graph.edge_data
        rows = {}
        for name, value in given.items():
            if name not in expected:
                raise InvalidDeltaError(
                    f"edge_changes[1]: this model has no edge input '{name}' (edge inputs: "
                    f"{sorted(expected) or 'none'})"
                )
            rows[name] = self._edge_rows(value, f"edge_changes[1]['{name}']", expected[name], count)
        return rows

    def _like(self, value: Any, name: str, like: Tensor) -> Tensor:
        """A tensor of the dtype and device of `like`.

        Lists and arrays are converted, tensors have to fit.
        """
        t = as_tensor(value, name)
        if not isinstance(value, Tensor):
            return t.to(like.device, like.dtype)
        if t.is_sparse or t.layout is not torch.strided:
            raise InvalidDeltaError(
                f"{name}: expected a dense tensor (got layout {t.layout}); use .to_dense()"
            )
        if t.dtype != like.dtype:
            raise InvalidDeltaError(
                f"{name}: expected dtype {like.dtype}, that of the first pass (got {t.dtype}); use "
                f".to({like.dtype})"
            )
        if t.device != like.device:
            raise InvalidDeltaError(
                f"{name}: expected device '{like.device}', that of the first pass (got "
                f"'{t.device}'); use .to('{like.device}')"
            )
        return t
