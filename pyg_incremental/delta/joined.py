"""Two deltas as one, field by field; `join` says what becomes of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pyg_incremental.delta.given import as_ids
from pyg_incremental.delta.join import (
    EDGE_FIELDS,
    NODE_FIELDS,
    PAIR_FIELDS,
    inexpressible,
    join_edges,
    join_nodes,
    join_pairs,
    refuse_edges_of_removed,
)


def joined(a: Any, b: Any) -> dict[str, Any]:
    """The fields of the delta that does what two others do, see `GraphDelta.__add__`.

    Args:
        a: The first `GraphDelta`, both directions written out.
        b: The second one, likewise.

    Raises:
        InvalidDeltaError: If one delta cannot say it.
    """
    parts: dict[str, Any] = {}
    for name in (
        "missing",
        "which",
        "invalid",
    ):  # which is as good as another where nobody looks for an edge
        ways = {getattr(d, name) for d in (a, b) if d.edge_index_del is not None
                or d.edge_changes is not None or d.pairs_del is not None}  # fmt: skip
        if len(ways) > 1:
            raise inexpressible(f"they differ in '{name}'")
        parts[name] = ways.pop() if ways else getattr(a, name)
    if a.values is not None or b.values is not None:
        parts["values"] = {**(a.values or {}), **(b.values or {})}
    oldest = parts["which"] == "oldest"
    parts |= join_pairs(_said(a, PAIR_FIELDS), _said(b, PAIR_FIELDS), oldest)
    _refuse_pairs_said_twice(a, b)
    gone = a.nodes_del
    for name, value in join_nodes(_said(a, NODE_FIELDS), _said(b, NODE_FIELDS)).items():
        parts[name] = value
    mine, theirs = _said(a, EDGE_FIELDS), _said(b, EDGE_FIELDS)
    keys = _graphs(a) | _graphs(b)
    if not keys:
        refuse_edges_of_removed(theirs, (gone, gone))
        return {**parts, **join_edges(mine, theirs, oldest)}
    found: dict[str, Any] = {}
    for key in keys:
        label = f"[{key!r}]"
        own, other = _of_graph(mine, key), _of_graph(theirs, key)
        refuse_edges_of_removed(other, _gone_at(gone, key), label)
        for name, value in join_edges(own, other, oldest, label).items():
            if value is not None:
                found.setdefault(name, {})[key] = value
    return {**parts, **found}


def _refuse_pairs_said_twice(a: Any, b: Any) -> None:
    """Pairs that one calls so, and the other edges of their graph, are not held against another."""
    for one, other in ((a, b), (b, a)):
        if _said(one, PAIR_FIELDS) and [k for k in _graphs(other) if "label" in str(k)]:
            raise inexpressible("one says pairs_add or pairs_del, the other edges of these pairs")


def _said(delta: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(delta, name)) is not None}


def _graphs(delta: Any) -> dict[Any, None]:
    """The graphs that a delta speaks of, if it does so by graph."""
    keyed = delta.keyed()
    return dict.fromkeys(k for name in EDGE_FIELDS if name in keyed for k in keyed[name])


def _of_graph(fields: Mapping[str, Any], key: Any) -> dict[str, Any]:
    """What is said of the edges of one graph."""
    for name, value in fields.items():
        if not isinstance(value, Mapping):
            raise inexpressible(f"{name} is a dict in one of them only")
    return {name: value[key] for name, value in fields.items() if key in value}


def _gone_at(gone: Any, key: Any) -> tuple[Any, Any]:
    """Removed nodes at the sources and at the targets of a graph."""
    if not isinstance(gone, Mapping):
        return gone, gone
    if not isinstance(key, tuple):
        every = np.concatenate([as_ids(ids, "nodes_del") for ids in gone.values()])
        return every, every  # whichever kind the ends are of
    return gone.get(key[0]), gone.get(key[-1])
