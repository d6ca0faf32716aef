"""Edges that have ids: deltas name them by these alone, and they are told of by these."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pyg_incremental.call.objects import name_in
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import added_data, as_edges, deleted_data
from pyg_incremental.delta.intake import Refused
from pyg_incremental.delta.names import (
    NAMES,
    listed,
    names_in,
    names_of_tensors,
    names_to_tensors,
)
from pyg_incremental.delta.resolve.plain import PlainDelta
from pyg_incremental.delta.tables import is_table
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.graph.parallel import find_alike, find_removed, occurrences
from pyg_incremental.program.steps import Relation
from pyg_incremental.session.session import Session
from pyg_incremental.update import Update

FIELD = "edge_ids"
"""What ids are called, in the first call and among the data of edges."""
SLACK = 1024
"""Ids of edges that have left with their nodes or by their ends, which are not looked for yet."""
_NONE: Ids = np.empty(0, np.int64)
_NO_EDGES: Ids = np.empty((2, 0), np.int64)
_NO_DATA: Mapping[str, Tensor] = {}
_NOBODY: Set[int] = frozenset()
_GONE = _NONE, _NONE
_LOW = 0xFFFFFFFF
_FEW = 64


@dataclass
class Renumbered:
    """What a delta does to the ids of one graph.

    Attributes:
        come: The keys of new ids, and the ends of their edges.
        both: Those of which either direction of an edge comes.
        gone: The ids that leave.
    """

    come: dict[Any, tuple[int, int]] = field(default_factory=dict)
    both: Set[int] = field(default_factory=set)
    gone: list[Any] = field(default_factory=list)


class EdgeTable:
    """The ids of the edges of one graph.

    Beside each edge stands its key, an integer: the id itself where all are integers, else a number
    that is given to it. An id finds the ends of its edge in a Python dict, and there the key tells
    it from others of its pair. What has left without being named by its id is still in the dict;
    it is looked for, and not found, and once there is much of it the dict is made anew.

    Args:
        graph: The graph.
        data: The name of the keys among its data.
        names: The ids, ascending by their keys; None if the keys are the ids.
        label: What messages put behind the name of a field.

    Raises:
        InvalidDeltaError: If one names two edges that are not the directions of one.
    """

    def __init__(
        self, graph: DynamicGraph, data: str, names: Sequence[Any] | None, label: str = ""
    ) -> None:
        self.data, self.label, self.are_keys = data, label, names is None
        self._names: dict[int, Any] = {}
        keys, ends = self._there(graph)
        if names is not None:
            self._names = dict(zip(sorted({*keys}), names, strict=True))
        self._next = max(self._names, default=-1) + 1
        self._hold(keys, ends)

    def _hold(self, keys: list[int], ends: list[int]) -> None:
        """Make the dicts of keys and the ends of their edges, a number each."""
        self._ends, self._both = dict(zip(keys, ends, strict=True)), set[int]()
        self._keys = {name: key for key, name in self._names.items()}
        if len(self._ends) < len(keys):
            self._hold_both(keys, ends)

    def _hold_both(self, keys: list[int], ends: list[int]) -> None:
        """The same where edges have an id in common, as both directions of one may."""
        found: dict[int, list[int]] = {}
        for key, pair in zip(keys, ends, strict=True):
            found.setdefault(key, []).append(pair)
        for key, pairs in found.items():
            first, *others = pairs
            if others and (others != [(first & _LOW) << 32 | first >> 32] or others == [first]):
                raise self._twice(self.name_of(key))
            if others:
                self._both.add(key)
        self._ends = {key: pairs[0] for key, pairs in found.items()}

    def _twice(self, name: Any) -> InvalidDeltaError:
        return InvalidDeltaError(
            f"{FIELD}{self.label}: {name!r} names two edges; give each its own id, or the same to "
            "both directions of one"
        )

    def _there(self, graph: DynamicGraph) -> tuple[list[int], list[int]]:
        """The keys of all edges, and their ends in a number each, in the order of the edges."""
        slots = graph.slots_in_order()
        edges = graph.edges(slots)
        keys: list[int] = graph.edge_data[self.data][torch.from_numpy(slots)].cpu().tolist()
        return keys, (edges.src << 32 | edges.dst).tolist()

    def name_of(self, key: int) -> Any:
        """The id that a key stands for."""
        return key if self.are_keys else self._names.get(key)

    def named(self, graph: DynamicGraph, slots: Ids) -> Any:
        """The ids of some edges, int64 `[k]`: a tensor if all are integers, else an array."""
        keys = graph.edge_data[self.data][torch.from_numpy(slots)].cpu()
        if self.are_keys:
            return keys
        found = np.empty(slots.size, object)
        found[:] = [self._names[key] for key in keys.tolist()]
        return found

    # Looking for edges ---------------------------------------------------------------------------

    def key_of(self, name: Any) -> int | None:
        """The key of an id; None if there is none."""
        return (name if name in self._ends else None) if self.are_keys else self._keys.get(name)

    def leaving(self, graph: DynamicGraph, names: Sequence[Any]) -> Ids | None:
        """The ends, int64 `[2, k]`, of the edges of distinct ids, each the youngest of its pair.

        None if that is not so, an id is unknown, or of both directions of an edge.
        """
        found, keys = np.empty((2, len(names)), np.int64), list[Any]()
        for at, name in enumerate(names):
            if type(name) not in NAMES:
                return None
            key: Any = name if self.are_keys else self._keys.get(name)
            pair = self._ends.get(key)
            if pair is None or (self._both and key in self._both):
                return None
            keys.append(key)
            found[0, at], found[1, at] = pair >> 32, pair & _LOW
        slots = graph.accept(_NO_EDGES, found, _NONE, graph.num_nodes)
        if slots is None:
            return None
        held = graph.edge_data[self.data].numpy()
        for slot, key in zip(slots.tolist(), keys, strict=True):
            if held[slot] != key:
                return None
        return found

    def coming(self, names: Sequence[Any]) -> list[int] | None:
        """Keys for distinct new ids; None if one is not new, or of another kind."""
        known: Mapping[Any, int] = self._ends if self.are_keys else self._keys
        for name in names:
            if type(name) not in NAMES or name in known:
                return None
            if self.are_keys and (type(name) is not int or not -(2**63) <= name < 2**63):
                return None
        if len(names) > 1 and len({*names}) < len(names):
            return None
        return [*names] if self.are_keys else [*range(self._next, self._next + len(names))]

    def find(self, graph: DynamicGraph, name: Any) -> list[int]:
        """The slots of the edges that an id names, none if it has left."""
        key = self.key_of(name)
        if key is None:
            return []
        pair = self._ends[key]
        u, v = pair >> 32, pair & _LOW
        ways = [(u, v), (v, u)] if key in self._both else [(u, v)]
        return [slot for way in ways if (slot := self._slot(graph, key, *way)) >= 0]

    def _slot(self, graph: DynamicGraph, key: int, u: int, v: int) -> int:
        """The slot of the edge of a pair that has a key, -1 for none."""
        if max(u, v) >= graph.num_nodes:
            return -1
        src, dst, keys = np.array([u]), np.array([v]), graph.edge_data[self.data]
        slot = int(graph.find(src, dst)[0])
        if slot < 0 or int(keys[slot]) == key:
            return slot
        every = occurrences(graph, src, dst)[1].tolist()
        return next((s for s in every if int(keys[s]) == key), -1)

    def new_keys(self, names: Sequence[Any], what: str) -> list[int]:
        """Keys for ids that come.

        Raises:
            InvalidDeltaError: If an id is not of the kind of the others.
        """
        if not self.are_keys:
            return [*range(self._next, self._next + len(names))]
        for at, name in enumerate(names):
            if not isinstance(name, int) or not -(2**63) <= name < 2**63:
                raise InvalidDeltaError(
                    f"{what}: expected integers of 64 bits, as in the first call (got {name!r} at "
                    f"position {at})",
                    what=what,
                    positions=[at],
                )
        return [*names]

    # Changes -------------------------------------------------------------------------------------

    def commit(self, change: Renumbered, graph: DynamicGraph) -> None:
        """Take in what an update has done; a second time, it does nothing."""
        known: Mapping[Any, int] = self._ends if self.are_keys else self._keys
        for name in (*change.gone, *change.come):
            if name in known:
                self._forget(name if self.are_keys else known[name])
        for name, (key, pair) in change.come.items():
            self._ends[key] = pair
            if not self.are_keys:
                self._keys[name], self._names[key] = key, name
                self._next = max(self._next, key + 1)
        if change.both:
            self._both |= change.both
        if len(self._ends) > 2 * graph.num_edges + SLACK:
            self.anew(graph)

    def _forget(self, key: int) -> None:
        del self._ends[key]
        self._both.discard(key)
        if not self.are_keys:
            del self._keys[self._names.pop(key)]

    def anew(self, graph: DynamicGraph) -> None:
        """Read the ends of all edges again; ids stay."""
        keys, ends = self._there(graph)
        self._names = {key: self._names[key] for key in sorted({*keys})} if self._names else {}
        self._hold(keys, ends)

    def saved(self, graph: DynamicGraph) -> dict[str, Tensor] | None:
        """The ids, `[num_ids]`, as tensors, ascending by their keys; None if these are the ids."""
        keys = sorted({*self._there(graph)[0]})
        return None if self.are_keys else names_to_tensors([self._names[key] for key in keys])


class EdgeIds:
    """The ids of the edges of a call, by graph.

    Args:
        session: The running state.
        names: The ids, ascending by their keys, by the name of these; none where keys are the ids.

    Attributes:
        tables: The ids of each graph whose edges have some.
        relations: The graphs by the keys by which deltas know them.
        alone: The graph that deltas mean where they do not say it, if it is the only one with ids.
    """

    alone: tuple[str, EdgeTable] | None

    def __init__(self, session: Session, names: Mapping[str, Sequence[Any]]) -> None:
        self.tables: dict[str, EdgeTable] = {}
        roles = session.roles
        self.relations = {r.key: r for r in roles.given}
        for r in roles.given:
            data = [n for n, graph in roles.edges.items() if graph == r.graph and holds_ids(n)]
            if data and FIELD in session.plan.site.beside:
                label = session.resolver.reader.edges[r.graph].label
                graph = session.graphs[r.graph]
                self.tables[r.graph] = EdgeTable(graph, data[0], names.get(data[0]), label)
        self._pending: tuple[int, dict[str, Renumbered]] | None = None
        main, self.alone = roles.main, None
        if main is not None and [*self.tables] == [main.graph]:
            self.alone = main.graph, self.tables[main.graph]

    def anew(self, session: Session) -> EdgeIds:
        """The same once nodes have other rows."""
        for graph, table in self.tables.items():
            table.anew(session.graphs[graph])
        return self

    def saved(self, session: Session) -> dict[str, dict[str, Tensor]]:
        """The ids that are not integers by the name of their keys; see `EdgeTable.saved`."""
        found = {t.data: t.saved(session.graphs[graph]) for graph, t in self.tables.items()}
        return {data: names for data, names in found.items() if names is not None}

    @classmethod
    def restored(cls, session: Session, saved: Mapping[str, Mapping[str, Tensor]]) -> EdgeIds:
        """The ids as `saved` has returned them, `[num_ids]` each."""
        return cls(session, {data: names_of_tensors(names) for data, names in saved.items()})

    def plain(
        self, session: Session, edge_index_add: Any, edge_ids_add: Any, edge_ids_del: Any
    ) -> PlainDelta | None:
        """A delta of few edges that come with their ids, or leave by these, in one look.

        What it does to ids is taken notice of. None if there is more to it.
        """
        resolver, come, leave = session.plain_resolver, edge_ids_add, edge_ids_del
        if self.alone is None or resolver is None or not _are_few(come) or not _are_few(leave):
            return None
        graph, table = self.alone
        if resolver.graph is not session.graphs[graph] or (come is None) != (
            edge_index_add is None
        ):
            return None
        gone = _NO_EDGES if leave is None else table.leaving(resolver.graph, leave)
        keys = [] if come is None else table.coming(come)
        if gone is None or keys is None:
            return None
        data = (
            _NO_DATA if come is None else {table.data: torch.from_numpy(np.array(keys, np.int64))}
        )
        plain = resolver.keyed(edge_index_add, gone, data)
        if plain is None or plain.added.shape[1] != len(keys):
            return None
        new = {}
        if come is not None:
            each = zip(come, keys, *plain.added.tolist(), strict=True)
            new = {name: (key, u << 32 | v) for name, key, u, v in each}
        self._pending = (
            session.committed.version + 1,
            {graph: Renumbered(new, _NOBODY, leave or [])},
        )
        return plain

    def about_to(self, version: int, changes: dict[str, Renumbered]) -> None:
        """Take notice of what an update that leads to some version does to ids."""
        self._pending = (version, changes) if changes else None

    def settle(self, session: Session) -> None:
        """Take in what an update has done to ids that came to its end, or was interrupted."""
        pending, self._pending = self._pending, None
        if pending is not None and pending[0] == session.committed.version:
            for graph, change in pending[1].items():
                self.tables[graph].commit(change, session.graphs[graph])

    def of_all(self, session: Session) -> Any:
        """The id of each edge, in their order; by graph if there are several."""
        found = {}
        for r in session.roles.given:
            if r.graph in self.tables:
                graph = session.graphs[r.graph]
                found[r.key] = self.tables[r.graph].named(graph, graph.slots_for_model())
        main = session.roles.main
        return found[main.key] if main is not None and [*found] == [main.key] else found

    def tell(self, session: Session, update: Update[Any]) -> None:
        """Let an update that is in tell of the ids of the edges whose rows have changed."""

        def named(rows: Any, kind: Any) -> Any:
            table = self.tables.get(kind)
            if table is None or not isinstance(rows, Tensor):
                return None
            graph = session.graphs[kind]
            return table.named(graph, graph.slots_for_model()[rows.numpy()])

        update.changed_edge_ids = pytree.tree_map(named, update.changed, session.outputs.kinds)

    def by_name(self, session: Session, delta: GraphDelta) -> GraphDelta:
        """A delta whose new edges have keys, with their ids."""
        relations, data = self.relations, delta.edge_data_add
        if data is None:
            return delta
        main, parts = session.roles.main, dict[str, Any]()
        keyed = isinstance(data, Mapping) and all(isinstance(v, Mapping) for v in data.values())
        every: Any = data if keyed else {None if main is None else main.key: data}
        ids, rest = {}, {}
        for key, given in every.items():
            table = self.tables.get(relations[key].graph)
            left = dict(given)
            if table is not None and (name := _found(left, FIELD)) is not None:
                ids[key] = [table.name_of(k) for k in left.pop(name).tolist()]
            rest[key] = left
        parts["edge_ids_add"] = ids if keyed else next(iter(ids.values()), None)
        rest = {key: left for key, left in rest.items() if left}
        parts["edge_data_add"] = (rest if keyed else next(iter(rest.values()), None)) or None
        return replace(delta, **parts)


class Identified:
    """A delta that calls edges by their ends and keys, and what it does to ids.

    Args:
        ids: The ids by graph.
        session: The running state.
        delta: The delta; its nodes are rows.

    Attributes:
        delta: The same without ids.
        changes: What it does to the ids of each graph.
        refused: Ids that name no edge, where these are left out.

    Raises:
        InvalidDeltaError: If an id names no edge, or one that comes is there already.
    """

    def __init__(self, ids: EdgeIds, session: Session, delta: GraphDelta) -> None:
        self._session, self.changes, self.refused = (
            session,
            dict[str, Renumbered](),
            list[Refused](),
        )
        relations, parts = ids.relations, dict[str, Any]()
        for key, own in session.resolver.reader.edges_by_graph(delta).items():
            r = relations[key]
            table = ids.tables.get(r.graph)
            if table is None:
                continue
            change, found = Renumbered(), dict[str, Any]()
            if own.edge_ids_del is not None:
                found |= self._leaving(own, table, r, change)
            elif own.edge_data_del is not None or is_table(own.edge_index_del):
                found |= self._told_apart(own, table)
            if own.edge_index_add is not None:
                found |= self._coming(replace(own, **found) if found else own, table, r, change)
            if change.come or change.gone:
                self.changes[r.graph] = change
            if own is delta:
                parts |= found
            else:  # it is said by graph
                for name, value in found.items():
                    said = parts.setdefault(name, dict(getattr(delta, name) or {}))
                    said[key] = value
                    if value is None:
                        del said[key]
        for name in [n for n, said in parts.items() if type(said) is dict and not said]:
            parts[name] = None
        self.delta = replace(delta, **parts) if parts else delta

    def _leaving(
        self, own: GraphDelta, table: EdgeTable, r: Relation, change: Renumbered
    ) -> dict[str, Any]:
        """The edges that leave by their ids alone."""
        what = f"edge_ids_del{table.label}"
        if own.edge_index_del is not None:
            raise InvalidDeltaError(
                f"{what}: edges leave by their ids or by their ends (got both); give ids alone, or "
                f"edge_index_del with edge_data_del={{{FIELD!r}: ids}}"
            )
        graph = self._session.graphs[r.graph]
        change.gone = names_in(own.edge_ids_del, what)
        slots: list[int] = []
        for at, name in enumerate(change.gone):
            found = table.find(graph, name)
            if own.undirected:  # the other direction is written out where it is read
                found = found[:1]
            if not found and own.missing != "ignore":
                reason = f"{what}: there is no edge {name!r} (position {at}); see inc.{FIELD}"
                if own.invalid != "skip":
                    raise InvalidDeltaError(reason, what=what, positions=[at])
                self.refused.append(Refused(what, at, reason))
            slots += found
        if len({*change.gone}) < len(change.gone):
            raise InvalidDeltaError(f"{what}: an id is given twice; give each edge once")
        edges = graph.edges(np.array(slots, np.int64))
        pairs = np.stack([edges.src, edges.dst]) if slots else np.empty((2, 0), np.int64)
        found_parts: dict[str, Any] = {
            "edge_ids_del": None, "edge_index_del": torch.from_numpy(pairs),
        }  # fmt: skip
        youngest = graph.find(pairs[0], pairs[1]) if slots else _NONE
        if own.undirected or own.which == "oldest" or youngest.tolist() != slots:
            keys = graph.edge_data[table.data][torch.tensor(slots, dtype=torch.int64)]
            found_parts["edge_data_del"] = {FIELD: keys}
        return found_parts

    def _told_apart(self, own: GraphDelta, table: EdgeTable) -> dict[str, Any]:
        """The keys of edges that leave by their ends and ids."""
        if table.are_keys:
            return {}
        what, given = f"edge_data_del{table.label}", dict(deleted_data(own.edge_data_del))
        columns: Any = own.edge_index_del
        name = _found(given, FIELD)
        if name is None and is_table(columns) and FIELD in columns.columns:
            name, given = FIELD, {**given, FIELD: columns[FIELD]}
        if name is None:
            return {}
        keys = [table.key_of(n) for n in names_in(given[name], what)]
        given[name] = torch.tensor([-1 if key is None else key for key in keys])
        return {"edge_data_del": given}

    def _coming(
        self, own: GraphDelta, table: EdgeTable, r: Relation, change: Renumbered
    ) -> dict[str, Any]:
        """The keys of edges that come with their ids."""
        what, given = f"edge_ids_add{table.label}", dict(added_data(own.edge_data_add))
        columns: Any = own.edge_index_add
        name, ids = _found(given, FIELD), own.edge_ids_add
        if ids is None and name is not None:
            ids = given.pop(name)
        elif ids is None and is_table(columns) and FIELD in columns.columns:
            ids = columns[FIELD]
        edges = as_edges(columns, f"edge_index_add{table.label}")
        names = [] if ids is None else names_in(ids, what)
        if len(names) != edges.shape[1]:
            raise InvalidDeltaError(
                f"{what}: expected an id for each of the {edges.shape[1]} edges that come (got "
                f"{len(names)})"
            )
        keys = table.new_keys(names, what)
        ends = (edges[0] << 32 | edges[1]).tolist()
        leave: set[Any] | None = None
        for at, (n, key, pair) in enumerate(zip(names, keys, ends, strict=True)):
            there = n in change.come
            if not there and table.key_of(n) is not None and n not in change.gone:
                graph = self._session.graphs[r.graph]
                if found := table.find(graph, n):
                    leave = self._slots_left(own, graph) if leave is None else leave
                    there = not leave.issuperset(found)
            if there:
                raise InvalidDeltaError(
                    f"{what}: there is an edge {n!r} already (position {at}); change it with "
                    "edge_changes, or delete it first",
                    what=what,
                    positions=[at],
                )
            change.come[n] = key, pair
        if own.undirected:
            change.both = change.both | {
                key for key, pair in zip(keys, ends, strict=True) if pair >> 32 != pair & _LOW
            }
        like = self._session.graphs[r.graph].edge_data[table.data]
        rows = torch.tensor(keys, dtype=like.dtype, device=like.device)
        return {"edge_ids_add": None, "edge_data_add": {**given, table.data: rows}}

    def _slots_left(self, own: GraphDelta, graph: DynamicGraph) -> set[Any]:
        """The slots of the edges that a delta deletes."""
        if own.edge_index_del is None:
            return set()
        src, dst = as_edges(own.edge_index_del, "edge_index_del")
        oldest, data = own.which == "oldest", deleted_data(own.edge_data_del)
        if data:
            rows = {_found(graph.edge_data, n) or n: torch.as_tensor(v) for n, v in data.items()}
            return {*find_alike(graph, src, dst, rows, _GONE, oldest)[0].tolist()}
        return {*find_removed(graph, src, dst, _GONE, oldest)[0].tolist()}


def _are_few(ids: Any) -> bool:
    """Whether these are a list of a few ids, or none."""
    return ids is None or (type(ids) is list and len(ids) <= _FEW)


def holds_ids(name: str) -> bool:
    """Whether an edge input holds ids."""
    return name.rpartition("/")[2] == FIELD


def _found(given: Mapping[str, Any], short: str) -> str | None:
    """The name under which something is there that may be called by the argument alone."""
    return next((n for n in given if n == short or n.rpartition("/")[2] == short), None)


def ids_taken_out(model: nn.Module, kwargs: dict[str, Any]) -> dict[str, list[Any]]:
    """The ids among the arguments of a first call that are no integers; keys stand for them there.

    Args:
        model: The model; if it takes such an argument itself, it gets what is there.
        kwargs: The arguments.

    Returns:
        The ids, ascending by their keys, by the name that these have in the call.

    Raises:
        InvalidDeltaError: If some are no ids.
    """
    given = kwargs.get(FIELD)
    if given is None or FIELD in inspect.signature(model.forward).parameters:
        return {}
    found: dict[str, list[Any]] = {}

    def keys(ids: Any, name: str) -> Tensor:
        if isinstance(ids, Tensor):
            if ids.is_floating_point() or ids.is_complex() or ids.dtype is torch.bool:
                raise InvalidDeltaError(f"{FIELD}: expected integers or names (got {ids.dtype})")
            return ids.to(torch.int64)
        names = names_in(listed(ids), FIELD)
        if all(isinstance(n, int) for n in names):
            return torch.tensor(names, dtype=torch.int64)
        numbers: dict[Any, int] = {}
        made = [numbers.setdefault(n, len(numbers)) for n in names]
        found[name] = [*numbers]
        return torch.tensor(made, dtype=torch.int64)

    if isinstance(given, Mapping):
        kwargs[FIELD] = {kind: keys(ids, name_in(FIELD, kind)) for kind, ids in given.items()}
    else:
        kwargs[FIELD] = keys(given, FIELD)
    return found
