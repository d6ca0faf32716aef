"""Nodes of events by name: the rows that they have, and those that new ones get for a while."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from pyg_incremental.delta.given import Ids
from pyg_incremental.stream.schema import Columns, OfKind, Type, ends_of

UNKNOWN = -1


class NumberedEvents(NamedTuple):
    """Events with numbers in the place of names.

    Attributes:
        columns: The same events; a node that is not there is `UNKNOWN`.
        born: The places of events that bring new nodes, int64 `[n]`, ascending, for each type of
            nodes with names: the nodes with the numbers from its count on.
        called: The names of all numbers, for the same types.
    """

    columns: Columns
    born: dict[Type, Ids]
    called: dict[Type, dict[int, Any]]


def numbered(
    columns: Columns,
    rows: Mapping[Type, Mapping[Any, int]],
    counts: Mapping[Type, int],
    brought: Collection[Type],
) -> NumberedEvents:
    """Put numbers in the place of names.

    Args:
        columns: Events that call nodes by name, where their type has names.
        rows: The row of each node that is there, by the types of nodes that have names.
        counts: How many rows there are of each type; new nodes are numbered from here.
        brought: The types of nodes that are not there, and that a new edge brings.
    """
    if not rows:
        return NumberedEvents(columns, {}, {})
    unknown: dict[Type, list[tuple[int, int, Any]]] = {of: [] for of in rows}
    for of, kinds in columns.items():
        for kind in ("node", "edge_add"):
            if kind not in kinds:
                continue
            for end, (node, names) in enumerate(zip(ends_of(of), kinds[kind].ids, strict=False)):
                if node in rows and (kind == "node" or node in brought):
                    known = rows[node]
                    unknown[node] += [
                        (int(at), end, name)
                        for at, name in zip(kinds[kind].at, names, strict=True)
                        if name not in known
                    ]
    new: dict[Type, dict[Any, int]] = {}
    born = {}
    for node, found in unknown.items():
        own: dict[Any, int] = {}
        places = []
        for at, _, name in sorted(found, key=lambda one: one[:2]):
            if name not in own:
                own[name] = counts[node] + len(own)
                places.append(at)
        new[node], born[node] = own, np.array(places, np.int64)
    called = {node: {row: name for name, row in own.items()} for node, own in new.items()}

    def in_numbers(node: Type, names: Any) -> Any:
        if node not in rows:
            return names
        known, own = rows[node], new[node]
        found = [known[n] if n in known else own.get(n, UNKNOWN) for n in names]
        called[node].update(zip(found, names, strict=True))
        return found

    done: Columns = {}
    for of, kinds in columns.items():
        done[of] = {}
        for kind, events in kinds.items():
            ids = np.empty(events.ids.shape, np.int64)
            for end, (node, names) in enumerate(zip(ends_of(of), events.ids, strict=False)):
                ids[end] = in_numbers(node, names)
            done[of][kind] = OfKind(events.at, ids, events.data, events.values)
    return NumberedEvents(done, born, called)
