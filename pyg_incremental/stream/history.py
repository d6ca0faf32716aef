"""The last updates of a stream, kept so that one can look back: rows as of then, and why."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.errors import IncrementalError
from pyg_incremental.model import IncrementalModel
from pyg_incremental.sources.event import Event
from pyg_incremental.stream.schema import Type
from pyg_incremental.update import Update


class Past(NamedTuple):
    """One update.

    Attributes:
        version: The version that it led to.
        num_rows: How many rows each output had before it, by type; None where there is one.
        rows: The rows of each output that it changed, int64 `[k]`.
        old: What stood there before, `[k, ...]`; NaN in rows that it brought.
        undo: The delta that undoes it.
        events: The events that are in it; none if edges fell out of a window.
    """

    version: int
    num_rows: Mapping[Type, int]
    rows: Mapping[Type, Tensor]
    old: Mapping[Type, Tensor]
    undo: GraphDelta
    events: Sequence[Event]


class History:
    """The last updates, each with the rows that it changed.

    Args:
        inc: The model.
        keep: How many updates are kept.

    Raises:
        ValueError: If that is not a number, 1 or more.
    """

    def __init__(self, inc: IncrementalModel, keep: int) -> None:
        if type(keep) is not int or keep < 1:
            raise ValueError(f"keep: expected a number of updates, 1 or more (got {keep!r})")
        self._inc = inc
        self._kept: deque[Past] = deque(maxlen=keep)

    def sizes(self) -> Mapping[Type, int]:
        """How many rows each output has now.

        Raises:
            IncrementalError: If outputs are neither one tensor nor a dict by type.
        """
        return {of: len(rows) for of, rows in by_type(self._inc.out).items()}

    def note(
        self, update: Update[Any], num_rows: Mapping[Type, int], events: Sequence[Event]
    ) -> None:
        """Keep one more, and let the oldest go.

        Args:
            update: The update, with the OLD rows and the way back.
            num_rows: How many rows each output had before it; see `sizes`.
            events: What is in it.

        Raises:
            IncrementalError: If rows of an output are not those of nodes.
        """
        if update.changed_edges is not None:
            raise IncrementalError(
                "Stream(keep=): the output has rows of edges; updates are kept of outputs with a "
                "row for each node"
            )
        if self._kept and self._kept[-1].version != update.version - 1:
            self._kept.clear()  # an update came in between of which nothing is known
        old = by_type(update.old)
        self._kept.append(Past(update.version, num_rows, rows_of(update), old, update.undo, events))

    @property
    def nbytes(self) -> int:
        """The bytes of rows that are kept, and of their numbers."""
        kept = (t for p in self._kept for part in (p.rows, p.old) for t in part.values())
        return sum(t.numel() * t.element_size() for t in kept)

    def since(self, version: int) -> list[Past]:
        """The updates after a version, in their order.

        Raises:
            IncrementalError: If some of them are not kept.
        """
        now = self._inc.version
        kept = [past for past in self._kept if past.version > version]
        if version > now or len(kept) != now - version or (kept and kept[-1].version != now):
            first = now
            if self._kept and self._kept[-1].version == now:
                first = self._kept[0].version - 1
            raise IncrementalError(
                f"version {version} is not kept: expected one from {first} to {now}; the last ones "
                f"are, as many as Stream(keep={self._kept.maxlen}) says, since the stream was made "
                "or stream.inc took something else"
            )
        return kept

    def rows(self, version: int) -> Any:
        """The output as it was at a version, `[num_nodes, ...]`; see `since` for errors."""
        later = self.since(version)
        out = {of: rows.clone() for of, rows in by_type(self._inc.out).items()}
        for past in reversed(later):
            for of, rows in past.rows.items():
                out[of][rows] = past.old[of]
        if later:
            out = {of: rows[: later[0].num_rows[of]] for of, rows in out.items()}
        return out.get(None, out)


def by_type(out: Any) -> Mapping[Type, Tensor]:
    """The rows of each output by type; of a single one by None.

    Raises:
        IncrementalError: If outputs are neither one tensor nor a dict of tensors.
    """
    if isinstance(out, Tensor):
        return {None: out}
    if not isinstance(out, dict) or not all(isinstance(rows, Tensor) for rows in out.values()):
        raise IncrementalError(
            "Stream(keep=): updates are kept of one output with a row for each node, or of a dict "
            f"of such by type (got {type(out).__name__})"
        )
    return out


def rows_of(update: Update[Any]) -> Mapping[Type, Tensor]:
    """The rows of each output that an update has changed, int64 `[k]`, as numbers."""
    rows: Any = update.changed if update.rows is None else update.rows
    rows = rows if isinstance(rows, dict) else {None: rows}
    return {of: torch.as_tensor(ids) for of, ids in rows.items()}
