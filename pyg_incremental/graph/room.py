"""Arrays that grow: copies with more room behind what they hold."""

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.kernels.adjacency import Adjacency

T = TypeVar("T", bound=np.generic)


def longer(a: NDArray[T], size: int) -> NDArray[T]:
    """An array, `[n]`, followed by zeros: `[size]`."""
    grown = np.zeros(size, a.dtype)
    grown[: a.size] = a
    return grown


def with_room(t: Tensor, size: int) -> Tensor:
    """Rows, `[n, ...]`, followed by zeros: `[size, ...]`."""
    return torch.cat([t, t.new_zeros((size - t.shape[0], *t.shape[1:]))])


def with_node_room(adj: Adjacency, size: int) -> Adjacency:
    """Neighbour lists for `size` nodes; those of new nodes are empty."""
    return adj._replace(
        start=longer(adj.start, size),
        degree=longer(adj.degree, size),
        capacity=longer(adj.capacity, size),
    )
