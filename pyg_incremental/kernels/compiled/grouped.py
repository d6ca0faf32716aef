"""Adding along many edges, grouped by the row that they lead to.

So a row of a sum, which no cache holds beside the others, is read once and written once, and what
is to be known of it is found in between.
"""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.compiled.compared import differs
from pyg_incremental.kernels.compiled.rows import magnitude, rows_ahead
from pyg_incremental.kernels.compiled.sums import is_settled, sum_rows
from pyg_incremental.kernels.jit import inner

BLOCKS = 1 << 11
"""Edges go to one of so many blocks of rows first, and then to their row: more, and the ends of all
these lists do not stay in the cache."""


@inner()
def shift_of(rows):  # type: ignore[no-untyped-def]
    """How many bits of its id the number of a row in its block has, if there are so many `rows`."""
    shift = 0
    while rows > BLOCKS << shift:
        shift += 1
    return shift


@inner()
def by_block(listed, shift, edges, begin, begins):  # type: ignore[no-untyped-def]
    """Write the edges `listed` to `edges` from `begin` on, by the block of their rows.

    They keep their order. `begins`, `[BLOCKS + 1]`, becomes where those of each block begin, and
    where all end.
    """
    begins[:] = 0
    for e in range(listed.shape[0]):
        begins[np.uint64((listed[e, 1] >> shift) + 1)] += 1
    begins[0] = begin
    for b in range(1, begins.size):
        begins[b] += begins[b - 1]
    for e in range(listed.shape[0]):
        b = np.uint64(listed[e, 1] >> shift)
        at = np.uint64(begins[b])  # no index from the end
        edges[at, 0], edges[at, 1] = listed[e, 0], listed[e, 1]
        if edges.shape[1] > 2:
            edges[at, 2] = listed[e, 2]
        begins[b] += 1
    for b in range(begins.size - 1, 0, -1):  # where the next one began is now where this one ends
        begins[b] = begins[b - 1]
    begins[0] = begin


@inner()
def _by_row(edges, begins, ends, first, behind, source, slot):  # type: ignore[no-untyped-def]
    """Write the difference and slot of the edges of a block down, ordered by row.

    They stand in `edges` from each of `begins` to before the same of `ends`. `first` is the first
    row; `behind` becomes where the edges of each row end.
    """
    behind[:] = 0
    for p in range(begins.size):
        for e in range(begins[p], ends[p]):
            behind[np.uint64(edges[e, 1] - first)] += 1
    end = 0
    for r in range(behind.size):
        count = behind[r]
        behind[r] = end
        end += count
    for p in range(begins.size):
        for e in range(begins[p], ends[p]):
            r = np.uint64(edges[e, 1] - first)
            at = np.uint64(behind[r])
            source[at] = edges[e, 0]
            if slot.size:
                slot[at] = edges[e, 2]
            behind[r] += 1


@inner()
def _add_to_block(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, own, factor, inn, drop, difference, moved, source,
    slot, behind, first, high, touched, stamp, epoch, again, before, total, settles, compares,
    early, where, first_new
):  # fmt: skip
    """`add_by_row` for the rows of a block, the edges of which stand in `source` and `slot`."""
    width, ahead = state.shape[1], rows_ahead(state)
    rows = count = fresh = read = e = 0
    for r in range(min(behind.size, high - first)):
        v = np.uint64(first + r)  # no index from the end
        is_marked, end = stamp[v] == epoch, behind[r]
        if e == end and not is_marked:
            continue
        if r + ahead < behind.size:
            fetch(state, v + ahead)
        row, size = state[v], drift.dtype.type(0)
        for f in range(width):
            before[f] = total[f] = row[f]
        while e < end:
            if e + ahead < source.size:
                fetch(difference, source[e + ahead])
                if weight.size:
                    fetch(weight, slot[e + ahead])
            u, w = np.uint64(source[e]), state.dtype.type(1)
            if weight.size:
                w = weight[np.uint64(slot[e])]
            if factor.size:
                w *= factor[v]
            diff = difference[u]
            for f in range(width):
                total[f] += w * diff[f]
            size += moved[u] * abs(w)
            e += 1
        for f in range(width):
            row[f] = total[f]
        drift[v] += size
        if not settles:
            stamp[v] = epoch
            continue
        rows += 1
        if inn.degree[v] == 0:  # `sum_settle`; a call would take as long as the sum
            for f in range(width):
                row[f] = own[v, f] if own.size else 0
            drift[v] = 0
        elif drift[v] != 0:
            size = magnitude(total, scale)
            drift[v] += size
            if not is_settled(drift[v], limit, size):
                these, fresh = again[fresh : fresh + 1], fresh + 1
                these[0] = v
                if compares:
                    read += sum_rows(these, state, drift, message, weight, own, factor, inn, drop)
        touched[count] = v
        if compares and first + r < first_new:
            count += differs(row, early[where[v]] if is_marked else before)
        else:
            count += 1
    return rows, fresh, count, read


@inner()
def add_by_row(  # type: ignore[no-untyped-def]
    state, drift, limit, scale, message, weight, own, factor, inn, drop, difference, moved, edges,
    begins, first, last, shift, touched, stamp, epoch, again, settles, compares, early, where,
    first_new
):  # fmt: skip
    """Add differences along edges, one row after the other; settle each if it `settles`.

    Only to the rows of the blocks from `first` to before `last`. The edges were written down by
    `by_block`, perhaps in several parts: `begins` has a line for each. Those into one row keep
    their order. Rows that have the mark `epoch` are settled, too; if it does not settle, all rows
    that it adds to get that mark.

    If it `compares`, rows are summed afresh at once, and only those that differ stand in `touched`
    in the end; of the rows with marks `early` has copies, `where` says at which place.

    Returns:
        (rows touched, which stand in `touched` in ascending order; how many of these stand in
        `again`, to be summed afresh; how many of them differ; edges read)
    """
    most = np.int64(0)
    for b in range(first, last):
        most = max(most, (begins[:, b + 1] - begins[:, b]).sum())
    behind, source = np.empty(1 << shift, np.int32), np.empty(most, np.int32)
    slot = np.empty(most if weight.size else 0, np.int32)
    before, total = np.empty(state.shape[1], state.dtype), np.empty(state.shape[1], state.dtype)
    rows = count = fresh = read = 0
    for b in range(first, last):
        _by_row(edges, begins[:, b], begins[:, b + 1], b << shift, behind, source, slot)
        found = _add_to_block(
            state, drift, limit, scale, message, weight, own, factor, inn, drop, difference, moved,
            source[: behind[-1]], slot, behind, b << shift, stamp.size, touched[count:], stamp,
            epoch, again[fresh:], before, total, settles, compares, early, where, first_new,
        )  # fmt: skip
        rows, fresh, count, read = (
            rows + found[0], fresh + found[1], count + found[2], read + found[3]
        )  # fmt: skip
    return rows, fresh, count, read
