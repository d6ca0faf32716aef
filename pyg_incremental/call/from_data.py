"""A `Data` object for a model that takes tensors: which call is meant, where only one can be."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import BaseData

from pyg_incremental.call.misgiven import takes_dicts
from pyg_incremental.errors import InvalidDeltaError

_DICT = "_dict"


def spread(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], names: tuple[str, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, with those in a `Data` object in the place of the object.

    Args:
        model: The model.
        args: What is passed by position.
        kwargs: What is passed by name, which goes before what the object holds.
        names: What a parameter is called that is a tensor of a graph.

    Returns:
        The arguments, unchanged if the model takes the object itself.

    Raises:
        InvalidDeltaError: If the object lacks something, or holds something of which the model can
            do without, so that two calls may be meant.
    """
    if not args or not isinstance(args[0], (Data, HeteroData)):
        return args, kwargs
    parameters = _parameters(model)
    first = next(iter(parameters), "")
    if first not in names or first in kwargs:
        return args, kwargs
    data, kind, name = args[0], type(args[0]).__name__, type(model).__name__
    dicts = takes_dicts(model)
    if _takes_object(model, first, [n for n, optional in parameters.items() if not optional]):
        return args, kwargs
    needed = [n for n, optional in parameters.items() if not optional and n not in kwargs]
    held = {n: value for n in parameters if (value := _held(data, n, dicts)) is not None}
    if "edge_index" in needed and "edge_index" not in held and "adj_t" in data:
        held["edge_index"] = data["adj_t"]
    lost = [n for n in needed if n not in held]
    call = ", ".join(_worded(n, data, dicts) for n in needed)
    if lost or len(args) > 1:
        what = f"the {kind} object has no '{lost[0]}'" if lost else ""
        if len(args) > 1:
            what = f"what goes beside a {kind} object is given by name"
        elif isinstance(data, HeteroData):
            raise InvalidDeltaError(
                f"{name} takes the tensors ({', '.join(needed)}) of one type of nodes, and the "
                f"HeteroData object holds {', '.join(map(repr, data.node_types))}; wrap "
                "to_hetero(model, data.metadata()), or pass data.to_homogeneous()"
            )
        elif dicts:
            raise InvalidDeltaError(
                f"{name} was made by to_hetero and takes dicts by type, and the {kind} object has "
                "none; pass a HeteroData object, or the dicts, as in inc(data.x_dict, "
                "data.edge_index_dict)"
            )
        raise InvalidDeltaError(
            f"{name} takes tensors ({', '.join(needed)}), and {what}; call it as inc({call})"
        )
    more = [n for n in parameters if n in held and n not in needed and n not in kwargs]
    if more:
        also = ", ".join(f"{n}={_worded(n, data, dicts)}" for n in more)
        raise InvalidDeltaError(
            f"{name} takes tensors, and the {kind} object holds '{more[0]}', without which it can "
            f"be called, too; say which is meant: inc({call}) or inc({call}, {also})"
        )
    if "args" in inspect.signature(model.forward).parameters and not kwargs:  # PyG's Sequential
        return tuple(held[n] for n in needed), {}
    return (), {**{n: held[n] for n in needed}, **kwargs}


def _takes_object(model: nn.Module, first: str, needed: list[str]) -> bool:
    """Whether the first parameter is an object, though a tensor of a graph may be called so.

    A hint says so, and so does `batch` on its own: what is in no graph needs no such vector.
    """
    try:
        hint = typing.get_type_hints(model.forward).get(first)
    except Exception:  # hints may name what is not there
        hint = None
    kinds = [k for k in (hint, *typing.get_args(hint)) if isinstance(k, type)]
    return any(issubclass(k, BaseData) for k in kinds) or needed == ["batch"]


def _parameters(model: nn.Module) -> Mapping[str, bool]:
    """The names of what a model takes, and which of these it can do without."""
    found = inspect.signature(model.forward).parameters
    known = getattr(getattr(model, "signature", None), "param_dict", None)
    if known and any(p.kind is p.VAR_POSITIONAL for p in found.values()):
        return dict.fromkeys(known, False)
    plain = {n: p for n, p in found.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    return {n: p.default is not p.empty for n, p in plain.items()}


def _held(data: Any, name: str, dicts: bool) -> Any:
    """What an object holds under the name of a parameter, or None; `dicts` of a `to_hetero`."""
    if isinstance(data, HeteroData):
        by_type = dicts or name.endswith(_DICT)
        found = data.collect(name.removesuffix(_DICT), True) if by_type else None
        return found or None
    return data.to_dict().get(name)


def _worded(name: str, data: Any, dicts: bool) -> str:
    """How a user writes an argument."""
    if name == "edge_index" and name not in data and "adj_t" in data:
        return "data.adj_t"
    by_type = dicts and isinstance(data, HeteroData)
    held = _held(data, name, dicts) is not None
    return f"data.{name}{_DICT if by_type else ''}" if held else f"{name}=..."
