"""Adding along many edges, grouped by the row that they lead to.

So a row of a sum, which no cache holds beside the others, is read once and written once, and what
is to be known of it is found in between.
"""

import numpy as np

from pyg_incremental.kernels.address import fetch, fill
from pyg_incremental.kernels.compiled.compared import differs
from pyg_incremental.kernels.compiled.rows import magnitude, rows_ahead
from pyg_incremental.kernels.compiled.sums import add_scaled, is_settled, joined, split, sum_rows
from pyg_incremental.kernels.jit import inner

BLOCKS = 1 << 11
"""Edges go to one of so many blocks of rows first, and then to their row: more, and the ends of all
these lists do not stay in the cache."""
NEAR = 1 << 18
"""Bytes of differences that are in the cache when they are added."""
WIDER = 32
"""Units in the last place of float64 that are one of two halves in float32."""
FEW = 24
"""Edges that are sorted by putting each in its place."""
MANY = 2048
"""Edges from which on it pays to sort them by many bits of their row at once."""


@inner(counted=False)
def shift_of(rows):  # type: ignore[no-untyped-def]
    """How many bits of its id the number of a row in its block has, if there are so many `rows`."""
    shift = 0
    while rows > BLOCKS << shift:
        shift += 1
    return shift


@inner(counted=False)
def by_block(listed, shift, edges, begin, begins):  # type: ignore[no-untyped-def]
    """Write the edges `listed` to `edges` from `begin` on, by the block of their rows.

    They keep their order. `begins`, `[BLOCKS + 1]`, becomes where those of each block begin, and
    where all end.
    """
    fill(begins, np.int64(0))
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


@inner(counted=False)
def _by_row(edges, begins, ends, first, behind, ordered):  # type: ignore[no-untyped-def]
    """Write the edges of a block to `ordered`, by their row.

    They stand in `edges` from each of `begins` to before the same of `ends`. `first` is the first
    row; `behind` becomes where the edges of each row end.
    """
    fill(behind, np.int64(0))
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
            ordered[at, 0] = edges[e, 0]
            if edges.shape[1] > 2:
                ordered[at, 2] = edges[e, 2]
            behind[r] += 1


@inner(counted=False)
def _with_edges(behind, first, high, stamp, epoch, compares, where, rows, place):  # type: ignore[no-untyped-def]
    """List the rows of a block to which edges lead or that have the mark `epoch`.

    `behind` is moved to say where the edges of each row listed end. If somebody `compares`, `place`
    becomes what `where` says of those with a mark, and else -1. Returns how many there are.
    """
    count = end = 0
    for r in range(min(behind.size, high - first)):
        is_marked = stamp[first + r] == epoch
        if behind[r] == end and not is_marked:
            continue
        end = behind[r]
        rows[count], behind[count] = first + r, end
        place[count] = where[first + r] if is_marked and compares else -1
        count += 1
    return count


@inner()
def sorted_by_row(edges, rows):  # type: ignore[no-untyped-def]
    """Edges as `list_edges` writes them, of `rows` rows, in ascending order of these.

    Those into one row keep their order. By some bits of the row at a time, the lowest first: few
    for few edges, for which lists of many ends would take the longest.
    """
    if edges.shape[0] <= FEW:
        for e in range(1, edges.shape[0]):
            i = e
            while i and edges[i - 1, 1] > edges[i, 1]:
                for c in range(edges.shape[1]):
                    edges[i - 1, c], edges[i, c] = edges[i, c], edges[i - 1, c]
                i -= 1
        return edges
    bits, most = 1, 11 if edges.shape[0] > MANY else 6
    while rows > 1 << bits:
        bits += 1
    passes = -(-bits // most)
    bits = -(-bits // passes)
    begins, other = np.empty(1 << bits, np.int64), np.empty_like(edges)
    for p in range(passes):
        shift, mask = p * bits, (1 << bits) - 1
        fill(begins, np.int64(0))
        for e in range(edges.shape[0]):
            begins[np.uint64((edges[e, 1] >> shift) & mask)] += 1
        begin = 0
        for b in range(begins.size):
            count = begins[b]
            begins[b] = begin
            begin += count
        for e in range(edges.shape[0]):
            b = np.uint64((edges[e, 1] >> shift) & mask)
            at = np.uint64(begins[b])
            other[at, 0], other[at, 1] = edges[e, 0], edges[e, 1]
            if edges.shape[1] > 2:
                other[at, 2] = edges[e, 2]
            begins[b] += 1
        edges, other = other, edges
    return edges


@inner(counted=False)
def rows_of(edges, rows, behind, place):  # type: ignore[no-untyped-def]
    """List the rows of edges in their order, and of each where its edges end, see `add_to_rows`.

    An edge with the difference `-1 - k` is none; its row is marked, and `place` takes `k`. The
    others move together. Returns how many rows there are, and how many edges.
    """
    count, end, last = 0, 0, -1
    for e in range(edges.shape[0]):
        at, v = edges[e, 0], edges[e, 1]
        if v != last:
            rows[count], place[count], last = v, -1, v
            count += 1
        if at < 0:
            place[count - 1] = -1 - at
        else:
            edges[end, 0] = at
            if edges.shape[1] > 2:
                edges[end, 2] = edges[e, 2]
            end += 1
        behind[count - 1] = end
    return count, end


@inner(counted=False)
def _fetch_edge(difference, weight, edges, e, is_far):  # type: ignore[no-untyped-def]
    """Ask for the weight of an edge, and for its difference if that `is_far`."""
    at, own_at = edges[e, 0], difference.shape[0]
    if is_far:
        fetch(difference, at if at < own_at else at - own_at)  # the edge of a row to itself
    if weight.size:
        fetch(weight, edges[e, 2])


@inner()
def add_to_rows(  # type: ignore[no-untyped-def]
    state, low, drift, limit, scale, message, weight, own, factor, inn, drop, loop, difference,
    moved, edges, rows, behind, place, touched, stamp, epoch, again, settles, compares, early,
    first_new
):  # fmt: skip
    """`add_by_row` for `rows`; the edges into each stand together in `edges`, and end at `behind`.

    Of rows that had a mark `place` says where in `early` they stand, and -1 of others. `rows` and
    `touched` may be one.

    Returns:
        (how many of the rows stand in `again`; how many in `touched`; edges read)
    """
    width, each = state.shape[1], own.shape[0] > 1
    ahead = rows_ahead(state) if not low.size else max(rows_ahead(state) // 2, 4)
    is_far, own_at = difference.size * difference.itemsize > NEAR, np.uint64(difference.shape[0])
    # Rows are named by their place, not taken out: references to the arrays would be counted.
    before, row = np.empty((1, width), state.dtype), np.empty(width, np.float64)
    count = fresh = read = e = 0
    for r in range(-ahead, rows.size):
        if r + ahead < rows.size:
            fetch(state, rows[r + ahead])
            if low.size:
                fetch(low, rows[r + ahead])
            fetch(drift, rows[r + ahead])
            if factor.size:
                fetch(factor, rows[r + ahead])
        if r < 0:
            continue
        v, end = np.uint64(rows[r]), behind[r]  # no index from the end
        is_empty = e == end and not loop.size and inn.degree[v] == 0
        begin = e
        if compares:
            for f in range(width):
                before[0, f] = state[v, f]
        if begin < end:  # no calls, which would take as long as to add to a narrow row
            by, moves = np.float64(factor[v]) if factor.size else 1.0, 0.0
            at_once = end - begin == 1 or not low.size
            if not at_once:
                joined(state, low, v, row)
            for e in range(begin, end):
                if (is_far or weight.size) and e + ahead < edges.shape[0]:
                    _fetch_edge(difference, weight, edges, e + ahead, is_far)
                u, w = np.uint64(edges[e, 0]), by
                if u >= own_at:
                    u, w = u - own_at, np.float64(loop[0]) * by
                elif weight.size:
                    w = np.float64(weight[np.uint64(edges[e, 2])]) * by
                if at_once:
                    add_scaled(state, low, v, w, difference, u)
                else:
                    for f in range(width):
                        row[f] += w * difference[u, f]
                moves += moved[u] * abs(w)
            if not at_once:
                split(row, state, low, v)
            drift[v] += moves
            e = end
        if not settles:
            stamp[v] = epoch
            continue
        if is_empty:  # `sum_settle`; a call would take as long as the sum
            for f in range(width):
                state[v, f] = own[v if each else np.uint64(0), f] if own.size else 0
                if low.size:
                    low[v, f] = 0
            drift[v] = 0
        elif drift[v] != 0:
            size = magnitude(state, v, scale)
            drift[v] += size
            if low.size:  # so many additions in float64 are one more in two halves
                drift[v] += size * ((end - begin) // WIDER)
            if not is_settled(drift[v], limit, size):
                these, fresh = again[fresh : fresh + 1], fresh + 1
                these[0] = v
                if compares:
                    read += sum_rows(
                        these, state, low, drift, message, weight, own, factor, inn, drop, loop
                    )
        touched[count] = v
        if not compares or rows[r] >= first_new:
            count += 1
        elif place[r] >= 0:
            count += differs(state, v, early, np.uint64(place[r]))
        else:
            count += differs(state, v, before, np.uint64(0))
    return fresh, count, read


@inner()
def add_by_row(  # type: ignore[no-untyped-def]
    state, low, drift, limit, scale, message, weight, own, factor, inn, drop, loop, difference,
    moved, edges, begins, first, last, shift, touched, stamp, epoch, again, settles, compares,
    early, where, first_new
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
    behind, place = np.empty(1 << shift, np.int32), np.empty(1 << shift, np.int32)
    those, ordered = np.empty(1 << shift, np.int64), np.empty((most, edges.shape[1]), np.int32)
    rows = count = fresh = read = 0
    for b in range(first, last):
        _by_row(edges, begins[:, b], begins[:, b + 1], b << shift, behind, ordered)
        size = behind[-1]
        some = _with_edges(
            behind, b << shift, stamp.size, stamp, epoch, compares, where, those, place
        )
        found = add_to_rows(
            state, low, drift, limit, scale, message, weight, own, factor, inn, drop, loop,
            difference, moved, ordered[:size], those[:some], behind, place, touched[count:], stamp,
            epoch, again[fresh:], settles, compares, early, first_new,
        )  # fmt: skip
        rows, fresh, count, read = rows + some, fresh + found[0], count + found[1], read + found[2]
    return (rows if settles else 0), fresh, count, read
