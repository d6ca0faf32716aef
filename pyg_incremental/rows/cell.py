"""The rows of one value, and what one update does to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.errors import RowCountError, UnsupportedModelError
from pyg_incremental.kernels.adjacency import out_of_range
from pyg_incremental.kernels.compiled.machine import MANY
from pyg_incremental.kernels.lent import Lent
from pyg_incremental.kernels.threads import take
from pyg_incremental.program.steps import Value
from pyg_incremental.rows.backend import NO_IDS, Backend, Ids
from pyg_incremental.rows.growing import Rows
from pyg_incremental.rows.nodes import NodeSet
from pyg_incremental.typing import Array

ENOUGH = 64
"""One in so many rows tells how many of all will change: by then that is known to some percent, and
keeping OLD rows until then has cost little."""


class RowMaker(Protocol):
    """Computes rows of a value that is not stored."""

    def now(self, ids: Ids) -> Tensor:
        """The current rows `ids`, int64 `[k]`: `[k, ...]`."""
        ...

    def exactly(self, ids: Ids, before: bool) -> Tensor:
        """Rows as in `now`, bit by bit the same whenever they are computed.

        Those of now, or those from before the running update.
        """
        ...


class Cell(Rows):
    """The rows of one value: what is stored, and what the running update has done to it so far.

    Attributes:
        ids: Rows that changed in the running update, or None.
        fresh: The new rows of `ids`, `[k, ...]`, or None if they are only in the store.
        old: What stood in the rows `ids` before, as a kernel's array `[k, channels]`; only where an
            aggregation retracts it (`keeps_old`), and not always if most rows changed, where all
            that do make their rows afresh then (`old_if_few`).
        most: The part of all rows from which on all of these do.
        old_changed: For an edge value, the OLD rows of the changed edges, or None if it did not
            change there.
        dirty: Whether a value of domain `WHOLE` changed.
        content: A value of domain `WHOLE`.
        nodes: The nodes whose rows these are, if they are node rows.
        maker: What computes the rows of a value that is never stored.
        is_read_once: Whether one map alone reads this value, which then need not be in memory.
        make_part: Computes new rows (of `ids` if that is not None, else of all) from some place to
            before another, or None.
    """

    def __init__(self, value: Value, backend: Backend, nodes: NodeSet | None = None) -> None:
        super().__init__(backend)
        self.value = value
        self.nodes = nodes
        self.domain = value.domain
        self.stored = False
        self.keeps_old = False
        self.old_if_few = False
        self.most = 0.0
        self.compares_values = False
        self.out_dtype: torch.dtype | None = None
        self.content: Any = None
        self.maker: RowMaker | None = None
        self.is_read_once = False
        self._before: list[tuple[Ids, Tensor]] = []
        self._plain: Array = None
        self.reset()

    def __repr__(self) -> str:
        return f"value '{self.value}'"

    def reset(self) -> None:
        """Forget the running update."""
        self.ids: Ids | None = None
        self.fresh: Tensor | None = None
        self.old: Array = None
        self.old_changed: Tensor | None = None
        self.make_part: Callable[[int, int], Tensor] | None = None
        self.dirty = False
        if self._before:
            self._before = []

    @property
    def is_clean(self) -> bool:
        """Whether the running update has not touched this value."""
        clean = self.ids is None and not self.dirty and self.old_changed is None
        return clean and not self._before

    def hold(self, rows: Tensor) -> None:
        """Store `rows`, `[n, ...]`, as they are, and remember their dtype and shape for `commit`.

        Raises:
            UnsupportedModelError: If they are complex, and an aggregation would retract them.
        """
        if self.keeps_old and rows.is_complex():
            raise UnsupportedModelError(f"{self!r} is complex, and no aggregation retracts such")
        super().hold(rows)
        self._dtype, self._tail = rows.dtype, rows.shape[1:]
        flat = _real(rows.view(rows.shape[0], self._tail.numel()))
        self.array = self.backend.array(flat)
        self._no_old = self.array[:0]
        plain = self.backend.is_compiled and self.out_dtype is None
        self._plain = rows.numpy() if plain else None
        self._bit_type = self.backend.bits[flat.element_size()]
        self.bits = self.array if self.compares_values else self.array.view(self._bit_type)

    def read(self, ids: Tensor) -> Tensor:
        """Current rows `ids`, int64 `[k]`: `[k, ...]`.

        NumPy starts faster than torch, which matters for a few rows; and its memory is one of huge
        pages, which matters for many.
        """
        if self.maker is not None:
            return self.maker.now(self.backend.ids(ids))
        if self._plain is not None:
            return torch.from_numpy(self._plain.take(ids.numpy(), 0))
        rows = self.rows if self.rows is not None else self.tensor
        rows = rows.index_select(0, ids if self.backend.is_compiled else ids.to(rows.device))
        return rows if self.out_dtype is None else rows.to(self.out_dtype)

    def gather(self, ids: Ids, lent: Lent | None = None) -> Tensor:
        """Like `read`, but by threads where there are many, and in memory that is lent."""
        if self._plain is not None and self.maker is None:
            return torch.from_numpy(take(self._plain, ids.array, lent))
        return self.read(ids.tensor) if self.maker is None else self.maker.now(ids)

    def stored_rows(self, ids: Ids) -> Array:
        """A copy of the stored rows `ids`, int64 `[k]`, as kernels take them: `[k, channels]`."""
        return take(self.array, ids.array) if self.backend.is_compiled else self.array[ids.array]

    @property
    def is_listed(self) -> bool:
        """Whether `listed` may be asked."""
        return self._plain is not None and self.maker is None

    @property
    def width(self) -> int:
        """How many elements a row has; zero if rows are not plain ones in memory."""
        return 0 if self._plain is None or self.maker is not None else self._tail.numel()

    def listed(self, ids: NDArray[np.int64]) -> NDArray[Any] | None:
        """A copy `[k, ...]` of the rows `ids`, int64 `[k]`, which nobody has checked yet.

        It is only good if they are all there; None if one of many is not.
        """
        rows = self._plain
        if not len(rows):
            return None
        if ids.size < MANY:
            copy: NDArray[Any] = rows.take(ids, 0, mode="clip")
            return copy
        if out_of_range(ids, len(rows)) >= 0:
            return None
        copy = take(rows, ids)
        return copy

    def remember(self, ids: Ids) -> None:
        """Take note of the rows `ids`, int64 `[k]`, before something writes to them."""
        self._before.append((ids, self.tensor[ids.tensor.to(self.tensor.device)]))

    def rows_before(self, ids: Ids) -> Tensor:
        """Stored rows `ids`, int64 `[k]`, as they stood before the running update: `[k, ...]`."""
        rows = self.read(ids.tensor)
        noted = list(self._before)
        if self.ids is not None and self.old is not None:
            old = self.old[: self.ids.count]
            noted.append((self.ids, self.backend.tensor(old).view(-1, *self._tail)))
        for of, old in reversed(noted):  # the first note is the oldest
            at, where = _common(np.asarray(ids.array), np.asarray(of.array))
            rows[at.to(rows.device)] = old[where.to(rows.device)].to(rows.dtype)
        return rows

    def current(self) -> Tensor:
        """The rows of all nodes."""
        return self.tensor if self.nodes is None else self.whole(self.nodes.num_nodes)

    def whole(self, count: int) -> Tensor:
        """The first `count` rows."""
        if self.maker is not None:
            return self.read(torch.arange(count))
        return self.part(0, count)

    def part(self, first: int, last: int) -> Tensor:
        """The rows from `first` to before `last`."""
        if self.maker is not None:
            return self.read(torch.arange(first, last))
        if self.make_part is not None:
            return self.make_part(first, last)
        rows = self.tensor[first:last]
        return rows if self.out_dtype is None else rows.to(self.out_dtype)

    def commit(self, ids: Ids, new: Tensor, first_new: int) -> int:
        """Write new rows and keep as `ids` those that differ from what was stored.

        Args:
            ids: The rows, int64 `[k]`.
            new: What they are now, `[k, ...]`.
            first_new: Rows from this one on are new, and differ whatever they are.

        Returns:
            The number of those that differ.
        """
        count = ids.count
        changed, where = self.backend.room(count), self.backend.room(count)
        old = self._room_for_old(count)
        n = self._write(ids.array, new, old, first_new, changed, where)
        if n == count:
            self.ids, self.fresh = ids, new
        elif n:
            self.ids = self.backend.ids_from(changed[:n])
            rows = self.backend.ids_from(where[:n]).tensor
            self.fresh = new.index_select(0, rows.to(new.device))
        return n

    def write(self, ids: Ids, new: Tensor) -> None:
        """Write new rows, `[k, ...]`, to the rows `ids`, int64 `[k]`, outside of any update."""
        rooms = self.backend.room(ids.count), self.backend.room(ids.count)
        self._write(ids.array, new, self._no_old, 0, *rooms)

    def commit_parts(
        self, ids: Ids, make: Callable[[int, int], Tensor], size: int, first_new: int
    ) -> int:
        """Like `commit`, for many rows; `make` computes those from some to before another.

        They are never in memory all at once.
        """
        changed, where = self.backend.room(ids.count), self.backend.room(size)
        old = self._room_for_old(ids.count)
        n = 0
        for first in range(0, ids.count, size):
            last = min(first + size, ids.count)
            if self.old_if_few and self._become_most(n, first, ids.count):
                self.old = old = self._no_old
            n += self._write(
                ids.array[first:last], make(first, last), old[n:], first_new, changed[n:], where
            )
        if n:
            self.ids = ids if n == ids.count else self.backend.ids_from(changed[:n])
        return n

    def _become_most(self, changed: int, looked_at: int, count: int) -> bool:
        """Whether most nodes will have changed, by what has come of the rows looked at so far."""
        nodes = self.nodes
        if nodes is None or looked_at * ENOUGH < nodes.num_nodes:
            return False
        return nodes.are_most(changed * count // looked_at, self.most)

    @property
    def has_lost_old(self) -> bool:
        """Whether OLD rows were dropped because most nodes were to change."""
        if self.ids is None or self.old is None:  # a value that is not stored never has any
            return False
        return self.keeps_old and len(self.old) < self.ids.count

    def _room_for_old(self, count: int) -> Array:
        if not self.keeps_old:
            return self._no_old
        self.old = self.backend.like_array(self.array[:count])
        return self.old

    def _write(
        self, ids: Array, new: Tensor, old: Array, first_new: int, changed: Array, where: Array
    ) -> int:
        """Write `new` to the rows `ids`; see the kernel `commit`."""
        shape = new.shape
        if new.dtype is not self._dtype or shape[1:] != self._tail:
            raise UnsupportedModelError(
                f"step '{self.value}' made rows of {new.dtype} {list(shape[1:])}, but of "
                f"{self._dtype} {list(self._tail)} in the first pass; the model behaves "
                "differently on fewer rows"
            )
        if shape[0] != len(ids):  # compiled code would read what is not there
            raise RowCountError(f"step '{self.value}' made {shape[0]} rows for {len(ids)} nodes")
        flat = new if len(shape) == 2 else new.reshape(shape[0], self._tail.numel())
        compare = self.backend.array(_real(flat.contiguous()))
        if not self.compares_values:
            compare, old = compare.view(self._bit_type), old.view(self._bit_type)
        n: int = self.backend.kernels.commit(
            self.bits, ids, compare, old, first_new, changed, where
        )
        return n


def _real(rows: Tensor) -> Tensor:
    """Flat rows `[n, channels]` as kernels take them: a complex number as two real ones."""
    return torch.view_as_real(rows).flatten(1) if rows.is_complex() else rows


def _common(ids: NDArray[np.int64], of: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Places in `ids` of those that are in `of`, and their places there."""
    order = np.argsort(of)
    if not order.size:
        return NO_IDS, NO_IDS
    place = order[np.minimum(np.searchsorted(of, ids, sorter=order), order.size - 1)]
    at = np.flatnonzero(of[place] == ids)
    return torch.from_numpy(at), torch.from_numpy(place[at])
