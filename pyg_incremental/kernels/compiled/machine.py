"""A whole update in one call, as long as every step is a few rows or a cheap one.

`update` goes through the steps of a plan (see `layout`) as the executors do, with the same kernels,
but without leaving compiled code. What each step does is for its kind, whose code it calls at the
address that stands in the plan, see `kinds`. It stops at a step for which there is no room, at one
for threads, at one that other processes have a part in, and at one that it does not know, if
something happened that this one follows; behind the last three it is called again.
"""

import numpy as np

from pyg_incremental.kernels import graph_at
from pyg_incremental.kernels.by_address import call_at
from pyg_incremental.kernels.compiled.kinds import BEGIN, BEHIND, DONE, LEFT, SPARE
from pyg_incremental.kernels.compiled.layout import (
    AT_EDGES,
    BY_ANYTHING,
    BY_EDGES,
    BY_ROWS,
    CELL,
    CODE,
    COUNT,
    EXCHANGE,
    FIRST_INPUT,
    FIRST_NEW,
    INPUT,
    KIND,
    LAST_INPUT,
    NODES,
    NUM_CAME,
    NUM_GONE,
    OTHER,
    OUT,
    TOTAL,
    WAKES,
    cells_of,
    events_of,
    id_room,
    inputs_of,
    machine_at,
    stats_of,
    steps_of,
    tell,
    tell_given,
    where_of,
)
from pyg_incremental.kernels.compiled.machine_maps import compute, put
from pyg_incremental.kernels.compiled.machine_steps import collect, shares_of, spread
from pyg_incremental.kernels.compiled.rows import ALL
from pyg_incremental.kernels.jit import inner, njit

EDGES, GRAPH = -1, -2
"""In place of the first step of an update; see `update`."""
_ZERO, _EVERYTHING = np.int64(0), np.int64(ALL)
"""Not literals, see `machine_steps`."""
MANY = 1024
"""Changed messages up to which a step is never left to its executor because most changed."""
FOR_RANKS, FOR_OTHERS = -2, -3
"""Why `update` stops beside what steps say (see `kinds`): at an exchange with other processes, and
at a step that it does not know and that has something to do."""


@inner(counted=False)
def _sleeps(m, step):  # type: ignore[no-untyped-def]
    """Whether a step that its executor carries out has nothing to do, see `BY_ANYTHING`."""
    wakes, cells, inputs = step[WAKES], cells_of(m), inputs_of(m)
    if wakes == BY_ANYTHING:
        return False
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        if cells[inputs[k, CELL], COUNT]:
            return False
    for c in range(cells.shape[0]):
        if cells[c, FIRST_NEW] < cells[c, NODES]:
            return False
    if wakes == BY_ROWS:
        return True
    gone_src, gone_dst, _, came_src, came_dst, _ = events_of(m)
    if wakes == BY_EDGES:
        return gone_src.size + came_src.size == 0
    loops = 0
    for i in range(gone_src.size):
        loops += gone_src[i] == gone_dst[i]
    for i in range(came_src.size):
        loops += came_src[i] == came_dst[i]
    return loops == 0


@inner()
def _run(m, step, s, epoch, low, high):  # type: ignore[no-untyped-def]
    """Call the code for the kind of a step; see `kinds`."""
    given = (
        np.int64(m.plan.ctypes.data), np.int64(s), np.int64(epoch), np.int64(low), np.int64(high),
        m.zero, m.bits,
    )  # fmt: skip
    return call_at(step[CODE], given, _ZERO)  # type: ignore[no-untyped-call]


@inner(counted=False)
def _begin(m, low, high):  # type: ignore[no-untyped-def]
    """Forget the update before, compute values of the edges that came, retract and insert edges.

    Those into the rows from `low` to before `high`; what is not split so is done with the last.
    """
    steps, cells, stats = steps_of(m), cells_of(m), stats_of(m)
    if high == ALL:
        for c in range(cells.shape[0]):
            cells[c, COUNT] = 0
        for s in range(stats.shape[0]):
            for column in range(stats.shape[1]):
                stats[s, column] = 0
    if not m.plan[NUM_GONE] and not m.plan[NUM_CAME]:
        return
    for s in range(steps.shape[0]):
        kind = steps[s, KIND]
        if kind == TOTAL or (kind in AT_EDGES and high == ALL):
            _run(m, steps[s], s, BEGIN, low, high)


@njit(counted=False, nogil=True)
def arrive(plan, s, ids, rows, zero, bits):  # type: ignore[no-untyped-def]
    """Put rows that other processes have sent behind those that changed here.

    Both values of an exchange have one memory, and one room for what changes.
    """
    m = machine_at(np.int64(plan.ctypes.data), zero, bits)
    tell_given(plan, ids, rows)
    _run(m, steps_of(m)[s], s, _ZERO, _ZERO, _EVERYTHING)


@njit(counted=False, nogil=True)
def tell_parts(plan, places, num_nodes, events):  # type: ignore[no-untyped-def]
    """Write down what an update brings, for the kernels below, which threads call."""
    tell(plan, places, num_nodes, events, _EVERYTHING)


@njit(counted=False, nogil=True)
def begin_part(plan, low, high, zero, bits):  # type: ignore[no-untyped-def]
    """What `update` does first, for the edges into the rows from `low` to before `high`."""
    _begin(machine_at(np.int64(plan.ctypes.data), zero, bits), low, high)


@njit(cache=True, nogil=True)
def shares_of_parts(plan, s, parts, zero, bits):  # type: ignore[no-untyped-def]
    """Which changed messages of a sum belong to which part; see `machine_steps.shares_of`."""
    return shares_of(machine_at(np.int64(plan.ctypes.data), zero, bits), s, parts)


@njit(counted=False, nogil=True)
def spread_of_part(  # type: ignore[no-untyped-def]
    plan, s, first, last, difference, moved, edges, begin, begins, zero, bits
):
    """What some changed messages of a sum will push; see `pushes.sum_spread`."""
    m = machine_at(np.int64(plan.ctypes.data), zero, bits)
    return spread(m, s, first, last, difference, moved, edges, begin, begins)


@njit(counted=False, nogil=True)
def total_of_part(  # type: ignore[no-untyped-def]
    plan, s, epoch, touched, first, last, difference, moved, edges, begins, zero, bits
):
    """The sum of step `s` for some blocks of rows; see `machine_steps.collect`."""
    m = machine_at(np.int64(plan.ctypes.data), zero, bits)
    return collect(m, s, touched, epoch, first, last, difference, moved, edges, begins)


@njit(cache=True, nogil=True)
def chain_of_part(plan, chain, ids, rows, first, last, zero, bits):  # type: ignore[no-untyped-def]
    """Compute the rows from `first` to before `last` of some maps, one after the other.

    Args:
        plan: As for `update`, like `zero` and `bits`.
        chain: Of each map, `[k, 2]`: the step, and the place in the chain of that at whose changed
            rows it is computed; -1 for `ids`.
        ids: The rows of the first map.
        rows: The new rows of the first step, if these are given.
        first: The first of `ids` that is meant.
        last: The one behind the last.
        zero: See `update`.
        bits: See `update`.

    Returns:
        How many rows changed in each; these stand from `first` on.
    """
    m = machine_at(np.int64(plan.ctypes.data), zero, bits)
    changed, cells, steps = np.zeros(chain.shape[0], np.int64), cells_of(m), steps_of(m)
    for at in range(chain.shape[0]):
        s, source = chain[at]
        cell = cells[steps[s, OUT]]
        if at == 0 and rows.shape[0]:
            some = ids[first:last]
            changed[0] = put(cell, some, rows, first, where_of(m), zero, bits)
        elif source < 0:
            changed[at] = compute(m, s, ids, first, last)
        else:
            found = id_room(cells[steps[chain[source, 0], OUT]])
            changed[at] = compute(m, s, found, first, first + changed[source])
    return changed


@njit(counted=False, nogil=True)
def update(  # type: ignore[no-untyped-def]
    plan, places, added, gone, free, num_free, end, order, slots, epoch, num_nodes, given, ids,
    rows, zero, bits, many, first
):  # fmt: skip
    """An update, or what is left of one: hold it against the graph, change that, go through steps.

    Args:
        plan: Where everything is.
        places: Where the graph is, see `graph_at`.
        added: See `graph_at.accept_now`, like `gone`, `free`, `num_free`, `end` and `slots`.
        gone: See there.
        free: See there.
        num_free: See there.
        end: See there.
        order: The age of the first edge that comes.
        slots: See `graph_at.accept_now`.
        epoch: Marks from here on are fresh, `SPARE` for each step.
        num_nodes: The number of nodes.
        given: The input whose new rows are given, or -1.
        ids: Their ids, `[k]`; distinct, or the delta is not valid.
        rows: The rows, `[k, width]`.
        zero: A zero of the dtype of rows.
        bits: An integer zero as wide.
        many: Elements to compute or to push, from more of which on a map or a sum is left to
            threads.
        first: The step to begin with; `GRAPH` begins with the graph, and `EDGES` with the edges
            that have come and gone, which stand in `slots` already.

    Returns:
        (the first step that was not done; the number of its rows if these stand in `touched`, or
        one of `FOR_THREADS` and its like; how many places of the hash table were used). The first
        is -1, and nothing was done, if the delta is not valid or something has to grow.
    """
    used = 0
    left, taken = slots[0, 1 : 1 + gone.shape[1]], slots[1, 1 : 1 + added.shape[1]]
    if first == GRAPH:
        if not graph_at.accept_now(places, added, gone, ids, num_nodes, free, num_free, end, slots):
            return -1, 0, 0
        used = graph_at.change_pairs(places, added, left, taken, order)
        for side in range(2):
            graph_at.change_list(places, side, added, left, taken)
        graph_at.has_changed(free, num_free, slots, taken.size, left.size)
    events = gone[0], gone[1], left, added[0], added[1], taken
    tell(plan, places, num_nodes, events, many)
    tell_given(plan, ids, rows)
    m = machine_at(np.int64(plan.ctypes.data), zero, bits)
    if first < 0:
        _begin(m, _ZERO, _EVERYTHING)
        first = 0
    steps = steps_of(m)
    for s in range(first, steps.shape[0]):
        step = steps[s]
        kind, why = step[KIND], DONE
        epoch += SPARE
        if kind == EXCHANGE:
            why = FOR_RANKS
        elif kind == OTHER:
            why = DONE if _sleeps(m, step) else FOR_OTHERS
        elif s == given or (step[CODE] and kind != INPUT):
            why = _run(m, step, s, epoch, _ZERO, _EVERYTHING)
        if why == LEFT:
            return s, 0, used
        if why == BEHIND:
            return s + 1, 0, used
        if why != DONE:
            return s, why, used
    return steps.shape[0], 0, used


ENTRIES = (
    "update", "arrive", "tell_parts", "begin_part", "shares_of_parts", "spread_of_part",
    "total_of_part", "chain_of_part",
)  # fmt: skip
"""What is called from Python."""
