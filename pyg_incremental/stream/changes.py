"""A run of events as one delta that does what they do one after the other."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import Ids
from pyg_incremental.stream.naming import NumberedEvents
from pyg_incremental.stream.schema import AnySchema, ByKind, Columns, OfKind, Type, ends_of

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
        of: What is in the delta, by type and kind of event, with nodes by number.
        called: The names of these nodes, for each type of nodes that has names.
        born: The first row that is known of each new node, by type; of several, the delta has the
            last.
        reached: How many rows the events reach over one edge; 0 if nobody asked.
        is_tainted: Whether an event that is left out would have brought a node; the delta does.
    """

    delta: GraphDelta | None
    taken: int
    places: dict[str, Ids]
    refused: dict[int, str]
    of: Columns
    called: Mapping[Type, Mapping[int, Any]]
    born: Mapping[Type, Sequence[Any]]
    reached: float = 0.0
    is_tainted: bool = False


def nothing(taken: int, delta: GraphDelta | None = None) -> Changes:
    """So many events that say nothing beside a delta."""
    return Changes(delta, taken, {}, {}, {}, {}, {})


def changes_of(
    schema: AnySchema,
    named: NumberedEvents,
    count: int,
    counts: Mapping[Type, int],
    end: int,
    out_degrees: Mapping[Type, Sequence[Ids]],
    most: float,
) -> Changes:
    """One delta for as many of the events as one can say.

    It ends before an event of which the effect depends on the graph after those before it: a new
    edge of a pair that was changed, an event of a node that was removed, or the deletion of the
    oldest edge of a pair of which another one came. And it ends before the event that takes it
    beyond what it may reach.

    Args:
        schema: Which field is what.
        named: What the events say.
        count: How many events there are.
        counts: How many nodes of each type the graph has before them.
        end: How many of them it has at most.
        out_degrees: How many edges lead away from each node of a type, int32 `[capacity]`, for each
            type of edges; none if nobody asks what events reach.
        most: How many rows they may reach over one edge, if there is more than one event.
    """
    of = {key: dict(kinds) for key, kinds in named.columns.items()}
    refused: dict[int, str] = {}
    new = dict(named.born)
    for key, kinds in of.items():
        if key not in new and "node" in kinds and (kinds["node"].ids >= counts[key]).any():
            kinds["node"], new[key] = _new_nodes(kinds["node"], counts[key], refused)
    for key, kinds in of.items():
        total = [(node, counts[node], new.get(node, _NONE)) for node in ends_of(key)]
        for kind, own in kinds.items():
            kinds[kind] = _known_nodes(own, total, named.called, refused)
    taken, reached = min(end, _conflict(schema, of, count)), 0.0
    if out_degrees:
        rows = _reached(of, count, counts, out_degrees).cumsum()
        taken = min(taken, max(1, int(np.searchsorted(rows, most, side="right"))))
        reached = float(rows[taken - 1]) if taken else 0.0
    if taken < count:
        of = {
            k: {kind: _first(own, taken) for kind, own in kinds.items()} for k, kinds in of.items()
        }
        new = {key: at[at < taken] for key, at in new.items()}
        refused = {at: reason for at, reason in refused.items() if at < taken}
    for key, kinds in of.items():
        if "edge_add" in kinds and "edge_del" in kinds:
            kinds["edge_add"], kinds["edge_del"] = _without_cancelled(
                kinds["edge_add"], kinds["edge_del"], schema.types[key].undirected
            )
    fields, places = _fields(schema, of, counts, new, named.called)
    if schema.which == "oldest" and ("edge_index_del" in fields or "edge_changes" in fields):
        fields["which"] = "oldest"
    delta = GraphDelta(**fields) if fields else None
    born = {key: _first_rows(schema, key, of.get(key, {}), at) for key, at in new.items()}
    is_tainted = any(not refused.keys().isdisjoint(at.tolist()) for at in named.born.values())
    return Changes(delta, taken, places, refused, of, named.called, born, reached, is_tainted)


def _first_rows(schema: AnySchema, key: Type, kinds: ByKind, new: Ids) -> list[Any]:
    """The row that each new node has from the event that brings it."""
    new_x = schema.types[key].new_x if key in schema.types else None
    if "node" not in kinds:
        return [new_x] * new.size
    own = kinds["node"]
    place = {at: n for n, at in enumerate(own.at.tolist())}
    rows = own.data["x"]
    return [rows[place[at]] if at in place else new_x for at in new.tolist()]


def _fields(
    schema: AnySchema,
    of: Columns,
    counts: Mapping[Type, int],
    new: Mapping[Type, Ids],
    called: Mapping[Type, Mapping[int, Any]],
) -> tuple[dict[str, Any], dict[str, Ids]]:
    """The fields of the delta, and which event each entry of one is."""
    fields: dict[str, Any] = {}
    places: dict[str, Ids] = {}

    def say(name: str, key: Type, value: Any, at: Ids) -> None:
        """Put something into a field; with several types into its dict."""
        if key is None:
            fields[name], places[name] = value, at
        else:
            fields.setdefault(name, {})[key] = value
            places[f"{name}[{key!r}]"] = at

    given: dict[tuple[Type, int], tuple[Any, int]] = {}
    for key, kinds in of.items():
        start, end = (called.get(node) for node in ends_of(key))
        for kind, own in kinds.items():
            if not own.at.size:
                continue
            name, ids, at, data = _FIELDS[kind], own.ids, own.at, dict(own.data)
            if kind == "node_del":
                say(name, key, _nodes(ids[0], start), at)
            elif kind == "node":
                rows, is_new = data["x"], ids[0] >= counts[key]
                for n in np.flatnonzero(is_new).tolist():  # of several rows the last
                    given[key, int(ids[0, n])] = rows[n], int(at[n])
                if not is_new.all():
                    there = torch.from_numpy(rows[~is_new])
                    say(name, key, (_nodes(ids[0, ~is_new], start), there), at[~is_new])
            else:
                if schema.types[key].undirected:
                    ids, at, data = _both_ways(ids, at, data)
                pairs = _pairs(ids, start, end)
                say(name, key, (pairs, data) if kind == "edge_change" else pairs, at)
                for of_edge in ("edge_weight", "edge_attr") if kind == "edge_add" else ():
                    if of_edge in data:
                        say(f"{of_edge}_add", key, torch.from_numpy(data.pop(of_edge)), at)
                if data and kind == "edge_add":
                    say("edge_data_add", key, data, at)
    for key, born in new.items():
        if not born.size:
            continue
        new_x, first = schema.types[key].new_x, counts[key]
        brought = [given.get((key, n), (new_x, at)) for n, at in enumerate(born.tolist(), first)]
        at = np.array([at for _, at in brought])
        say("x_add", key, torch.from_numpy(np.stack([row for row, _ in brought])), at)
        if key in called:
            names = [called[key][node] for node in range(first, first + born.size)]
            say("node_ids", key, names, at)
    return fields, places


def _both_ways(ids: Ids, at: Ids, data: dict[str, Any]) -> tuple[Ids, Ids, dict[str, Any]]:
    """Events about edges in both directions, one event after the other."""
    again = np.flatnonzero(ids[0] != ids[1])
    both = np.concatenate([np.arange(at.size), again])
    order = np.argsort(both, kind="stable")
    both, ids = both[order], np.concatenate([ids, ids[::-1, again]], axis=1)[:, order]
    return ids, at[both], {k: rows[both] for k, rows in data.items()}


def _pairs(ids: Ids, start: Mapping[int, Any] | None, end: Mapping[int, Any] | None) -> Any:
    """Edges as a delta calls their nodes, `[2, k]`."""
    if start is None and end is None:
        return torch.from_numpy(ids)
    pairs = np.empty(ids.shape, object)
    pairs[0], pairs[1] = _nodes(ids[0], start), _nodes(ids[1], end)
    return pairs


def _nodes(ids: Ids, called: Mapping[int, Any] | None) -> Any:
    """Nodes as a delta calls them, `[k]`: by number or by name."""
    if called is None:
        return torch.from_numpy(ids)
    names = np.empty(ids.shape, object)
    names[:] = [called[node] for node in ids.tolist()]
    return names


def _new_nodes(nodes: OfKind, num_nodes: int, refused: dict[int, str]) -> tuple[OfKind, Ids]:
    """Events of nodes that are there by then, and the events that bring new ones."""
    keep, new, total = [], [], num_nodes
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
    return _some(nodes, np.array(keep, np.int64)), np.array(new, np.int64)


def _known_nodes(
    own: OfKind,
    ends: Sequence[tuple[Type, int, Ids]],
    called: Mapping[Type, Any],
    refused: dict[int, str],
) -> OfKind:
    """Events whose nodes are there by then.

    Args:
        own: The events.
        ends: For each end of theirs its type, how many nodes of it there are, and the places of
            events that bring the next ones.
        called: The types of nodes that have names.
        refused: What is wrong with events, by their places; it is added to.
    """
    counts = np.array([[count] for _, count, _ in ends], np.uint64)[: len(own.ids)]
    if (own.ids.view(np.uint64) < counts).all():  # no negative one, either
        return own
    keep = np.ones(own.at.size, bool)
    for ids, (node, count, new) in zip(own.ids, ends, strict=False):
        total = count + np.searchsorted(new, own.at, side="right")
        for n in np.flatnonzero(keep & ((ids < 0) | (ids >= total))).tolist():
            keep[n] = False
            refused[int(own.at[n])] = _not_there(node, int(ids[n]), int(total[n]), node in called)
    return own if keep.all() else _some(own, np.flatnonzero(keep))


def _not_there(of: Type, node: int, total: int, by_name: bool) -> str:
    said = "" if of is None else f" of type '{of}'"
    if by_name:
        return f"it names a node{said} that is not there"
    return f"node {node}{said} is not there; there are {total} nodes, numbered from 0"


def _reached(
    of: Columns,
    count: int,
    counts: Mapping[Type, int],
    out_degrees: Mapping[Type, Sequence[Ids]],
) -> Ids:
    """How many rows each event reaches: its own, and those over one edge from there, `[count]`."""
    rows = np.ones(count, np.int64)
    for key, kinds in of.items():
        node = ends_of(key)[1]
        for own in kinds.values():
            there = own.ids[-1] < counts[node]
            at, ids = own.at[there], own.ids[-1][there]
            for degree in out_degrees.get(node, ()):
                rows[at] += degree[ids]
    return rows


def _conflict(schema: AnySchema, of: Columns, count: int) -> int:
    """The place of the first event that has to wait for those before it; `count` for none."""
    end = count
    waiting = ["edge_change"]
    if schema.which == "oldest":
        waiting.append("edge_del")
    for key, kinds in of.items():
        if sum(kind.startswith("edge") for kind in kinds) > 1:
            for kind in waiting:
                if kind in kinds:
                    end = min(end, _meeting(kinds, kind, schema.types[key].undirected, count))
        if "node_del" in kinds:
            end = min(end, _after_removal(of, key, count))
    return end


def _meeting(of: ByKind, kind: str, undirected: bool, count: int) -> int:
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


def _after_removal(of: Columns, key: Type, count: int) -> int:
    """Where first an event is about a node of some type that was removed before."""
    gone: dict[int, int] = {}
    removed = of[key]["node_del"]
    for at, node in zip(removed.at.tolist(), removed.ids[0].tolist(), strict=True):
        gone.setdefault(node, at)
    end = count
    for other, kinds in of.items():
        for own in kinds.values():
            for node, ids in zip(ends_of(other), own.ids.tolist(), strict=False):
                if node == key:
                    found = zip(own.at.tolist(), ids, strict=True)
                    end = min(end, next((at for at, n in found if gone.get(n, count) < at), count))
    return end


def _without_cancelled(added: OfKind, gone: OfKind, undirected: bool) -> tuple[OfKind, OfKind]:
    """Without edges that come and leave again; a deletion takes the last of those that came."""
    come, leave = _keys(added.ids, undirected), _keys(gone.ids, undirected)
    both = np.sort(np.concatenate([come, leave]))
    if not (both[1:] == both[:-1]).any():
        return added, gone
    touched = np.flatnonzero(np.isin(leave, come))
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
