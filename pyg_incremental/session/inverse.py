"""The way back: the delta that undoes another one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.call.roles import is_everyone
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.names import NameTable
from pyg_incremental.delta.read.reader import written
from pyg_incremental.session.edge_ids import EdgeIds, Identified
from pyg_incremental.session.in_rows import InRows, pairs_named
from pyg_incremental.session.session import Session
from pyg_incremental.session.values import current


def inverse(
    session: Session,
    delta: GraphDelta,
    tables: Mapping[str, NameTable] | None = None,
    edges: EdgeIds | None = None,
) -> GraphDelta:
    """The delta that undoes `delta`, read off the current state, which stays as it is.

    Args:
        session: The running state.
        delta: The delta.
        tables: The names of the nodes by kind, by which both call them; none if they have none.
        edges: The ids of edges, likewise.
    """
    reading = InRows(tables, session, delta) if tables else None
    delta = delta if reading is None else reading.delta
    if edges is not None:
        delta = Identified(edges, session, delta).delta
    fields = _back(session, delta)
    if reading is None:
        back = written(session.roles, fields)
    else:
        back = _Named(session, reading, tables or {}).back(fields)
    return back if edges is None else edges.by_name(session, back)


def _back(session: Session, delta: GraphDelta) -> dict[str, dict[Any, Any]]:
    """The fields of the delta that undoes another one, by kind, input or graph."""
    roles, counts = session.roles, session.num_nodes
    back: dict[str, dict[Any, Any]] = {}
    if delta.values is not None:
        back["values"] = current(session, delta.values)
        delta = replace(delta, values=None)
    resolved, nodes = session.resolver.resolve(delta), session.nodes()
    for name, (ids, _) in resolved.rows.items():
        kept = ids[ids < counts[roles.nodes[name]]]
        if len(kept):
            back.setdefault("x_changes", {})[name] = (kept, nodes[name][kept].clone())
    for kind in roles.kinds:
        before, new = counts[kind], resolved.new_nodes.get(kind, 0)
        if new:
            back.setdefault("nodes_del", {})[kind] = torch.arange(before, before + new)
    for relation in roles.given:
        changes = resolved.edges.get(relation.graph)
        if changes is not None:
            ends = (counts[relation.source], counts[relation.target])
            graph = session.graphs[relation.graph]
            any_of_pair = delta.which == "oldest" or delta.tells_apart
            for field, value in changes.undone(graph, ends, any_of_pair).items():
                back.setdefault(field, {})[relation.key] = value
    return back


class _Named:
    """The way back where nodes have names: who came leaves, and who left comes again.

    Args:
        session: The running state.
        reading: The delta.
        tables: The names by kind.
    """

    def __init__(self, session: Session, reading: InRows, tables: Mapping[str, NameTable]) -> None:
        self._session, self._tables, self._changes = session, tables, reading.changes
        self._more = {kind: change.at() for kind, change in reading.changes.items()}

    def back(self, fields: dict[str, dict[Any, Any]]) -> GraphDelta:
        """The delta whose fields are these, by rows."""
        roles = self._session.roles
        relations = {r.key: r for r in roles.given}
        fields["x_changes"] = self._rows(fields.get("x_changes", {}))
        leave = fields.setdefault("nodes_del", {})
        come: dict[str, Any] = {}
        names: dict[str, Any] = {}
        for kind, change in self._changes.items():
            if change.named:
                leave[kind] = [*change.named]
            if change.gone:
                names[kind] = [*change.gone]
                come |= self._again(kind, [*change.gone.values()], fields["x_changes"])
        for name in [n for n, kind in roles.nodes.items() if kind in self._tables]:
            changes = fields["x_changes"].get(name)
            if changes is not None:
                kind = roles.nodes[name]
                ids = self._tables[kind].of(changes[0].numpy(), self._more.get(kind, {}))
                fields["x_changes"][name] = ids, changes[1]
        for field in ("edge_index_add", "edge_index_del"):
            for key, pairs in fields.get(field, {}).items():
                fields[field][key] = self._pairs(relations[key], pairs)
        for key, (pairs, data) in fields.get("edge_changes", {}).items():
            fields["edge_changes"][key] = self._pairs(relations[key], pairs), data
        fields |= {"x_add": come, "node_ids": names}
        return written(roles, {field: given for field, given in fields.items() if given})

    def _pairs(self, relation: Any, pairs: Tensor) -> Any:
        return pairs_named(self._tables, relation, pairs.numpy(), self._more)

    def _rows(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Rows that change back, but for those of nodes that come, which leave."""
        found = {}
        for name, (ids, rows) in changes.items():
            change = self._changes.get(self._session.roles.nodes[name])
            if change is not None:
                stays = ~torch.isin(ids, torch.tensor([*change.named.values()], dtype=torch.int64))
                ids, rows = ids[stays], rows[stays.to(rows.device)]
            if len(ids):
                found[name] = ids, rows
        return found

    def _again(self, kind: str, rows: list[int], changes: dict[str, Any]) -> dict[str, Any]:
        """The inputs of nodes that leave and are to come again, `[d, ...]`; no changes then."""
        at, come = torch.tensor(rows), {}
        for name, every in self._session.nodes().items():
            if self._session.roles.nodes[name] != kind:
                continue
            if name in changes:
                ids, values = changes.pop(name)
                stays = ~torch.isin(ids, at)
                if stays.any():
                    changes[name] = ids[stays], values[stays.to(values.device)]
            if not is_everyone(name):
                come[name] = every[at.to(every.device)].clone()
        return come
