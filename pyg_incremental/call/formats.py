"""The graph as the object that a model was called with."""

from typing import Any

import torch
from torch import Tensor

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
