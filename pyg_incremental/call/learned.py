"""Models that have learned one row for each node: an embedding in the place of features.

Their graph may change, but the number of their nodes cannot.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric import EdgeIndex

from pyg_incremental.call.objects import is_sparse_tensor
from pyg_incremental.call.site import CallSite
from pyg_incremental.errors import UnsupportedModelError


def why_fixed(model: nn.Module, count: int) -> str | None:
    """Which parameter or buffer has one row for each of so many nodes, as a reason; or None."""
    held = model.state_dict(keep_vars=True)
    name = next(
        (
            n
            for n, t in held.items()
            if isinstance(t, Tensor) and not is_lazy(t) and _rows(t, count)
        ),
        None,
    )
    if name is None:
        return None
    return (
        f"the model has learned one row for each of its {count} nodes ('{name}'); make a model of "
        "more nodes and call that"
    )


def _rows(tensor: Tensor, count: int) -> bool:
    return tensor.dim() > 1 and tensor.shape[0] == count


def learned_count(site: CallSite, graphs: list[str], where: str) -> int:
    """The number of nodes of a call without node features.

    Graphs that know their size tell it, else the model does: its `num_nodes`, or its embedding.

    Raises:
        UnsupportedModelError: If it is not clear, or no parameter has a row for each node.
    """
    modules = list(site.model.modules())
    found = (
        {n for name in graphs for n in _sizes(site.tensors[name])}
        or {n for m in modules if type(n := vars(m).get("num_nodes")) is int}
        or {m.num_embeddings for m in modules if isinstance(m, nn.Embedding)}
    )
    if len(found) == 1:
        (count,) = found
        if why_fixed(site.model, count) is not None:
            return count
    raise UnsupportedModelError(
        f"{where}: expected node features among its arguments, or a parameter of the model with a "
        f"row for each node (got {site.names}, and {_written(found)}); pass features, or pass the "
        "graph as EdgeIndex(edge_index, sparse_size=(num_nodes, num_nodes)) to say how many nodes "
        "there are"
    )


def _sizes(graph: Any) -> list[int]:
    """The numbers of nodes that a graph tells."""
    if is_sparse_tensor(graph):
        return list(graph.sizes())
    if isinstance(graph, EdgeIndex):
        return [n for n in graph.sparse_size() if n is not None]
    return [] if graph.layout is torch.strided else list(graph.shape[:2])


def _written(found: set[int]) -> str:
    if not found:
        return "no number of nodes"
    numbers = " or ".join(map(str, sorted(found)))
    return f"{numbers} nodes" if len(found) > 1 else f"no parameter with {numbers} rows"
