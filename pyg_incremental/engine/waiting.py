"""Deltas that wait to be one update: what they have changed, and what stood there before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import EdgeEvents, Edges
from pyg_incremental.rows import Cell
from pyg_incremental.rows.context import NO_EDGES

if TYPE_CHECKING:
    from pyg_incremental.engine.loop import Engine


class Waiting:
    """What has happened since all rows were current.

    Args:
        num_nodes: The number of nodes of each kind then.

    Attributes:
        num_nodes: The same.
        count: How many edges have come and left, and rows of inputs changed.
        has_begun: Whether anything has happened.
        is_one: Whether it can still be one update: so it is until rows were computed on their own,
            edges were given other data, or too much has happened.
    """

    def __init__(self, num_nodes: Mapping[str, int]) -> None:
        self.num_nodes = dict(num_nodes)
        self.count = 0
        self.has_begun = False
        self.is_one = True
        self._added: dict[str, list[Edges]] = {}
        self._removed: dict[str, list[Edges]] = {}
        self._rows: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def note_edges(self, graph: str, events: EdgeEvents) -> None:
        """Take note of what happened to edges; no slot is used again before all rows are current.

        Edges of which data change were made part of some rows with what they had before.
        """
        self._added.setdefault(graph, []).append(events.added)
        self._removed.setdefault(graph, []).append(events.removed)
        self.count += len(events.added.slots) + len(events.removed.slots)
        if len(events.changed.slots):
            self.count += len(events.changed.slots)
            self.is_one = False

    def note_rows(self, name: str, cell: Cell, ids: Tensor) -> None:
        """Take note of rows of an input, int64 `[c]`, which are about to change."""
        self.count += len(ids)
        if self.is_one:
            known = ids[ids < self.num_nodes[cell.value.kind]]
            self._rows.setdefault(name, []).append((known, cell.read(known)))
            if len(known) < len(ids):
                new = ids[ids >= self.num_nodes[cell.value.kind]]
                self._rows[name].append((new, cell.tensor[:0]))

    def let_go(self, graphs: Mapping[str, DynamicGraph]) -> None:
        """It will not be one update: slots of edges that left can be used again."""
        for name, removed in self._removed.items():
            for edges in removed:
                graphs[name].free(np.asarray(edges.slots))
        self.is_one = False
        self._added, self._removed, self._rows = {}, {}, {}

    def taken_back(
        self, engine: Engine
    ) -> tuple[dict[str, EdgeEvents], dict[str, tuple[Tensor, Tensor]]]:
        """What the update is to do, with inputs as they were before it: as for `Engine.update`."""
        events = {}
        for name, parts in self._added.items():
            added, removed = _joined(parts), _joined(self._removed[name])
            stays = ~np.isin(added.slots, removed.slots)
            was = ~np.isin(removed.slots, added.slots)
            some = EdgeEvents(_where(removed, was), _where(added, stays), NO_EDGES, {})
            if len(some.added.slots) or len(some.removed.slots):
                events[name] = some
        rows = {}
        for name, noted in self._rows.items():
            cell = engine.inputs[name].out
            ids = torch.cat([of for of, _ in noted]).unique()
            now = cell.read(ids)
            for of, old in reversed(noted):  # the first note is the oldest
                if len(old):
                    cell.tensor[of.to(cell.tensor.device)] = old
            rows[name] = ids, now
        return events, rows


def _joined(parts: list[Edges]) -> Edges:
    return Edges(*(np.concatenate([np.asarray(p[i]) for p in parts]) for i in range(3)))


def _where(edges: Edges, kept: np.ndarray) -> Edges:
    return Edges(*(of[kept] for of in edges))
