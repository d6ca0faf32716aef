"""What the steps of a plan do: one kernel for each kind, which `machine.update` calls by address.

All of them take the same, so that one loop calls any of them:

* `plan`: the address of the plan, see `layout`;
* `s`: which step;
* `epoch`: marks from here on are fresh; or `BEGIN`, which retracts and inserts the messages of the
  edges that left and came, before anything else is done;
* `low` and `high`: with `BEGIN`, of those into rows from `low` to before `high`;
* `zero` and `bits`: a zero of the dtype of rows, and an integer zero as wide.

They return `DONE`, or where the update stops: `LEFT` for a step that is left to its executor,
`BEHIND` for one that is done but for whose rows there is no room, `FOR_THREADS` for a large sum,
or for a map the number of its rows, which stand in `touched`.
"""

import numpy as np

from pyg_incremental.kernels.by_address import call_at
from pyg_incremental.kernels.compiled import layout
from pyg_incremental.kernels.compiled.choice import EXTREMUM as EXTREMUM_READS
from pyg_incremental.kernels.compiled.choice import LEAST, SUM, WIDE_EXTREMUM, pull_pays
from pyg_incremental.kernels.compiled.choice import SOFTMAX as SOFTMAX_READS
from pyg_incremental.kernels.compiled.extremum import WIDE as WIDE_ROWS
from pyg_incremental.kernels.compiled.layout import (
    BEFORE,
    FUNCTION_EXTREMUM,
    KIND,
    LARGE_SUM,
    MANY_AT,
    MAP,
    MESSAGE,
    NODES,
    NUM_ROWS,
    ONES,
    OUT,
    SOFTMAX,
    SOURCE,
    TARGET,
    WIDTH,
    cells_of,
    changed_ids,
    machine_at,
    pushed_of,
    read_of,
    stamp_of,
    steps_of,
    stored,
)
from pyg_incremental.kernels.compiled.machine_extremum import extremum
from pyg_incremental.kernels.compiled.machine_functions import function, function_events
from pyg_incremental.kernels.compiled.machine_maps import (
    edge_map,
    ones_map,
    put_given,
    row_map,
    wide_map,
)
from pyg_incremental.kernels.compiled.machine_steps import (
    edges_of_softmax,
    edges_of_sum,
    large_total,
    reach_of,
    softmax,
    total,
    wide_total,
)
from pyg_incremental.kernels.compiled.pushes import is_by_block
from pyg_incremental.kernels.jit import inner, njit

BEGIN, _ZERO = np.int64(-1), np.int64(0)
SPARE = 4
"""Marks that each step may use."""
FOR_THREADS, LEFT, BEHIND, DONE = -1, -4, -5, -6
MOST = 1 << 22
"""Elements of messages up to which functions of edges are computed here."""
SPARSE = 16
"""Threads go through all rows of a sum, which is worth it from an edge in so many rows on."""


@inner()
def _is_for_threads(m, s, pushed):  # type: ignore[no-untyped-def]
    """Whether a sum pushes more elements than one thread should, and along enough edges."""
    width = cells_of(m)[steps_of(m)[s, OUT], WIDTH]
    return pushed * width > m.plan[MANY_AT] and pushed * SPARSE > m.plan[NUM_ROWS]


@inner()
def _pulls(m, s, pushed, times):  # type: ignore[no-untyped-def]
    """Whether a step over edges is better left to its executor: its rows are made afresh then.

    Args:
        m: The machine.
        s: The step.
        pushed: Along how many edges something is pushed.
        times: What a push takes, see `choice`.
    """
    step, cells = steps_of(m)[s], cells_of(m)
    rows = cells[step[OUT], NODES]
    if pushed <= LEAST or pushed * SPARSE < rows:  # not worth counting all edges
        return False
    degree, own, read = read_of(m, step).degree, 0, 0
    for v in range(rows):
        read += degree[v]
    if step[KIND] == SOFTMAX:  # these are read in any case
        ids = changed_ids(cells[step[TARGET]])
        for i in range(ids.size):
            own += degree[ids[i]]
    return pull_pays(pushed, own, read, times)


@inner()
def _reads_again(m, s, pushed, epoch):  # type: ignore[no-untyped-def]
    """The same of an extremum, of which only the rows that are reached are read.

    These take the last of the marks of the step, from `epoch` on.
    """
    step, mark, read = steps_of(m)[s], epoch + SPARE - 1, 0
    if pushed <= LEAST:
        return False
    stamp, along, degree = stamp_of(m), pushed_of(m, step), read_of(m, step).degree
    ids = changed_ids(cells_of(m)[step[SOURCE]])
    for i in range(ids.size):
        for k in range(along.start[ids[i]], along.start[ids[i]] + along.degree[ids[i]]):
            v = along.neighbor[k]
            read += degree[v] * (stamp[v] != mark)
            stamp[v] = mark
    is_wide = cells_of(m)[step[OUT], WIDTH] >= WIDE_ROWS
    return pull_pays(pushed, _ZERO, read, WIDE_EXTREMUM if is_wide else EXTREMUM_READS)


@inner()
def _is_by_block(m, s, pushed):  # type: ignore[no-untyped-def]
    """Whether a sum pushes along so many edges that it does so block by block."""
    step, cells = steps_of(m)[s], cells_of(m)
    state, ids = stored(cells[step[OUT]], m.zero), changed_ids(cells[step[SOURCE]])
    return is_by_block(state, ids, pushed, m.plan[NUM_ROWS], step[BEFORE] != 0)


@inner()
def _how(done):  # type: ignore[no-untyped-def]
    """What to return behind a step over edges."""
    return DONE if done else BEHIND


@njit(nogil=True)
def rows_kind(plan, s, epoch, low, high, zero, bits):  # type: ignore[no-untyped-def]
    """Maps of node rows, ones of new nodes, and rows that are given."""
    m = machine_at(plan, zero, bits)
    kind = steps_of(m)[s, KIND]
    if kind == MAP:
        left = row_map(m, s, epoch)
        return left if left else DONE
    if kind == ONES:
        ones_map(m, s)
    else:
        put_given(m, s)
    return DONE


@njit(nogil=True)
def wide_map_kind(plan, s, epoch, low, high, zero, bits):  # type: ignore[no-untyped-def]
    """Maps that compute in float64 where rows are of float32."""
    return DONE if wide_map(machine_at(plan, zero, bits), s, epoch) else LEFT


@njit(nogil=True)
def edge_map_kind(plan, s, epoch, low, high, zero, bits):  # type: ignore[no-untyped-def]
    """Values of the edges that came."""
    if epoch == BEGIN:
        edge_map(machine_at(plan, zero, bits), s)
    return DONE


@njit(nogil=True)
def sum_kind(plan, s, epoch, low, high, zero, bits):  # type: ignore[no-untyped-def]
    """Sums of stored messages."""
    m = machine_at(plan, zero, bits)
    if epoch == BEGIN:
        edges_of_sum(m, s, low, high, zero)
        return DONE
    if steps_of(m)[s, SOURCE] >= 0:
        pushed = reach_of(m, s)
        is_for_threads = _is_for_threads(m, s, pushed)
        if _pulls(m, s, pushed, SUM / 2 if is_for_threads else SUM):
            return LEFT
        if is_for_threads:
            return FOR_THREADS
        if _is_by_block(m, s, pushed):
            code, given = m.plan[LARGE_SUM], (plan, s, epoch, low, high, zero, bits)
            return call_at(code, given, epoch) if code else LEFT  # type: ignore[no-untyped-call]
    return _how(total(m, s, epoch))


@njit(nogil=True)
def large_sum_kind(plan, s, epoch, low, high, zero, bits):  # type: ignore[no-untyped-def]
    """The same along many edges; called by `sum_kind`, so that few do not wait for its code."""
    return _how(large_total(machine_at(plan, zero, bits), s, epoch))


@njit(nogil=True)
def wide_sum_kind(plan, s, epoch, low, high, zero, bits):  # type: ignore[no-untyped-def]
    """The same in float64 where rows are of float32."""
    m = machine_at(plan, zero, bits)
    if epoch == BEGIN:
        edges_of_sum(m, s, low, high, np.float64(0))
        return DONE
    if steps_of(m)[s, SOURCE] >= 0 and _pulls(m, s, reach_of(m, s), SUM):
        return LEFT
    return _how(wide_total(m, s, epoch))


@njit(nogil=True)
def softmax_kind(plan, s, epoch, low, high, zero, bits):  # type: ignore[no-untyped-def]
    """Softmaxes of stored messages."""
    m = machine_at(plan, zero, bits)
    if epoch == BEGIN:
        edges_of_softmax(m, s)
        return DONE
    step = steps_of(m)[s]
    if step[SOURCE] >= 0 and _pulls(m, s, reach_of(m, s), SOFTMAX_READS):
        return LEFT
    return _how(softmax(m, s, epoch))


@njit(nogil=True)
def extremum_kind(plan, s, epoch, low, high, zero, bits):  # type: ignore[no-untyped-def]
    """The largest or smallest of stored messages, and of functions of edges."""
    m = machine_at(plan, zero, bits)
    step = steps_of(m)[s]
    if step[SOURCE] >= 0:
        pushed = reach_of(m, s)
        if step[KIND] == FUNCTION_EXTREMUM:
            if pushed * max(step[MESSAGE], 1) > MOST:
                return LEFT
        elif _reads_again(m, s, pushed, epoch):
            return LEFT
    return DONE if extremum(m, s, epoch) else LEFT


@njit(nogil=True)
def function_kind(plan, s, epoch, low, high, zero, bits):  # type: ignore[no-untyped-def]
    """Sums and softmaxes of functions of edges."""
    m = machine_at(plan, zero, bits)
    if epoch == BEGIN:
        function_events(m, s)
        return DONE
    step = steps_of(m)[s]
    if step[SOURCE] >= 0 and reach_of(m, s) * max(step[MESSAGE], 1) > MOST:
        return LEFT
    return _how(function(m, s, epoch))


KERNELS = {
    "loop": rows_kind,
    "sum": sum_kind,
    "large_sum": large_sum_kind,
    "softmax": softmax_kind,
    "extremum": extremum_kind,
    "edge_map": edge_map_kind,
    "function": function_kind,
    "wide_map": wide_map_kind,
    "wide_sum": wide_sum_kind,
}
"""The kernel for each kind of step that the machine does."""
KINDS = {
    layout.INPUT: "loop",
    layout.MAP: "loop",
    layout.ONES: "loop",
    layout.EXCHANGE: "loop",
    layout.TOTAL: "sum",
    layout.SOFTMAX: "softmax",
    layout.EXTREMUM: "extremum",
    layout.FUNCTION_EXTREMUM: "extremum",
    layout.EDGE_MAP: "edge_map",
    layout.FUNCTION_TOTAL: "function",
    layout.FUNCTION_SOFTMAX: "function",
    layout.WIDE_MAP: "wide_map",
    layout.WIDE_TOTAL: "wide_sum",
}
"""The name of the kind for what `layout` calls it."""
