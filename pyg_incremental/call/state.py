"""A call as plain values, for files and other processes, and how it is put together again."""

from collections.abc import Mapping
from dataclasses import astuple, fields
from typing import Any

import torch
from torch import nn

from pyg_incremental.call.asked import Asked
from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.listed import ByKey
from pyg_incremental.call.members import leaving
from pyg_incremental.call.object_state import plain_parts, restored, written
from pyg_incremental.call.roles import Roles
from pyg_incremental.program.steps import Relation

_FIELDS = [f.name for f in fields(Relation)].index("members")
"""Those of a graph that was handed in; what `batch` stands for is found again."""

_MAKES = {"list": list, "tuple": tuple}


def described(site: BoundCall, roles: Roles) -> dict[str, Any]:
    """Everything about a call but its tensors and numbers of nodes: lists, dicts, and constants."""
    rare = {
        "lists": [[name, _made_by(made), parts] for name, (made, parts) in site.lists.items()],
        "held": list(site.held),
        "sparse": [[name, str(layout)] for name, layout in site.sparse.items()],
    }
    return {
        **{key: value for key, value in rare.items() if value},
        "names": site.names,
        "constants": site.constants,
        "positional": site.positional,
        "beside": site.beside,
        "counted": site.counted,
        "objects": [written(held) for held in site.objects.values()],
        "unread": list(site.unread),
        "packed": [[k, list(names.items())] for k, names in site.packed.items()],
        "asked": [[list(a.names), a.form] for a in site.asked.values()],
        "relations": [list(astuple(r)[:_FIELDS]) for r in roles.given],
        "nodes": dict(roles.nodes),
        "edges": dict(roles.edges),
        "fixed": dict(roles.fixed),
        "ids": dict(roles.ids),
        "matrices": list(roles.values),
        "leaving": sorted(leaving(roles)),
    }


def constants_of(site: BoundCall) -> dict[str, Any]:
    """The arguments that are no tensors, and what objects among them hold beside tensors."""
    found = dict(site.constants)
    for held in site.objects.values():
        found |= plain_parts(held)
    return found


def relations_of(content: Mapping[str, Any]) -> tuple[Relation, ...]:
    """The graphs of a call that was described."""
    return tuple(_relation(r) for r in content["relations"])


def site_of(content: Mapping[str, Any], model: nn.Module, tensors: Mapping[str, Any]) -> BoundCall:
    """The call.

    Args:
        content: What `described` has returned.
        model: The model.
        tensors: All tensors by name, graphs in the format in which they were handed in.
    """
    arguments: dict[str, Any] = dict(content["constants"])
    inside: set[str | None] = set()
    for key, items in content["packed"]:
        parts = {_key(k): None if name is None else tensors[name] for k, name in items}
        arguments[key] = tuple(parts.values()) if list(parts) == [0, 1] else parts
        inside |= {name for _, name in items}
    groups = [Asked(tuple(names), form) for names, form in content["asked"]]
    given = dict(tensors)
    for asked in groups:
        given |= asked.handed(given.pop(asked.name), given)
    names = [n for name in content["names"] for n in _as_given(name, groups)]
    objects = [restored(held, given) for held in content["objects"]]
    inside |= {name for held in objects for name in held.places}
    arguments |= {n: given[n] for n in names if n not in inside}
    site = BoundCall(model, arguments, content["positional"], (), content["beside"])
    for held in objects:
        site.hold(held, {name: given[name] for name in held.places})
    site.names, site.unread, site.counted = names, content["unread"], content["counted"]
    for name, made, parts in content.get("lists", ()):
        site.lists[name] = _MAKES[made] if isinstance(made, str) else ByKey(tuple(made)), parts
    site.held = {name: given[name] for name in content.get("held", ())}
    layouts = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
    known = {str(layout): layout for layout in layouts}
    site.sparse = {name: known[layout] for name, layout in content.get("sparse", ())}
    return site.asking(groups)


def _made_by(made: Any) -> Any:
    """What puts the entries of an argument together: the name of a class, or the keys of a dict."""
    return list(made.keys) if isinstance(made, ByKey) else made.__name__


def _as_given(name: str, groups: list[Asked]) -> tuple[str, ...]:
    """The arguments that a tensor of a call stands for; none if they stand there as well."""
    asked = next((asked for asked in groups if asked.name == name), None)
    return (name,) if asked is None else () if asked.is_table else asked.names


def _relation(values: list[Any]) -> Relation:
    graph, key, *others = values
    return Relation(graph, _key(key), *others)


def _key(key: Any) -> Any:
    """A key as it was: files hold edge types as lists."""
    return tuple(key) if isinstance(key, list) else key
