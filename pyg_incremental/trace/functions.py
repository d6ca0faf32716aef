"""What a recorded graph has in place of what Python does with tensors and sizes by itself."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from pyg_incremental.trace.sizes import evaluated


class SizeFormula:
    """Something computed from sizes, such as half of a number of edges."""

    __name__ = "size"

    def __init__(self, size: Any, symbols: Sequence[Any]) -> None:
        self._size, self._symbols = size, symbols

    def __call__(self, *numbers: int) -> Any:
        """Its value for these sizes."""
        return evaluated(self._size, dict(zip(self._symbols, numbers, strict=True)))


def size_of(tensor: Tensor, dim: int) -> int:
    """One size of a tensor of any shape."""
    return tensor.shape[dim]


def set_item(tensor: Tensor, index: Any, value: Any) -> Tensor:
    """`tensor[index] = value`, for any shape, as a function of tensors of its own."""
    tensor[index] = value
    return tensor
