"""The last updates of a stream, kept so that one can look back: rows as of then, and why."""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.errors import IncrementalError
from pyg_incremental.model import IncrementalModel
from pyg_incremental.sources.source import Event
from pyg_incremental.update import Update


class Past(NamedTuple):
    """One update.

    Attributes:
        version: The version that it led to.
        num_rows: How many rows the output had before it.
        rows: The rows of the output that it changed, int64 `[k]`.
        old: What stood there before, `[k, ...]`; NaN in rows that it brought.
        undo: The delta that undoes it.
        events: The events that are in it; none if edges fell out of a window.
    """

    version: int
    num_rows: int
    rows: Tensor
    old: Any
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

    def note(self, update: Update[Any], num_rows: int, events: Sequence[Event]) -> None:
        """Keep one more, and let the oldest go.

        Args:
            update: The update, with the OLD rows and the way back.
            num_rows: How many rows the output had before it.
            events: What is in it.

        Raises:
            IncrementalError: If the model has several outputs, or its rows are not those of nodes.
        """
        if not isinstance(update.out, Tensor) or update.changed_edges is not None:
            raise IncrementalError(
                "Stream(keep=): the model has several outputs, or one with rows of edges; updates "
                "are kept of a single one with a row for each node"
            )
        if self._kept and self._kept[-1].version != update.version - 1:
            self._kept.clear()  # an update came in between of which nothing is known
        rows = update.changed if update.rows is None else torch.as_tensor(update.rows)
        self._kept.append(Past(update.version, num_rows, rows, update.old, update.undo, events))

    @property
    def nbytes(self) -> int:
        """The bytes of rows that are kept, and of their numbers."""
        return sum(t.numel() * t.element_size() for p in self._kept for t in (p.rows, p.old))

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

    def rows(self, version: int) -> Tensor:
        """The output as it was at a version, `[num_nodes, ...]`; see `since` for errors."""
        later = self.since(version)
        out: Tensor = self._inc.out.clone()
        for past in reversed(later):
            out[past.rows] = past.old
        return out[: later[0].num_rows] if later else out
