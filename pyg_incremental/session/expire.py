"""What is too old leaves: edges and nodes with a time, as deletions like any others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.call.roles import is_label
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.read.edges import short_name
from pyg_incremental.delta.read.reader import written
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.session.compact import Removed
from pyg_incremental.session.session import Session
from pyg_incremental.update import Update

_NOBODY: Ids = np.empty(0, np.int64)


class _Times:
    """The times that edges and nodes have.

    Args:
        session: The running state.
        by: The name of the input that holds them, `[num_edges]` or `[num_nodes]`.

    Raises:
        InvalidDeltaError: If there is none, or it does not hold one number for each.
    """

    def __init__(self, session: Session, by: str) -> None:
        self._session, self._by = session, by
        self._removed: dict[str, Ids] = {}
        self._edges = {}
        for r in session.roles.given:
            graph = session.graphs[r.graph]
            for name, rows in graph.edge_data.items():
                if by in (name, short_name(name)) and not is_label(r.graph):
                    slots = graph.slots_for_model()
                    self._edges[r.graph] = slots, self._numbers(rows[torch.from_numpy(slots)])
        self._nodes = {
            name: self._numbers(rows)
            for name, rows in session.nodes().items()
            if by in (name, short_name(name))
        }
        if not self._edges and not self._nodes:
            known = sorted({*session.roles.edges, *session.roles.handed_in.nodes})
            raise InvalidDeltaError(
                f"expire: there is no '{by}' (got inputs {known}); call the model with the times, "
                "as in inc(x, edge_index, edge_time=times), which it need not take, or name the "
                "input that holds them, expire(..., by='...')"
            )

    def _numbers(self, rows: Tensor) -> Ids:
        flat = rows[..., None].flatten(1)  # there may be no row
        if flat.shape[1] != 1:
            raise InvalidDeltaError(
                f"expire: '{self._by}' has rows of shape {list(rows.shape[1:])} (expected one "
                "number each)"
            )
        found: Ids = flat[:, 0].cpu().numpy()
        return found

    @property
    def types(self) -> list[Any]:
        """What has times: types of edges, and of nodes."""
        edges = [r.key for r in self._session.roles.given if r.graph in self._edges]
        return [*edges, *(self._session.roles.nodes[name] for name in self._nodes)]

    def newest(self) -> float | int | None:
        """The latest time; None if there is none."""
        every = [times for _, times in self._edges.values()]
        every += [of[~np.isin(np.arange(len(of)), self._gone(n))] for n, of in self._nodes.items()]
        found = [np.nanmax(t) for t in every if t.size and not (t != t).all()]
        return None if not found else max(found).item()

    def _gone(self, name: str) -> Ids:
        found: Ids = self._removed.get(self._session.roles.nodes[name], _NOBODY)
        return found

    def without(self, removed: dict[str, Ids]) -> _Times:
        """The same, of which removed nodes, int64 `[d]` by kind, that have the time 0 are none."""
        for name, times in self._nodes.items():
            kind = self._session.roles.nodes[name]
            ids = removed.get(kind, _NOBODY)
            self._removed[kind] = ids[times[ids] == 0]
        return self

    def delta(self, before: Any) -> GraphDelta:
        """The deletion of all that is older; a dict says how much of each type.

        Raises:
            InvalidDeltaError: If it names what has no times.
        """
        limits = before if isinstance(before, Mapping) else dict.fromkeys(self.types, before)
        if unknown := [key for key in limits if key not in self.types]:
            raise InvalidDeltaError(
                f"expire: there are no times '{self._by}' of {unknown} (expected types among "
                f"{self.types})"
            )
        session, fields = self._session, dict[str, dict[Any, Any]]()
        for r in session.roles.given:
            slots, times = self._edges.get(r.graph, (np.empty(0, np.int64), np.empty(0)))
            old = np.flatnonzero(times < limits.get(r.key, -math.inf))
            if old.size:
                pairs = session.graphs[r.graph].ends_of(slots[old])
                fields.setdefault("edge_index_del", {})[r.key] = torch.from_numpy(pairs)
                data = {self._by: torch.from_numpy(times[old])}
                fields.setdefault("edge_data_del", {})[r.key] = data
        for name, times in self._nodes.items():
            kind = session.roles.nodes[name]
            is_old = times < limits.get(kind, -math.inf)
            old = np.setdiff1d(np.flatnonzero(is_old), self._gone(name))
            if old.size:
                fields.setdefault("nodes_del", {})[kind] = torch.from_numpy(old)
        return written(session.roles, fields)


class Expires:
    """The part of an `IncrementalModel` that lets go of what is too old."""

    def expire(
        self: Any, before: Any = None, *, keep: Any = None, by: str = "edge_time", **options: Any
    ) -> Update:
        """Delete the edges, or remove the nodes, whose time is earlier than some other one.

        Times are an input with one number for each edge, or for each node, which the model need not
        take: `inc(x, edge_index, edge_time=times)`, or `node_time=times`. Deltas give those of new
        edges by `edge_data_add={'edge_time': [k]}`, and of new nodes by `x_add={'x': [n, ...],
        'node_time': [n]}`.

        Args:
            before: What is earlier leaves; what has this very time stays. A dict by type for some
                types alone.
            keep: Instead of that the length of a window, which ends at the latest time that there
                is.
            by: The name of the input that holds the times.
            **options: As for `apply_delta`: `delta_id`, `old`, `undo`.

        Returns:
            What `apply_delta` returns for these deletions.

        Raises:
            InvalidDeltaError: If there are no times of this name, or both or none of `before` and
                `keep` are given.
            StaleStateError: If the stored state is stale.
        """
        if (before is None) == (keep is None):
            raise InvalidDeltaError(
                "expire: expected either a time, expire(before=t), or a length of time, "
                f"expire(keep=w) (got before={before!r}, keep={keep!r})"
            )

        def look() -> GraphDelta:
            self._refuse_stale()
            session = self._require()
            removed: Removed = self._removed
            names = self._settled(session)
            gone = removed.by_kind() | ({} if names is None else names.free())
            times = _Times(session, by).without(gone)
            newest = times.newest() if before is None else None
            if before is None and newest is None:
                return GraphDelta()
            limit = newest - keep if before is None else before
            limit = limit.item() if isinstance(limit, Tensor) else limit
            found = times.delta(limit)
            return found if names is None else names.by_name(session, found)

        update: Update = self.apply_delta(self._rwlock.read(look), **options)
        return update
