"""What an update, or a refresh, has done: changed rows, what stood there before, and the work."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_incremental.call.traced import Output
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.program.steps import Domain
from pyg_incremental.rows.lazy_rows import LazyRows
from pyg_incremental.session.lazy_update import LazyUpdate, MarkedUpdate
from pyg_incremental.session.outputs import changed_rows, in_structure
from pyg_incremental.session.previous import PreviousOutput, lie_within, rows_before
from pyg_incremental.session.session import Session
from pyg_incremental.telemetry.work import UpdateStats, Work
from pyg_incremental.update import Update


def updated(
    session: Session,
    counts: tuple[int, int, Work],
    began: float,
    before: PreviousOutput | None = None,
    removed: Mapping[str, Ids] | None = None,
    old: bool = False,
) -> Update[Any]:
    """What an update that is in has done.

    Args:
        session: The running state.
        counts: How many edges came and left, and the work.
        began: When it began.
        before: The output as it was, where somebody has asked for it.
        removed: The slots of the edges that left, int64 `[m]` by graph; only read beside `before`.
        old: Whether the OLD rows are wanted now.
    """
    changed, out, edges = session.outputs.changed()
    rows = None if before is None else before.follow(changed, removed or {}, old)
    seconds = time.perf_counter() - began
    stats = UpdateStats(session.mode, counts[0], counts[1], seconds, counts[2])
    kind = LazyUpdate if type(out) is LazyRows else Update
    update = kind(changed, out, stats, session.committed.version, False, edges, rows)
    if before is not None and before.within:
        update.may_be_probabilities = True
    return update


def marked(session: Session, counts: tuple[int, int, Work], began: float) -> Update[Any]:
    """What a delta has done whose rows are computed when somebody asks.

    Args:
        session: The running state.
        counts: How many edges came and left, and the work.
        began: When it began.
    """
    stats = UpdateStats(session.mode, counts[0], counts[1], time.perf_counter() - began, [])
    unknown: Any = None
    return MarkedUpdate(unknown, unknown, stats, session.committed.version)


def renewed(
    session: Session,
    nodes: Mapping[str, Ids],
    began: float,
    before: PreviousOutput | None,
    old: bool,
) -> Update[Any]:
    """Make the accumulated rows of some nodes afresh, and report what that has moved.

    Args:
        session: The running state.
        nodes: Ids of nodes by kind, int64 `[k]`.
        began: When that began.
        before: The output as it is now, where somebody has asked for it.
        old: Whether the OLD rows are wanted.
    """
    session.interrupted = "a refresh was interrupted"
    renew = {kind: torch.from_numpy(np.unique(ids)) for kind, ids in nodes.items()}
    work = session.engine.update({}, {}, {}, renew)
    session.committed = session.noted(session.committed)
    session.interrupted = ""
    return updated(session, (0, 0, work), began, before, old=old)


def repeated(session: Session, began: float, old: bool) -> Update[Any]:
    """What to say of a delta that is in already."""
    changed, out = session.outputs.nothing()
    stats = UpdateStats(session.mode, 0, 0, time.perf_counter() - began, [])
    rows = session.outputs.nothing()[1] if old else None
    return Update(changed, out, stats, session.committed.version, True, old=rows)


def refreshed(session: Session, before: Any, began: float, old: bool) -> Update[Any]:
    """What has come out different when everything was computed anew.

    Args:
        session: The state that is new.
        before: The output as it was, in the structure of the output; None if nobody knows, so that
            all rows are named.
        began: When that began.
        old: Whether the OLD rows are wanted.
    """
    now, structure = session.outputs.now(copy=False), session.plan.traced.structure
    outputs = session.plan.program.outputs
    before = in_structure(structure, lambda _: None) if before is None else before
    changed = in_structure(structure, lambda _, was, rows: changed_rows(was, rows), before, now)
    out = in_structure(structure, lambda _, rows, ids: _at(rows, ids), now, changed)
    rows = None
    if old:
        rows = in_structure(
            structure, lambda _, was, rows, ids: rows_before(was, rows, ids), before, now, changed
        )

    def ends(place: Output, ids: Any) -> Any:
        value = outputs[place.index]
        if value.domain is not Domain.EDGE:
            return None
        graph = session.graphs[value.kind]
        return torch.from_numpy(graph.ends_of(graph.slots_for_model()[ids.numpy()]))

    has_edges = any(v.domain is Domain.EDGE for v in outputs)
    edges = in_structure(structure, ends, changed) if has_edges else None
    stats = UpdateStats(session.mode, 0, 0, time.perf_counter() - began, [])
    update = Update(changed, out, stats, session.committed.version, False, edges, rows)
    if old:
        update.may_be_probabilities = any(map(lie_within, pytree.tree_leaves(now)))
    return update


def _at(rows: Any, ids: Tensor) -> Any:
    """Copies of some rows of an output, or of all of it where it has none."""
    if not isinstance(rows, Tensor):
        return rows
    return rows[ids.to(rows.device)] if rows.dim() else rows.clone()
