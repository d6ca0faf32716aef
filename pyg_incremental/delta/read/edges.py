"""What a delta says of the edges of one graph, before it is held against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import (
    ADVICE,
    EDGE_DATA,
    added_data,
    as_edges,
    deleted_data,
    edge_change_parts,
    field_of,
    is_square,
    last_of_each,
    pair_keys,
    rows_like,
    square_as_edges,
    strangers,
)
from pyg_incremental.delta.intake import Intake
from pyg_incremental.delta.tables import ends_of_table, is_table
from pyg_incremental.encoding.framing import record
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.edge_store import Ids

NO_EDGES: Ids = np.empty((2, 0), np.int64)
_NO_TABLES = (Tensor, tuple, type(None))


@record
@dataclass
class GivenEdges:
    """What is said of the edges of one graph; all ids and shapes are fine.

    Attributes:
        deleted: Edges to delete, int64 `[2, m]`, one occurrence for each listed pair.
        added: Edges to add, int64 `[2, k]`.
        added_data: Their data by name.
        changed: Distinct edges that get new data, int64 `[2, r]`.
        changed_data: The data by name.
        deleted_data: The data that edges to delete have to have, by name; nothing if any will do.
    """

    deleted: Ids
    added: Ids
    added_data: dict[str, Tensor]
    changed: Ids
    changed_data: dict[str, Tensor]
    deleted_data: dict[str, Tensor] = field(default_factory=dict)


def nothing_given(like: Mapping[str, Tensor]) -> GivenEdges:
    """What is said of edges where only nodes leave; `like` are their data, `[num_edges, ...]`."""
    return GivenEdges(NO_EDGES, NO_EDGES, {k: t[:0] for k, t in like.items()}, NO_EDGES, {})


class EdgeReader:
    """Reads what a delta says of the edges of one graph.

    Args:
        like: The data of its edges by name, `[any, ...]`: its dtype and device count.
        unit_weights: Whether added edges weigh one if nothing is said.
        kinds: The kinds of nodes at the sources and at the targets, as messages name them.
        label: What messages put behind the name of a field, such as the edge type in brackets.
        advice: What messages say to do about ids that are too large, at each end.
        find: The slots of edges by sources and targets, int64 `[k]`, -1 for those that are not
            there; None where nobody knows.
    """

    def __init__(
        self,
        like: Mapping[str, Tensor],
        unit_weights: bool,
        kinds: tuple[str, str] = ("", ""),
        label: str = "",
        advice: tuple[str, str] = (ADVICE, ADVICE),
        find: Callable[[Ids, Ids], Ids] | None = None,
    ) -> None:
        self.like, self.label, self._find = like, label, find
        self._advice = advice
        self._unit_weights = unit_weights
        self._kinds = kinds
        self._names = {short_name(name): name for name in like}

    def of_lists(
        self, delta: GraphDelta, before: tuple[int, int], total: tuple[int, int]
    ) -> GraphDelta:
        """The same delta, where two lists of two ids are edges; arguments as for `read`.

        They are sources above targets unless the graph has room for both readings.

        Raises:
            InvalidDeltaError: If it has.
        """

        def are_within(edges: Ids, limits: tuple[int, int]) -> bool:
            return not any(strangers(ids, n).size for ids, n in zip(edges, limits, strict=True))

        def are_there(edges: Ids) -> bool:
            find = self._find
            return are_within(edges, before) and (find is None or min(find(*edges)) >= 0)

        parts: dict[str, Any] = {}
        label, changes = self.label, delta.edge_changes
        if is_square(delta.edge_index_add):
            parts["edge_index_add"] = square_as_edges(
                delta.edge_index_add, f"edge_index_add{label}", lambda e: are_within(e, total)
            )
        if is_square(delta.edge_index_del):
            parts["edge_index_del"] = square_as_edges(
                delta.edge_index_del, f"edge_index_del{label}", are_there
            )
        if isinstance(changes, (tuple, list)) and len(changes) == 2 and is_square(changes[0]):
            square = square_as_edges(changes[0], f"edge_changes{label}[0]", are_there)
            parts["edge_changes"] = square, changes[1]
        return replace(delta, **parts) if parts else delta

    def of_tables(self, delta: GraphDelta) -> GraphDelta:
        """The same delta, with columns of tables that are called like an edge input as its data.

        Other columns of edges that come are left out, such as the times of events. Of those that
        leave they are refused, as they may tell which ones. Data that is given by name goes before
        a column.

        Raises:
            InvalidDeltaError: If a column would tell edges that leave apart, and cannot.
        """
        parts: dict[str, Any] = {}
        table = delta.edge_index_add
        if not isinstance(table, _NO_TABLES) and is_table(table):
            given = dict(added_data(delta.edge_data_add))
            named = {EDGE_DATA[k] for k in EDGE_DATA if getattr(delta, k) is not None} | {*given}
            columns = {k: v for k, v in self._columns(table).items() if k not in named}
            parts["edge_index_add"] = as_edges(table, f"edge_index_add{self.label}")
            parts["edge_data_add"] = {**given, **columns} or None
        if not isinstance(delta.edge_index_del, _NO_TABLES) and is_table(delta.edge_index_del):
            parts |= self._leaving(delta.edge_index_del, deleted_data(delta.edge_data_del))
        if not isinstance(delta.edge_changes, _NO_TABLES) and is_table(delta.edge_changes):
            pairs = as_edges(delta.edge_changes, f"edge_changes{self.label}")
            parts["edge_changes"] = (pairs, self._columns(delta.edge_changes))
        return replace(delta, **parts) if parts else delta

    def _leaving(self, table: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """A table of edges that leave, `[2, m]`, and the data that they have to have."""
        name = f"edge_index_del{self.label}"
        edges, columns, ends = (
            as_edges(table, name),
            self._columns(table),
            ends_of_table(table, name),
        )
        unknown = [c for c in table.columns if c not in ends and c not in columns]
        if unknown:
            raise InvalidDeltaError(
                f"{name}: the columns {unknown} do not tell which edge leaves, as edges have no "
                f"such data (edge inputs: {self._known()}); leave them out, as in "
                f"table[{[*ends, *columns]}]"
            )
        return {"edge_index_del": edges, "edge_data_del": {**columns, **given} or None}

    def _columns(self, table: Any) -> dict[str, Any]:
        """The columns of a table that are called like an edge input."""
        return {short: np.asarray(table[short]) for short in self._names if short in table.columns}

    def read(
        self,
        delta: GraphDelta,
        before: tuple[int, int],
        total: tuple[int, int],
        intake: Intake | None,
    ) -> GivenEdges:
        """Check everything that can be checked without the edges.

        Args:
            delta: What happens to the edges, both directions written out.
            before: Number of nodes at the sources and at the targets.
            total: The same, new nodes included.
            intake: What becomes of edges that do not fit; an error if there is none.

        Raises:
            InvalidDeltaError: With what is wrong, where, what was got and expected, and what to do.
        """
        ignores = delta.missing == "ignore"  # no edge is there yet at a node that is new
        limits = total if ignores else before
        deleted, kept = self._listed(delta.edge_index_del, "edge_index_del", limits, intake)
        leaving = _of_some(self._leaving_data(delta, deleted.shape[1]), kept)
        deleted = deleted if kept is None else deleted[:, kept]
        if ignores and total != before and deleted.size:
            there = (deleted[0] < before[0]) & (deleted[1] < before[1])
            deleted = deleted[:, there]
            leaving = {k: v[torch.from_numpy(there)] for k, v in leaving.items()}
        added, kept = self._listed(delta.edge_index_add, "edge_index_add", total, intake)
        data = _of_some(self._added_data(delta, added.shape[1]), kept)
        added = added if kept is None else np.ascontiguousarray(added[:, kept])
        return GivenEdges(deleted, added, data, *self._changes(delta, total, intake), leaving)

    def _leaving_data(self, delta: GraphDelta, count: int) -> dict[str, Tensor]:
        """The data that edges to delete have to have."""
        data = {}
        for key, value in deleted_data(delta.edge_data_del).items():
            name, field = self._names.get(key, key), f"edge_data_del{self.label}"
            if name not in self.like:
                raise InvalidDeltaError(
                    f"{field}: this model has no edge input '{key}' (edge inputs: {self._known()})"
                )
            data[name] = self._edge_rows(value, f"{field}['{key}']", self.like[name], count)
        return data

    def _listed(
        self, value: Any, name: str, limits: tuple[int, int], intake: Intake | None
    ) -> tuple[Ids, Ids | None]:
        """The edges of a field, int64 `[2, k]`, and which of them fit, as `check_edges` says it."""
        if value is None:
            return NO_EDGES, None
        name = f"{name}{self.label}"
        edges = as_edges(value, name)
        return edges, check_edges(edges, name, limits, self._kinds, self._advice, intake)

    def _added_data(self, delta: GraphDelta, count: int) -> dict[str, Tensor]:
        expected = self.like
        given = {self._names.get(k, k): v for k, v in added_data(delta.edge_data_add).items()}
        for key, name in EDGE_DATA.items():
            rows = getattr(delta, key)
            if rows is None:
                continue
            name = self._names.get(name, name)
            if name not in expected and len(expected) == 1 and not given and name != "edge_ids":
                name = next(iter(expected))  # the only edge input, whatever it is called
            if name in given:
                raise InvalidDeltaError(
                    f"{key}{self.label}: '{name}' is given twice, here and in edge_data_add"
                )
            given[name] = rows
        if not expected and not given:
            return {}
        for name in given:
            if name not in expected:
                raise InvalidDeltaError(
                    f"{name}_add{self.label}: this model was first called without '{name}', so "
                    f"added edges cannot have one (edge inputs: {self._known()}); call the model "
                    f"again with '{name}' or leave it out"
                )
        data = {}
        for name, stored in expected.items():
            if name in given:
                field = f"{short_name(name)}_add{self.label}"
                data[name] = self._edge_rows(given[name], field, stored, count)
            elif self._unit_weights or not count:
                data[name] = stored.new_ones((count, *stored.shape[1:]))
            else:
                shape, short = [count, *stored.shape[1:]], short_name(name)
                how = f"edge_data_add={{'{short}': rows of shape {shape}}}"
                if f"{short}_add" in EDGE_DATA:
                    how = f"{short}_add of shape {shape} (or {how})"
                raise InvalidDeltaError(
                    f"edge_index_add{self.label}: {count} edges come without '{short}', which the "
                    f"model was first called with; pass {how}"
                )
        return data

    def _edge_rows(self, value: Any, name: str, like: Tensor, count: int) -> Tensor:
        rows = rows_like(value, name, like)
        if count == 1 and rows.shape == like.shape[1:]:
            return rows.unsqueeze(0)
        if rows.shape != (count, *like.shape[1:]):
            if rows.numel() == count * like.shape[1:].numel() and rows.shape[:1] == (count,):
                return rows.reshape(count, *like.shape[1:])
            raise InvalidDeltaError(
                f"{name}: expected shape {[count, *like.shape[1:]]}, one row for each edge (got "
                f"{list(rows.shape)})"
            )
        return rows

    def _changes(
        self, delta: GraphDelta, limits: tuple[int, int], intake: Intake | None
    ) -> tuple[Ids, dict[str, Tensor]]:
        """Distinct edges that get new data, and the data; of several for one edge the last."""
        if delta.edge_changes is None:
            return NO_EDGES, {}
        edges, given = edge_change_parts(delta.edge_changes)
        field = f"edge_changes{self.label}[0]"
        kept = check_edges(edges, field, limits, self._kinds, self._advice, intake)
        rows = {}
        for key, value in given.items():
            name, field = self._names.get(key, key), f"edge_changes{self.label}[1]"
            if name not in self.like:
                raise InvalidDeltaError(
                    f"{field}: this model has no edge input '{key}' (edge inputs: {self._known()})"
                )
            rows[name] = self._edge_rows(
                value, f"{field}['{key}']", self.like[name], edges.shape[1]
            )
        if kept is not None:
            edges, rows = edges[:, kept], _of_some(rows, kept)
        keys = pair_keys(edges)
        keep = last_of_each(keys)
        if keep.size == edges.shape[1]:
            return edges, rows
        if intake is not None:
            order = np.argsort(keys[keep])
            by = order[np.searchsorted(keys[keep][order], keys)]
            intake.replaced(field_of(field), keep, keys.size, by)
        return edges[:, keep], _of_some(rows, keep)

    def _known(self) -> Any:
        return sorted(map(short_name, self.like)) or "none"


def _of_some(rows: dict[str, Tensor], kept: Ids | None) -> dict[str, Tensor]:
    """The rows, `[k, ...]`, of those edges that fit, at the places `kept`, int64; None for all."""
    return rows if kept is None else {k: v[torch.from_numpy(kept)] for k, v in rows.items()}


def check_edges(
    edges: Ids,
    name: str,
    limits: tuple[int, int],
    kinds: tuple[str, str] = ("", ""),
    advice: tuple[str, str] = (ADVICE, ADVICE),
    intake: Intake | None = None,
) -> Ids | None:
    """See that the ends of some edges, int64 `[2, k]`, exist.

    Args:
        edges: The edges.
        name: What messages call them.
        limits: Number of nodes at the sources and at the targets.
        kinds: Their kinds.
        advice: What to do about ids that are too large, at each end.
        intake: What becomes of edges that do not fit; an error by default.

    Returns:
        The places of those that fit, int64 `[n]`; None if all do.

    Raises:
        InvalidDeltaError: If one of the ends is not in `[0, limit)`.
    """
    found = [strangers(end, limit) for end, limit in zip(edges, limits, strict=True)]
    if not (found[0].size or found[1].size):
        return None
    wrong = np.union1d(*found)

    def reason(at: int, place: int) -> str:
        side = int(not 0 <= edges[1, at] < limits[1] and 0 <= edges[0, at] < limits[0])
        ids = f"ids of '{kinds[side]}' nodes" if kinds[side] else "node ids"
        return (
            f"{name}: edge {place} is ({edges[0, at]}, {edges[1, at]}), but {ids} lie in "
            f"[0, {limits[side]}); {advice[side]}"
        )

    return (intake or Intake()).fitting(field_of(name), wrong, edges.shape[1], reason)


def short_name(name: str) -> str:
    """What the user calls an edge input: `edge_attr` for that of one edge type in a dict."""
    return name.rpartition("/")[2].removesuffix("_dict")
