"""Sparse adjacencies that functions of PyG make of others, while a conv is looked into."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import typing
from torch_geometric.nn.conv import gcn_conv
from torch_geometric.utils import loop, spmm
from torch_geometric.utils.sparse import set_sparse_value, to_torch_coo_tensor

from pyg_incremental.trace.listener import Observer
from pyg_incremental.trace.replaced import homes_of, replaced
from pyg_incremental.trace.sealed import Matrix


@contextlib.contextmanager
def matrices_seen_by(observer: Observer, modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let it be seen which self-loops and values a matrix loses and gets; nobody else may trace.

    Args:
        observer: Who is to see it.
        modules: The model, in whose files the functions may go by names of their own.
    """
    thread = threading.get_ident()

    def made(edge_index: Tensor, values: Any = None, size: Any = None, known: bool = False) -> Any:
        if threading.get_ident() != thread or observer.is_busy or values is None:
            return to_torch_coo_tensor(edge_index, values, size, known)
        return Matrix(_A_MATRIX, _refuse, edge_index.flip(0), values, size, True, merges=True)

    instead: dict[Any, Any] = {to_torch_coo_tensor: made, spmm: _of(spmm, Matrix.product)}
    instead[set_sparse_value] = _of(set_sparse_value, Matrix.set_value)
    homes = {*homes_of(modules), loop, gcn_conv}
    if typing.WITH_TORCH_SPARSE:
        sparse = typing.torch_sparse
        homes.add(sparse)
        for name, own in _OF_SPARSE_TENSORS.items():
            function = getattr(sparse, name)
            instead[function] = _of(function, own)
    with replaced(homes, instead):
        yield


def _of(function: Any, own: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does something of its own to what stands for a matrix."""

    def run(matrix: Any, *args: Any, **kwargs: Any) -> Any:
        return (own if type(matrix) is Matrix else function)(matrix, *args, **kwargs)

    return run


def _with_diagonal(matrix: Matrix, fill: Any = None, k: int = 0) -> Any:
    if k or isinstance(fill, Tensor):
        return matrix.refuse("it puts rows on a diagonal")
    return matrix.with_loops(1.0 if fill is None else fill)


def _row_sums(matrix: Matrix, dim: int | None = None) -> Any:
    return matrix.row_sums() if dim == 1 else matrix.refuse("it adds up columns of its matrix")


_OF_SPARSE_TENSORS: dict[str, Callable[..., Any]] = {
    "set_diag": _with_diagonal,
    "fill_diag": _with_diagonal,
    "sum": _row_sums,
    "mul": Matrix.scaled,
}
_A_MATRIX = torch.empty(0, 0).to_sparse()


def _refuse(reason: str) -> Any:
    raise TypeError(reason)
