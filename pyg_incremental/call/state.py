"""A call as plain values, for files and other processes, and how it is put together again."""

from collections.abc import Mapping
from dataclasses import astuple, fields
from typing import Any

from torch import nn
from torch_geometric.data import Data
from torch_geometric.data.hypergraph_data import HyperGraphData

from pyg_incremental.call.members import leaving
from pyg_incremental.call.roles import Roles
from pyg_incremental.call.site import CallSite, hetero_data
from pyg_incremental.program.steps import Relation

_FIELDS = [f.name for f in fields(Relation)].index("members")
"""Those of a graph that was handed in; what `batch` stands for is found again."""


def described(site: CallSite, roles: Roles) -> dict[str, Any]:
    """Everything about a call but its tensors and numbers of nodes: lists, dicts, and constants."""
    return {
        "names": site.names,
        "constants": site.constants,
        "positional": site.positional,
        "data_fields": {k: list(v) for k, v in site.data_fields.items()},
        "hyper_data": list(site.hyper_data),
        "packed": [[k, list(names.items())] for k, names in site.packed.items()],
        "hetero": [[k, [[*at, n] for at, n in v.items()]] for k, v in site.hetero.items()],
        "relations": [list(astuple(r)[:_FIELDS]) for r in roles.given],
        "nodes": dict(roles.nodes),
        "edges": dict(roles.edges),
        "fixed": dict(roles.fixed),
        "matrices": list(roles.values),
        "leaving": sorted(leaving(roles)),
    }


def relations_of(content: Mapping[str, Any]) -> tuple[Relation, ...]:
    """The graphs of a call that was described."""
    return tuple(_relation(r) for r in content["relations"])


def site_of(content: Mapping[str, Any], model: nn.Module, tensors: Mapping[str, Any]) -> CallSite:
    """The call.

    Args:
        content: What `described` has returned.
        model: The model.
        tensors: All tensors by name, graphs in the format in which they were handed in.
    """
    arguments: dict[str, Any] = dict(content["constants"])
    inside: set[str | None] = set()
    for key, names in content["data_fields"].items():
        kind = HyperGraphData if key in content.get("hyper_data", ()) else Data
        arguments[key] = kind(**{n: tensors[n] for n in names})
        inside |= set(names)
    for key, items in content["packed"]:
        held = {_key(k): None if name is None else tensors[name] for k, name in items}
        arguments[key] = tuple(held.values()) if list(held) == [0, 1] else held
        inside |= {name for _, name in items}
    for key, places in content["hetero"]:
        arguments[key] = hetero_data({(_key(kind), field): tensors[n] for kind, field, n in places})
        inside |= {name for _, _, name in places}
    arguments |= {n: tensors[n] for n in content["names"] if n not in inside}
    return CallSite(model, arguments, content["positional"])


def _relation(values: list[Any]) -> Relation:
    graph, key, *others = values
    return Relation(graph, _key(key), *others)


def _key(key: Any) -> Any:
    """A key as it was: files hold edge types as lists."""
    return tuple(key) if isinstance(key, list) else key
