"""Aliases, numerical limits, and which optional packages are there."""

from collections.abc import Hashable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import TypeVar

Out = TypeVar("Out", default=Tensor)
"""What a model returns; a tensor, if nobody says `IncrementalModel[dict[str, Tensor]]`."""


class Table(Protocol):
    """A data frame: columns by name, which NumPy reads."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    def __getitem__(self, name: str, /) -> Any: ...


Numbers = (
    Tensor | NDArray[np.generic] | Sequence[float] | Sequence[Sequence[float]] | Sequence[Tensor]
)
"""Rows of numbers, of any shape."""
Nodes = Tensor | NDArray[np.generic] | int | Sequence[int] | Sequence[Hashable]
"""Ids of nodes, integers `[k]`, or their names."""
Pairs = (
    Tensor | NDArray[np.generic] | Table | Sequence[Sequence[int]] | Sequence[Sequence[Hashable]]
    | Sequence[Tensor] | Mapping[str, Numbers]
)  # fmt: skip
"""Edges, integers `[2, k]`, or a table of them."""
Changes = tuple[Nodes, Numbers]
"""Nodes, `[c]`, and their rows, `[c, ...]`."""
EdgeChanges = tuple[Pairs, Mapping[str, Numbers]] | Table
"""Edges, and new data for them."""
Identifiers = Tensor | NDArray[np.generic]
"""Ids that users gave to nodes or edges: int64 `[k]` if they are integers, else objects `[k]`."""
Array = Any
"""A NumPy array (compiled kernels) or a tensor (reference kernels): what a kernel takes."""

BackendName = Literal["auto", "compiled", "reference"]
StoreName = Literal["fast", "minimal"]
Format = Literal["coo", "csr", "csc", "sparse_tensor"]

HAS_TORCH_SPARSE = find_spec("torch_sparse") is not None

MAX_NODES = 2**31 - 1
MAX_EDGES = 2**31 - 1

DRIFT_LIMIT = {torch.float32: 2.0**22, torch.float64: 2.0**16}
"""How much magnitude may move through an accumulated row before it is summed afresh.

The unit is the row's own magnitude. Every addition leaves a rounding error of at most one unit in
the last place of what is added or of the row. Rows in float32 are kept in two halves, so that unit
is 2^-48 of the row, and a row is kept within 2e-8 of a fresh sum, relative to the row; in float64,
within 2e-11.
"""
