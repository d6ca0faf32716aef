"""Two deltas as one: what it says is what both say, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta.given import (
    EDGE_DATA,
    Ids,
    added_data,
    as_edges,
    as_ids,
    as_rows,
    edge_change_parts,
    last_of_each,
    pair_keys,
    x_change_parts,
)
from pyg_incremental.errors import InvalidDeltaError

EDGE_FIELDS = (
    "edge_index_add", "edge_index_del", "edge_weight_add", "edge_attr_add", "edge_changes",
    "edge_data_add", "edge_data_del", "edge_ids_add",
)  # fmt: skip
NODE_FIELDS = ("x_changes", "x_add", "nodes_del")
PAIR_FIELDS = {"pairs_add": "edge_index_add", "pairs_del": "edge_index_del"}
"""Watched pairs come and go like edges."""
_NO_EDGES = np.empty((2, 0), np.int64)
Fields = Mapping[str, Any]


def inexpressible(what: str) -> InvalidDeltaError:
    """What to say of two deltas that cannot be one."""
    return InvalidDeltaError(f"joining two deltas: {what}; apply them one after the other")


def join_nodes(first: Fields, second: Fields) -> dict[str, Any]:
    """What two deltas say of the nodes.

    Args:
        first: `x_changes`, `x_add` and `nodes_del`, where they are given.
        second: Likewise.

    Raises:
        InvalidDeltaError: If one delta cannot say it.
    """
    _refuse_rows_of_removed(first.get("nodes_del"), second.get("x_changes"))
    return {
        name: _both(first.get(name), second.get(name), join, name)
        for name, join in (("x_changes", _changes), ("x_add", _rows), ("nodes_del", _ids))
    }


def _refuse_rows_of_removed(gone: Any, changes: Any) -> None:
    """The second delta may not give rows to nodes that the first one removes."""
    if gone is None or changes is None:
        return
    if isinstance(changes, Mapping):
        for key, part in changes.items():
            own = gone
            if isinstance(gone, Mapping):  # the key may name an input of any of these kinds
                own = gone[key] if key in gone else np.concatenate(
                    [as_ids(ids, "nodes_del") for ids in gone.values()]
                )  # fmt: skip
            _refuse_rows_of_removed(own, part)
        return
    every = [*gone.values()] if isinstance(gone, Mapping) else [gone]
    removed = np.concatenate([as_ids(ids, "nodes_del") for ids in every])
    again = np.intersect1d(x_change_parts(changes)[0], removed)
    if again.size:
        raise inexpressible(
            f"x_changes of the second one name node {again[0]}, and nodes_del of the first one does"
        )


def _both(a: Any, b: Any, join: Any, name: str) -> Any:
    """What two deltas say in one field, each of which may say nothing, or speak by input."""
    if a is None or b is None:
        return b if a is None else a
    if not isinstance(a, Mapping) and not isinstance(b, Mapping):
        return join(a, b, name)
    if not (isinstance(a, Mapping) and isinstance(b, Mapping)):
        raise inexpressible(f"{name} is a dict in one of them only")
    return {k: _both(a.get(k), b.get(k), join, f"{name}[{k!r}]") for k in [*{**a, **b}]}


def _changes(a: Any, b: Any, name: str) -> tuple[Tensor, Any]:
    (ids, rows), (more, others) = x_change_parts(a), x_change_parts(b)
    rows, others = _for_each(rows, ids), _for_each(others, more)
    return torch.from_numpy(np.concatenate([ids, more])), _rows(rows, others, f"{name}[1]")


def _for_each(rows: Any, ids: Ids) -> Any:
    """Rows of some nodes; one alone may come without the first dimension."""
    rows = as_rows(rows, "x_changes[1]")
    return rows[None] if ids.size == 1 and rows.shape[:1] != (1,) else rows


def _ids(a: Any, b: Any, name: str) -> Tensor:
    return torch.from_numpy(np.union1d(as_ids(a, name), as_ids(b, name)))


def _rows(a: Any, b: Any, name: str) -> Any:
    """Rows below each other, `[n + m, ...]`."""
    a, b = as_rows(a, name), as_rows(b, name)
    if 0 in (a.shape[0] if a.ndim else 1, b.shape[0] if b.ndim else 1):
        return b if a.shape[0] == 0 else a
    if a.shape[1:] != b.shape[1:]:
        raise inexpressible(f"{name} has rows of shape {list(a.shape[1:])} and {list(b.shape[1:])}")
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return torch.cat([torch.as_tensor(a), torch.as_tensor(b)])
    return np.concatenate([a, b])


def refuse_edges_of_removed(second: Fields, gone: tuple[Any, Any], label: str = "") -> None:
    """The second delta may not name edges of nodes that the first one removes.

    Args:
        second: What it says of the edges of one graph.
        gone: The nodes that the first one removes, at the sources and at the targets, or None.
        label: What messages put behind the name of a field.

    Raises:
        InvalidDeltaError: If it does.
    """
    changes = second.get("edge_changes")
    named = {
        "edge_index_add": second.get("edge_index_add"),
        "edge_index_del": second.get("edge_index_del"),
        "edge_changes": None if changes is None else edge_change_parts(changes)[0],
    }
    for name, edges in named.items():
        for ids, end in zip(gone, (0, 1), strict=True):
            if edges is None or ids is None:
                continue
            there = as_edges(edges, name)[end]
            again = np.intersect1d(there, as_ids(ids, "nodes_del"))
            if again.size:
                raise inexpressible(
                    f"{name}{label} of the second one names an edge of node {again[0]}, which the "
                    "first one removes"
                )


def join_edges(first: Fields, second: Fields, oldest: bool, label: str = "") -> dict[str, Any]:
    """What two deltas say of the edges of one graph, both directions written out.

    Args:
        first: The fields of edges, where they are given.
        second: Likewise.
        oldest: Whether deletions and changes are about the oldest edge of a pair.
        label: What messages put behind the name of a field.

    Raises:
        InvalidDeltaError: If one delta cannot say it.
    """
    if "edge_data_del" in first or "edge_data_del" in second:
        if first and second:
            raise inexpressible(
                f"one of them{label} tells edges that leave apart by their data, and the other one "
                "is about edges, too"
            )
        return {name: (first or second).get(name) for name in EDGE_FIELDS}
    added, data = _added(first)
    more, more_data = _added(second)
    changed, rows = _changed(first)
    again, again_rows = _changed(second)
    gone, leaving = _listed(first, "edge_index_del"), _listed(second, "edge_index_del")
    if oldest and _common(added, np.concatenate([leaving, again], axis=1)).size:
        raise inexpressible(
            f"the second one{label} deletes or changes the oldest edge of a pair of which the "
            "first one adds another, and which is the oldest depends on the graph"
        )
    # A change of an edge that the first one adds is part of its data.
    at = _last_place(changed, added)
    touched = np.isin(pair_keys(changed), pair_keys(np.concatenate([more, leaving], axis=1)))
    own = np.flatnonzero(touched & (at >= 0))
    if own.size:
        data = _written(data, at[own], rows, own, label)
    keep = np.ones(changed.shape[1], bool)
    keep[own] = False
    # What the second one deletes takes back what the first one adds, the youngest first.
    added, data, leaving = _cancelled(added, data, leaving)
    keep &= ~np.isin(pair_keys(changed), pair_keys(leaving))
    changed, rows = changed[:, keep], {k: v[_mask(v, keep)] for k, v in rows.items()}
    lost = _common(changed, more)
    if lost.size and not oldest:
        u, v = lost[:, 0].tolist()
        raise inexpressible(
            f"the first one{label} changes edge {(u, v)}, and the second one adds another edge of "
            "this pair, to which the change would go"
        )
    given: dict[str, Any] = {}
    if gone.size or leaving.size:
        given["edge_index_del"] = torch.from_numpy(np.concatenate([gone, leaving], axis=1))
    if added.size or more.size:
        given["edge_index_add"] = torch.from_numpy(np.concatenate([added, more], axis=1))
        united = _united(data, more_data, added.shape[1], more.shape[1], label)
        given |= {f"{k}_add": v for k, v in united.items() if f"{k}_add" in EDGE_DATA}
        others = {k: v for k, v in united.items() if f"{k}_add" not in EDGE_DATA}
        given |= {"edge_data_add": others} if others else {}
    if changed.size or again.size:
        pairs = torch.from_numpy(np.concatenate([changed, again], axis=1))
        united = _united(rows, again_rows, changed.shape[1], again.shape[1], label)
        given["edge_changes"] = (pairs, united)
    return {name: given.get(name) for name in EDGE_FIELDS}


def join_pairs(first: Fields, second: Fields, oldest: bool) -> dict[str, Any]:
    """What two deltas say of watched pairs; see `join_edges`.

    Raises:
        InvalidDeltaError: If one delta cannot say it.
    """
    given = [*first.values(), *second.values()]
    keys = dict.fromkeys(k for v in given if isinstance(v, Mapping) for k in v)
    if keys and not all(isinstance(v, Mapping) for v in given):
        raise inexpressible("pairs are a dict in one of them only")
    found: dict[str, Any] = {}
    for key in keys or [None]:
        joined = join_edges(_as_edges(first, key), _as_edges(second, key), oldest, " of pairs")
        for name, edges in PAIR_FIELDS.items():
            if joined[edges] is not None and key is None:
                found[name] = joined[edges]
            elif joined[edges] is not None:
                found.setdefault(name, {})[key] = joined[edges]
    return found


def _as_edges(pairs: Fields, key: Any) -> dict[str, Any]:
    """Pairs as fields of edges: those of one argument, or all if it is None."""
    return {
        PAIR_FIELDS[name]: value if key is None else value[key]
        for name, value in pairs.items()
        if key is None or key in value
    }


def _listed(fields: Fields, name: str) -> Ids:
    value = fields.get(name)
    return _NO_EDGES if value is None else as_edges(value, name)


def _added(fields: Fields) -> tuple[Ids, dict[str, Any]]:
    """Edges to add, and their data by name."""
    given = dict(added_data(fields.get("edge_data_add")))
    for key, name in EDGE_DATA.items():
        if fields.get(key) is not None:
            given[name] = fields[key]
    edges = _listed(fields, "edge_index_add")
    return edges, {k: _of_edges(v, edges, k) for k, v in given.items()}


def _changed(fields: Fields) -> tuple[Ids, dict[str, Any]]:
    """Distinct edges that get new data, and the data by name."""
    if fields.get("edge_changes") is None:
        return _NO_EDGES, {}
    edges, given = edge_change_parts(fields["edge_changes"])
    keep = last_of_each(pair_keys(edges))
    rows = {k: _of_edges(v, edges, k) for k, v in given.items()}
    return edges[:, keep], {k: v[_mask(v, keep)] for k, v in rows.items()}


def _of_edges(rows: Any, edges: Ids, name: str) -> Any:
    """Rows of some edges; one alone may come without the first dimension."""
    rows, count = as_rows(rows, name), edges.shape[1]
    if count == 1 and rows.shape[:1] != (1,):
        return rows[None]
    if rows.shape[:1] != (count,):
        raise InvalidDeltaError(
            f"{name}: expected one row for each of the {count} listed edges (got shape "
            f"{list(rows.shape)})"
        )
    return rows


def _mask(rows: Any, which: Any) -> Any:
    return torch.from_numpy(which) if isinstance(rows, Tensor) else which


def _common(edges: Ids, others: Ids) -> Ids:
    """Those of some edges whose pair is among others, `[2, k]`."""
    return edges[:, np.isin(pair_keys(edges), pair_keys(others))]


def _last_place(edges: Ids, among: Ids) -> Ids:
    """Where each pair stands last among others, int64 `[k]`; -1 for nowhere."""
    keys = pair_keys(among)
    last = last_of_each(keys)
    place = {int(k): int(p) for k, p in zip(keys[last], last, strict=True)}
    return np.array([place.get(int(k), -1) for k in pair_keys(edges)], np.int64)


def _written(data: Mapping[str, Any], at: Ids, rows: Fields, own: Ids, label: str) -> Any:
    """Data of added edges with what a change says of some of them."""
    found = dict(data)
    for name, values in rows.items():
        if name not in found:
            raise inexpressible(
                f"the first one{label} changes '{name}' of an edge that it adds without"
            )
        now = found[name]
        now = now.clone() if isinstance(now, Tensor) else np.array(now)
        values = values[_mask(values, own)]
        if isinstance(now, Tensor):
            now[torch.from_numpy(at)] = (
                torch.as_tensor(values).to(now.dtype).reshape(-1, *now.shape[1:])
            )
        else:
            now[at] = np.asarray(values).reshape(-1, *now.shape[1:])
        found[name] = now
    return found


def _cancelled(added: Ids, data: Mapping[str, Any], leaving: Ids) -> tuple[Ids, Any, Ids]:
    """Additions without those that are deleted again, and deletions of what was there before."""
    stays, left = np.ones(added.shape[1], bool), np.ones(leaving.shape[1], bool)
    places: dict[int, list[int]] = {}
    for at, key in enumerate(pair_keys(added).tolist()):
        places.setdefault(key, []).append(at)
    for at, key in enumerate(pair_keys(leaving).tolist()):
        if places.get(key):
            stays[places[key].pop()] = False
            left[at] = False
    return added[:, stays], {k: v[_mask(v, stays)] for k, v in data.items()}, leaving[:, left]


def _united(a: Fields, b: Fields, here: int, there: int, label: str) -> dict[str, Any]:
    """Data by name of some edges and then of others; who has no edges says nothing."""
    if not here or not there:
        return dict(b if not here else a)
    if a.keys() != b.keys():
        raise inexpressible(
            f"one of them{label} gives edges {sorted(a) or 'no data'} and the other one "
            f"{sorted(b) or 'none'}"
        )
    return {k: _rows(a[k], b[k], f"{k}{label}") for k in a}
