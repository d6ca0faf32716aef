"""Deltas that call nodes by their names, and what is reported in these names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import as_ids
from pyg_incremental.delta.intake import Refused
from pyg_incremental.delta.names import NameTable, Renamed, listed, names_in
from pyg_incremental.delta.resolve.plain import described
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.program.steps import Domain
from pyg_incremental.session.edge_ids import EdgeIds, Identified
from pyg_incremental.session.in_rows import InRows, in_brackets, pairs_named, unknown
from pyg_incremental.session.inverse import inverse
from pyg_incremental.session.lazy_update import MarkedUpdate
from pyg_incremental.session.query import query_delta
from pyg_incremental.session.session import Session
from pyg_incremental.typing import Identifiers
from pyg_incremental.update import Update

_LISTS = (list, tuple)
_PLAIN = (Tensor, type(None))
_NOTHING: Mapping[str, Mapping[int, Any]] = {}
_PAIR = re.compile(r"edge \((-?\d+), (-?\d+)\)")


class Names:
    """The names of the nodes of a call, by kind, and the ids of its edges.

    Args:
        given: The names, `[num_nodes]` for each kind that has some.
        edges: The ids; None if edges have none.

    Attributes:
        tables: The names of each kind that has some.
        edges: The ids of edges.

    Raises:
        InvalidDeltaError: If they are no names, or one is there twice.
    """

    def __init__(self, given: Mapping[str, Any], edges: EdgeIds | None = None) -> None:
        self.edges = edges
        self.tables = {
            kind: NameTable(
                names_in(names, f"node_ids{in_brackets(kind)}"), f"node_ids{in_brackets(kind)}"
            )
            for kind, names in given.items()
        }
        self._pending: tuple[int, dict[str, Renamed]] | None = None
        self._main: tuple[Session, tuple[NameTable, NameTable] | None] | None = None

    @classmethod
    def of(cls, session: Session, given: Any, edges: Mapping[str, Any]) -> Names | None:
        """The names that come with a first call; None if none do.

        Args:
            session: What it has begun.
            given: The names of all nodes, `[num_nodes]`; with several kinds a dict by kind.
            edges: Ids of edges that are no integers; see `ids_taken_out`.

        Raises:
            InvalidDeltaError: If there are not as many as nodes, or one is there twice.
        """
        ids = EdgeIds(session, edges)
        if given is None and not ids.tables:
            return None
        made = cls(session.resolver.reader.by_kind(given, "node_ids"), ids if ids.tables else None)
        for kind, table in made.tables.items():
            if len(table) != session.num_nodes[kind]:
                raise InvalidDeltaError(
                    f"node_ids{in_brackets(kind)}: expected a name for each of the "
                    f"{session.num_nodes[kind]} nodes (got {len(table)})"
                )
        return made

    def saved(self, session: Session) -> tuple[dict[str, dict[str, Tensor]], ...]:
        """The names by kind, `[num_nodes]` each, and ids of edges; see `names_to_tensors`."""
        names = {kind: table.saved() for kind, table in self.tables.items()}
        return names, {} if self.edges is None else self.edges.saved(session)

    @classmethod
    def restored(
        cls,
        session: Session,
        saved: Mapping[str, Mapping[str, Tensor]],
        edges: Mapping[str, Mapping[str, Tensor]],
    ) -> Names | None:
        """The names as `saved` has returned them, `[num_nodes]` each; None if there are none.

        Args:
            session: The state that they belong to.
            saved: The names of nodes.
            edges: The ids of edges, as `EdgeIds.saved` has returned them.
        """
        ids = EdgeIds.restored(session, edges)
        made = cls({}, ids if ids.tables else None)
        made.tables = {kind: NameTable.restored(names) for kind, names in saved.items()}
        return made if made.tables or made.edges else None

    def free(self) -> dict[str, Ids]:
        """The rows that have no name by kind, int64 `[d]`, where there are any."""
        return {k: np.array(t.free, np.int64) for k, t in self.tables.items() if t.free}

    def moved(self, session: Session, ids: Mapping[str, Tensor]) -> Names:
        """The names where nodes have other rows, int64 `[num_nodes]` by kind; -1 for none."""
        made = Names({}, None if self.edges is None else self.edges.anew(session))
        made.tables = {k: table.moved(ids[k].numpy()) for k, table in self.tables.items()}
        return made

    def settle(self, session: Session) -> None:
        """Take in what an update has done to names that came to its end, or was interrupted."""
        pending = self._pending
        if self.edges is not None:
            self.edges.settle(session)
        if pending is not None:
            if pending[0] == session.committed.version:
                for kind, change in pending[1].items():
                    self.tables[kind].commit(change)
            self._pending = None

    # Deltas --------------------------------------------------------------------------------------

    def plain(
        self,
        session: Session,
        add: Any,
        gone: Any,
        changes: Any,
        come: Any = None,
        leave: Any = None,
    ) -> Any:
        """The most common parts of a delta by rows; None if they need a closer look.

        With ids of edges, `come` and `leave`, they are read to the end.
        """
        edges, by_id = self.edges, not (come is leave is None)
        if by_id and (edges is None or not (gone is changes is None)):
            return None
        if edges is not None and not by_id and (add is not None or type(gone) not in _PLAIN):
            return None
        if self.tables:
            parts = self._plain_in_rows(session, add, gone, changes)
            if parts is None:
                return None
            add, gone, changes = parts
        if by_id and edges is not None:
            return edges.plain(session, add, come, leave)
        return add, gone, changes

    def _plain_in_rows(
        self, session: Session, add: Any, gone: Any, changes: Any
    ) -> tuple[Any, Any, Any] | None:
        """The same where nodes have names."""
        main = self._main
        if main is None or main[0] is not session:
            main = self._main = session, self._ends_of_main(session)
        ends = main[1]
        if ends is None:
            return None
        source, target = ends[0].rows, ends[1].rows
        try:
            if add is not None:
                add = _plain_edges(add, source, target)
            if gone is not None:
                gone = _plain_edges(gone, source, target)
            if changes is not None:
                if type(changes) is not tuple or len(changes) != 2:
                    return None
                ids = listed(changes[0])
                if type(ids) is not list:
                    return None
                rows = np.array([source[name] for name in ids], np.int64)
                changes = torch.from_numpy(rows), changes[1]
        except (KeyError, TypeError, ValueError, IndexError):
            return None
        return add, gone, changes

    def _ends_of_main(self, session: Session) -> tuple[NameTable, NameTable] | None:
        """The names at both ends of the graph that deltas mean, where they need not say which."""
        roles = session.roles
        main = roles.main
        if main is None or not {main.target, *roles.kinds} == {main.source} <= self.tables.keys():
            return None
        return self.tables[main.source], self.tables[main.target]

    def read(
        self, session: Session, delta: GraphDelta
    ) -> tuple[GraphDelta, InRows | None, Identified | None]:
        """A delta in rows, and what was read in it: names of nodes, ids of edges.

        Raises:
            InvalidDeltaError: If a node or edge is not there, or there already.
        """
        reading = found = None
        if self.tables:
            reading = InRows(self.tables, session, delta)
            delta = reading.delta
        if self.edges is not None:
            found = Identified(self.edges, session, delta)
            delta = found.delta
        return delta, reading, found

    def about_to(self, version: int, reading: InRows | None, found: Identified | None) -> None:
        """Take notice of what an update that leads to some version does to names and ids."""
        changes = None if reading is None else reading.changes
        self._pending = (version, changes) if changes else None
        if found is not None and self.edges is not None:
            self.edges.about_to(version, found.changes)

    # What is asked for ---------------------------------------------------------------------------

    def rows(self, session: Session, value: Any, field: str, kinds: Iterable[str]) -> Any:
        """Nodes that are asked for, in rows: int64 `[k]`, or a dict by kind.

        Args:
            session: The running state.
            value: Names, or a dict of them by kind.
            field: What messages call them.
            kinds: Which kinds are meant where that is not said.

        Raises:
            InvalidDeltaError: If one is not there.
        """
        if isinstance(value, Mapping):
            reader = session.resolver.reader
            return {k: self.rows_of(k, v, field) for k, v in reader.by_kind(value, field).items()}
        meant = [*kinds]
        return self.rows_of(meant[0], value, field) if len(meant) == 1 else value

    def rows_of(self, kind: str, value: Any, field: str) -> Any:
        """The rows of nodes of a kind, int64 `[k]`; as they come if these have no names.

        Raises:
            InvalidDeltaError: If one is not there.
        """
        table = self.tables.get(kind)
        if table is None or (isinstance(value, Tensor) and value.dtype is torch.bool):
            return value
        names = names_in(value, field)
        missing = [at for at, name in enumerate(names) if name not in table.rows]
        if missing:
            raise unknown(names[missing[0]], field, missing)
        return torch.tensor([table.rows[name] for name in names], dtype=torch.int64)

    # What is reported ----------------------------------------------------------------------------

    def told(
        self, session: Session, update: Update[Any], changes: Mapping[str, Renamed]
    ) -> Update[Any]:
        """An update with names in the place of rows.

        Args:
            session: The state after it.
            update: What it says.
            changes: What it has done to names.
        """
        if not self.tables or isinstance(update, MarkedUpdate):
            return update
        only, more = session.outputs.only, _NOTHING
        if changes:
            more = {kind: change.at() for kind, change in changes.items()}
        update.rows = rows = update.changed
        if only is not None:
            kind = only.value.kind
            table = self.tables.get(kind)
            if table is not None:
                update.changed = table.of(rows.numpy(), more.get(kind) if more else None)
            return update
        values = {
            value.kind: value for value in session.program.outputs if value.domain is Domain.NODE
        }
        relations = {r.graph: r for r in session.roles.given}

        def named(ids: Any, kind: Any) -> Any:
            if kind not in values or kind not in self.tables or not isinstance(ids, Tensor):
                return ids
            return self.tables[kind].of(ids.numpy(), more.get(kind))

        def ends(pairs: Any, kind: Any) -> Any:
            relation = relations.get(kind)
            if relation is None or not isinstance(pairs, Tensor):
                return pairs
            return pairs_named(self.tables, relation, pairs.numpy(), more)

        update.changed = pytree.tree_map(named, update.changed, session.outputs.kinds)
        if update.changed_edges is not None:
            update.changed_edges = pytree.tree_map(
                ends, update.changed_edges, session.outputs.kinds
            )
        return update

    def refused(
        self, session: Session, refused: Iterable[Refused], reading: InRows
    ) -> list[Refused]:
        """What was left out of a delta, in names."""
        return [
            Refused(
                r.what,
                r.position,
                reading.why_unknown(r.what, r.position) or self.in_words(session, r.reason),
            )
            for r in refused
        ]

    def by_name(self, session: Session, delta: GraphDelta) -> GraphDelta:
        """Deletions by rows, by names."""
        reader, relations = session.resolver.reader, {r.key: r for r in session.roles.given}
        nodes = {
            kind: self.tables[kind].of(as_ids(ids, "nodes_del")) if kind in self.tables else ids
            for kind, ids in reader.by_kind(delta.nodes_del, "nodes_del").items()
        }
        every: Any = reader.edges_by_graph(delta)
        edges = {
            key: pairs_named(self.tables, relations[key], own.edge_index_del.numpy(), _NOTHING)
            for key, own in every.items()
        }
        named: dict[str, Any] = {}
        for field, found in (("nodes_del", nodes), ("edge_index_del", edges)):
            keyed = isinstance(getattr(delta, field), Mapping)
            named[field] = (found if keyed else next(iter(found.values()))) if found else None
        return replace(delta, **named)

    def in_words(self, session: Session, text: str) -> str:
        """A message with the names of edges in the place of their rows."""
        given = session.roles.given
        labels = {r.graph: session.resolver.reader.edges[r.graph].label for r in given}
        named = [r for r in given if labels[r.graph] and labels[r.graph] in text]
        relation = named[0] if named else session.roles.main

        def pair(found: re.Match[str]) -> str:
            assert relation is not None
            ends = [
                self._word(kind, int(row))
                for kind, row in zip(
                    (relation.source, relation.target), found.groups(), strict=True
                )
            ]
            return f"edge ({', '.join(ends)})"

        return text if relation is None else _PAIR.sub(pair, text)

    def _word(self, kind: str, row: int) -> str:
        table = self.tables.get(kind)
        return repr(table.names[row]) if table is not None and 0 <= row < len(table) else str(row)


def _plain_edges(value: Any, source: Mapping[Any, int], target: Mapping[Any, int]) -> Tensor:
    """Edges in rows, int64 `[2, k]`.

    Raises:
        KeyError: If there is no such name, or what it means takes a closer look.
    """
    lists = listed(value)
    if type(lists) is not list or len(lists) != 2:
        raise KeyError
    src, dst = lists
    if type(src) not in _LISTS or type(dst) not in _LISTS or (len(src) == 2 and value is lists):
        raise KeyError
    rows = np.array([[source[name] for name in src], [target[name] for name in dst]], np.int64)
    return torch.from_numpy(rows)


def taken_out(model: nn.Module, kwargs: dict[str, Any]) -> Any:
    """The names among the arguments of a first call, unless the model takes some itself."""
    if "node_ids" in kwargs and "node_ids" not in inspect.signature(model.forward).parameters:
        return kwargs.pop("node_ids")
    return None


class ByName:
    """The part of an `IncrementalModel` that knows names."""

    _names: Names | None

    @property
    def node_ids(self: Any) -> NDArray[np.object_] | Any:
        """The name of each row of the output, `[num_nodes]`, None for a row that has none.

        A dict if there are several kinds of nodes; None if the first call gave no names.
        """

        def look() -> Any:
            names = self._settled(self._held())
            if names is None:
                return None
            found = {kind: table.names.copy() for kind, table in names.tables.items()}
            return found[""] if [*found] == [""] else found or None

        return self._rwlock.read(look)

    @property
    def edge_ids(self: Any) -> Identifiers | Any:
        """The id of each edge in their order, `[num_edges]`: a tensor of integers, or an array.

        A dict if there are several graphs; None if the first call gave no ids.
        """

        def look() -> Any:
            names = self._settled(self._held())
            known = None if names is None else names.edges
            return None if known is None else known.of_all(self._held())

        return self._rwlock.read(look)

    @property
    def node_rows(self: Any) -> Any:
        """The row of each name, live: for the thread that applies deltas.

        A dict by node type, if there are several; None if the first call gave no names.
        """
        names = self._settled(self._held()) if self._names is not None else None
        if names is None or not names.tables:
            return None
        found = {kind: table.rows for kind, table in names.tables.items()}
        return found[""] if [*found] == [""] else found

    def _settled(self: Any, session: Session) -> Names | None:
        """The names as of the current version."""
        names: Names | None = self._names
        if names is not None:
            names.settle(session)
        return names

    def _in_rows(self: Any, session: Session, value: Any, field: str, kinds: Any = None) -> Any:
        """Nodes that are asked for, in rows, int64 `[k]` or by kind."""
        names = self._settled(session)
        if names is None or value is None:
            return value
        return names.rows(session, value, field, session.roles.kinds if kinds is None else kinds)

    def _back(self: Any, session: Session, delta: GraphDelta) -> GraphDelta:
        """The delta that undoes another one, both by names if the nodes have some."""
        names = self._settled(session)
        if names is None:
            return inverse(session, delta)
        return inverse(session, delta, names.tables, names.edges)

    def _tried(
        self: Any, session: Session, delta: GraphDelta
    ) -> tuple[GraphDelta, Callable[[Update[Any]], Update[Any]]]:
        """A delta in rows, and what makes names of the rows in what it would do."""
        names = self._settled(session)
        if names is None:
            return delta, lambda update: update
        delta, reading, _ = names.read(session, delta)
        changes = {} if reading is None else reading.changes
        return delta, lambda update: names.told(session, update, changes)

    def _asked(
        self: Any, session: Session, ids: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[GraphDelta, Callable[[Update[Any]], Update[Any]], bool]:
        """The delta that would watch some ids, by rows; see `query_delta`."""
        names = self._settled(session)
        rows_of = None if names is None else names.rows_of
        delta, whole = query_delta(session, ids, named, rows_of)
        return delta, lambda update: update, whole

    def _apply_by_name(
        self: Any,
        parts: tuple[Any, ...] | None,
        delta: GraphDelta | None,
        delta_id: Any,
        began: float,
        old: bool,
    ) -> Update[Any]:
        """Apply a delta that calls nodes by their names."""
        session = self._held()
        names = self._settled(session)
        reading = found = None
        by_id = delta.parts_by_id if parts is None and delta is not None else parts
        plain = None if by_id is None else names.plain(session, *by_id)
        if plain is None:
            delta, reading, found = names.read(session, delta or described(parts))
            plain = delta.plain_parts
            names.about_to(session.committed.version + 1, reading, found)
        elif delta is not None:
            delta = None  # that of which these are parts is by name
        try:
            update: Update = self._applied(plain, delta, delta_id, began, old)
        except InvalidDeltaError as error:
            said = names.in_words(session, str(error))
            raise InvalidDeltaError(said, what=error.what, positions=error.positions) from error
        update = names.told(self._session, update, {} if reading is None else reading.changes)
        if reading is not None and update.refused:
            update.refused = names.refused(session, update.refused, reading)
        if found is not None and found.refused:
            update.refused = [*update.refused, *found.refused]
        if found is not None:
            names.settle(self._session)
        if names.edges is not None and update.changed_edges is not None:
            names.edges.tell(self._session, update)
        if reading is not None and reading.changes:
            names.settle(self._session)
            self._removed.forget(names.tables)
        return update
