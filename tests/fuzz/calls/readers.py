"""The ways in which a model may read a field of an object."""

import copy

# ruff: noqa: SIM118, SIM401  (each of these ways is one that models take)


def iterated(data, name):
    return next((v for k, v in data if k == name), None)


def by_keys(data, name):
    return next((data[k] for k in data.keys() if k == name), None)


def called(data, name):
    return next((v for _, v in data(name)), None)


def of_all(data, name):
    found = None
    for store in data.stores:
        for key, value in store.items():
            if key == name:
                found = value
    return found


WAYS = {
    "get": lambda d, f: d.get(f),
    "in": lambda d, f: d[f] if f in d else None,
    "hasattr": lambda d, f: getattr(d, f) if hasattr(d, f) else None,
    "getattr": lambda d, f: getattr(d, f, None),
    "to_dict": lambda d, f: d.to_dict().get(f),
    "to_dict in": lambda d, f: d.to_dict()[f] if f in d.to_dict() else None,
    "namedtuple": lambda d, f: getattr(d.to_namedtuple(), f, None),
    "iterate": iterated,
    "keys": by_keys,
    "keys()": lambda d, f: d[f] if f in d.keys() else None,
    "call": called,
    "stores": lambda d, f: d.stores[0].get(f),
    "node_stores": lambda d, f: d.node_stores[0].get(f),
    "edge_stores": lambda d, f: d.edge_stores[0].get(f),
    "items of stores": of_all,
    "values": lambda d, f: dict(zip(d._store, d._store.values(), strict=True)).get(f),
    "copy": lambda d, f: copy.copy(d).get(f),
    "clone": lambda d, f: d.clone().get(f),
    "update": lambda d, f: copy.copy(d).update({"more": 1}).get(f),
    "try": lambda d, f: attempted(d, f),
    "mapping": lambda d, f: dict(d._store).get(f),
    "sorted": lambda d, f: {k: d[k] for k in sorted(d.keys())}.get(f),
    "contiguous": lambda d, f: copy.copy(d).contiguous(f).get(f) if f in d else None,
    "node_attrs": lambda d, f: d[f] if f in d.node_attrs() else None,
    "edge_attrs": lambda d, f: d[f] if f in d.edge_attrs() else None,
}
"""Of a `Data` object: what a field holds, or None."""
STORE_WAYS = {
    "get": lambda d, k, f: d[k].get(f),
    "in": lambda d, k, f: d[k][f] if f in d[k] else None,
    "hasattr": lambda d, k, f: getattr(d[k], f) if hasattr(d[k], f) else None,
    "getattr": lambda d, k, f: getattr(d[k], f, None),
    "collect": lambda d, k, f: d.collect(f, True).get(k),
    "dict of all": lambda d, k, f: of_types(d, k, f),
    "to_dict": lambda d, k, f: d[k].to_dict().get(f),
    "whole to_dict": lambda d, k, f: d.to_dict()[k].get(f),
    "items": lambda d, k, f: dict(d[k].items()).get(f),
    "iterate": lambda d, k, f: next((d[k][n] for n in d[k] if n == f), None),
    "node_items": lambda d, k, f: next(
        (s.get(f) for t, s in (*d.node_items(), *d.edge_items()) if t == k), None
    ),
    "types": lambda d, k, f: next(
        (d[t].get(f) for t in (*d.node_types, *d.edge_types) if t == k), None
    ),
    "metadata": lambda d, k, f: next(d[t].get(f) for part in d.metadata() for t in part if t == k),
    "stores": lambda d, k, f: next(s.get(f) for s in d.stores if s._mapping and s._key == k),
    "get_node_store": lambda d, k, f: (
        d.get_node_store(k) if isinstance(k, str) else d.get_edge_store(*k)
    ).get(f),
    "copy": lambda d, k, f: copy.copy(d)[k].get(f),
    "clone": lambda d, k, f: d.clone()[k].get(f),
    "mapping": lambda d, k, f: dict(d[k]._mapping).get(f),
    "setdefault": lambda d, k, f: set_and_read(copy.copy(d), k, f),
    "try": lambda d, k, f: attempted(d[k], f),
}
"""Of a `HeteroData` object: what a field holds under a type, or None."""
COUNTS = {
    "num_nodes": lambda d: d.num_nodes,
    "num_edges": lambda d: d.num_edges,
    "num_node_features": lambda d: sized(d.num_node_features),
    "types": lambda d: len(d.node_types) if hasattr(d, "node_types") else 1,
    "keys": lambda d: len(d.keys()),
    "stores": lambda d: len(d.stores),
    "num_features": lambda d: sized(d.num_features),
}
"""Numbers that an object tells."""


def attempted(data, name):
    try:
        return getattr(data, name)
    except AttributeError:
        return None


def of_types(data, key, name):
    try:
        return getattr(data, f"{name}_dict").get(key)
    except (AttributeError, KeyError):
        return None


def set_and_read(data, key, name):
    data[key].seen = True
    return data[key].get(name)


def sized(count):
    return sum(count.values()) if isinstance(count, dict) else count
