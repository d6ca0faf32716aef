"""What a delta says of fields of an object that the model does not read: it says nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pyg_incremental.call.objects import name_in
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import EDGE_DATA


def without_unread(delta: GraphDelta, unread: Collection[str]) -> GraphDelta:
    """The same delta without rows of tensors that are no inputs, though an object holds them.

    Args:
        delta: The delta.
        unread: The names of these tensors.
    """
    parts: dict[str, Any] = {}
    for field in ("x_add", "x_changes", "edge_data_add"):
        given = getattr(delta, field)
        if isinstance(given, Mapping):
            parts[field] = _left(given, unread) or None
    for field, name in EDGE_DATA.items():
        given = getattr(delta, field)
        if isinstance(given, Mapping):
            left = {key: rows for key, rows in given.items() if name_in(name, key) not in unread}
            parts[field] = left or None
        elif name in unread:
            parts[field] = None
    changes = delta.edge_changes
    if isinstance(changes, Mapping):
        left = {key: _changes(part, unread, key) for key, part in changes.items()}
        parts["edge_changes"] = {k: part for k, part in left.items() if part is not None} or None
    elif changes is not None:
        parts["edge_changes"] = _changes(changes, unread, None)
    return replace(delta, **parts)


def _left(given: Mapping[Any, Any], unread: Collection[str]) -> dict[Any, Any]:
    """The rows that are left of those by input, or by type and input."""
    found = {}
    for key, part in given.items():
        if key in unread:
            continue
        if isinstance(part, Mapping):
            part = {n: rows for n, rows in part.items() if name_in(n, key) not in unread}
            if not part:
                continue
        found[key] = part
    return found


def _changes(part: Any, unread: Collection[str], key: Any) -> Any:
    """Changes of edges without the data that nobody reads; None if nothing is left of them."""
    if not (isinstance(part, tuple) and len(part) == 2 and isinstance(part[1], Mapping)):
        return part
    left = {
        name: rows
        for name, rows in part[1].items()
        if (name if key is None else name_in(name, key)) not in unread
    }
    return (part[0], left) if left or not part[1] else None
