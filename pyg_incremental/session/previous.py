"""The output as it stood before an update, for those who ask what has become of what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.call.traced import Output
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.session.outputs import in_structure
from pyg_incremental.session.session import Session
from pyg_incremental.update import is_one_channel


class PreviousOutput:
    """A copy of the output, kept in step with it from the first time on that somebody asks.

    So an update costs a look at its own rows, whoever computes them and wherever they are written;
    and nothing where nobody asks.

    Args:
        session: The running state. What it holds now is "before".

    Attributes:
        session: The same.
        version: Which version the copy is of.
        within: The outputs of one channel whose numbers all lie between 0 and 1.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._rows: dict[Value, Any] = {}
        for value in session.plan.program.outputs:
            cell = session.engine.cells[value]
            if value.domain is Domain.EDGE:
                # Rows of edges stand in slots, wherever the edges come in the output.
                slots = torch.from_numpy(session.graphs[value.kind].slots_in_order())
                self._rows[value] = rows = nothing_like(cell.tensor, cell.tensor.shape[0])
                rows[slots.to(rows.device)] = cell.read(slots)
            else:
                now = cell.content if value.domain is Domain.WHOLE else cell.current()
                self._rows[value] = now.clone() if isinstance(now, Tensor) else now
        self.version = session.committed.version
        self.within = {v for v, rows in self._rows.items() if lie_within(rows)}

    def is_of(self, session: Session) -> bool:
        """Whether this is the output that a session has now."""
        return self.session is session and self.version == session.committed.version

    def follow(self, changed: Any, removed: Mapping[str, Ids], asked: bool) -> Any:
        """Take notice of an update that is in.

        Args:
            changed: Its changed rows, in the structure of the output.
            removed: The slots of the edges that it has removed, int64 `[m]`, by graph.
            asked: Whether the OLD rows are wanted.

        Returns:
            The OLD rows in the structure of the output, `[k, ...]`; those of nodes and edges that
            are new are NaN, or -1 if they are integers. None if nobody asked.
        """
        session = self.session
        outputs, found = session.plan.program.outputs, dict[Value, Any]()

        def old_of(place: Output, ids: Any) -> Any:
            value = outputs[place.index]
            if value not in found:  # a value may leave twice
                found[value] = self._exchanged(value, ids, removed.get(value.kind), asked)
            return found[value]

        old = in_structure(session.plan.traced.structure, old_of, changed)
        self.version = session.committed.version
        return old if asked else None

    def _exchanged(self, value: Value, ids: Any, removed: Ids | None, asked: bool) -> Any:
        """The OLD rows `ids` of an output; from here on the current ones are kept."""
        cell, kept = self.session.engine.cells[value], self._rows[value]
        if value.domain is Domain.WHOLE:
            now = cell.content
            self._rows[value] = now.clone() if isinstance(now, Tensor) else now
            self.within -= set() if lie_within(now) else {value}
            return rows_before(kept, now, ids) if asked else None
        at = ids
        if value.domain is Domain.EDGE:
            slots = self.session.graphs[value.kind].slots_for_model()
            at = torch.from_numpy(slots[ids.numpy()])
        capacity = cell.tensor.shape[0] if cell.nodes is None else cell.nodes.num_nodes
        if kept.shape[0] < capacity:
            room = nothing_like(kept, capacity + capacity // 2 - kept.shape[0])
            self._rows[value] = kept = torch.cat([kept, room])
        there = at.to(kept.device)
        old, now = kept[there] if asked else None, cell.read(at)
        kept[there] = now
        if value in self.within and not lie_within(now):
            self.within.remove(value)
        if removed is not None and removed.size and value.domain is Domain.EDGE:
            kept[torch.from_numpy(removed).to(kept.device)] = nothing_like(kept, removed.size)
        return old


def lie_within(rows: Any) -> bool:
    """Whether an output, `[n]` or `[n, 1]`, has numbers between 0 and 1 only, or NaN."""
    if not isinstance(rows, Tensor) or not rows.dim() or not is_one_channel(rows):
        return False
    return not bool(((rows < 0) | (rows > 1)).any())


def kept_before(kept: PreviousOutput | None, session: Session, old: bool) -> PreviousOutput | None:
    """The output as it is now, if somebody asks or has asked for it.

    Args:
        kept: The copy that there is, if it still is of this state.
        session: The running state.
        old: Whether somebody asks.
    """
    if kept is not None and not kept.is_of(session):
        kept = None
    return PreviousOutput(session) if old and kept is None else kept


def nothing_like(rows: Tensor, count: int) -> Tensor:
    """Rows of nobody, `[count, ...]`: NaN, or -1 if they are integers."""
    floats = rows.dtype.is_floating_point or rows.is_complex()
    return rows.new_full((count, *rows.shape[1:]), torch.nan if floats else -1)


def rows_before(before: Any, now: Any, ids: Tensor) -> Any:
    """The rows `ids` of an output without a row for each node, as they stood before.

    Args:
        before: What it was: rows `[n, ...]`, or anything else.
        now: What it is, likewise.
        ids: Rows of `now`, int64 `[k]`.
    """
    if not isinstance(before, Tensor) or not isinstance(now, Tensor) or not now.dim():
        return before.clone() if isinstance(before, Tensor) else before
    old = nothing_like(now, ids.numel())
    if before.shape[1:] == now.shape[1:] and before.dim():
        known = ids < before.shape[0]
        old[known.to(old.device)] = before[ids[known].to(before.device)].to(old.dtype)
    return old
