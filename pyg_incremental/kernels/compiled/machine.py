"""A whole update in one call, as long as every step is a few rows or a cheap one.

`update` goes through the steps of a plan (see `layout`) as the executors do, with the same kernels,
but without leaving compiled code. It stops at a step for which there is no room, at one for
threads, at one that other processes have a part in, and at one that it does not know, if something
happened that this one follows; behind the last three it is called again.
"""

import numpy as np

from pyg_incremental.kernels import graph_at
from pyg_incremental.kernels.address import borrowed, borrowed_rows
from pyg_incremental.kernels.compiled.choice import EXTREMUM as EXTREMUM_READS
from pyg_incremental.kernels.compiled.choice import LEAST, SUM, pull_pays
from pyg_incremental.kernels.compiled.choice import SOFTMAX as SOFTMAX_READS
from pyg_incremental.kernels.compiled.extremum import PART, WIDE
from pyg_incremental.kernels.compiled.layout import (
    BY_ANYTHING,
    BY_EDGES,
    BY_ROWS,
    CELL,
    COUNT,
    EDGE_MAP,
    EXCHANGE,
    EXTREMUM,
    FIRST_INPUT,
    FIRST_NEW,
    FUNCTION_EXTREMUM,
    FUNCTION_SOFTMAX,
    FUNCTION_TOTAL,
    KIND,
    LAST_INPUT,
    MAP,
    MESSAGE,
    NODES,
    ONES,
    OTHER,
    OUT,
    SOFTMAX,
    SOURCE,
    TARGET,
    TOTAL,
    WAKES,
    WIDE_MAP,
    WIDE_TOTAL,
    WIDTH,
    changed_ids,
    id_room,
    machine_of,
)
from pyg_incremental.kernels.compiled.machine_extremum import extremum
from pyg_incremental.kernels.compiled.machine_functions import function, function_events
from pyg_incremental.kernels.compiled.machine_maps import (
    compute,
    edge_map,
    ones_map,
    put,
    row_map,
    wide_map,
)
from pyg_incremental.kernels.compiled.machine_steps import (
    collect,
    edges_of_softmax,
    edges_of_sum,
    lists_of,
    reach_of,
    shares_of,
    softmax,
    spread,
    total,
    wide_total,
)
from pyg_incremental.kernels.compiled.row_ops import COLUMNS
from pyg_incremental.kernels.compiled.rows import ALL
from pyg_incremental.kernels.jit import inner, njit

EDGES, GRAPH = -1, -2
"""In place of the first step of an update; see `update`."""
_ZERO, _EVERYTHING = np.int64(0), np.int64(ALL)
"""Not literals, see `machine_steps`."""
MANY = 1024
"""Changed messages up to which a step is never left to its executor because most changed."""
MOST = 1 << 22
"""Elements of messages up to which functions of edges are computed here."""
SPARSE = 16
"""Threads go through all rows of a sum, which is worth it from an edge in so many rows on."""
SPARE = 4
"""Marks that each step may use."""
FOR_THREADS, FOR_RANKS, FOR_OTHERS = -1, -2, -3
"""Why `update` stops: at a large sum, an exchange with other processes, a step that it does not
know and that has something to do."""


@inner()
def _is_for_threads(m, s, many):  # type: ignore[no-untyped-def]
    """Whether a sum pushes more elements than so many, and along enough edges."""
    edges = reach_of(m, s)
    return edges * m.cells[m.steps[s, OUT], WIDTH] > many and edges * SPARSE > m.stamp.size


@inner()
def _entries(lists, ids):  # type: ignore[no-untyped-def]
    """How many entries the lists of some rows have."""
    count = 0
    for i in range(ids.size):
        count += lists.degree[ids[i]]
    return count


@inner()
def _pulls(m, s, many):  # type: ignore[no-untyped-def]
    """Whether a step over edges is better left to its executor.

    Its rows are made afresh then, see `choice`; or many functions of edges are to be computed.
    """
    step = m.steps[s]
    kind = step[KIND]
    is_over_edges = kind in (TOTAL, WIDE_TOTAL, SOFTMAX, EXTREMUM) or kind >= FUNCTION_TOTAL
    if step[SOURCE] < 0 or not is_over_edges:
        return False
    pushed = reach_of(m, s)
    if kind >= FUNCTION_TOTAL:
        return pushed * max(step[MESSAGE], 1) > MOST
    rows = m.cells[step[OUT], NODES]
    if pushed <= LEAST or pushed * SPARSE < rows:  # not worth counting all edges
        return False
    inn, own, read = lists_of(m, step)[1], 0, 0
    for v in range(rows):
        read += inn.degree[v]
    times = SUM
    if kind == SOFTMAX:
        own, times = _entries(inn, changed_ids(m.cells[step[TARGET]])), SOFTMAX_READS
    elif kind == EXTREMUM:
        if m.cells[step[OUT], WIDTH] >= WIDE:  # the executor sees how many edges are reached
            return pushed * PART > read
        times = EXTREMUM_READS
    elif _is_for_threads(m, s, many):
        times = SUM / 2
    return pull_pays(pushed, own, read, times)


@inner()
def _sleeps(m, s):  # type: ignore[no-untyped-def]
    """Whether a step that its executor carries out has nothing to do, see `BY_ANYTHING`."""
    step = m.steps[s]
    wakes = step[WAKES]
    if wakes == BY_ANYTHING:
        return False
    for k in range(step[FIRST_INPUT], step[LAST_INPUT]):
        if m.cells[m.inputs[k, CELL], COUNT]:
            return False
    for c in range(m.cells.shape[0]):
        if m.cells[c, FIRST_NEW] < m.cells[c, NODES]:
            return False
    if wakes == BY_ROWS:
        return True
    for src, dst in ((m.events[0], m.events[1]), (m.events[3], m.events[4])):
        for i in range(src.size):
            if wakes == BY_EDGES or src[i] == dst[i]:
                return False
    return True


@inner()
def _forget(m):  # type: ignore[no-untyped-def]
    """Forget the update before."""
    for c in range(m.cells.shape[0]):
        m.cells[c, COUNT] = 0
    m.stats[:] = 0


@inner()
def _begin(m, low, high):  # type: ignore[no-untyped-def]
    """Retract and insert edges.

    Those into the rows from `low` to before `high`; what is not split so is done with the last.
    """
    if m.events[0].size or m.events[3].size:
        for s in range(m.steps.shape[0]):
            kind = m.steps[s, KIND]
            if kind == TOTAL:
                edges_of_sum(m, s, low, high, m.zero)
            elif kind == WIDE_TOTAL and high == ALL:
                edges_of_sum(m, s, low, high, np.float64(0))
            elif kind == SOFTMAX and high == ALL:
                edges_of_softmax(m, s)


@inner()
def _begin_functions(m):  # type: ignore[no-untyped-def]
    """Compute values of the edges that came, and do the same for functions of edges."""
    if m.events[5].size:
        for s in range(m.steps.shape[0]):
            if m.steps[s, KIND] == EDGE_MAP:
                edge_map(m, s)
    if m.events[0].size or m.events[3].size:
        for s in range(m.steps.shape[0]):
            if m.steps[s, KIND] in (FUNCTION_TOTAL, FUNCTION_SOFTMAX):
                function_events(m, s)


@njit(cache=True, nogil=True)
def arrive(plan, places, s, num_nodes, events, ids, rows, zero, bits):  # type: ignore[no-untyped-def]
    """Put rows that other processes have sent behind those that changed here.

    Both values of an exchange have one memory, and one room for what changes.
    """
    m = machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS)
    out, done = m.cells[m.steps[s, OUT]], m.cells[m.steps[s, SOURCE], COUNT]
    out[COUNT] = done + put(out, ids, rows, done, m.where, zero, bits)
    m.stats[s, 0], m.stats[s, 1] = done + ids.size, out[COUNT]


@njit(cache=True, nogil=True)
def begin_part(plan, places, num_nodes, events, low, high, zero, bits):  # type: ignore[no-untyped-def]
    """What `update` does first, for the edges into the rows from `low` to before `high`."""
    m = machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS)
    if high == ALL:
        _forget(m)
    _begin(m, low, high)


@njit(cache=True, nogil=True)
def shares_of_parts(plan, places, s, num_nodes, events, parts, zero, bits):  # type: ignore[no-untyped-def]
    """Which changed messages of a sum belong to which part; see `machine_steps.shares_of`."""
    return shares_of(machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS), s, parts)


@njit(cache=True, nogil=True)
def spread_of_part(  # type: ignore[no-untyped-def]
    plan, places, s, num_nodes, events, first, last, difference, moved, edges, begin, begins, zero,
    bits,
):  # fmt: skip
    """What some changed messages of a sum will push; see `pushes.sum_spread`."""
    m = machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS)
    return spread(m, s, first, last, difference, moved, edges, begin, begins)


@njit(cache=True, nogil=True)
def total_of_part(  # type: ignore[no-untyped-def]
    plan, places, s, epoch, num_nodes, events, touched, first, last, difference, moved, edges,
    begins, zero, bits,
):  # fmt: skip
    """The sum of step `s` for some blocks of rows; see `machine_steps.collect`."""
    m = machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS)
    return collect(m, s, touched, epoch, first, last, difference, moved, edges, begins)


@njit(cache=True, nogil=True)
def chain_of_part(  # type: ignore[no-untyped-def]
    plan, places, chain, num_nodes, events, ids, rows, first, last, zero, bits
):
    """Compute the rows from `first` to before `last` of some maps, one after the other.

    Args:
        plan: As for `update`, like `places`, `num_nodes`, `zero` and `bits`.
        places: See there.
        chain: Of each map, `[k, 2]`: the step, and the place in the chain of that at whose changed
            rows it is computed; -1 for `ids`.
        num_nodes: See `update`.
        events: No edges.
        ids: The rows of the first map.
        rows: The new rows of the first step, if these are given.
        first: The first of `ids` that is meant.
        last: The one behind the last.
        zero: See `update`.
        bits: See `update`.

    Returns:
        How many rows changed in each; these stand from `first` on.
    """
    m = machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS)
    changed = np.zeros(chain.shape[0], np.int64)
    for at in range(chain.shape[0]):
        s, source = chain[at]
        cell = m.cells[m.steps[s, OUT]]
        if at == 0 and rows.shape[0]:
            some = ids[first:last]
            changed[0] = put(cell, some, rows, first, m.where, zero, bits)
        elif source < 0:
            changed[at] = compute(m, s, ids, first, last)
        else:
            found = id_room(m.cells[m.steps[chain[source, 0], OUT]])
            changed[at] = compute(m, s, found, first, first + changed[source])
    return changed


@njit(cache=True, nogil=True)
def update(  # type: ignore[no-untyped-def]
    plan, places, added, gone, free, num_free, end, order, slots, epoch, num_nodes, given, ids,
    rows, zero, bits, many, first
):  # fmt: skip
    """An update, or what is left of one: hold it against the graph, change that, go through steps.

    All of that in one function, because each one that has the steps in it takes long to compile.

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
        given: The step whose new rows are given, or -1: an input, or a map computed elsewhere.
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
    plan, places, free = borrowed(plan), borrowed(places), borrowed(free)
    slots, ids, rows = borrowed_rows(slots), borrowed(ids), borrowed_rows(rows)
    left, taken = slots[0, 1 : 1 + gone.shape[1]], slots[1, 1 : 1 + added.shape[1]]
    if first == GRAPH:
        if not graph_at.accept_now(places, added, gone, ids, num_nodes, free, num_free, end, slots):
            return -1, 0, 0
        used = graph_at.change_pairs(places, added, left, taken, order)
        for side in range(2):
            graph_at.change_list(places, side, added, left, taken)
        graph_at.has_changed(free, num_free, slots, taken.size, left.size)
    events = gone[0], gone[1], left, added[0], added[1], taken
    m = machine_of(plan, places, events, num_nodes, zero, bits, COLUMNS)
    if first < 0:
        _forget(m)
        _begin_functions(m)
        _begin(m, _ZERO, _EVERYTHING)
        first = 0
    for s in range(first, m.steps.shape[0]):
        kind = m.steps[s, KIND]
        epoch += SPARE
        if s == given:
            cell = m.cells[m.steps[s, OUT]]
            cell[COUNT] = put(cell, ids, rows, _ZERO, m.where, zero, bits)
            m.stats[s, 0], m.stats[s, 1] = ids.size, cell[COUNT]
        elif kind == MAP:
            done, count = row_map(m, s, epoch, many)
            if not done:
                return s, count, used
        elif kind == WIDE_MAP:
            if not wide_map(m, s, epoch):
                return s, 0, used
        elif _pulls(m, s, many):
            return s, 0, used
        elif kind == WIDE_TOTAL:
            if not wide_total(m, s, epoch):
                return s + 1, 0, used
        elif kind == TOTAL:
            if _is_for_threads(m, s, many):
                return s, FOR_THREADS, used
            if not total(m, s, epoch):
                return s + 1, 0, used
        elif kind == SOFTMAX:
            if not softmax(m, s, epoch):
                return s + 1, 0, used
        elif kind in (FUNCTION_TOTAL, FUNCTION_SOFTMAX):
            if not function(m, s, epoch):
                return s + 1, 0, used
        elif kind in (EXTREMUM, FUNCTION_EXTREMUM):
            if not extremum(m, s, epoch):
                return s, 0, used
        elif kind == ONES:
            ones_map(m, s)
        elif kind == EXCHANGE:
            return s, FOR_RANKS, used
        elif kind == OTHER and not _sleeps(m, s):
            return s, FOR_OTHERS, used
    return m.steps.shape[0], 0, used


ENTRIES = (
    "update", "arrive", "begin_part", "shares_of_parts", "spread_of_part", "total_of_part",
    "chain_of_part",
)  # fmt: skip
"""What is called from Python."""
