"""Where the values of row maps stand while their operations are written, and what is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.kernels.address import zeros

STRIDE = 1 << 32
"""What tells the positions of one row from those of the next."""
_LINE = 16
"""Elements of float32 in a cache line."""


class UntranslatableError(Exception):
    """A function has no list of operations."""


@dataclass
class Space:
    """What the operations of one model share, while it is written.

    Attributes:
        size: Length of the flat array of registers and constants.
        constants: Constants and where they stand in it.
        index: Positions that operations read from.
    """

    size: int = 0
    constants: list[tuple[int, Tensor]] = field(default_factory=list)
    index: list[Tensor] = field(default_factory=list)
    index_size: int = 0

    def room(self, count: int) -> int:
        """Where `count` fresh elements stand: from the beginning of a cache line on."""
        at, self.size = self.size, self.size + -(-count // _LINE) * _LINE
        return at

    def constant(self, values: Tensor, times: int = 1) -> int:
        """Where a constant, of any shape, stands, repeated some times."""
        at = self.room(values.numel() * times)
        self.constants.append((at, values.detach().reshape(-1).repeat(times)))
        return at

    def positions(self, index: Tensor) -> int:
        """Where an index, integers of any shape, stands."""
        at, self.index_size = self.index_size, self.index_size + index.numel()
        self.index.append(index.reshape(-1))
        return at

    def arrays(self, dtype: torch.dtype) -> tuple[Any, Any]:
        """The flat array and the index, as kernels take them."""
        space = zeros(torch.empty(0, dtype=dtype).numpy().dtype, self.size)
        for at, values in self.constants:
            space[at : at + values.numel()] = values.to(dtype)
        index = torch.cat([torch.empty(0, dtype=torch.int64), *self.index])
        return space, index.numpy()


@dataclass(frozen=True)
class RowOps:
    """The operations of one map.

    Attributes:
        ops: int64 `[k, COLUMNS]`.
        inputs: Where the registers of the inputs stand.
        output: Where that of the result stands.
        wide: Whether they compute in float64 where most rows are of float32.
    """

    ops: np.ndarray[Any, np.dtype[np.int64]]
    inputs: tuple[int, ...]
    output: int
    wide: bool = False


@dataclass(frozen=True)
class Register:
    """A tensor with a row for each row: its elements in the register at `at`.

    `place[r, ...]` is the position of an element of row `r` in its row, plus `r * STRIDE`.
    """

    at: int
    width: int
    place: Tensor


@dataclass(frozen=True)
class Chosen:
    """One of several matrices for each row.

    Attributes:
        table: All of them, `[count, inner, width]`.
        number: Which one it is, `[ROWS]`.
    """

    table: Tensor
    number: Register


class Results(tuple[Any, ...]):
    """Several results of one operation."""

    __slots__ = ()
