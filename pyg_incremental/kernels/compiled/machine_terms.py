"""What is part of a sum beside its messages: own rows, factors, and copies of what rows were."""

import numpy as np

from pyg_incremental.kernels.address import line_at, rows_at
from pyg_incremental.kernels.compiled.compared import copied
from pyg_incremental.kernels.compiled.layout import (
    ADDED,
    BEFORE,
    BIAS,
    CAPACITY,
    DRIFT,
    FACTOR,
    FIRST_NEW,
    LOW,
    NODES,
    NUM_CAME,
    NUM_GONE,
    OF_LOOP,
    OUT,
    REVERSE,
    ROWS,
    SCALE,
    WIDTH,
    cells_of,
    changed_ids,
    events_of,
    old_rows,
    stamp_of,
    stored,
    where_of,
)
from pyg_incremental.kernels.compiled.rows import unite_ends_within
from pyg_incremental.kernels.compiled.sums import sum_renew
from pyg_incremental.kernels.jit import inner


@inner()
def low_of(m, step, like):  # type: ignore[no-untyped-def]
    """What rows in float32 lose when they are rounded, or nothing; see `sums`."""
    out = cells_of(m)[step[OUT]]
    return rows_at(step[LOW], out[CAPACITY], out[WIDTH], like)


@inner()
def own_of(m, step, like):  # type: ignore[no-untyped-def]
    """What is added to the rows of a sum, each or all of them, or nothing."""
    if step[ADDED] < 0:
        return rows_at(step[BIAS], 1, cells_of(m)[step[OUT], WIDTH], like)
    return stored(cells_of(m)[step[ADDED]], like)


@inner()
def factor_of(m, step, like):  # type: ignore[no-untyped-def]
    """What a sum is multiplied with, or nothing."""
    if step[FACTOR] < 0:
        return line_at(0, 0, like)
    return line_at(cells_of(m)[step[FACTOR], ROWS], cells_of(m)[step[FACTOR], CAPACITY], like)


@inner()
def loop_of(m, step):  # type: ignore[no-untyped-def]
    """The weight of every row in its own sum, `[1]`, or nothing."""
    return line_at(step[OF_LOOP], 1, m.zero)


@inner()
def _changed(m, at):  # type: ignore[no-untyped-def]
    """The rows of a cell that changed, and what they were; nothing of no cell."""
    if at < 0:
        return line_at(0, 0, np.int64(0)), rows_at(0, 0, 1, m.zero)
    return changed_ids(cells_of(m)[at]), old_rows(cells_of(m)[at], m.zero)


@inner()
def unite_terms(m, step, touched, count, epoch, low, high):  # type: ignore[no-untyped-def]
    """Collect the rows whose own row or factor changed behind `count` rows of `touched`.

    Only those from `low` to before `high`; returns how many there are then.
    """
    for at in (step[ADDED], step[FACTOR]):
        ids, _ = _changed(m, at)
        count = unite_ends_within(
            ids, ids, np.bool_(False), touched, count, stamp_of(m), epoch, low, high
        )
    return count


@inner()
def renew(m, step, low, high):  # type: ignore[no-untyped-def]
    """Let the rows of a sum follow their own rows and factors; see `sums.sum_renew`."""
    if step[ADDED] < 0 and step[FACTOR] < 0 and not step[OF_LOOP]:
        return
    out = cells_of(m)[step[OUT]]
    own_ids, own_old = _changed(m, step[ADDED])
    factor_ids, factor_old = _changed(m, step[FACTOR])
    sum_renew(
        stored(out, m.zero), low_of(m, step, m.zero), line_at(step[DRIFT], out[CAPACITY], m.zero),
        line_at(step[SCALE], out[WIDTH], m.zero), own_of(m, step, m.zero), own_ids, own_old,
        factor_of(m, step, m.zero), factor_ids, factor_old, out[FIRST_NEW], out[NODES], low, high,
    )  # fmt: skip


@inner()
def _noted(m, step, like):  # type: ignore[no-untyped-def]
    """Room for the rows to which edges lead that left, and then came, as they were."""
    count = m.plan[NUM_GONE] + m.plan[NUM_CAME]
    return rows_at(step[BEFORE], count, cells_of(m)[step[OUT], WIDTH], like)


@inner()
def _targets(m, step):  # type: ignore[no-untyped-def]
    """Where the edges lead that left, and those that came."""
    gone_src, gone_dst, _, came_src, came_dst, _ = events_of(m)
    if step[REVERSE]:
        return gone_src, came_src
    return gone_dst, came_dst


@inner()
def note(m, step, low, high, like):  # type: ignore[no-untyped-def]
    """Copy the rows to which edges lead that left or came, before anything is added to them."""
    rows, before, at = stored(cells_of(m)[step[OUT]], like), _noted(m, step, like), 0
    for targets in _targets(m, step):
        for v in targets:
            if low <= v < high:
                for f in range(rows.shape[1]):
                    before[at, f] = rows[v, f]
            at += 1


@inner()
def early(m, step, touched, count):  # type: ignore[no-untyped-def]
    """Copies of `count` rows touched, `[count, channels]`, as they were before the update.

    Edges have been added to some of them already; `note` has these. Where each stands in `touched`
    goes to `where`.
    """
    rows, noted, at = stored(cells_of(m)[step[OUT]], m.zero), _noted(m, step, m.zero), 0
    where = where_of(m)
    before = np.empty((count, rows.shape[1]), rows.dtype)
    copied(rows, touched, count, before)
    for k in range(count):
        where[touched[k]] = k
    for targets in _targets(m, step):
        for v in targets:
            k = where[v]
            if 0 <= k < count and touched[k] == v:
                for f in range(rows.shape[1]):
                    before[k, f] = noted[at, f]
            at += 1
    return before
