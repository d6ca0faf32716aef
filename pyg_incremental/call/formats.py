"""The graph as the object that a model was called with."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from pyg_incremental.call.hyperedges import HYPER_INDEX, HYPEREDGE
from pyg_incremental.call.objects import is_sparse_tensor
from pyg_incremental.errors import InvalidDeltaError, UnsupportedModelError
from pyg_incremental.typing import Format


def to_format(
    fmt: Format,
    edge_index: Tensor,
    values: Tensor | None,
    sizes: tuple[int, int],
    device: torch.device,
) -> Any:
    """The graph object that a model called with this format expects.

    Args:
        fmt: The format.
        edge_index: Edges, int64 `[2, num_edges]`, sources first.
        values: One row per edge, `[num_edges, ...]`, or None.
        sizes: Number of nodes at the sources and at the targets.
        device: Where the object goes.
    """
    edge_index = edge_index.to(device)
    if fmt == "coo":
        return edge_index
    src, dst = edge_index
    if fmt == "sparse_tensor":
        from torch_sparse import SparseTensor

        return SparseTensor(row=dst, col=src, value=values, sparse_sizes=sizes[::-1])
    (major, minor), (count, width) = (
        ((dst, src), sizes[::-1]) if fmt == "csr" else ((src, dst), sizes)
    )
    order = torch.argsort(major * width + minor, stable=True)
    pointer = torch.zeros(count + 1, dtype=torch.int64, device=device)
    pointer[1:] = torch.bincount(major, minlength=count).cumsum(0)
    make = torch.sparse_csr_tensor if fmt == "csr" else torch.sparse_csc_tensor
    if values is None:
        values = torch.ones(edge_index.shape[1], device=device)
    return make(pointer, minor[order], values[order], size=sizes[::-1])


def edges_of_graph(
    graph: Any, name: str, where: str, counts: tuple[int, int], kinds: tuple[str, str]
) -> tuple[Tensor, Tensor | None, Format]:
    """The edges of a graph, int64 `[2, num_edges]`, sources first, its values, and its format.

    Args:
        graph: An edge_index or a sparse adjacency.
        name: The name of the argument.
        where: How messages begin.
        counts: How many nodes there are at the sources and at the targets.
        kinds: Which nodes these are.

    Raises:
        UnsupportedModelError: If its layout is not known.
        InvalidDeltaError: If its shape, dtype or an id does not fit.
    """
    num_source, num_target = counts
    fmt: Format = "coo"
    values = None
    if is_sparse_tensor(graph):
        dst, src, values = graph.coo()
        edge_index, fmt = torch.stack([src, dst]), "sparse_tensor"
        shape = list(graph.sizes())
    elif isinstance(graph, Tensor) and graph.layout is not torch.strided:
        if graph.layout is torch.sparse_csr:
            row = torch.repeat_interleave(
                torch.arange(graph.shape[0], device=graph.device), graph.crow_indices().diff()
            )
            edge_index, fmt = torch.stack([graph.col_indices(), row]), "csr"
        elif graph.layout is torch.sparse_csc:
            col = torch.repeat_interleave(
                torch.arange(graph.shape[1], device=graph.device), graph.ccol_indices().diff()
            )
            edge_index, fmt = torch.stack([col, graph.row_indices()]), "csc"
        else:
            raise UnsupportedModelError(
                f"{where}: '{name}' has layout {graph.layout}; use .to_sparse_csr(), "
                ".to_sparse_csc() or an edge_index"
            )
        values = graph.values()
        shape = list(graph.shape[:2])
    else:
        edge_index = graph.as_tensor() if isinstance(graph, EdgeIndex) else graph
        shape = [num_target, num_source]
        cure = _no_edge_index(edge_index, name)
        if cure:
            raise InvalidDeltaError(
                f"{where}: '{name}' must be integers of shape [2, num_edges] (got "
                f"{edge_index.dtype} {list(edge_index.shape)}); {cure}"
            )
    if shape != [num_target, num_source]:
        raise InvalidDeltaError(
            f"{where}: '{name}' is {shape}, but there are {num_source} nodes at the source and "
            f"{num_target} at the target; pass features for every node of it"
        )
    if edge_index.is_meta:
        raise InvalidDeltaError(
            f"{where}: '{name}' is on 'meta' and holds no ids; pass edges on a device with memory"
        )
    edge_index = edge_index.detach().to("cpu", torch.int64)
    _refuse_ids(edge_index, name, where, counts, kinds)
    return edge_index, None if values is None else values.detach(), fmt


def _refuse_ids(
    edge_index: Tensor, name: str, where: str, counts: tuple[int, int], kinds: tuple[str, str]
) -> None:
    """See that edges, int64 `[2, num_edges]`, lie between nodes that are there."""
    for end, count, kind in zip(edge_index, counts, kinds, strict=True):
        low, high = (int(end.min()), int(end.max())) if end.numel() else (0, -1)
        if low < 0 or high >= count:
            node, what = "node", "features for every node"
            if kind == HYPEREDGE:
                node, what = kind, "a row of each of its inputs for every hyperedge"
            elif kinds == ("", "") and low >= 0 and int(edge_index[0].max()) < count:
                what += f"; if its second row numbers hyperedges, call the argument '{HYPER_INDEX}'"
            if kind != HYPEREDGE and edge_index.min() == 1 and high == count:
                what = f"ids that count from 0, as {_word(name)} - 1, or {what}"
            elif low < 0:
                what = f"ids that count from 0, without such fillers, or {what}"
            raise InvalidDeltaError(
                f"{where}: '{name}' names {node} {low if low < 0 else high}, but ids lie in [0, "
                f"{count}); pass {what}"
            )


def _no_edge_index(edges: Tensor, name: str) -> str:
    """What to pass in the place of a tensor that is no edge_index; empty if it is one."""
    shape, word = list(edges.shape), _word(name)
    is_whole = not (edges.dtype.is_floating_point or edges.dtype.is_complex)
    is_whole = is_whole and edges.dtype is not torch.bool
    if len(shape) == 2 and shape[0] == 2:
        return "" if is_whole else f"pass {word}.long(), if it holds ids of nodes"
    if len(shape) == 2 and shape[1] == 2:
        return f"pass its transpose, {word}.t(){'' if is_whole else '.long()'}"
    if len(shape) == 2 and shape[0] == shape[1]:
        return f"pass a dense adjacency as torch_geometric.utils.dense_to_sparse({word})[0]"
    return "pass torch.stack([sources, targets]), int64"


def _word(name: str) -> str:
    """How a user writes an argument, as far as it stands alone."""
    return name if name.isidentifier() else "edge_index"
