"""A run of events as one delta that does what they do one after the other."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import Ids
from pyg_incremental.stream.naming import Numbered
from pyg_incremental.stream.schema import Columns, Kind, OfKind, Schema

_NONE: Ids = np.empty(0, np.int64)
_FIELDS = {
    "edge_add": "edge_index_add", "edge_del": "edge_index_del", "edge_change": "edge_changes",
    "node": "x_changes", "node_del": "nodes_del",
}  # fmt: skip


class Changes(NamedTuple):
    """What some events do.

    Attributes:
        delta: The delta; None if they cancel each other.
        taken: How many of the events are in it, from the first one on.
        places: For each field of the delta which event each entry is, int64 `[k]`.
        refused: What is wrong with events that are left out, by their places.
        of: What is in the delta, by kind of event, with nodes by number.
        called: The names of these nodes, if nodes have names.
        born: The first row that is known of each new node; of several, the delta has the last.
    """

    delta: GraphDelta | None
    taken: int
    places: dict[str, Ids]
    refused: dict[int, str]
    of: Mapping[Kind, OfKind]
    called: Mapping[int, Any] | None
    born: Sequence[Any] = ()


def changes_of(
    schema: Schema, columns: Columns, count: int, num_nodes: int, named: Numbered | None = None
) -> Changes:
    """One delta for as many of the events as one can say.

    It ends before an event of which the effect depends on the graph after those before it: a new
    edge of a pair that was changed, an event of a node that was removed, or the deletion of the
    oldest edge of a pair of which another one came.

    Args:
        schema: Which field is what.
        columns: What the events say.
        count: How many there are.
        num_nodes: How many nodes the graph has before them.
        named: What names stand for, if nodes have names; `columns` are those of it.
    """
    of = dict(columns.of)
    refused: dict[int, str] = {}
    new = _NONE if named is None else named.born
    if named is None and "node" in of and (of["node"].ids >= num_nodes).any():
        of["node"], new, refused = _new_nodes(of["node"], num_nodes)
    of = {kind: _known_nodes(own, num_nodes, new, refused) for kind, own in of.items()}
    if named is not None:
        refused = dict.fromkeys(refused, "it names a node that is not there")
    taken = _conflict(schema, of, count)
    if taken < count:
        of = {kind: _first(own, taken) for kind, own in of.items()}
        new = new[new < taken]
        refused = {at: reason for at, reason in refused.items() if at < taken}
    if "edge_add" in of and "edge_del" in of:
        of["edge_add"], of["edge_del"] = _without_cancelled(
            of["edge_add"], of["edge_del"], schema.undirected
        )
    called = None if named is None else named.called
    fields, places = _fields(schema, of, num_nodes, new, called)
    given = bool(fields)
    if schema.which == "oldest" and ("edge_index_del" in fields or "edge_changes" in fields):
        fields["which"] = "oldest"
    delta = GraphDelta(**fields) if given else None
    return Changes(delta, taken, places, refused, of, called, _first_rows(schema, of, new))


def _first_rows(schema: Schema, of: Mapping[Any, OfKind], new: Ids) -> list[Any]:
    """The row that each new node has from the event that brings it."""
    if "node" not in of:
        return [schema.new_x] * new.size
    own = of["node"]
    place = {at: n for n, at in enumerate(own.at.tolist())}
    rows = own.data["x"]
    return [rows[place[at]] if at in place else schema.new_x for at in new.tolist()]


def _fields(
    schema: Schema,
    of: dict[Any, OfKind],
    num_nodes: int,
    new: Ids,
    called: Mapping[int, Any] | None,
) -> tuple[dict[str, Any], dict[str, Ids]]:
    """The fields of the delta, and which event each entry of one is."""
    fields: dict[str, Any] = {}
    places: dict[str, Ids] = {}
    given: dict[int, tuple[Any, int]] = {}
    for kind, own in of.items():
        if not own.at.size:
            continue
        name, ids, at, data = _FIELDS[kind], own.ids, own.at, dict(own.data)
        if schema.undirected and kind.startswith("edge"):
            again = np.flatnonzero(ids[0] != ids[1])
            both = np.concatenate([np.arange(at.size), again])
            ids = np.concatenate([ids, ids[::-1, again]], axis=1)
            order = np.argsort(both, kind="stable")  # one event after the other
            both, ids = both[order], ids[:, order]
            at, data = at[both], {k: rows[both] for k, rows in data.items()}
        if kind == "edge_add":
            fields[name] = _nodes(ids, called)
            for key in ("edge_weight", "edge_attr"):
                if key in data:
                    fields[f"{key}_add"] = torch.from_numpy(data.pop(key))
            if data:
                fields["edge_data_add"] = data
        elif kind == "edge_del":
            fields[name] = _nodes(ids, called)
        elif kind == "edge_change":
            fields[name] = _nodes(ids, called), data
        elif kind == "node_del":
            fields[name] = _nodes(ids[0], called)
        else:
            rows = data["x"]
            is_new = ids[0] >= num_nodes
            last = dict(zip(ids[0, is_new].tolist(), np.flatnonzero(is_new).tolist(), strict=True))
            given |= {node: (rows[n], int(at[n])) for node, n in last.items()}
            left = np.flatnonzero(~is_new)
            ids, at, rows = ids[:, left], at[left], rows[left]
            if at.size:
                fields[name] = _nodes(ids[0], called), torch.from_numpy(rows)
        places[name] = at
    if new.size:  # of several rows of a node the last; one that came with an edge has none
        brought = [
            given.get(node, (schema.new_x, at)) for node, at in enumerate(new.tolist(), num_nodes)
        ]
        fields["x_add"] = torch.from_numpy(np.stack([row for row, _ in brought]))
        places["x_add"] = np.array([at for _, at in brought])
        if called is not None:
            fields["node_ids"] = [called[node] for node in range(num_nodes, num_nodes + new.size)]
            places["node_ids"] = places["x_add"]
    return fields, places


def _nodes(ids: Ids, called: Mapping[int, Any] | None) -> Any:
    """Nodes as a delta calls them, `[..., k]`: by number or by name."""
    if called is None:
        return torch.from_numpy(ids)
    names = np.empty(ids.shape, object)
    names.reshape(-1)[:] = [called[node] for node in ids.reshape(-1).tolist()]
    return names


def _new_nodes(nodes: OfKind, num_nodes: int) -> tuple[OfKind, Ids, dict[int, str]]:
    """Events of nodes that are there by then, the events that bring new ones, and the others."""
    keep, new, refused, total = [], [], {}, num_nodes
    for place, (at, node) in enumerate(zip(nodes.at.tolist(), nodes.ids[0].tolist(), strict=True)):
        if node > total:
            refused[at] = (
                f"node {node} is not there, and the next new one is {total}; nodes are numbered "
                "in the order in which they come"
            )
            continue
        if node == total:
            new.append(at)
            total += 1
        keep.append(place)
    return _some(nodes, np.array(keep, np.int64)), np.array(new, np.int64), refused


def _known_nodes(own: OfKind, num_nodes: int, new: Ids, refused: dict[int, str]) -> OfKind:
    """Events whose nodes are there by then; each place in `new` brings the next one."""
    if not own.at.size or (own.ids.min() >= 0 and own.ids.max() < num_nodes):
        return own
    total = num_nodes + np.searchsorted(new, own.at, side="right")
    outside = (own.ids < 0) | (own.ids >= total)
    wrong = np.flatnonzero(outside.any(axis=0))
    for n in wrong.tolist():
        node = int(own.ids[np.argmax(outside[:, n]), n])
        refused[int(own.at[n])] = (
            f"node {node} is not there; there are {int(total[n])} nodes, numbered from 0"
        )
    return _some(own, np.setdiff1d(np.arange(own.at.size), wrong))


def _conflict(schema: Schema, of: dict[Any, OfKind], count: int) -> int:
    """The place of the first event that has to wait for those before it; `count` for none."""
    end = count
    kinds = ["edge_change"]
    if schema.which == "oldest":
        kinds.append("edge_del")
    listed = [own for kind, own in of.items() if kind.startswith("edge")]
    if len(listed) > 1:
        for kind in kinds:
            if kind in of:
                end = min(end, _meeting(of, kind, schema.undirected, count))
    if "node_del" in of:
        end = min(end, _after_removal(of, count))
    return end


def _meeting(of: dict[Any, OfKind], kind: str, undirected: bool, count: int) -> int:
    """Where first an event of one kind, and one of another, are about one pair."""
    first: dict[tuple[int, str], int] = {}
    end = count
    events = sorted(
        (at, name, key)
        for name, own in of.items()
        if name.startswith("edge")
        for at, key in zip(own.at.tolist(), _keys(own.ids, undirected).tolist(), strict=True)
    )
    for at, name, key in events:
        others = [k for k in ("edge_add", "edge_del", "edge_change") if k != name]
        if any((key, k) in first and kind in (name, k) for k in others):
            end = at
            break
        first[key, name] = at
    return end


def _after_removal(of: dict[Any, OfKind], count: int) -> int:
    """Where first an event is about a node that was removed before."""
    gone = dict(zip(of["node_del"].ids[0].tolist(), of["node_del"].at.tolist(), strict=True))
    for at, node in zip(of["node_del"].at.tolist(), of["node_del"].ids[0].tolist(), strict=True):
        gone[node] = min(at, gone[node])
    end = count
    for own in of.values():
        for at, *ids in zip(own.at.tolist(), *own.ids.tolist(), strict=True):
            if any(gone.get(node, count) < at for node in ids):
                end = min(end, at)
                break
    return end


def _without_cancelled(added: OfKind, gone: OfKind, undirected: bool) -> tuple[OfKind, OfKind]:
    """Without edges that come and leave again; a deletion takes the last of those that came."""
    come, leave = _keys(added.ids, undirected), _keys(gone.ids, undirected)
    there = {*come.tolist()}  # sooner found than by sorting both, as `np.isin` does
    touched = np.flatnonzero([*map(there.__contains__, leave.tolist())])
    if not touched.size:
        return added, gone
    stacks: dict[int, list[int]] = {}
    events = [(at, 0, n) for n, at in enumerate(added.at.tolist())]
    events += [(int(gone.at[n]), 1, n) for n in touched.tolist()]
    stays, left = np.ones(come.size, bool), np.ones(leave.size, bool)
    for _, leaves, n in sorted(events):
        if not leaves:
            stacks.setdefault(int(come[n]), []).append(n)
        elif stacks.get(int(leave[n])):
            stays[stacks[int(leave[n])].pop()] = False
            left[n] = False
    return _some(added, np.flatnonzero(stays)), _some(gone, np.flatnonzero(left))


def _keys(pairs: Ids, undirected: bool) -> Ids:
    """One number for each pair, int64 `[k]`."""
    low, high = (pairs.min(0), pairs.max(0)) if undirected else pairs
    keys: Ids = (low << 32) ^ high
    return keys


def _first(own: OfKind, taken: int) -> OfKind:
    """Those of some events that come before a place."""
    return _some(own, np.arange(int(np.searchsorted(own.at, taken))))


def _some(own: OfKind, which: Ids) -> OfKind:
    values = None if own.values is None else own.values[which]
    data = {k: v[which] for k, v in own.data.items()}
    return OfKind(own.at[which], own.ids[:, which], data, values)


def places_of(changes: Changes, what: str, positions: Sequence[int]) -> list[int]:
    """The events that are entries of a field of the delta, by the field and the positions there."""
    at = changes.places.get(what)
    if at is None:
        return []
    return sorted({int(at[position]) for position in positions if position < at.size})
