"""Sparse adjacencies that functions of PyG make of others, while a conv is looked into."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric import typing
from torch_geometric.utils import loop

from pyg_incremental.trace.listener import Observer
from pyg_incremental.trace.sealed import Matrix


@contextlib.contextmanager
def matrices_seen_by(observer: Observer) -> Iterator[None]:
    """Let it be seen which self-loops a matrix loses and gets; nobody else may trace."""
    thread = threading.get_ident()
    to_matrix = loop.to_torch_coo_tensor

    def made(edge_index: Tensor, values: Any = None, size: Any = None, known: bool = False) -> Any:
        if threading.get_ident() != thread or observer.is_busy or values is None:
            return to_matrix(edge_index, values, size, known)
        return Matrix(_A_MATRIX, _refuse, edge_index.flip(0), values, size, is_made=True)

    def with_diagonal(
        function: Callable[..., Any], matrix: Any, fill: Any = None, k: int = 0
    ) -> Any:
        if type(matrix) is not Matrix:
            return function(matrix, fill, k)
        if k or isinstance(fill, Tensor):
            return matrix.refuse("it puts rows on a diagonal")
        return matrix.with_loops(1.0 if fill is None else fill)

    sparse = typing.torch_sparse if typing.WITH_TORCH_SPARSE else None
    with contextlib.ExitStack() as stack:
        places = [(loop, "to_torch_coo_tensor", made)]
        for name in ("set_diag", "fill_diag") if sparse is not None else ():
            function = getattr(sparse, name)
            places.append((sparse, name, lambda *a, f=function, **k: with_diagonal(f, *a, **k)))
        for home, name, instead in places:
            stack.callback(setattr, home, name, getattr(home, name))
            setattr(home, name, instead)
        yield


_A_MATRIX = torch.empty(0, 0).to_sparse()


def _refuse(reason: str) -> Any:
    raise TypeError(reason)
