"""A delta that calls nodes by their names, in the numbers of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.call.roles import is_everyone, is_label
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import as_rows, deleted_data, rows_like
from pyg_incremental.delta.join import PAIR_FIELDS
from pyg_incremental.delta.names import NameTable, Renamed, listed, names_in
from pyg_incremental.delta.read.unread import without_unread
from pyg_incremental.delta.tables import ends_of_table, is_table
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.program.steps import Relation
from pyg_incremental.session.session import Session

_LISTS = (list, tuple)


def in_brackets(kind: str) -> str:
    """A kind of nodes behind the name of a field."""
    return f"[{kind!r}]" if kind else ""


def pairs_named(
    tables: Mapping[str, NameTable],
    relation: Relation,
    pairs: Ids,
    more: Mapping[str, Mapping[int, Any]],
) -> Any:
    """Edges by the names of their ends: int64 `[2, k]`, or an array of objects `[2, k]`.

    Args:
        tables: The names of each kind that has some.
        relation: The graph.
        pairs: The edges by rows, int64 `[2, k]`.
        more: Names that come or leave, by kind and row.
    """
    both = [
        tables[kind].of(pairs[i], more.get(kind, {})) if kind in tables else torch.tensor(pairs[i])
        for i, kind in enumerate((relation.source, relation.target))
    ]
    if all(isinstance(end, Tensor) for end in both):
        return torch.stack(both)
    made = np.empty((2, pairs.shape[1]), object)
    for i, end in enumerate(both):
        made[i] = end.tolist()
    return made


def unknown(name: Any, field: str, positions: list[int]) -> InvalidDeltaError:
    """What to say of a name that no node has."""
    return InvalidDeltaError(
        f"{field}: there is no node {name!r} (position {positions[0]}); add it with x_add and "
        "node_ids, or see inc.node_ids",
        what=field,
        positions=positions,
    )


class _Table:
    """A table of edges whose ends are rows."""

    def __init__(self, table: Any, ends: Mapping[str, Any]) -> None:
        self.columns, self._table, self._ends = list(table.columns), table, ends

    def __getitem__(self, column: Any) -> Any:
        return self._ends[column] if column in self._ends else self._table[column]


class InRows:
    """A delta in the numbers of rows, and what it does to names.

    Args:
        tables: The names of each kind that has some.
        session: The running state.
        delta: The delta.

    Attributes:
        delta: The same by rows.
        changes: What it does to the names of each kind.

    Raises:
        InvalidDeltaError: If it calls a node by a name that is not there.
    """

    def __init__(
        self, tables: Mapping[str, NameTable], session: Session, delta: GraphDelta
    ) -> None:
        self._tables, self._session = tables, session
        self._roles, self._reader = session.roles, session.resolver.reader
        self._given = delta = without_unread(delta, self._roles.unread)
        self.changes: dict[str, Renamed] = {}
        self._unknown: dict[tuple[str, int], str] = {}
        parts: dict[str, Any] = {"node_ids": None}
        reused = self._arrivals(delta, parts)
        self._edges(delta, parts)
        self._pairs(delta, parts)
        self._changed(delta, parts, reused)
        self._leaving(delta, parts)
        self.delta = replace(delta, **parts)

    def why_unknown(self, what: str, position: int) -> str:
        """What is wrong with a name that was left out, or an empty string."""
        return self._unknown.get((what, position), "")

    def _change(self, kind: str) -> Renamed:
        if kind not in self.changes:
            self.changes[kind] = self._tables[kind].begin()
        return self.changes[kind]

    # Nodes ---------------------------------------------------------------------------------------

    def _arrivals(self, delta: GraphDelta, parts: dict[str, Any]) -> dict[str, Any]:
        """New nodes: rows that are free, which change, and rows that come.

        Returns:
            The rows of free places by input, as `x_changes` has them.
        """
        given = self._reader.by_kind(delta.node_ids, "node_ids")
        reused: dict[str, Any] = {}
        left: dict[str, Any] = {}
        for kind, rows in self._reader.by_input(delta.x_add, "x_add").items():
            field, table = f"node_ids{self._label(kind)}", self._tables.get(kind)
            if table is None:
                left |= rows
                continue
            new = self._reader.nodes[kind].new(rows)
            count = len(next(iter(new.values()))) if new else 0
            names = names_in(given.pop(kind, []), field)
            if len(names) != count:
                raise InvalidDeltaError(
                    f"{field}: expected a name for each of the {count} new nodes (got "
                    f"{len(names)}); pass node_ids=[...] beside x_add"
                )
            if kind in self._roles.fixed:  # which is refused where it is read
                left |= rows
                continue
            ids = table.take(names, self._change(kind), field)
            again = int((ids < len(table)).sum())
            for name, values in new.items():
                if is_everyone(name):
                    continue
                if again:
                    reused[name] = torch.from_numpy(ids[:again]), values[:again]
                if again < count:
                    left[name] = values[again:]
        for kind, names in given.items():
            if names_in(names, "node_ids"):
                raise InvalidDeltaError(
                    f"node_ids{self._label(kind)}: names of new nodes come without rows; pass "
                    "x_add of as many rows beside them"
                )
        parts["x_add"] = self._unwrapped(left, delta.x_add)
        return reused

    def _label(self, kind: str) -> str:
        return in_brackets(kind) if len(self._session.num_nodes) > 1 else ""

    def _unwrapped(self, found: dict[str, Any], given: Any) -> Any:
        """What is said by input, without that where it was said so."""
        if isinstance(given, Mapping) or len(found) != 1:
            return found or None
        (name,) = found
        kinds = self._roles.kinds
        only = "" if "" in kinds else kinds[0]
        return found[name] if name == self._roles.features(only) else found

    def _changed(self, delta: GraphDelta, parts: dict[str, Any], reused: dict[str, Any]) -> None:
        found = dict(reused)
        for kind, changes in self._reader.by_input(delta.x_changes, "x_changes").items():
            for name, value in changes.items():
                field = f"x_changes{self._label(kind)}[0]"
                if kind in self._tables and isinstance(value, _LISTS) and len(value) == 2:
                    ids = self._rows(names_in(value[0], field), kind, field)
                    value = torch.from_numpy(ids), value[1]
                if name in found:
                    like = self._reader.nodes[kind].like[name]
                    rows = rows_like(value[1], field, like)
                    rows = rows[None] if rows.shape == like.shape[1:] else rows
                    first, before = found[name]
                    value = torch.cat([first, torch.as_tensor(value[0])]), torch.cat([before, rows])
                found[name] = value
        by_input = delta.x_changes if delta.x_changes is not None else delta.x_add
        parts["x_changes"] = self._unwrapped(found, by_input)

    def _leaving(self, delta: GraphDelta, parts: dict[str, Any]) -> None:
        found: dict[str, Any] = {}
        for kind, value in self._reader.by_kind(delta.nodes_del, "nodes_del").items():
            field, table = f"nodes_del{self._label(kind)}", self._tables.get(kind)
            if table is None:
                found[kind] = value
                continue
            names = names_in(value, field)
            ids = self._rows(names, kind, field)
            found[kind] = torch.from_numpy(ids)
            change = self._change(kind)
            change.gone |= {
                name: row
                for name, row in zip(names, ids.tolist(), strict=True)
                if row >= 0 and self._is_free_then(kind, row)
            }
        if found:
            plain = not isinstance(delta.nodes_del, Mapping)
            parts["nodes_del"] = next(iter(found.values())) if plain else found

    def _is_free_then(self, kind: str, row: int) -> bool:
        """Whether a row may be taken by another node once this one has left.

        Not if there can be no new nodes, or if somebody goes on asking for it.
        """
        roles, session = self._roles, self._session
        if kind in roles.fixed or kind in roles.ids.values():
            return False
        for r in roles.given:
            graph = session.graphs[r.graph]
            if is_label(r.graph) and row < graph.num_nodes:
                if r.source == kind and graph.out.degree[row]:
                    return False
                if r.target == kind and graph.inn.degree[row]:
                    return False
        return True

    # Edges ---------------------------------------------------------------------------------------

    def _edges(self, delta: GraphDelta, parts: dict[str, Any]) -> None:
        relations = {r.key: r for r in self._roles.given}
        for key, own in self._reader.edges_by_graph(delta).items():
            r = relations[key]
            label = self._reader.edges[r.graph].label
            found: dict[str, Any] = {}
            if own.edge_index_add is not None:
                found["edge_index_add"], _ = self._ends(
                    own.edge_index_add, r, f"edge_index_add{label}", comes=True
                )
            if own.edge_index_del is not None:
                found |= self._edges_that_leave(own, r, label)
            if own.edge_changes is not None:
                found["edge_changes"] = self._edge_changes(own.edge_changes, r, label)
            if own is delta:
                parts |= found
            else:
                for field, value in found.items():
                    parts.setdefault(field, {})[key] = value

    def _edges_that_leave(self, own: GraphDelta, r: Relation, label: str) -> dict[str, Any]:
        """Edges that leave; those of nodes that are not there are left out where that may be."""
        ignores = own.missing == "ignore"
        edges, there = self._ends(own.edge_index_del, r, f"edge_index_del{label}", lax=ignores)
        if there is None:
            return {"edge_index_del": edges}
        if isinstance(edges, _Table):
            columns = {c: np.asarray(edges[c])[there] for c in edges.columns}
            return {"edge_index_del": _Table(edges, columns)}
        found: dict[str, Any] = {
            "edge_index_del": torch.as_tensor(edges)[:, torch.from_numpy(there)]
        }
        if own.edge_data_del is not None:
            data = deleted_data(own.edge_data_del)
            found["edge_data_del"] = {k: as_rows(v, k)[there] for k, v in data.items()}
        return found

    def _edge_changes(self, changes: Any, r: Relation, label: str) -> Any:
        field = f"edge_changes{label}[0]"
        if is_table(changes):
            return self._ends(changes, r, field)[0]
        if isinstance(changes, _LISTS) and len(changes) == 2:
            return self._ends(changes[0], r, field)[0], changes[1]
        return changes

    def _pairs(self, delta: GraphDelta, parts: dict[str, Any]) -> None:
        relations = {r.key: r for r in self._roles.given}
        fields = {edges: pairs for pairs, edges in PAIR_FIELDS.items()}
        for key, found in self._reader.pairs_by_graph(delta).items():
            r = relations[key]
            if self._roles.asked(r.graph):
                raise InvalidDeltaError(
                    f"pairs[{key!r}]: nodes have names, and which of these are ids is not known; "
                    "ask for others by query, or call the model again"
                )
            for name, value in found.items():
                if name in ("edge_index_add", "edge_index_del"):
                    pairs, _ = self._ends(value, r, fields[name])
                    parts.setdefault(fields[name], {})[key] = pairs

    def _ends(
        self, value: Any, r: Relation, field: str, comes: bool = False, lax: bool = False
    ) -> tuple[Any, Any]:
        """Edges by rows, in the form in which they were given.

        Args:
            value: The edges.
            r: Their graph.
            field: What messages call them.
            comes: Whether nodes may come with the edges that name them.
            lax: Whether edges of nodes that are not there are left out.

        Returns:
            The edges, and which of them are left, bool `[k]`; None for all.
        """
        kinds = r.source, r.target
        if is_table(value):
            columns = ends_of_table(value, field)
            lists = [listed(value[column]) for column in columns]
            lists = [of if type(of) is list else list(of) for of in lists]
        else:
            columns, lists = None, listed(value)
            if (
                type(lists) is not list
                or len(lists) != 2
                or any(type(p) not in _LISTS for p in lists)
            ):
                shape = list(np.shape(np.asarray(value, object)))
                raise InvalidDeltaError(
                    f"{field}: expected shape [2, num_edges], names of sources above those of "
                    f"targets (got {shape})"
                )
        if len(lists[0]) != len(lists[1]):
            raise InvalidDeltaError(
                f"{field}: expected as many sources as targets (got {len(lists[0])} and "
                f"{len(lists[1])})"
            )
        rows = np.stack([
            self._rows([*part], kind, field, comes and self._roles.grows(kind), lax)
            for part, kind in zip(lists, kinds, strict=True)
        ])  # fmt: skip
        there = None
        if lax and rows.size and rows.min() < 0:
            there = (rows >= 0).all(0)
        if isinstance(value, _LISTS) and rows.shape == (2, 2):
            self._refuse_two_pairs(lists, rows, r, field)
        if columns is not None:
            return _Table(value, dict(zip(columns, rows, strict=True))), there
        return torch.from_numpy(rows), there

    def _refuse_two_pairs(self, lists: Any, rows: Ids, r: Relation, field: str) -> None:
        """Refuse two lists of two names that may be two pairs, or sources above targets."""
        (a, b), (c, d) = lists
        source, target = self._tables.get(r.source), self._tables.get(r.target)
        first = [a, c] if source is None else [source.rows.get(a), source.rows.get(c)]
        second = [b, d] if target is None else [target.rows.get(b), target.rows.get(d)]
        if b == c or None in first or None in second:
            return
        if not field.startswith("edge_index_add"):
            graph = self._session.graphs[r.graph]
            if min(graph.find(np.array(first, np.int64), np.array(second, np.int64))) < 0:
                return
        raise InvalidDeltaError(
            f"{field}: {lists} may be the edges {a!r} -> {c!r} and {b!r} -> {d!r}, or {a!r} -> "
            f"{b!r} and {c!r} -> {d!r}; write np.array({lists}) for the first, or "
            f"np.array({lists}).T"
        )

    def _rows(
        self, names: list[Any], kind: str, field: str, comes: bool = False, lax: bool = False
    ) -> Ids:
        """The rows of some names, int64 `[k]`; -1 for those that are left out."""
        table = self._tables.get(kind)
        if table is None:
            return np.asarray(names, np.int64)
        known, change = table.rows, self.changes.get(kind)
        try:
            rows = np.fromiter((known.get(name, -1) for name in names), np.int64, len(names))
        except TypeError as error:
            raise InvalidDeltaError(f"{field}: expected names of nodes ({error})") from error
        if change is not None and change.named:
            for at in np.flatnonzero(rows < 0).tolist():
                rows[at] = change.named.get(names[at], -1)
        missing = np.flatnonzero(rows < 0).tolist()
        if missing and comes:
            new = list(dict.fromkeys(names[at] for at in missing))
            table.take(names_in(new, field), self._change(kind), field)
            named = self._change(kind).named
            rows[missing] = [named[names[at]] for at in missing]
        elif missing and not lax:
            what = field.removesuffix("[0]")
            if self._given.invalid != "skip":
                raise unknown(names[missing[0]], what, missing)
            for at in missing:
                self._unknown.setdefault((what, at), str(unknown(names[at], what, [at])))
        return rows
