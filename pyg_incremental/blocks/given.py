"""What a user hands in to be evaluated: a call, nodes, and a number of bytes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn
from torch_geometric.data import Data, HeteroData

from pyg_incremental.call.bound_call import BoundCall, bind
from pyg_incremental.delta.given import chosen_ids
from pyg_incremental.errors import InvalidDeltaError

Ids = NDArray[np.int64]
_ADVICE = "ask for nodes of the graph that is evaluated"
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def call_of(model: nn.Module, data: Data | HeteroData | Mapping[str, Any]) -> BoundCall:
    """The call of a model on a graph.

    Args:
        model: The model.
        data: The arguments of its `forward` by name, or an object that has them as fields.

    Raises:
        InvalidDeltaError: If these are not what the model takes.
    """
    if isinstance(data, Mapping):
        return bind(model, (), dict(data))
    held: dict[str, Any] = {}
    names = list(inspect.signature(model.forward).parameters)
    for name in names:
        fields = (name, f"{name}_dict", *(("adj_t", "adj_t_dict") if "edge_index" in name else ()))
        value = next((v for v in (_field(data, field) for field in fields) if v is not None), None)
        if value is not None:
            held[name] = value
    if not held and names:
        held = {names[0]: data}  # it takes the object itself
    return bind(model, (), held)


def _field(data: Data | HeteroData, name: str) -> Any:
    """A field of the object, or None."""
    if not isinstance(data, HeteroData):
        return data.to_dict().get(name)
    if not name.endswith("_dict"):
        return None
    field = name.removesuffix("_dict")
    return {
        kind: s[field] for kind, s in (*data.node_items(), *data.edge_items()) if field in s
    } or None


def ids_of(nodes: Any, num_nodes: Mapping[str, int]) -> dict[str, Ids]:
    """The nodes that are asked for, in order, by kind.

    Args:
        nodes: Ids, int64 `[k]`, a mask, bool `[num_nodes]`, or a dict of these by kind.
        num_nodes: The number of nodes of each kind.

    Raises:
        InvalidDeltaError: If they are neither, or there is no such node.
    """
    if not isinstance(nodes, Mapping):
        if len(num_nodes) > 1:
            raise InvalidDeltaError(
                f"evaluate: nodes must be a dict by kind, one of {sorted(num_nodes)}"
            )
        nodes = dict.fromkeys(num_nodes, nodes)
    found = {}
    for kind, given in nodes.items():
        if kind not in num_nodes:
            raise InvalidDeltaError(
                f"evaluate: there are no nodes of type '{kind}' (expected {sorted(num_nodes)})"
            )
        label = f"[{kind!r}]" if kind and len(num_nodes) > 1 else ""
        found[kind] = chosen_ids(given, f"evaluate: nodes{label}", num_nodes[kind], _ADVICE)
    return found


def bytes_of(memory: int | str) -> int:
    """A number of bytes, such as `4_000_000_000`, `'4GB'` or `'512 MiB'`.

    Raises:
        ValueError: If it is none.
    """
    found = re.fullmatch(r"([\d.]+)\s*([kmgt]?)(i?)b?", str(memory).strip().lower())
    try:
        number = float(found[1]) if found is not None else 0.0
    except ValueError:
        number = 0.0
    if found is None or isinstance(memory, bool) or not number:
        raise ValueError(f"memory: expected a number of bytes, such as '4GB' (got {memory!r})")
    return int(number * (1024 if found[3] else 1000) ** _UNITS[found[2]])
