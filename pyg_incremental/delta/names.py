"""Names of nodes, and the rows in which they stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.edge_store import Ids

Name = str | int | UUID
NAMES = (str, int, UUID)
"""The types of names."""


def listed(value: Any) -> Any:
    """Names as lists of plain Python values, nested as they come; anything else as it is."""
    if type(value) is list:
        return value
    found = value.tolist() if hasattr(value, "tolist") else value
    return list(found) if isinstance(found, (tuple, range)) else found


def names_in(value: Any, field: str) -> list[Any]:
    """Names in a list, an array, a column of a table or a tensor of integers; or one alone.

    Raises:
        InvalidDeltaError: If one is no string, integer or UUID.
    """
    found = listed(value)
    if isinstance(found, NAMES):
        found = [found]
    if not isinstance(found, list):
        found = list(found) if isinstance(found, Iterable) else [found]
    found = [name.item() if isinstance(name, np.generic) else name for name in found]
    for at, name in enumerate(found):
        if type(name) not in NAMES and (isinstance(name, bool) or not isinstance(name, NAMES)):
            raise InvalidDeltaError(
                f"{field}: expected names, which are strings, integers or UUIDs (got {name!r} at "
                f"position {at})",
                what=field,
                positions=[at],
            )
    return found


@dataclass
class Renamed:
    """What a delta does to the names of one kind of nodes.

    Attributes:
        named: The rows of new names.
        gone: The rows of names that leave.
        base: How many of the free rows are not taken.
    """

    named: dict[Any, int] = field(default_factory=dict)
    gone: dict[Any, int] = field(default_factory=dict)
    base: int = 0

    def at(self) -> dict[int, Any]:
        """The names that come or leave by their rows."""
        return {row: name for names in (self.gone, self.named) for name, row in names.items()}


class NameTable:
    """The names of the nodes of one kind.

    A Python dict finds a name as fast as the index of any library, and unlike these it also takes
    one name more, or one less, without being built anew.

    Args:
        names: The names, by row; None for a row that has none, and may be taken.
        field: What messages call them.

    Attributes:
        rows: The row of each name.
        free: Rows that no name has; the last one is taken first.

    Raises:
        InvalidDeltaError: If one is no name, or is there twice.
    """

    def __init__(self, names: Sequence[Any], field: str) -> None:
        names_in([name for name in names if name is not None], field)
        self.rows: dict[Any, int] = {n: i for i, n in enumerate(names) if n is not None}
        self._names = np.empty(len(names), object)
        self._names[:] = names
        self._count = len(names)
        self._are_keys = all(type(name) is int for name in self.rows)
        self.free = [i for i, name in enumerate(names) if name is None]
        if len(self.rows) + len(self.free) < len(names):
            again = next(n for i, n in enumerate(names) if n is not None and self.rows[n] != i)
            raise InvalidDeltaError(f"{field}: {again!r} names two nodes; give each its own name")

    def __len__(self) -> int:
        """How many rows there are, with and without a name."""
        return self._count

    @property
    def names(self) -> np.ndarray[Any, np.dtype[np.object_]]:
        """The name of each row, or None, `[num_nodes]`: a view."""
        return self._names[: self._count]

    def take(self, names: Sequence[Any], change: Renamed, field: str) -> Ids:
        """The rows, int64 `[k]`, of names that come: free ones first, then new ones.

        Raises:
            InvalidDeltaError: If one is there already.
        """
        rows = np.empty(len(names), np.int64)
        for at, name in enumerate(names):
            if name in self.rows or name in change.named:
                raise InvalidDeltaError(
                    f"{field}: there is a node {name!r} already (position {at}); change it with "
                    "x_changes",
                    what=field,
                    positions=[at],
                )
            if change.base:
                change.base -= 1
                row = self.free[change.base]
            else:
                row = self._count + len(change.named) - (len(self.free) - change.base)
            change.named[name] = rows[at] = row
        return rows

    def begin(self) -> Renamed:
        """A change that does nothing yet."""
        return Renamed(base=len(self.free))

    def commit(self, change: Renamed) -> None:
        """Take a change in; a second time, it does nothing."""
        for name, row in change.named.items():
            if row >= len(self._names):
                more = np.empty(max(2 * len(self._names), row + 64), object)
                more[: len(self._names)] = self._names
                self._names = more
            self._count = max(self._count, row + 1)
            self.rows[name], self._names[row] = row, name
            self._are_keys &= type(name) is int
        for name, row in change.gone.items():
            self.rows.pop(name, None)
            self._names[row] = None
        del self.free[change.base :]
        self.free.extend(change.gone.values())

    def of(self, rows: Ids, more: Mapping[int, Any] | None = None) -> Any:
        """The names of some rows, int64 `[k]`: a tensor if all are integers, else an array.

        Args:
            rows: The rows.
            more: Names that come or leave, by their rows.
        """
        if more:
            size, found = self._count, np.empty(rows.size, object)
            found[:] = [more[r] if r in more else self._names[r] if r < size else None
                        for r in rows.tolist()]  # fmt: skip
        else:
            found = self._names[rows]
        if self._are_keys:
            try:
                return torch.from_numpy(found.astype(np.int64))
            except TypeError:  # a row without a name
                pass
        return found

    def moved(self, ids: Ids) -> NameTable:
        """The names where nodes have other rows, `ids`, int64 `[num_nodes]`, -1 for none."""
        names: list[Any] = [None] * int((ids >= 0).sum())
        for name, row in self.rows.items():
            names[ids[row]] = name
        return NameTable(names, "node_ids")

    # Files ---------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Tensor]:
        """The names, `[num_nodes]`, as `names_to_tensors` has them."""
        return names_to_tensors(self.names.tolist())

    @classmethod
    def restored(cls, saved: Mapping[str, Tensor]) -> NameTable:
        """The names as `saved` has returned them, int64 `[num_nodes]`.

        Raises:
            ValueError: If the bytes are none of names.
            InvalidDeltaError: If a name is there twice.
        """
        return cls(names_of_tensors(saved), "node_ids")


def names_to_tensors(names: Sequence[Any]) -> dict[str, Tensor]:
    """Names as tensors: what each is, int64 `[num_names]`, and all of them in bytes."""
    kinds, parts = [], []
    for name in names:
        kinds.append(0 if name is None else 1 + [isinstance(name, k) for k in NAMES].index(True))
        parts.append(_in_bytes(name))
    text = b"".join(parts)
    return {
        "kinds": torch.tensor(kinds, dtype=torch.int64),
        "sizes": torch.tensor([len(part) for part in parts], dtype=torch.int64),
        "bytes": torch.frombuffer(bytearray(text or b"\0"), dtype=torch.uint8)[: len(text)],
    }


def names_of_tensors(saved: Mapping[str, Tensor]) -> list[Any]:
    """The names that tensors are, int64 `[num_names]`; see `names_to_tensors`.

    Raises:
        ValueError: If the bytes are none of names.
    """
    text, at, names = saved["bytes"].numpy().tobytes(), 0, []
    for kind, size in zip(saved["kinds"].tolist(), saved["sizes"].tolist(), strict=True):
        names.append(_of_bytes(kind, text[at : at + size]))
        at += size
    return names


def _in_bytes(name: Any) -> bytes:
    """A name in bytes."""
    if name is None:
        return b""
    if isinstance(name, UUID):
        return name.bytes
    return (name if isinstance(name, str) else str(int(name))).encode("utf-8", "surrogatepass")


def _of_bytes(kind: int, text: bytes) -> Any:
    """The name that some bytes are.

    Raises:
        ValueError: If they are none.
    """
    if kind == 0:
        return None
    if kind == 3:
        return UUID(bytes=text)
    if kind not in (1, 2):
        raise ValueError(f"no kind of name: {kind}")
    found = text.decode("utf-8", "surrogatepass")
    return int(found) if kind == 2 else found
