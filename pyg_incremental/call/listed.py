"""Arguments that are lists of graphs, features or objects, or dicts of graphs: snapshots, say.

Each entry is an input of its own, called `name[0]`, `name[1]`, and so on; those of dicts go by
their keys, `name['monday']`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data.data import BaseData

from pyg_incremental.call.objects import is_sparse_tensor


@dataclass(frozen=True)
class ByKey:
    """Makes a dict of its entries.

    Attributes:
        keys: The keys in their order.
    """

    keys: tuple[Any, ...]

    def __call__(self, entries: Iterable[Any]) -> dict[Any, Any]:
        """The dict of these entries."""
        return dict(zip(self.keys, entries, strict=True))


def opened(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments with their entries in the place of lists and of dicts of graphs.

    Args:
        arguments: All arguments by name.

    Returns:
        The arguments; and for each list its class, or what makes such a dict, and the names of its
        entries.
    """
    found, lists = dict[str, Any](), dict[str, Any]()
    several = {name for name, value in arguments.items() if _is_list(value)}
    windows = {len(arguments[name]) for name in several if not _is_pair(arguments[name])}
    for name, value in arguments.items():
        if _is_dict_of_graphs(value):
            names = [f"{name}[{key!r}]" for key in value]
            found |= dict(zip(names, value.values(), strict=True))
            lists[name] = ByKey(tuple(value)), names
            continue
        if name not in several or (_is_pair(value) and len(value) not in windows):
            found[name] = value
            continue
        names = [f"{name}[{i}]" for i in range(len(value))]
        found |= dict(zip(names, value, strict=True))
        lists[name] = type(value), names
    return found, lists


def _is_list(value: Any) -> bool:
    """Whether a value is a list of what may follow deltas; one of single rows is not."""
    if type(value) not in (list, tuple) or not value:
        return False
    if all(isinstance(v, Tensor) and v.dim() < 2 for v in value) and len(value) != 2:
        return False
    return all(isinstance(v, (Tensor, BaseData)) or is_sparse_tensor(v) for v in value)


def _is_dict_of_graphs(value: Any) -> bool:
    """Whether a value is a dict of graphs of the same nodes; that by edge type has tuples as keys.

    One entry of node rows, and it is a dict by type of node.
    """
    return (
        type(value) is dict
        and bool(value)
        and all(isinstance(key, str | int) for key in value)
        and all(isinstance(v, Tensor) or is_sparse_tensor(v) for v in value.values())
        and all(map(_looks_like_a_graph, value.values()))
    )


def _is_pair(value: Any) -> bool:
    """Whether a list may be one of sources and targets; beside as many graphs it is none."""
    return len(value) == 2 and not any(
        isinstance(v, BaseData) or _looks_like_a_graph(v) for v in value
    )


def _looks_like_a_graph(value: Any) -> bool:
    if is_sparse_tensor(value) or isinstance(value, EdgeIndex):
        return True
    if value.layout is not torch.strided:
        return True
    return not value.dtype.is_floating_point and value.dim() == 2 and value.shape[0] == 2
