"""An object that a model takes as plain values, for files, and how it is put together again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Batch, Data, HeteroData, TemporalData
from torch_geometric.data.hypergraph_data import HyperGraphData

from pyg_incremental.call.objects import HeldObject, Unread, stores_of
from pyg_incremental.call.untold import Untold, is_untold, kind_of

_CLASSES = {kind.__name__: kind for kind in (Data, HeteroData, HyperGraphData, TemporalData)}
_BATCHES = {"Batch": Data, "HeteroBatch": HeteroData}
CLASSES = (*_CLASSES, *_BATCHES)
"""What the classes of objects are called in a file."""
WAYS = ("read", "unread", "untold", "plain")
"""What a field may be there."""
KINDS: Mapping[str, Any] = {"list": [], "tuple": (), "dict": {}, "ndarray": np.empty(0)}
"""What may hold entries of nodes or edges that are not followed, by the name of its class."""
DTYPES = tuple(str(t) for t in vars(torch).values() if isinstance(t, torch.dtype))


def _class_of(data: Any) -> str | None:
    """What the class of an object is called in a file; None for one of the user's own."""
    if isinstance(data, Batch):
        return next((n for n, of in _BATCHES.items() if type(data).__bases__[-1] is of), None)
    return next((name for name, kind in _CLASSES.items() if type(data) is kind), None)


def plain_parts(held: HeldObject) -> dict[str, Any]:
    """What an object holds beside tensors, and its class if that is no class of PyG."""
    found = {
        f"{held.argument}.{field}": value
        for (_, field), value in held.plain
        if not (is_untold(value) and kind_of(value) in KINDS)
    }
    if _class_of(held.template) is None:
        found[held.argument] = type(held.template)
    return found


def written(held: HeldObject) -> dict[str, Any]:
    """An object as plain values, but for what `plain_parts` says."""
    names = {place: name for name, place in held.places.items()}
    stores = []
    for key, store in stores_of(held.template).items():
        fields: list[list[Any]] = []
        for field, value in store._mapping.items():
            if (key, field) in names:
                fields.append([field, "read", names[key, field]])
            elif isinstance(value, Unread):
                fields.append([field, "unread", [str(value.dtype), value.dim()]])
            elif is_untold(value):
                fields.append([field, "untold", kind_of(value)])
            else:
                fields.append([field, "plain", value])
        stores.append([key, fields])
    return {
        "argument": held.argument,
        "class": _class_of(held.template) or "",
        "stores": stores,
        "places": [[name, key, field] for name, (key, field) in held.places.items()],
        "levels": dict(held.levels),
        "keys": [[name, key] for name, key in held.keys.items()],
        "joins": [[name, list(ends)] for name, ends in held.joins.items()],
        "num_graphs": vars(stores_of(held.template)[None]).get("_num_graphs"),
        "counts_graphs": bool(held.counts_graphs),
    }


def restored(content: Mapping[str, Any], tensors: Mapping[str, Any]) -> HeldObject:
    """The object.

    Args:
        content: What `written` has returned.
        tensors: The tensors of the call by name.
    """
    name = content["class"]
    made: Any = _CLASSES.get(name)
    data = Batch(_base_cls=_BATCHES[name]) if made is None else made()
    held = HeldObject(content["argument"], data)
    template = held.template
    for key, fields in content["stores"]:
        kind = _key(key)
        store = stores_of(template)[None] if kind is None else template[kind]
        for field, what, value in fields:
            if what == "unread":
                dtype, dims = value
                value = Unread.of(field, getattr(torch, dtype.removeprefix("torch.")), dims)
            if what == "untold":
                value = Untold(field, KINDS[value])
            store._mapping[field] = None if what == "read" else value
    held.places = {n: (_key(key), field) for n, key, field in content["places"]}
    held.levels = dict(content["levels"])
    held.keys = {n: _key(key) for n, key in content["keys"]}
    held.joins = {n: (ends[0], ends[1]) for n, ends in content["joins"]}
    held.counts_graphs = content["counts_graphs"]
    if content["num_graphs"] is not None:
        vars(stores_of(template)[None])["_num_graphs"] = content["num_graphs"]
    return held


def _key(key: Any) -> Any:
    """A type as it was: files hold types of edges as lists."""
    return tuple(key) if isinstance(key, list) else key
