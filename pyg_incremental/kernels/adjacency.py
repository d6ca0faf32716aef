"""Neighbour lists that take edge changes in amortised constant time.

An edge lives in a *slot*. Three structures know it: the list of its source, the list of its target
(both with slack, so that an append rarely moves a list), and a hash table from the pair (source,
target) to the slot added last; earlier slots of the same pair are chained behind it. The lists are
bookkeeping on the host, whatever device the features are on.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pyg_incremental.typing import Array

EMPTY = -1
GONE = -2


class Adjacency(NamedTuple):
    """Neighbour lists with slack.

    The list of node `v` is `neighbor[start[v] : start[v] + degree[v]]`.

    Attributes:
        start: Where each list begins, int64 `[num_nodes]`.
        degree: Its length, int32 `[num_nodes]`.
        capacity: The room it has, int32 `[num_nodes]`.
        neighbor: The node at the other end of each edge, int32 `[pool]`.
        edge: The slot of each edge, int32 `[pool]`.
    """

    start: Array
    degree: Array
    capacity: Array
    neighbor: Array
    edge: Array


class Slots(NamedTuple):
    """What each edge slot holds; int32 but for `order`.

    Attributes:
        src: Source node.
        dst: Target node.
        out_at: Position in the source's list.
        in_at: Position in the target's list, -1 where the slot holds no edge.
        older: The next older slot of the same pair, or -1.
        order: int64, ascending with the time of insertion.
    """

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    out_at: NDArray[np.int32]
    in_at: NDArray[np.int32]
    older: NDArray[np.int32]
    order: NDArray[np.int64]


@njit(cache=True)
def group(key, other, degree, start, neighbor, edge, at):  # type: ignore[no-untyped-def]
    """Fill neighbour lists without slack from edges `i = 0, 1, ...` of slot `i`."""
    for i in range(key.size):
        degree[key[i]] += 1
    total = 0
    for v in range(degree.size):
        start[v] = total
        total += degree[v]
        degree[v] = 0
    for i in range(key.size):
        v = key[i]
        at[i] = degree[v]
        neighbor[start[v] + degree[v]] = other[i]
        edge[start[v] + degree[v]] = i
        degree[v] += 1


@njit(cache=True)
def _hash(u, v, mask):  # type: ignore[no-untyped-def]
    h = (np.uint64(u) << np.uint64(32)) ^ np.uint64(v)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((h ^ (h >> np.uint64(31))) & np.uint64(mask))


@njit(cache=True)
def _seek(u, v, table, slots):  # type: ignore[no-untyped-def]
    """Where the pair stands in the table, or -1 - (the first place where it could be put)."""
    mask = table.size - 1
    at = _hash(u, v, mask)
    free = -1
    while True:
        head = table[at]
        if head == EMPTY:
            return -1 - (at if free < 0 else free)
        if head == GONE:
            if free < 0:
                free = at
        elif slots.src[head] == u and slots.dst[head] == v:
            return at
        at = (at + 1) & mask


@njit(cache=True)
def enter(chosen, table, slots):  # type: ignore[no-untyped-def]
    """Enter slots, oldest edge first, into a table that has room.

    Returns how many empty places were used.
    """
    used = 0
    for i in range(chosen.size):
        used += _enter(chosen[i], table, slots)
    return used


@njit(cache=True)
def _enter(slot, table, slots):  # type: ignore[no-untyped-def]
    at = _seek(slots.src[slot], slots.dst[slot], table, slots)
    if at >= 0:
        slots.older[slot] = table[at]
        table[at] = slot
        return 0
    slots.older[slot] = -1
    at = -1 - at
    used = 1 if table[at] == EMPTY else 0
    table[at] = slot
    return used


@njit(cache=True)
def find(us, vs, table, slots, found):  # type: ignore[no-untyped-def]
    """The most recently added slot of each pair, or -1."""
    for i in range(us.size):
        at = _seek(us[i], vs[i], table, slots)
        found[i] = table[at] if at >= 0 else -1


@njit(cache=True)
def find_left(us, vs, table, slots, found):  # type: ignore[no-untyped-def]
    """The most recently added slot of each pair that is not marked (`out_at` flipped), or -1."""
    for i in range(us.size):
        at = _seek(us[i], vs[i], table, slots)
        slot = table[at] if at >= 0 else -1
        while slot >= 0 and slots.out_at[slot] < 0:
            slot = slots.older[slot]
        found[i] = slot


@njit(cache=True)
def claim(us, vs, table, slots, found):  # type: ignore[no-untyped-def]
    """Like `find`, but a pair listed k times gets its k youngest slots, one each.

    What is claimed is taken off the table and marked by flipping `out_at`; `unclaim` undoes both.
    Each claim costs the same, however many edges a pair has.
    """
    for i in range(us.size):
        at = _seek(us[i], vs[i], table, slots)
        slot = table[at] if at >= 0 else -1
        if slot >= 0:
            slots.out_at[slot] = ~slots.out_at[slot]
            table[at] = slots.older[slot] if slots.older[slot] >= 0 else GONE
        found[i] = slot


@njit(cache=True)
def unclaim(found, table, slots):  # type: ignore[no-untyped-def]
    """Undo a `claim`, last first, so that every chain is as it was."""
    for i in range(found.size - 1, -1, -1):
        slot = found[i]
        if slot >= 0:
            slots.out_at[slot] = ~slots.out_at[slot]
            _enter(slot, table, slots)


@njit(cache=True)
def _append(v, other, slot, adj, top):  # type: ignore[no-untyped-def]
    """Append to the list of `v`; returns its position there, or -1 when the pool is full."""
    n = adj.degree[v]
    if n == adj.capacity[v]:
        room = max(4, 2 * n)
        if top[0] + room > adj.neighbor.size:
            return -1
        old, new = adj.start[v], top[0]
        for k in range(n):
            adj.neighbor[new + k] = adj.neighbor[old + k]
            adj.edge[new + k] = adj.edge[old + k]
        adj.start[v] = new
        adj.capacity[v] = room
        top[0] += room
    adj.neighbor[adj.start[v] + n] = other
    adj.edge[adj.start[v] + n] = slot
    adj.degree[v] = n + 1
    return n


@njit(cache=True)
def insert(first, us, vs, taken, order, slots, table, out, inn, tops):  # type: ignore[no-untyped-def]
    """Put edges `first ...` into the slots `taken`; returns (edges done, places of the table used).

    Stops early when a pool is full; the caller then makes room and calls again from where it
    stopped.
    """
    used = 0
    for i in range(first, us.size):
        u, v, slot = us[i], vs[i], taken[i]
        at = _append(u, v, slot, out, tops[0:1])
        if at < 0:
            return i, used
        slots.out_at[slot] = at
        at = _append(v, u, slot, inn, tops[1:2])
        if at < 0:
            out.degree[u] -= 1
            return i, used
        slots.in_at[slot] = at
        slots.src[slot] = u
        slots.dst[slot] = v
        slots.order[slot] = order + i
        used += _enter(slot, table, slots)
    return us.size, used


@njit(cache=True)
def _drop(v, at, adj, positions):  # type: ignore[no-untyped-def]
    """Remove entry `at` of the list of `v`; the last entry takes its place."""
    last = adj.degree[v] - 1
    i, j = adj.start[v] + at, adj.start[v] + last
    if i != j:
        adj.neighbor[i] = adj.neighbor[j]
        adj.edge[i] = adj.edge[j]
        positions[adj.edge[i]] = at
    adj.degree[v] = last


@njit(cache=True)
def remove(gone, slots, table, out, inn):  # type: ignore[no-untyped-def]
    """Take edges out of lists and table.

    Their slots keep `src` and `dst` until they are released.
    """
    for i in range(gone.size):
        slot = gone[i]
        u, v = slots.src[slot], slots.dst[slot]
        _drop(u, slots.out_at[slot], out, slots.out_at)
        _drop(v, slots.in_at[slot], inn, slots.in_at)
        slots.in_at[slot] = -1
        at = _seek(u, v, table, slots)
        if table[at] == slot:
            table[at] = slots.older[slot] if slots.older[slot] >= 0 else GONE
        else:
            newer = table[at]
            while slots.older[newer] != slot:
                newer = slots.older[newer]
            slots.older[newer] = slots.older[slot]


@njit(cache=True)
def incident(nodes, slots, adj, found):  # type: ignore[no-untyped-def]
    """The slots of all unclaimed edges in the lists of some nodes, marked as by `claim`.

    Returns their number.
    """
    n = 0
    for i in range(nodes.size):
        v = nodes[i]
        for k in range(adj.start[v], adj.start[v] + adj.degree[v]):
            slot = adj.edge[k]
            if slots.out_at[slot] >= 0:
                slots.out_at[slot] = ~slots.out_at[slot]
                found[n] = slot
                n += 1
    return n


@njit(cache=True)
def compact(adj, neighbor, edge, room):  # type: ignore[no-untyped-def]
    """Copy every list into a new pool.

    Lists that have outgrown their first size get `room` entries of slack.
    """
    total = 0
    for v in range(adj.degree.size):
        old = adj.start[v]
        for k in range(adj.degree[v]):
            neighbor[total + k] = adj.neighbor[old + k]
            edge[total + k] = adj.edge[old + k]
        adj.start[v] = total
        adj.capacity[v] = adj.degree[v] + min(room, adj.capacity[v] - adj.degree[v])
        total += adj.capacity[v]
    return total


@njit(cache=True)
def out_of_range(ids, limit):  # type: ignore[no-untyped-def]
    """Index of the first id outside `[0, limit)`, or -1."""
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= limit:
            return i
    return -1


@njit(cache=True)
def accept(added, gone, ids, num_nodes, table, slots, found):  # type: ignore[no-untyped-def]
    """Whether all ids are in `[0, num_nodes)`, `ids` ascends strictly and every edge is there.

    `added` and `gone` are edges, `[2, k]`; `found` takes the slots of `gone` (see `claim`).
    """
    for edges in (added, gone):
        for i in range(edges.shape[1]):
            for end in range(2):
                if edges[end, i] < 0 or edges[end, i] >= num_nodes:
                    return False
    before = -1
    for i in range(ids.size):
        if ids[i] <= before or ids[i] >= num_nodes:
            return False
        before = ids[i]
    claim(gone[0], gone[1], table, slots, found)
    complete = True
    for i in range(found.size):
        complete &= found[i] >= 0
    unclaim(found, table, slots)
    return complete
