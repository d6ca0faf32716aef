"""Where rows are kept between layers: in memory here, in a directory in `blocks.files`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.blocks.budget import Lists
from pyg_incremental.blocks.in_edges import InEdges
from pyg_incremental.blocks.kept import KeptRows
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.program.steps import Value

Ids = NDArray[np.int64]


class LayerStore:
    """Keeps rows and neighbour lists in memory.

    Args:
        out: Where the rows of the only output go, `[num_rows, ...]`, or None.
        outputs: The outputs.

    Attributes:
        spare: Rows that nobody reads any more, `[n, ...]`, to be taken before new ones: memory that
            is new to a process is slow.
    """

    in_memory: ClassVar[bool] = True

    def __init__(self, out: Tensor | None = None, outputs: Sequence[Value] = ()) -> None:
        self._out, self._outputs = out, outputs
        self.spare: list[Tensor] = []

    def lists(self, key: Lists, make: Callable[[], InEdges]) -> InEdges:
        """Neighbour lists, made if they are not there."""
        return make()

    def held(self, edges: InEdges) -> int:
        """Bytes that they take in memory."""
        return int(edges.first.nbytes + edges.neighbor.nbytes + edges.edge.nbytes)

    def room(
        self, value: Value, like: Tensor, count: int, ids: Ids | None, at: Ids | None
    ) -> KeptRows:
        """Room for `count` rows of a value, of the dtype of `like`, `[n, ...]`.

        `ids` and `at`, int64 `[count]`, are as `KeptRows` takes them.
        """
        if self._out is not None and value in self._outputs:
            rows = _checked(self._out, (count, *like.shape[1:]), like.dtype)
            return KeptRows(rows, ids, at=at)
        shape = (count, *like.shape[1:])
        for i, rows in enumerate(self.spare):
            if rows.shape == shape and rows.dtype == like.dtype and rows.device.type == "cpu":
                return KeptRows(self.spare.pop(i), ids, at=at)
        return KeptRows(like.new_empty(shape, device="cpu"), ids, at=at)

    def remove(self, value: Value, kept: KeptRows) -> None:
        """Let go of the rows of a value."""
        if self.in_memory:
            self.spare.append(kept.rows)
        kept.remove()

    def done(self, layer: int, kind: str) -> int | None:
        """How many rows an evaluation before has finished; None if there was none."""
        return None

    def found(self, value: Value, ids: Ids | None, at: Ids | None) -> KeptRows | None:
        """Rows that an evaluation before has left; None if nobody reads them any more.

        `ids` and `at`, int64 `[k]`, are as `KeptRows` takes them.
        """
        return None

    def finish(self, layer: int, kind: str, rows: int) -> None:
        """So many rows of a layer are there."""

    def close(self) -> None:
        """All rows are there."""

    def leave(self) -> None:
        """Nothing more is written, however it went; others may come."""


def _checked(out: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if tuple(out.shape) != shape or out.dtype != dtype:
        raise InvalidDeltaError(
            f"out: expected {dtype} {list(shape)} (got {out.dtype} {list(out.shape)})"
        )
    return out
