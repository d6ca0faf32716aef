"""Nodes of events by name: the rows that they have, and those that new ones get for a while."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pyg_incremental.delta.given import Ids
from pyg_incremental.stream.schema import Columns, Kind, OfKind

UNKNOWN = -1


class Numbered(NamedTuple):
    """Events with numbers in the place of names.

    Attributes:
        columns: The same events; a node that is not there is `UNKNOWN`.
        born: The places of events that bring new nodes, int64 `[n]`, ascending: the nodes with the
            numbers from `num_nodes` on.
        called: The names of all numbers.
    """

    columns: Columns
    born: Ids
    called: dict[int, Any]


def numbered(
    columns: Columns, rows: Mapping[Any, int], num_nodes: int, edges_bring: bool
) -> Numbered:
    """Put numbers in the place of names.

    Args:
        columns: Events that call nodes by name.
        rows: The row of each node that is there.
        num_nodes: How many rows there are; new nodes are numbered from here.
        edges_bring: Whether a new edge brings nodes that are not there.
    """
    kinds: tuple[Kind, ...] = ("node", "edge_add") if edges_bring else ("node",)
    unknown = [
        (int(at), end, name)
        for kind in kinds
        if kind in columns.of
        for end, names in enumerate(columns.of[kind].ids)
        for at, name in zip(columns.of[kind].at, names, strict=True)
        if name not in rows
    ]
    new: dict[Any, int] = {}
    born = []
    for at, _, name in sorted(unknown, key=lambda one: one[:2]):
        if name not in new:
            new[name] = num_nodes + len(new)
            born.append(at)
    called: dict[int, Any] = {row: name for name, row in new.items()}
    of = {}
    for kind, own in columns.of.items():
        ids = np.empty(own.ids.shape, np.int64)
        for end, names in enumerate(own.ids):
            ids[end] = found = [rows[n] if n in rows else new.get(n, UNKNOWN) for n in names]
            called.update(zip(found, names, strict=True))
        of[kind] = OfKind(own.at, ids, own.data, own.values)
    return Numbered(Columns(of), np.array(born, np.int64), called)
