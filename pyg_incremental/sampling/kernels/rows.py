"""Rows of best edges, one for each node, that take edges in and let them go.

A *row* holds the in-edges of a node with the largest keys, in descending order of key; of equal
keys the edge with the larger id, the newer one, comes first. It has room for some more than are
asked for, so that the list of all in-edges is only read again when that many of them have left.

`heads` is int64 `[num_nodes, 4]`: where a row starts in the pool, how many edges it holds, how many
it has room for, and its *floor*. Every edge that it does not hold has a key of at most the floor;
`COMPLETE` says that there is none. `pool` is int64 `[room, 3]`: key, edge id, and the slot of the
edge beside its source (slot * 2^32 + source).
"""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.jit import inner, njit

START, HELD, ROOM, FLOOR = range(4)
KEY, EDGE, PLACE = range(3)
COMPLETE = -(2**63)
_A_LINE = 3
"""Entries of a row that begin within 64 or so bytes."""
STAGE = 8
"""How many events lie between one look ahead and the next, see `address.fetch`."""


@njit(counted=False)
def _with_room(v, limit, heads, pool, top):  # type: ignore[no-untyped-def]
    """Give a full row more room; False if the pool has none."""
    held, room = heads[v, HELD], heads[v, ROOM]
    if held < room or room >= limit:
        return True
    more = min(limit, max(4, 2 * room))
    old, new = heads[v, START], top[0]
    if new + more > pool.shape[0]:
        return False
    for i in range(held):
        for column in range(pool.shape[1]):
            pool[new + i, column] = pool[old + i, column]
    heads[v, START], heads[v, ROOM] = new, more
    top[0] = new + more
    return True


@njit(counted=False)
def _put(v, key, edge, place, limit, heads, pool):  # type: ignore[no-untyped-def]
    """Put an edge that is not below the floor where it belongs; returns where that is in the row.

    A row at its limit loses its last edge, or does not take this one: `limit` is returned then.
    """
    start, held = heads[v, START], heads[v, HELD]
    at = held
    while at > 0:
        before = pool[start + at - 1, KEY]
        if before > key or (before == key and pool[start + at - 1, EDGE] > edge):
            break
        at -= 1
    if held == limit:
        heads[v, FLOOR] = key if at == limit else pool[start + limit - 1, KEY]
        if at == limit:
            return limit
        held -= 1
    for i in range(start + held, start + at, -1):
        pool[i, KEY] = pool[i - 1, KEY]
        pool[i, EDGE] = pool[i - 1, EDGE]
        pool[i, PLACE] = pool[i - 1, PLACE]
    pool[start + at, KEY] = key
    pool[start + at, EDGE] = edge
    pool[start + at, PLACE] = place
    heads[v, HELD] = held + 1
    return at


@inner(counted=False)
def _ask_for_row(v, key, heads, pool):  # type: ignore[no-untyped-def]
    """Ask for what an edge moves up in a row that takes it: from its end on."""
    if key >= heads[v, FLOOR]:
        start, end = heads[v, START], heads[v, START] + heads[v, HELD]
        for j in range(end, start - 1, -_A_LINE):
            fetch(pool, j)


@njit(counted=False)
def enter(first, nodes, sources, slots, keys, edges, width, limit, heads, pool, top, changed):  # type: ignore[no-untyped-def]
    """Take in new edges, from the `first` on, whose ids are larger than those of all before.

    Args:
        first: Where to begin.
        nodes: Their targets, int64 `[k]`.
        sources: Their sources.
        slots: Their slots.
        keys: Their keys.
        edges: Their ids, ascending.
        width: How many edges are asked for.
        limit: How many a row may hold.
        heads: The rows.
        pool: What they hold.
        top: Where the pool ends, `[1]`.
        changed: Takes whether each edge changed what is asked for, bool `[k]`.

    Returns:
        How many edges are in; fewer than there are if the pool is full.
    """
    for i in range(first, nodes.size):
        if i + 2 * STAGE < nodes.size:
            fetch(heads, nodes[i + 2 * STAGE])
        if i + STAGE < nodes.size:
            _ask_for_row(nodes[i + STAGE], keys[i + STAGE], heads, pool)
        v = nodes[i]
        changed[i] = False
        if keys[i] < heads[v, FLOOR]:
            continue
        if not _with_room(v, limit, heads, pool, top):
            return i
        place = (np.int64(slots[i]) << 32) | np.int64(sources[i])
        changed[i] = _put(v, keys[i], edges[i], place, limit, heads, pool) < width
    return nodes.size


@njit(counted=False)
def leave(nodes, slots, keys, width, heads, pool, changed):  # type: ignore[no-untyped-def]
    """Let edges go: the slots, int64 `[k]`, of in-edges of `nodes`; `keys` are by edge.

    `changed` takes whether each of them was among those asked for, bool `[k]`.
    """
    for i in range(nodes.size):
        if i + STAGE < nodes.size:
            fetch(heads, nodes[i + STAGE])
        v = nodes[i]
        changed[i] = False
        if keys[i] < heads[v, FLOOR]:
            continue
        start, held = heads[v, START], heads[v, HELD]
        for at in range(held):
            if pool[start + at, PLACE] >> 32 == slots[i]:
                for j in range(start + at, start + held - 1):
                    for column in range(pool.shape[1]):
                        pool[j, column] = pool[j + 1, column]
                heads[v, HELD] = held - 1
                changed[i] = at < width
                break


@njit(counted=False)
def refill(first, nodes, anew, width, limit, heads, pool, top, lists, keys, edges, read):  # type: ignore[no-untyped-def]
    """Read all in-edges of nodes whose rows hold fewer edges than are asked for, though there are.

    Args:
        first: Where to begin.
        nodes: The nodes, int64 `[k]`.
        anew: Whether to read those of every node.
        width: How many edges are asked for.
        limit: How many a row may hold.
        heads: The rows.
        pool: What they hold.
        top: Where the pool ends, `[1]`.
        lists: The in-edges of every node, see `kernels.adjacency`.
        keys: Of every edge by slot.
        edges: Their ids by slot.
        read: Counts the in-edges that were read, `[1]`.

    Returns:
        How many nodes are done; fewer than there are if the pool is full.
    """
    for i in range(first, nodes.size):
        v = nodes[i]
        if not anew and (heads[v, HELD] >= width or heads[v, FLOOR] == COMPLETE):
            continue
        degree = lists.degree[v]
        room = min(limit, degree + degree // 4 + 1)  # the next edge need not move it
        if heads[v, ROOM] < min(limit, degree):
            if top[0] + room > pool.shape[0]:
                return i
            heads[v, START], heads[v, ROOM] = top[0], room
            top[0] += room
        heads[v, HELD], heads[v, FLOOR] = 0, COMPLETE
        begin = lists.start[v]
        read[0] += degree
        # What came last stands last, and is best where keys are times: most others then stay out.
        for j in range(begin + degree - 1, begin - 1, -1):
            slot = lists.edge[j]
            if keys[slot] >= heads[v, FLOOR]:
                place = (np.int64(slot) << 32) | np.int64(lists.neighbor[j])
                _put(v, keys[slot], edges[slot], place, limit, heads, pool)
    return nodes.size
