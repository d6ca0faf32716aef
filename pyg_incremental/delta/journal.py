"""What an update is about to change, written down before it changes anything.

An update is in when its version is, which one assignment says (`Session.committed`). Whatever is
raised before that, the journal tells how everything was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.call.roles import Roles
from pyg_incremental.delta.resolve.plain import PlainDelta
from pyg_incremental.delta.resolve.resolver import ResolvedDelta
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import Ids

State = tuple[dict[str, DynamicGraph], dict[str, int], dict[str, Tensor]]
"""Graphs, the number of nodes of each kind, and node inputs; all by name."""
REMEMBERED = 1024
"""So many of the last ids that callers gave to deltas are remembered: each such delta copies them,
some 10 microseconds here, and whoever hands one in again has to do it before so many others."""
_NONE = np.empty(0, np.int64)


class Committed(NamedTuple):
    """What the last update that is in has left; one assignment makes all of it hold.

    Attributes:
        version: How many updates are in since the first pass.
        deltas: The ids that callers gave to the last ones, each with the version it led to.
        held: Rows that users can reach, as tensors.
        writes: How often each of these was written to (its `_version`).
    """

    version: int = 0
    deltas: Mapping[Any, int] = {}
    held: tuple[Tensor, ...] = ()
    writes: Sequence[int] = []

    def next(self, delta_id: Any) -> Committed:
        """What holds when one more update is in, which may have an id."""
        version, deltas = self.version + 1, self.deltas
        if delta_id is not None:
            deltas = remembered(deltas, delta_id, version)
        return self._replace(version=version, deltas=deltas)


class Journal(NamedTuple):
    """How everything stands where an update is about to write.

    Attributes:
        version: The version that it leads to.
        resolved: What it is about to do.
        num_nodes: The number of nodes of each kind.
        orders: The age of the next edge of each graph.
        rows: For each node input ids that are there, int64 `[c]`, and their rows, `[c, ...]`.
        data: For each graph of which edge data change the slots, and their data by name.
    """

    version: int
    resolved: ResolvedDelta
    num_nodes: dict[str, int]
    orders: dict[str, int]
    rows: dict[str, tuple[Tensor, Tensor]]
    data: dict[str, tuple[Ids, dict[str, Tensor]]]

    def undone(
        self, graphs: Mapping[str, DynamicGraph], roles: Roles, rows: Mapping[str, Tensor]
    ) -> State:
        """The state before the update, wherever it was interrupted.

        Rows and edge data are written back where they are, the graphs are made anew.

        Args:
            graphs: The graphs.
            roles: What the tensors of the call are.
            rows: The node inputs, `[capacity, ...]`.
        """
        made, counts = {}, self.num_nodes
        for r in roles.relations:
            graph, changes = graphs[r.graph], self.resolved.edges.get(r.graph)
            if r.graph in self.data:
                graph.write(*self.data[r.graph])
            removed = _NONE if changes is None else changes.removed
            room = max(counts[r.source], counts[r.target])
            made[r.graph] = graph.before(room, self.orders[r.graph], removed)
        nodes = {name: rows[name][: counts[kind]] for name, kind in roles.nodes.items()}
        for name, (ids, old) in self.rows.items():
            nodes[name][ids.to(old.device)] = old
        return made, counts, nodes

    def finished(
        self, graphs: Mapping[str, DynamicGraph], roles: Roles, rows: Mapping[str, Tensor]
    ) -> State:
        """The state after the update, wherever it was interrupted; arguments as for `undone`."""
        resolved, before = self.resolved, self.num_nodes
        counts = {kind: n + resolved.new_nodes.get(kind, 0) for kind, n in before.items()}
        made = {}
        for r in roles.relations:
            graph, changes = graphs[r.graph], resolved.edges.get(r.graph)
            room = max(counts[r.source], counts[r.target])
            made[r.graph] = (
                graph.remade(room)
                if changes is None
                else changes.remade(graph, self.orders[r.graph], room)
            )
        nodes = {}
        for name, kind in roles.nodes.items():
            old = rows[name][: before[kind]]
            new = resolved.new_nodes.get(kind, 0)
            nodes[name] = now = torch.cat([old, old.new_zeros((new, *old.shape[1:]))])
            if name in resolved.rows:
                ids, given = resolved.rows[name]
                now[ids] = given
        return made, counts, nodes


class PlainJournal(NamedTuple):
    """The same of a plain delta.

    Attributes:
        version: The version that it leads to.
        delta: The delta.
        graph: The graph whose edges it changes.
        order: The age of the next edge there.
        rows: What stands in the rows that change, `[c, ...]`, or None; of new nodes anything.
        num_nodes: The number of nodes of each kind.
    """

    version: int
    delta: PlainDelta
    graph: str
    order: int
    rows: Any
    num_nodes: dict[str, int]

    def undone(
        self,
        graphs: Mapping[str, DynamicGraph],
        roles: Roles,
        nodes: Mapping[str, Tensor],
        slots: tuple[Ids, Ids] | None,
    ) -> State:
        """The state before the update, wherever it was interrupted; see `Journal.undone`.

        Args:
            graphs: The graphs.
            roles: What the tensors of the call are.
            nodes: The node inputs, `[num_nodes or more, ...]`.
            slots: Those of the edges that leave and that come, int64 `[m]` and `[k]`; None if the
                delta was not accepted yet.
        """
        left, taken = (_NONE, _NONE) if slots is None else slots
        made, counts = {}, self.num_nodes
        for r in roles.relations:
            graph, room = graphs[r.graph], max(counts[r.source], counts[r.target])
            is_changed = r.graph == self.graph
            made[r.graph] = (
                graph.before(room, self.order, left, taken) if is_changed else graph.remade(room)
            )
        rows = {name: of[: counts[roles.nodes[name]]] for name, of in nodes.items()}
        if slots is not None and self.rows is not None:
            there = self.delta.ids < counts[roles.nodes[self.delta.name]]
            at = torch.from_numpy(self.delta.ids[there])
            rows[self.delta.name][at] = torch.from_numpy(self.rows[there])
        return made, dict(self.num_nodes), rows


def edge_data_before(
    resolved: ResolvedDelta, graphs: Mapping[str, DynamicGraph]
) -> dict[str, tuple[Ids, dict[str, Tensor]]]:
    """The data of the edges that a delta gives new ones, by graph."""
    found = {}
    for name, edges in resolved.edges.items():
        if edges.changed.size:
            at, data = torch.from_numpy(edges.changed), graphs[name].edge_data
            found[name] = edges.changed, {k: data[k][at] for k in edges.changed_data}
    return found


def remembered(deltas: Mapping[Any, int], delta_id: Any, version: int) -> dict[Any, int]:
    """The ids of the last deltas, each with the version it led to, and one more."""
    named = {**deltas, delta_id: version}
    for oldest in list(named)[: max(0, len(named) - REMEMBERED)]:
        del named[oldest]
    return named


def checked_id(delta_id: Any) -> str | int:
    """What a caller calls a delta.

    Raises:
        InvalidDeltaError: If it is neither a string nor an integer.
    """
    if isinstance(delta_id, (str, int)) and not isinstance(delta_id, bool):
        return delta_id
    raise InvalidDeltaError(
        f"delta_id: expected a string or an integer (got {type(delta_id).__name__})"
    )
