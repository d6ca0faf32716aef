"""Which kernels run, and the arrays that they take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.graph.storage import Storage
from pyg_incremental.kernels import compiled, kept, reference
from pyg_incremental.kernels.protocol import Kernels
from pyg_incremental.kernels.takeover import KERNELS
from pyg_incremental.typing import Array, BackendName

NO_IDS = torch.empty(0, dtype=torch.int64)
SPARSE = 64
"""As many ids as nodes over this are sorted no faster than they are marked and listed."""
_SMALL = {*kept.SMALL}
_BITS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
_TORCH_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Ids:
    """Distinct row ids, int64 `[k]`: as the array that kernels take, and as a tensor."""

    __slots__ = ("_tensor", "array", "count")

    def __init__(self, array: Array, tensor: Tensor | None = None) -> None:
        self.array = array
        self._tensor = tensor
        self.count: int = array.shape[0]

    @property
    def tensor(self) -> Tensor:
        """The ids as a tensor; many sets are only ever united with others and never need one."""
        if self._tensor is None:
            self._tensor = torch.from_numpy(self.array)
        return self._tensor


class Backend:
    """One set of kernels and the arrays it takes: NumPy views on the CPU, or tensors on any device.

    Args:
        name: `'auto'` takes the compiled kernels for float32 and float64 on the CPU, else the
            reference. Where the compiled ones have still to be made, plain ones stand in for them,
            on the same arrays, see `kernels.takeover`.
        like: A tensor of the device and dtype that the rows will have, of any shape.
        storage: Where rows lie; in memory by default.
        dtypes: Those of all that is handed in; compiled kernels know no halves of float32.

    Raises:
        UnsupportedModelError: If compiled kernels are asked for where there are none.
    """

    def __init__(
        self,
        name: BackendName,
        like: Tensor,
        storage: Storage | None = None,
        dtypes: Collection[torch.dtype] = (),
    ) -> None:
        halves = (dtype for dtype in (torch.bfloat16, torch.float16) if dtype in dtypes)
        dtype = next(halves, like.dtype)
        compilable = like.device.type == "cpu" and dtype in (torch.float32, torch.float64)
        if name == "compiled" and not compilable:
            raise UnsupportedModelError(
                "backend='compiled' needs float32 or float64 on the CPU, edge data included (got "
                f"{dtype} on '{like.device}'); use backend='auto' or 'reference'"
            )
        self.like = like.detach().new_empty(0)
        self.storage = storage or Storage()
        self.moves = 0  # how often rows were put elsewhere
        self.spare: list[Tensor] = []  # rows that nobody reads, to be taken before new ones
        self.is_compiled = compilable and name != "reference"
        self._kinds = {"loop"}
        self._dtype = str(like.dtype).removeprefix("torch.")
        self.kernels: Kernels = compiled if self.is_compiled else reference
        self.array: Callable[[Tensor], Array] = (
            torch.Tensor.numpy if self.is_compiled else lambda t: t
        )
        self.like_array: Callable[[Array], Array] = (
            np.empty_like if self.is_compiled else torch.empty_like
        )
        self.sorted: Callable[[Array], Array] = ascending if self.is_compiled else _sorted
        self.joined: Callable[[Sequence[Array]], Array] = (
            np.concatenate if self.is_compiled else torch.cat  # type: ignore[assignment]
        )
        self.bits = _BITS if self.is_compiled else _TORCH_BITS

    def poll(self) -> None:
        """Let compiled kernels take over that have been made meanwhile."""
        if KERNELS.is_making:
            KERNELS.poll()

    def ask_for(self, kinds: Iterable[str]) -> None:
        """Have kernels made of some kinds, see `kernels.warm`, if there are none."""
        if self.is_compiled:
            self._kinds |= {*kinds}
            KERNELS.ask(self._dtype, self._kinds)

    def has(self, kinds: Iterable[str]) -> bool:
        """Whether nothing is lacking of the kernels of some kinds that were asked for."""
        return KERNELS.is_ready(self._dtype, kinds)

    @property
    def serves_compiled(self) -> bool:
        """Whether compiled kernels run, of small updates at least; plain ones do until then."""
        return self.is_compiled and self.has(self._kinds & _SMALL)

    @property
    def name(self) -> str:
        """`'compiled'` or `'reference'`: which kernels run now."""
        return "compiled" if self.serves_compiled else "reference"

    def ids(self, tensor: Tensor) -> Ids:
        """Ids from a tensor, int64 `[k]`."""
        return Ids(self.array(tensor), tensor)

    def ids_from(self, array: Array) -> Ids:
        """Ids from a kernel's array, int64 `[k]`, which they keep."""
        return Ids(array, None if self.is_compiled else array)

    def host(self, array: NDArray[Any]) -> Array:
        """A kernel's view of an array of any shape on the host."""
        return array if self.is_compiled else torch.from_numpy(array)

    def zeros(
        self, like: Tensor, *shape: int, dtype: torch.dtype | None = None, unread: int = 0
    ) -> Tensor:
        """Zeros, `[*shape]`, on the device of `like`, of its dtype if no other is given.

        Whatever the first `unread` rows hold: they are written before they are read.
        """
        dtype = dtype or like.dtype
        for i, rows in enumerate(self.spare):
            if rows.shape == shape and rows.dtype == dtype and rows.device == like.device:
                rows = self.spare.pop(i)
                rows[unread:].zero_()
                return rows
        return self.storage.rows(like, *shape, dtype=dtype)

    def tensor(self, array: Array) -> Tensor:
        """A tensor over a kernel's array of any shape."""
        return torch.from_numpy(array) if self.is_compiled else array

    def room(self, size: int) -> Array:
        """Uninitialised room for ids."""
        return (
            np.empty(size, np.int64) if self.is_compiled else torch.empty(size, dtype=torch.int64)
        )


def ascending(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distinct ids, int64 `[k]`, sorted; the array itself if it is large and ascends already."""
    if ids.size <= 1024:
        return np.sort(ids)
    if (ids[1:] > ids[:-1]).all():
        return ids
    last = int(ids.max())
    if ids.size * SPARSE < last:
        return np.sort(ids)
    marks = np.zeros(last + 1, np.bool_)
    marks[ids] = True
    return np.flatnonzero(marks)


def _sorted(ids: Tensor) -> Tensor:
    return ids.sort().values
