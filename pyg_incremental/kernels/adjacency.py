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

from pyg_incremental.kernels.address import fetch
from pyg_incremental.typing import Array

EMPTY = -1
GONE = -2
STAGE = 4
"""How many edges lie between one look ahead and the next, see `address.fetch`."""


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
    """What each edge slot holds, int32.

    Attributes:
        src: Source node.
        dst: Target node.
        out_at: Position in the source's list.
        in_at: Position in the target's list, -1 where the slot holds no edge.
        older: The next older slot of the same pair, or -1.
        order: Ascending with the time of insertion.
    """

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    out_at: NDArray[np.int32]
    in_at: NDArray[np.int32]
    older: NDArray[np.int32]
    order: NDArray[np.int32]


@njit(cache=True)
def group(key, other, degree, start, neighbor, edge, at, slack):  # type: ignore[no-untyped-def]
    """Fill neighbour lists with `slack` free entries each from edges `i = 0, 1, ...` of slot `i`.

    Returns where the last list ends.
    """
    for i in range(key.size):
        degree[key[i]] += 1
    total = 0
    for v in range(degree.size):
        start[v] = total
        total += degree[v] + slack
        degree[v] = 0
    for i in range(key.size):
        v = key[i]
        at[i] = degree[v]
        neighbor[start[v] + degree[v]] = other[i]
        edge[start[v] + degree[v]] = i
        degree[v] += 1
    return total


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
def _ask_for_pair(i, us, vs, table, slots):  # type: ignore[no-untyped-def]
    """Ask for what it takes to find pairs behind the `i`-th: the table first, then the slots."""
    mask = table.size - 1
    if i + 2 * STAGE < us.size:
        fetch(table, _hash(us[i + 2 * STAGE], vs[i + 2 * STAGE], mask))
    if i + STAGE < us.size:
        head = max(0, table[_hash(us[i + STAGE], vs[i + STAGE], mask)])
        fetch(slots.src, head)
        fetch(slots.dst, head)
        fetch(slots.out_at, head)


@njit(cache=True)
def _ask_for_slot(slot, slots):  # type: ignore[no-untyped-def]
    """Ask for what a slot holds."""
    fetch(slots.src, slot)
    fetch(slots.dst, slot)
    fetch(slots.out_at, slot)
    fetch(slots.in_at, slot)
    fetch(slots.older, slot)
    fetch(slots.order, slot)


@njit(cache=True)
def _ask_for_list(v, adj):  # type: ignore[no-untyped-def]
    """Ask for where a list is."""
    fetch(adj.start, v)
    fetch(adj.degree, v)
    fetch(adj.capacity, v)


@njit(cache=True)
def _ask_for_entry(v, at, adj):  # type: ignore[no-untyped-def]
    """Ask for an entry of a list."""
    fetch(adj.neighbor, adj.start[v] + at)
    fetch(adj.edge, adj.start[v] + at)


@njit(cache=True)
def _ask_to_insert(i, us, vs, taken, slots, table, out, inn):  # type: ignore[no-untyped-def]
    """Ask for what edges behind the `i`-th need: their lists and slots, then the ends of lists."""
    if i + 2 * STAGE < us.size:
        u, v = us[i + 2 * STAGE], vs[i + 2 * STAGE]
        _ask_for_list(u, out)
        _ask_for_list(v, inn)
        fetch(table, _hash(u, v, table.size - 1))
        _ask_for_slot(taken[i + 2 * STAGE], slots)
    if i + STAGE < us.size:
        u, v = us[i + STAGE], vs[i + STAGE]
        _ask_for_entry(u, out.degree[u], out)
        _ask_for_entry(v, inn.degree[v], inn)


@njit(cache=True)
def _ask_to_remove(i, gone, slots, out, inn):  # type: ignore[no-untyped-def]
    """Ask for what edges behind the `i`-th need: slots, lists, their entries, who moves up."""
    if i + 4 * STAGE < gone.size:
        _ask_for_slot(gone[i + 4 * STAGE], slots)
    if i + 3 * STAGE < gone.size:
        slot = gone[i + 3 * STAGE]
        _ask_for_list(slots.src[slot], out)
        _ask_for_list(slots.dst[slot], inn)
    if i + 2 * STAGE < gone.size:
        slot = gone[i + 2 * STAGE]
        u, v = slots.src[slot], slots.dst[slot]
        _ask_for_entry(u, slots.out_at[slot], out)
        _ask_for_entry(u, out.degree[u] - 1, out)
        _ask_for_entry(v, slots.in_at[slot], inn)
        _ask_for_entry(v, inn.degree[v] - 1, inn)
    if i + STAGE < gone.size:
        slot = gone[i + STAGE]
        u, v = slots.src[slot], slots.dst[slot]
        fetch(slots.out_at, out.edge[out.start[u] + out.degree[u] - 1])
        fetch(slots.in_at, inn.edge[inn.start[v] + inn.degree[v] - 1])


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
        _ask_for_pair(i, us, vs, table, slots)
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
        _ask_for_pair(i, us, vs, table, slots)
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
def more_room(n):  # type: ignore[no-untyped-def]
    """The room that a list of `n` entries gets when it is full."""
    return n + max(4, n // 4)


@njit(cache=True)
def _append(v, other, slot, adj, top):  # type: ignore[no-untyped-def]
    """Append to the list of `v`; returns its position there, or -1 when the pool is full."""
    n = adj.degree[v]
    if n == adj.capacity[v]:
        room = more_room(n)
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
        _ask_to_insert(i, us, vs, taken, slots, table, out, inn)
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
        _ask_to_remove(i, gone, slots, out, inn)
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
def _fits(us, adj, top):  # type: ignore[no-untyped-def]
    """Whether the pool has room for one more entry for each of `us`, whichever lists move."""
    room = top
    for i in range(us.size):  # as if all of them came to each list: enough for a few
        n = adj.degree[us[i]] + us.size
        if n > adj.capacity[us[i]]:
            room += more_room(n)
    if room <= adj.neighbor.size:
        return True
    room, ordered, i = top, np.sort(us), 0
    while i < ordered.size:
        v, first = ordered[i], i
        while i < ordered.size and ordered[i] == v:
            i += 1
        n = adj.capacity[v]
        while n < adj.degree[v] + i - first:
            n = more_room(n)
            room += n
    return room <= adj.neighbor.size


@njit(cache=True)
def fits(added, out, inn, tops):  # type: ignore[no-untyped-def]
    """Whether the pools surely have room for the edges `added`, `[2, k]`."""
    return _fits(added[0], out, tops[0]) and _fits(added[1], inn, tops[1])


@njit(cache=True)
def change(added, gone, free, num_free, end, order, slots, table, out, inn, tops, left, taken):  # type: ignore[no-untyped-def]
    """Take edges out and put others in, if neither the pools nor `free` have to grow.

    Args:
        added: The edges that come, `[2, k]`.
        gone: The edges that leave, `[2, m]`.
        free: A stack of slots that may be used again; those that leave are put on it.
        num_free: How many it holds.
        end: The first slot that was never used.
        order: The age of the first edge that comes.
        slots: What the slots hold.
        table: Where pairs are found.
        out: Lists along out-edges.
        inn: Lists along in-edges.
        tops: Ends of both pools.
        left: The slots of the edges that leave, `[m]`.
        taken: Takes the slots of those that come, `[k]`.

    Returns:
        How many places of the table were used; -1 if something has to grow, and nothing was done.
    """
    if not fits(added, out, inn, tops):
        return -1
    if left.size > 1:
        # Youngest first: a chain of parallel edges is then taken apart from its head.
        remove(left[np.argsort(-slots.order[left], kind="mergesort")], slots, table, out, inn)
    else:
        remove(left, slots, table, out, inn)
    reused = min(taken.size, num_free)
    taken[:reused] = free[num_free - reused : num_free]
    for i in range(reused, taken.size):
        taken[i] = end + i - reused
    _, used = insert(0, added[0], added[1], taken, order, slots, table, out, inn, tops)
    free[num_free - reused : num_free - reused + left.size] = left
    return used


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
