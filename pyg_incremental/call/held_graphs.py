"""Graphs that a model holds as buffers or attributes, where it is given none.

Recommenders are often made so: `register_buffer("edge_index", ...)`, and `forward` takes users and
items, or nothing. Such a graph is an input like any other; while the model runs, it holds the
current one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

from pyg_incremental.call.objects import is_sparse_tensor


def held_graphs(model: nn.Module) -> dict[str, Any]:
    """The graphs that a model holds, and what it holds beside them with a row for each edge.

    A graph is named so (`edge_index`, `adj`, `adj_t`), or an `EdgeIndex` or sparse. What belongs to
    its edges is called `edge_...`, or a `Data` object that the model holds says it.

    Args:
        model: The model.

    Returns:
        The tensors by their paths in the model, such as `gnn.edge_index`.
    """
    places = [*_places(model)]
    graphs = {path: value for path, name, value, _ in places if _is_graph(name, value)}
    counts = {_num_edges(graph) for graph in graphs.values()}
    data = {
        path: value
        for path, _, value, of_edges in places
        if of_edges and path not in graphs and _rows(value) in counts
    }
    return {**graphs, **data}


def held_rows(model: nn.Module, counts: Collection[int]) -> dict[str, Any]:
    """What a model holds that is no parameter, with as many rows as some graph has edges.

    That it belongs to them is only known once the model runs with that.

    Args:
        model: The model.
        counts: The numbers of edges.

    Returns:
        As of `held_graphs`.
    """
    return {path: value for path, _, value, _ in _places(model) if _rows(value) in counts}


def _places(model: nn.Module) -> Iterator[tuple[str, str, Any, bool]]:
    """What a model holds: the path, the name, the value, and whether it is said to be of edges."""
    for path, module in model.named_modules():
        begin = f"{path}." if path else ""
        for name, value in {**vars(module), **module._buffers}.items():
            if isinstance(value, Data):
                for field, held in value._store._mapping.items():
                    yield f"{begin}{name}.{field}", field, held, value.is_edge_attr(field)
            else:
                yield f"{begin}{name}", name, value, name.startswith("edge")


def _holder(model: nn.Module, owner: str, name: str) -> Any:
    """The dict that holds what is called `name` in a module, or in a `Data` object of one."""
    above, _, last = owner.rpartition(".")
    data = vars(model.get_submodule(above)).get(last)
    if isinstance(data, Data):
        return data._store._mapping
    module = model.get_submodule(owner)
    return module._buffers if name in module._buffers else vars(module)


@contextlib.contextmanager
def holding(model: nn.Module, tensors: Mapping[str, Any]) -> Iterator[None]:
    """While a model holds other tensors, of any shape, by their paths in it."""
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for path, value in tensors.items():
            owner, _, name = path.rpartition(".")
            held = _holder(model, owner, name)
            before.append((held, name, held[name]))
            held[name] = value
        yield
    finally:
        for held, name, value in reversed(before):
            held[name] = value


def _is_graph(name: str, value: Any) -> bool:
    if is_sparse_tensor(value) or isinstance(value, EdgeIndex):
        return True
    if not isinstance(value, Tensor) or isinstance(value, nn.Parameter):
        return False
    if value.layout is not torch.strided:
        return True
    named = name in ("adj", "adj_t") or name.endswith("edge_index")
    return named and value.dim() == 2 and value.shape[0] == 2 and not value.is_floating_point()


def _num_edges(graph: Any) -> int:
    if is_sparse_tensor(graph):
        return int(graph.nnz())
    return int(graph.shape[1]) if graph.layout is torch.strided else int(graph.values().numel())


def _rows(value: Any) -> int | None:
    plain = isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
    return int(value.shape[0]) if plain and value.dim() > 0 else None
