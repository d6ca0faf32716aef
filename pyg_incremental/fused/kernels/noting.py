"""What a small update may write to, copied before it does, and put back after it.

An update that compiled code carries out writes to rows of the nodes that it reaches, to the ends of
its edges in both neighbour lists, to the slots of these edges and to their places in the table of
pairs (see `kernels.graph_at`). All of that can be found beforehand, in a time that does not depend
on how large the graph is. More may be copied than is written to: what is put back is what stood
there.

`log` is int64 `[room, 2]`: in its first line how many pieces of memory were copied, and how many
bytes; then address and size of each. Their bytes stand in `kept`, uint8 `[size]`. Where there is
too little room, the first line says how much it takes, and nothing else holds.
"""

import numpy as np

from pyg_incremental.kernels.address import borrowed, borrowed_rows, line_at
from pyg_incremental.kernels.adjacency import more_room
from pyg_incremental.kernels.graph_at import (
    DEGREE,
    DST,
    EDGE,
    IN_AT,
    INN,
    NEIGHBOR,
    OLDER,
    ORDER,
    OUT,
    OUT_AT,
    POOL,
    ROOM,
    SRC,
    START,
    TABLE,
    TOPS,
    _slots,
    _table,
    lists_at,
)
from pyg_incremental.kernels.jit import inner, njit
from pyg_incremental.kernels.pairs import EMPTY, _hash, _seek

TOO_MANY, INVALID = -1, -2
"""What `note` returns where it is not for this."""
ROWS, BYTES, COUNT, HOPS = range(4)
"""Columns of tables of rows: the address of the first, bytes of each, how many there are, and how
far from what a delta names they may change."""
_SHORT, _LONG = 4, 8
_OF_SLOTS = (SRC, DST, OUT_AT, IN_AT, OLDER, ORDER)


@inner(counted=False)
def _note(address, size, log, kept):  # type: ignore[no-untyped-def]
    """Copy a piece of memory."""
    at, used = log[0, 0] + 1, log[0, 1]
    log[0, 0], log[0, 1] = at, used + size
    if at < log.shape[0] and used + size <= kept.size:
        log[at, 0], log[at, 1] = address, size
        copy(line_at(address, size, np.uint8(0)), kept[used : used + size])


@inner(counted=False)
def copy(source, target):  # type: ignore[no-untyped-def]
    """Copy bytes."""
    for i in range(source.size):
        target[i] = source[i]


@njit(counted=False)
def put_back(log, kept):  # type: ignore[no-untyped-def]
    """Write all that was copied to where it stood; may be done again."""
    used = 0
    for at in range(1, log[0, 0] + 1):
        size = log[at, 1]
        copy(kept[used : used + size], line_at(log[at, 0], size, np.uint8(0)))
        used += size


@inner(counted=False)
def _are_ids(ids, num_nodes):  # type: ignore[no-untyped-def]
    valid = True
    for i in range(ids.size):
        valid &= 0 <= ids[i] < num_nodes
    return valid


@inner(counted=False)
def _reach_one(v, marks, epoch, count):  # type: ignore[no-untyped-def]
    """Collect a node; returns how many there are."""
    if marks[0, v] == epoch:
        return count
    marks[0, v], marks[1, count] = epoch, v
    return count + 1


@inner(counted=False)
def _reached(lists, added, gone, ids, both, marks, epoch, most, ends):  # type: ignore[no-untyped-def]
    """Collect the nodes whose rows may be written to in `marks[1]`.

    They are those whose rows are given; with the first hop what these reach, and those to which
    edges lead that come or leave; and so on. `ends` takes how many there are after each hop.
    Returns how many; `TOO_MANY` for more than `most`.
    """
    count = first = 0
    for i in range(ids.size):
        count = _reach_one(ids[i], marks, epoch, count)
    ends[0] = count
    for hop in range(ends.size - 1):
        last = count
        for side in range(1 + both):
            adj = lists[side]
            for k in range(first, last):
                v = marks[1, k]
                for e in range(adj.start[v], adj.start[v] + adj.degree[v]):
                    count = _reach_one(adj.neighbor[e], marks, epoch, count)
                if count > most:
                    return TOO_MANY
        if hop == 0:
            for edges in (added, gone):
                for i in range(edges.shape[1]):
                    count = _reach_one(edges[1, i], marks, epoch, count)
                    if both:
                        count = _reach_one(edges[0, i], marks, epoch, count)
        first, ends[hop + 1] = last, count
    return count


@inner(counted=False)
def _note_rows(table, ids, ends, log, kept):  # type: ignore[no-untyped-def]
    """Copy the rows of the nodes that were collected, as far as each may change."""
    for t in range(table.shape[0]):
        address, size = table[t, ROWS], table[t, BYTES]
        for k in range(ends[table[t, HOPS]]):
            if ids[k] < table[t, COUNT]:
                _note(address + ids[k] * size, size, log, kept)


@inner(counted=False)
def _note_list(places, side, v, came, left, log, kept):  # type: ignore[no-untyped-def]
    """Copy what changes of the list of a node from which up to `left` edges leave, and others come.

    The last entries take the place of those that leave. Returns how much of the pool it may move
    to.
    """
    at, adj = INN if side else OUT, lists_at(places, INN if side else OUT)
    _note(places[at + START] + _LONG * v, _LONG, log, kept)
    _note(places[at + DEGREE] + _SHORT * v, _SHORT, log, kept)
    _note(places[at + ROOM] + _SHORT * v, _SHORT, log, kept)
    n, room, start = adj.degree[v], adj.capacity[v], adj.start[v]
    low, high = start + max(0, n - left), start + min(room, n + came)
    _note(places[at + NEIGHBOR] + _SHORT * low, _SHORT * (high - low), log, kept)
    _note(places[at + EDGE] + _SHORT * low, _SHORT * (high - low), log, kept)
    positions = places[IN_AT if side else OUT_AT]
    for k in range(low, start + n):
        _note(positions + _SHORT * adj.edge[k], _SHORT, log, kept)
    more = 0
    while room < n + came:
        room = more_room(room)
        more += room
    return more


@inner(counted=False)
def _note_lists(places, side, added, gone, marks, epoch, log, kept):  # type: ignore[no-untyped-def]
    """The same for the ends of all edges at one side, and that part of the pool."""
    at, more, came, left = INN if side else OUT, 0, added.shape[1], gone.shape[1]
    for edges in (added, gone):
        for i in range(edges.shape[1]):
            v = edges[side, i]
            if marks[0, v] != epoch:
                marks[0, v] = epoch
                more += _note_list(places, side, v, came, left, log, kept)
    top = line_at(places[TOPS], 2, np.int64(0))[side]
    more = min(more, places[at + POOL] - top)
    if more > 0:
        _note(places[at + NEIGHBOR] + _SHORT * top, _SHORT * more, log, kept)
        _note(places[at + EDGE] + _SHORT * top, _SHORT * more, log, kept)


@inner(counted=False)
def _note_leaving(places, gone, log, kept):  # type: ignore[no-untyped-def]
    """Copy slots and entries of the youngest edges of some pairs, of which some leave."""
    slots, table = _slots(places), _table(places)
    out, inn = lists_at(places, OUT), lists_at(places, INN)
    for i in range(gone.shape[1]):
        at = _seek(gone[0, i], gone[1, i], table, slots)
        slot = table[at] if at >= 0 else -1
        for _ in range(gone.shape[1] + 1):
            if slot < 0:
                break
            for column in (OUT_AT, IN_AT, OLDER):
                _note(places[column] + _SHORT * slot, _SHORT, log, kept)
            entry = out.start[gone[0, i]] + slots.out_at[slot]
            _note(places[OUT + NEIGHBOR] + _SHORT * entry, _SHORT, log, kept)
            _note(places[OUT + EDGE] + _SHORT * entry, _SHORT, log, kept)
            entry = inn.start[gone[1, i]] + slots.in_at[slot]
            _note(places[INN + NEIGHBOR] + _SHORT * entry, _SHORT, log, kept)
            _note(places[INN + EDGE] + _SHORT * entry, _SHORT, log, kept)
            slot = slots.older[slot]


@inner(counted=False)
def _note_table(places, edges, came, log, kept):  # type: ignore[no-untyped-def]
    """Copy the places of the table of pairs at which some may be put."""
    table = _table(places)
    mask = table.size - 1
    for i in range(edges.shape[1]):
        first = _hash(edges[0, i], edges[1, i], mask)
        at, empty = first, 0
        while empty <= came:
            empty += table[at & mask] == EMPTY
            at += 1
        end = min(at, table.size)
        _note(places[TABLE] + _SHORT * first, _SHORT * (end - first), log, kept)
        if at > end:
            _note(places[TABLE], _SHORT * (at - end), log, kept)


@njit(cache=True, nogil=True)
def note(  # type: ignore[no-untyped-def]
    places, of_nodes, of_edges, added, gone, ids, num_nodes, free, num_free, end, hops, both, most,
    marks, epoch, log, kept,
):  # fmt: skip
    """Copy what an update may write to.

    Args:
        places: Where the graph is, see `graph_at`; it has room for the edges and nodes that come.
        of_nodes: A table of the rows of nodes.
        of_edges: The same of those of edges, by slot.
        added: The edges that come, `[2, k]`.
        gone: The edges that leave, `[2, m]`.
        ids: The nodes whose rows are given.
        num_nodes: How many there are then.
        free: See `graph_at.accept_now`.
        num_free: See there.
        end: See there.
        hops: How far it reaches.
        both: Whether along both directions of edges.
        most: Nodes at most.
        marks: Room for marks, and for nodes, `[2, num_nodes]`.
        epoch: Three marks from here on are fresh.
        log: What was copied.
        kept: The bytes.

    Returns:
        How many nodes it may reach; or `TOO_MANY`; or `INVALID` where some are not there.
    """
    of_nodes, of_edges = borrowed_rows(of_nodes), borrowed_rows(of_edges)
    marks, log, kept = borrowed_rows(marks), borrowed_rows(log), borrowed(kept)
    log[0, 0] = log[0, 1] = 0
    valid = _are_ids(ids, num_nodes)
    for edges in (added, gone):
        valid &= _are_ids(edges[0], num_nodes) and _are_ids(edges[1], num_nodes)
    if not valid:
        return INVALID
    lists, ends = (lists_at(places, OUT), lists_at(places, INN)), np.empty(hops + 1, np.int64)
    count = _reached(lists, added, gone, ids, both, marks, epoch, most, ends)
    if count < 0:
        return count
    _note_rows(of_nodes, marks[1], ends, log, kept)
    came, left = added.shape[1], gone.shape[1]
    if not came and not left:
        return count
    for side in range(2):
        _note_lists(places, side, added, gone, marks, epoch + 1 + side, log, kept)
    _note_leaving(places, gone, log, kept)
    _note_table(places, added, came, log, kept)
    _note_table(places, gone, came, log, kept)
    _note(places[TOPS], 2 * _LONG, log, kept)
    reused = min(came, num_free)
    listed = num_free - reused
    _note(free.ctypes.data + _LONG * listed, _LONG * min(left, free.size - listed), log, kept)
    for i in range(came):
        slot = free[listed + i] if i < reused else end + i - reused
        for column in _OF_SLOTS:
            _note(places[column] + _SHORT * slot, _SHORT, log, kept)
        for t in range(of_edges.shape[0]):
            size = of_edges[t, BYTES]
            _note(of_edges[t, ROWS] + slot * size, size, log, kept)
    return count
