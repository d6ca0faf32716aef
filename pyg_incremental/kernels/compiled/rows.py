"""Writing rows, and collecting the rows that a change reaches."""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.jit import inner, njit, shared

AHEAD = 8
"""How many rows ahead of its use a row is asked for, where little is done with each."""
ALL = 1 << 62
"""A bound that no row reaches."""
DENSE = 8
"""From one row in so many on, looking at the marks of all is the fastest way to list some."""
_BYTES = 1 << 13
"""What is asked for ahead where many rows are read in no order: as many waits for memory at once as
a core can have."""


@inner(counted=False)
def rows_ahead(rows):  # type: ignore[no-untyped-def]
    """How many rows ahead of its use a row is asked for, by how wide it is."""
    return min(max(_BYTES // max(rows.strides[0], 1), 4), 48)


@inner(counted=False)
def columns(h, channels):  # type: ignore[no-untyped-def]
    """Where the channels of head `h` begin, and where they end.

    Unsigned, like every index of a loop over a row that does not begin at 0: of others Numba asks
    in each turn whether they count from the end, and no such loop runs on vectors.
    """
    return np.uint64(h * channels), np.uint64((h + 1) * channels)


@inner(counted=False, fastmath={"reassoc"})
def size_of(row, scale):  # type: ignore[no-untyped-def]
    """Sum of the absolute values of a row, each times the `scale` of its channel."""
    total = row.dtype.type(0)
    for f in range(row.size):
        total += abs(row[f]) * scale[f]
    return total


@inner(counted=False)
def magnitude(rows, v, scale):  # type: ignore[no-untyped-def]
    """The same of row `v`."""
    return size_of(rows[v], scale)


@shared(counted=False)
def commit(store, ids, new, old, first_new, changed, where):  # type: ignore[no-untyped-def]
    """Write `new` into the rows `ids`; rows from `first_new` on always count as changed.

    With integer views of floats the comparison is bitwise, with floats it is by value (NaN equals
    NaN). `old`, if it has rows, takes what was there. `changed` and `where` take the ids that
    changed and their positions in `ids`.
    """
    n = 0
    keep = old.shape[0] > 0
    width = store.shape[1]
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            fetch(store, ids[i + AHEAD])
        v = ids[i]
        differs = v >= first_new
        for f in range(width):
            a, b = store[v, f], new[i, f]
            differs |= (a != b) & ((a == a) | (b == b))
        if keep and differs:
            for f in range(width):
                old[n, f] = store[v, f]
        for f in range(width):
            store[v, f] = new[i, f]
        if differs:
            changed[n] = v
            where[n] = i
            n += 1
    return n


@njit(counted=False, nogil=True)
def take_rows(rows, ids, found):  # type: ignore[no-untyped-def]
    """Copy `rows[ids]` to `found`."""
    ahead = rows_ahead(rows)
    for i in range(ids.size):
        if i + ahead < ids.size:
            fetch(rows, ids[i + ahead])
        v = np.uint64(ids[i])  # no index from the end
        for f in range(rows.shape[1]):
            found[i, f] = rows[v, f]


@inner(counted=False)
def marked(stamp, epoch, low, high, touched):  # type: ignore[no-untyped-def]
    """List the rows from `low` to before `high` that have the mark `epoch`; returns how many."""
    count = 0
    for v in range(low, high):
        touched[count] = v
        count += stamp[v] == epoch
    return count


@shared(counted=False)
def unite(ids, touched, count, stamp, epoch):  # type: ignore[no-untyped-def]
    """Collect `ids` behind the `count` rows already in `touched`."""
    for i in range(ids.size):
        v = ids[i]
        if stamp[v] != epoch:
            stamp[v] = epoch
            touched[count] = v
            count += 1
    return count


@njit(counted=False)
def unite_ends(src, dst, drop, touched, count, stamp, epoch):  # type: ignore[no-untyped-def]
    """Collect the targets of some edges behind the `count` rows already in `touched`."""
    return unite_ends_within(src, dst, drop, touched, count, stamp, epoch, 0, ALL)


@inner(counted=False)
def unite_ends_within(  # type: ignore[no-untyped-def]
    src, dst, drop, touched, count, stamp, epoch, low, high
):
    """The same, of only the rows from `low` to before `high`.

    Of its own, as Numba looks up a call that leaves out an argument anew every time.
    """
    for i in range(dst.size):
        v = dst[i]
        if stamp[v] != epoch and not (drop and src[i] == v) and low <= v < high:
            stamp[v] = epoch
            touched[count] = v
            count += 1
    return count


@njit(counted=False)
def reach(ids, out, drop, touched, count, stamp, epoch):  # type: ignore[no-untyped-def]
    """Collect the targets of the out-edges of `ids`. Returns (rows collected, edges read)."""
    edges = 0
    for i in range(ids.size):
        u = ids[i]
        edges += out.degree[u]
        for k in range(out.start[u], out.start[u] + out.degree[u]):
            v = out.neighbor[k]
            if stamp[v] != epoch and not (drop and v == u):
                stamp[v] = epoch
                touched[count] = v
                count += 1
    return count, edges


@shared(counted=False)
def expand(ids, adj, loops, index, neighbor, edge):  # type: ignore[no-untyped-def]
    """Write out the lists of `ids` one behind the other: position in `ids`, neighbour, edge slot.

    Returns how many. `loops`: 0 all edges, 1 without self-loops, 2 self-loops only.
    """
    n = 0
    for i in range(ids.size):
        v = np.uint64(ids[i])  # no index from the end
        begin, at = np.uint64(adj.start[v]), np.uint64(n)
        for k in range(begin, begin + np.uint64(adj.degree[v])):
            u = adj.neighbor[k]
            if loops == 0 or (loops == 1) == (u != ids[i]):
                index[at], neighbor[at], edge[at] = i, u, adj.edge[k]
                at += np.uint64(1)
        n = np.int64(at)
    return n
