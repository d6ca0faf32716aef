"""Graphs that a model holds as buffers or attributes, where it is given none.

Recommenders are often made so: `register_buffer("edge_index", ...)`, and `forward` takes users and
items, or nothing. Such a graph is an input like any other; while the model runs, it holds the
current one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex

from pyg_incremental.call.objects import is_sparse_tensor


def held_graphs(model: nn.Module) -> dict[str, Any]:
    """The graphs that a model holds, and what it holds beside them with a row for each edge.

    A graph is named so (`edge_index`, `adj`, `adj_t`), or an `EdgeIndex` or sparse. What belongs to
    its edges is called `edge_...`.

    Args:
        model: The model.

    Returns:
        The tensors by their paths in the model, such as `gnn.edge_index`.
    """
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        held = {**vars(module), **module._buffers}
        graphs = {name: value for name, value in held.items() if _is_graph(name, value)}
        counts = {_num_edges(graph) for graph in graphs.values()}
        data = {
            name: value
            for name, value in held.items()
            if name.startswith("edge") and name not in graphs and _rows(value) in counts
        }
        begin = f"{path}." if path else ""
        found |= {f"{begin}{name}": value for name, value in {**graphs, **data}.items()}
    return found


@contextlib.contextmanager
def holding(model: nn.Module, tensors: Mapping[str, Any]) -> Iterator[None]:
    """While a model holds other tensors, of any shape, by their paths in it."""
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for path, value in tensors.items():
            owner, _, name = path.rpartition(".")
            module = model.get_submodule(owner)
            held: Any = module._buffers if name in module._buffers else vars(module)
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
