"""What a delta says of the nodes of one kind."""

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.call.roles import is_everyone
from pyg_incremental.delta.given import (
    ADVICE,
    as_ids,
    field_of,
    last_of_each,
    rows_like,
    stranger,
    strangers,
    x_change_parts,
)
from pyg_incremental.delta.intake import Intake
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.edge_store import Ids

_NONE = np.empty(0, np.int64)


class GivenNodes(NamedTuple):
    """What is said of the nodes of one kind; all ids and shapes are fine.

    Attributes:
        new: Rows of new nodes for each input, `[n, ...]`; nothing if there are none.
        changed: For each changed input ids, int64 `[c]`, and their new rows `[c, ...]`; of an id
            listed twice the last row counts.
        removed: Distinct ids of nodes whose edges leave.
    """

    new: dict[str, Tensor]
    changed: dict[str, tuple[Ids, Tensor]]
    removed: Ids

    def rows(
        self, like: Mapping[str, Tensor], first: int, kept: Container[str] = ()
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """For each input that changes the distinct ids and their new rows, new nodes included.

        Args:
            like: The inputs with one row for each of these nodes, without rows: `[0, ...]`.
            first: The id of the first new node.
            kept: The inputs of which the rows of removed nodes are not cleared.
        """
        found = {}
        for name, rows in like.items():
            zeroed = _NONE if name in kept else self.removed
            if self.new or zeroed.size or name in self.changed:
                made = _united(self.new.get(name), self.changed.get(name), zeroed, rows, first)
                if made is not None:
                    found[name] = made
        return found


def _united(
    new: Tensor | None, changed: tuple[Ids, Tensor] | None, zeroed: Ids, like: Tensor, first: int
) -> tuple[Tensor, Tensor] | None:
    ids, rows = [], []
    if new is not None and new.shape[0]:
        ids.append(np.arange(first, first + new.shape[0]))
        rows.append(new)
    if changed is not None and changed[0].size:
        ids.append(changed[0])
        rows.append(changed[1])
    if zeroed.size:
        ids.append(zeroed)
        rows.append(like.new_zeros((zeroed.size, *like.shape[1:])))
    if not ids:
        return None
    every = ids[0] if len(ids) == 1 else np.concatenate(ids)
    values = rows[0] if len(rows) == 1 else torch.cat(rows)
    if every.size > 1:
        keep = last_of_each(every)
        if keep.size < every.size:
            every, values = every[keep], values[torch.from_numpy(keep)]
    return torch.from_numpy(every), values


class NodeReader:
    """Reads what a delta says of the nodes of one kind.

    Args:
        like: The inputs with one row for each of these nodes, without rows: `[0, ...]`. The first
            are the features.
        label: What messages put behind the name of a field, such as `['paper']`.
        advice: What messages say to do about ids that are too large.
    """

    def __init__(self, like: Mapping[str, Tensor], label: str = "", advice: str = ADVICE) -> None:
        self.like = like
        self._label = label
        self._advice = advice

    def new(self, x_add: Mapping[str, Any]) -> dict[str, Tensor]:
        """Rows of new nodes for each input; nothing if there are none.

        Args:
            x_add: What is given, by input.

        Raises:
            InvalidDeltaError: If rows of an input are missing, or do not fit.
        """
        added = {
            name: self._rows(rows, name, self._field("x_add", name), True)
            for name, rows in x_add.items()
        }
        counts = {name: rows.shape[0] for name, rows in added.items()}
        if not any(counts.values()):
            return {}
        needed = [name for name in self.like if not is_everyone(name)]
        missing = [name for name in needed if name not in counts]
        if missing:
            raise InvalidDeltaError(
                f"x_add{self._label}: new nodes would need rows of {missing} too; give a dict "
                f"x_add={{{', '.join(f'{n!r}: ...' for n in needed)}}}"
            )
        if len(set(counts.values())) > 1:
            raise InvalidDeltaError(
                f"x_add{self._label}: expected equally many rows of each (got {counts})"
            )
        (count,) = set(counts.values())
        there = {n: like.new_zeros(count) for n, like in self.like.items() if is_everyone(n)}
        return there | added

    def read(
        self,
        changes: Mapping[str, Any],
        new: dict[str, Tensor],
        nodes_del: Any,
        total: int,
        intake: Intake | None = None,
    ) -> GivenNodes:
        """Check all else.

        Args:
            changes: `(ids, rows)` by input.
            new: What `new` has returned: rows `[k, ...]` by input.
            nodes_del: Ids of nodes to remove, or None.
            total: Number of nodes, new ones included.
            intake: What becomes of ids that do not fit; an error by default.

        Raises:
            InvalidDeltaError: With what is wrong.
        """
        removed = _NONE
        if nodes_del is not None:
            field = f"nodes_del{self._label}"
            ids = as_ids(nodes_del, field)
            kept = self._fitting(ids, field, total, intake)
            removed = np.unique(ids if kept is None else ids[kept])
        changed = {
            name: self._changes(name, changes[name], total, intake)
            for name in self.like
            if name in changes
        }
        return GivenNodes(new, changed, removed)

    def _field(self, field: str, name: str) -> str:
        """A field, of these nodes, and which input of them if there are several."""
        given = [other for other in self.like if not is_everyone(other)]
        return f"{field}{self._label}{f'[{name!r}]' if len(given) > 1 else ''}"

    def _fitting(self, ids: Ids, field: str, total: int, intake: Intake | None) -> Ids | None:
        """Which ids, int64 `[k]`, are those of nodes: their places, or None for all."""
        wrong = strangers(ids, total)
        return None if not wrong.size else (intake or Intake()).fitting(
            field_of(field), wrong, ids.size,
            lambda at, place: stranger(int(ids[at]), place, field, total, self._advice),
        )  # fmt: skip

    def _changes(
        self, name: str, changes: Any, total: int, intake: Intake | None
    ) -> tuple[Ids, Tensor]:
        field = self._field("x_changes", name)
        ids, values = x_change_parts(changes, field)
        kept = self._fitting(ids, f"x_changes{self._label}[0]", total, intake)
        rows = self._rows(values, name, f"{field}[1]", ids.size == 1)
        if rows.shape[0] != ids.size:
            raise InvalidDeltaError(
                f"{field}: expected one row for each of the {ids.size} ids (got {rows.shape[0]} "
                "rows)"
            )
        return (ids, rows) if kept is None else (ids[kept], rows[torch.from_numpy(kept)])

    def _rows(self, value: Any, name: str, field: str, may_be_one: bool) -> Tensor:
        """Rows `[k, ...]`; one may come without its first dimension."""
        like = self.like[name]
        rows = rows_like(value, field, like)
        if may_be_one and rows.shape == like.shape[1:]:
            return rows.unsqueeze(0)
        if rows.numel() == 0 and rows.dim() == 1:
            return like
        if rows.dim() != like.dim() or rows.shape[1:] != like.shape[1:]:
            shape = ", ".join(["k", *map(str, like.shape[1:])])
            raise InvalidDeltaError(f"{field}: expected shape [{shape}] (got {list(rows.shape)})")
        return rows
