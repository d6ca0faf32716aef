"""What a delta says of the nodes of one kind."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta import last_of_each, x_change_parts
from pyg_incremental.edge_store import Ids
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.resolve_rows import ADVICE, check_ids, checked_ids, rows_like

_NONE = np.empty(0, np.int64)


class ResolvedNodes(NamedTuple):
    """Valid changes of nodes.

    Attributes:
        new: Number of nodes to append.
        removed: Distinct ids of nodes whose edges leave.
        rows: For each changed input the distinct ids and their new rows, new nodes included.
    """

    new: int
    removed: Ids
    rows: dict[str, tuple[Tensor, Tensor]]


class NodeResolver:
    """Checks what a delta says of the nodes of one kind.

    Args:
        like: The inputs with one row for each of these nodes, without rows: `[0, ...]`. The first
            are the features.
        label: What messages put behind the name of a field, such as `['paper']`.
        advice: What messages say to do about ids that are too large.
    """

    def __init__(self, like: Mapping[str, Tensor], label: str = "", advice: str = ADVICE) -> None:
        self._like = like
        self._label = label
        self._advice = advice

    def resolve(
        self, changes: Mapping[str, Any], x_add: Mapping[str, Any], nodes_del: Any, before: int
    ) -> ResolvedNodes:
        """Check everything.

        Args:
            changes: `(ids, rows)` by input.
            x_add: Rows of new nodes by input.
            nodes_del: Ids of nodes to remove, or None.
            before: Number of nodes.

        Raises:
            InvalidDeltaError: With what is wrong.
        """
        added = {
            name: self._rows(rows, name, f"x_add{self._label}") for name, rows in x_add.items()
        }
        new = self._count(added)
        total = before + new
        removed = _NONE
        if nodes_del is not None:
            removed = np.unique(
                checked_ids(nodes_del, f"nodes_del{self._label}", total, self._advice)
            )
        rows = {}
        zeroed = removed  # of a removed node the features become zero, and nothing else
        for name in self._like:
            if new or removed.size or name in changes:
                found = self._changed(name, changes.get(name), added.get(name), zeroed, before)
                zeroed = _NONE
                if found is not None:
                    rows[name] = found
        return ResolvedNodes(new, removed, rows)

    def _count(self, added: Mapping[str, Tensor]) -> int:
        counts = {name: rows.shape[0] for name, rows in added.items()}
        if not any(counts.values()):
            return 0
        missing = [name for name in self._like if name not in counts]
        if missing:
            raise InvalidDeltaError(
                f"x_add{self._label}: new nodes would need rows of {missing} too; give a dict "
                f"x_add={{{', '.join(f'{n!r}: ...' for n in self._like)}}}"
            )
        if len(set(counts.values())) > 1:
            raise InvalidDeltaError(
                f"x_add{self._label}: expected equally many rows of each (got {counts})"
            )
        return next(iter(counts.values()), 0)

    def _rows(self, value: Any, name: str, field: str) -> Tensor:
        like = self._like[name]
        rows = rows_like(value, field, like)
        if rows.numel() == 0 and rows.dim() == 1:
            return like
        if rows.dim() != like.dim() or rows.shape[1:] != like.shape[1:]:
            shape = ", ".join(["k", *map(str, like.shape[1:])])
            raise InvalidDeltaError(f"{field}: expected shape [{shape}] (got {list(rows.shape)})")
        return rows

    def _changed(
        self, name: str, changes: Any, added: Tensor | None, gone: Ids, before: int
    ) -> tuple[Tensor, Tensor] | None:
        ids, rows = [], []
        count = 0 if added is None else added.shape[0]
        if added is not None and count:
            ids.append(np.arange(before, before + count))
            rows.append(added)
        if changes is not None:
            some, values = x_change_parts(changes)
            field = f"x_changes{self._label}"
            check_ids(some, f"{field}[0]", before + count, self._advice)
            some_rows = self._rows(values, name, f"{field}[1]")
            if some_rows.shape[0] != some.size:
                raise InvalidDeltaError(
                    f"{field}: expected one row for each of the {some.size} ids "
                    f"(got {some_rows.shape[0]} rows)"
                )
            if some.size:
                ids.append(some)
                rows.append(some_rows)
        if gone.size:
            like = self._like[name]
            ids.append(gone)
            rows.append(like.new_zeros((gone.size, *like.shape[1:])))
        if not ids:
            return None
        every = ids[0] if len(ids) == 1 else np.concatenate(ids)
        values = rows[0] if len(rows) == 1 else torch.cat(rows)
        if every.size > 1:
            keep = last_of_each(every)
            if keep.size < every.size:
                every, values = every[keep], values[torch.from_numpy(keep)]
        return torch.from_numpy(every), values
