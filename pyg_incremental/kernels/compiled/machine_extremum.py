"""The step of the machine that takes the largest or smallest messages; see `extremum`."""

import numpy as np

from pyg_incremental.kernels.address import fetch, line_at, rows_at
from pyg_incremental.kernels.compiled.extremum import (
    AHEAD,
    extremum_exposed,
    extremum_fill,
    extremum_insert,
    extremum_retract,
    extremum_settle,
)
from pyg_incremental.kernels.compiled.layout import (
    BY_VALUE,
    CAPACITY,
    COUNT,
    DROP,
    EXTREMUM,
    FIRST_NEW,
    KIND,
    LARGEST,
    MESSAGE,
    OLD,
    OUT,
    OWNER,
    REVERSE,
    ROOM,
    SLOTS,
    SOURCE,
    WEIGHT,
    WIDTH,
    cells_of,
    changed_ids,
    events_of,
    id_room,
    old_rows,
    pushed_of,
    read_of,
    space_of,
    stamp_of,
    stats_of,
    steps_of,
    stored,
    touched_of,
)
from pyg_incremental.kernels.compiled.machine_functions import messages, own_changed
from pyg_incremental.kernels.compiled.machine_steps import counting, expanded, reached
from pyg_incremental.kernels.compiled.row_ops import BLOCK
from pyg_incremental.kernels.compiled.rows import ALL, unite
from pyg_incremental.kernels.jit import inner

_ZERO, _EVERYTHING = np.int64(0), np.int64(ALL)
_YES, _NO = np.bool_(True), np.bool_(False)
"""No literals, see `machine_steps`."""


@inner(counted=False)
def _written(to, rows):  # type: ignore[no-untyped-def]
    """Copy some rows; an assignment to a slice takes a second to compile."""
    for i in range(rows.shape[0]):
        for f in range(rows.shape[1]):
            to[i, f] = rows[i, f]


@inner()
def _taken(rows, ids):  # type: ignore[no-untyped-def]
    """A copy of the rows `ids`."""
    found = np.empty((ids.size, rows.shape[1]), rows.dtype)
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            fetch(rows, ids[i + AHEAD])
        v = np.uint64(ids[i])  # no index from the end
        for f in range(rows.shape[1]):
            found[i, f] = rows[v, f]
    return found


@inner()
def _offered(m, s, src, dst, slots):  # type: ignore[no-untyped-def]
    """Messages, `[k, width]`, and which of them each of some edges has."""
    step = steps_of(m)[s]
    if step[KIND] == EXTREMUM:
        return stored(cells_of(m)[step[SOURCE]], m.zero), src
    made = np.empty((src.size, step[MESSAGE]), space_of(m).dtype)
    for begin in range(0, src.size, BLOCK):
        end = min(begin + BLOCK, src.size)
        rows = messages(m, s, src[begin:end], dst[begin:end], slots[begin:end], end - begin, _NO)
        _written(made[begin:end], rows)
    return made, np.arange(src.size)


@inner()
def _insert(m, s, state, owner, src, dst, slots):  # type: ignore[no-untyped-def]
    """Offer the messages of some edges to their targets."""
    step = steps_of(m)[s]
    weight = line_at(step[WEIGHT], step[SLOTS], m.zero)
    message, at = _offered(m, s, src, dst, slots)
    extremum_insert(state, owner, message, at, weight, dst, slots, step[LARGEST] != 0)


@inner()
def _fill(m, s, state, owner, ids, read, afresh):  # type: ignore[no-untyped-def]
    """Make the exposed channels, or all, of some rows afresh; returns rows, channels and edges."""
    step = steps_of(m)[s]
    weight = line_at(step[WEIGHT], step[SLOTS], m.zero)
    position, src, slots = expanded(ids, read_of(m, step), step[DROP] != 0)
    message, at = _offered(m, s, src, ids[position], slots)
    rows, channels = extremum_fill(
        state, owner, message, at, weight, ids, position, slots, step[LARGEST] != 0,
        stamp_of(m), read, afresh,
    )  # fmt: skip
    return rows, channels, slots.size


@inner()
def _elsewhere(m, src, dst, slots, epoch):  # type: ignore[no-untyped-def]
    """The edges that do not lead to rows which are made afresh."""
    kept = stamp_of(m)[dst] != epoch
    return src[kept], dst[kept], slots[kept]


@inner()
def extremum(m, s, epoch):  # type: ignore[no-untyped-def]
    """Retract, insert, and read again what is left exposed; or do nothing if there is no room."""
    step = steps_of(m)[s]
    drop = step[DROP] != 0
    removed_src, removed_dst, removed_slots, added_src, added_dst, added_slots = events_of(m)
    if step[REVERSE]:
        removed_src, removed_dst = removed_dst, removed_src
        added_src, added_dst = added_dst, added_src
    gone_src, gone, gone_slots = counting(removed_src, removed_dst, removed_slots, drop)
    new_src, new, new_slots = counting(added_src, added_dst, added_slots, drop)
    out = cells_of(m)[step[OUT]]
    ids = touched_of(m)[:0]
    if step[SOURCE] >= 0:
        ids = changed_ids(cells_of(m)[step[SOURCE]])
    at, again, again_slots = expanded(ids, pushed_of(m, step), drop)
    again_src = ids[at]
    edges = gone.size + new.size + again.size
    afresh = 0 if step[KIND] == EXTREMUM else own_changed(m, s, epoch)
    if afresh:  # nothing is to be offered to rows that are made afresh
        gone_src, gone, gone_slots = _elsewhere(m, gone_src, gone, gone_slots, epoch)
        new_src, new, new_slots = _elsewhere(m, new_src, new, new_slots, epoch)
        again_src, again, again_slots = _elsewhere(m, again_src, again, again_slots, epoch)
    count = reached(m, step, touched_of(m), afresh, epoch, _ZERO, _EVERYTHING)
    count = unite(again, touched_of(m), count, stamp_of(m), epoch)
    if count > out[ROOM]:
        return False
    if not count:
        return True
    lost, read = epoch + 1, epoch + 2
    rows, state = touched_of(m)[:count].copy(), stored(out, m.zero)
    owner = rows_at(step[OWNER], out[CAPACITY], out[WIDTH], np.int32(0))
    before = _taken(state, rows)
    exposed, channels, read_over = _fill(m, s, state, owner, rows[:afresh], read, _YES)
    extremum_retract(owner, gone, gone_slots, stamp_of(m), lost)
    extremum_retract(owner, again, again_slots, stamp_of(m), lost)
    _insert(m, s, state, owner, new_src, new, new_slots)
    _insert(m, s, state, owner, again_src, again, again_slots)
    found = np.empty(count, np.int64)
    left = extremum_exposed(owner, rows[afresh:], stamp_of(m), lost, found)
    more = _fill(m, s, state, owner, found[:left], read, _NO)
    exposed, channels = exposed + more[0], channels + more[1]
    edges += read_over + more[2]
    changed = id_room(out)
    if out[BY_VALUE]:
        n, resilient, no_reset, covered = extremum_settle(
            state, before, rows, out[FIRST_NEW], stamp_of(m), lost, read, changed
        )
    else:
        store = stored(out, m.bits)
        n, resilient, no_reset, covered = extremum_settle(
            store, before.view(store.dtype), rows, out[FIRST_NEW], stamp_of(m), lost, read, changed
        )
    if out[OLD]:
        _written(old_rows(out, m.zero), before[:n])
    out[COUNT] = n
    stats = stats_of(m)[s]
    stats[0], stats[1], stats[2], stats[3], stats[4] = count, n, edges, exposed, channels
    stats[5], stats[6], stats[7], stats[8] = resilient, no_reset, covered, exposed
    return True
