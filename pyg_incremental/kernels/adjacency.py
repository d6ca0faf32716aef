"""Neighbour lists that take edge changes in amortised constant time.

An edge lives in a *slot*. Three structures know it: the list of its source, the list of its target
(both with slack, so that an append rarely moves a list), and a table of pairs (see `pairs`). None
of them needs another to change, so that threads may share an update of them. All are bookkeeping on
the host, whatever device the features are on.

Both lists are changed by the same functions: `key` are the ends of the edges on the side of the
list, `other` the ends on the other side, and `positions` say where in its list each slot stands.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.jit import inner, njit, shared
from pyg_incremental.typing import Array

STAGE = 8
"""How many edges lie between one look ahead and the next, see `address.fetch`."""
_FEW = 64
"""Edges of which a rough look may do."""


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
        out_at: Position in the source's list, -1 where the slot holds no edge.
        in_at: Position in the target's list, likewise.
        older: The next older slot of the same pair, or -1.
        order: Ascending with the time of insertion.
    """

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    out_at: NDArray[np.int32]
    in_at: NDArray[np.int32]
    older: NDArray[np.int32]
    order: NDArray[np.int32]


@njit(counted=False)
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


@shared()
def more_room(n):  # type: ignore[no-untyped-def]
    """The room that a list of `n` entries gets when it is full."""
    return n + max(4, n // 4)


@shared(counted=False)
def needed(key, adj):  # type: ignore[no-untyped-def]
    """How much of the pool the lists move to, if one more entry comes for each of `key`.

    Entries are counted up and down again. Nothing is allocated, so that nothing can be raised in
    between.
    """
    for i in range(key.size):
        if i + 2 * STAGE < key.size:
            fetch(adj.degree, key[i + 2 * STAGE])
        adj.degree[key[i]] += 1
    room = 0
    for i in range(key.size):
        if i + 2 * STAGE < key.size:
            fetch(adj.degree, key[i + 2 * STAGE])
            fetch(adj.capacity, key[i + 2 * STAGE])
        v = key[i]
        n = adj.degree[v] - 1
        adj.degree[v] = n
        full = adj.capacity[v]
        while full < n:
            full = more_room(full)
        if full == n:  # this entry finds no room
            room += more_room(full)
    return room


@shared(counted=False)
def fits(key, adj, top):  # type: ignore[no-untyped-def]
    """Whether the pool, of which `top` entries are taken, has room for what is `needed`."""
    room = top
    if key.size <= _FEW:
        for i in range(key.size):  # as if all of them came to each list
            n = adj.degree[key[i]] + key.size
            if n > adj.capacity[key[i]]:
                room += more_room(n)
        if room <= adj.neighbor.size:
            return True
    return top + needed(key, adj) <= adj.neighbor.size


@inner()
def ascending(keys):  # type: ignore[no-untyped-def]
    """The order in which keys, int64 `[k]`, ascend; equal ones as they come.

    NumPy's own functions take a second to compile.
    """
    order, other, size = np.empty(keys.size, np.int64), np.empty(keys.size, np.int64), 1
    for i in range(keys.size):
        order[i] = i
    while size < keys.size:
        for begin in range(0, keys.size, 2 * size):
            a, b = begin, min(begin + size, keys.size)
            middle, end = b, min(begin + 2 * size, keys.size)
            for i in range(begin, end):
                first = b == end or (a < middle and keys[order[a]] <= keys[order[b]])
                other[i] = order[a] if first else order[b]
                a, b = a + first, b + (not first)
        order, other, size = other, order, 2 * size
    return order


@inner(counted=False)
def _ask_for_list(v, adj):  # type: ignore[no-untyped-def]
    """Ask for where a list is."""
    fetch(adj.start, v)
    fetch(adj.degree, v)
    fetch(adj.capacity, v)


@inner(counted=False)
def _ask_for_entry(v, at, adj):  # type: ignore[no-untyped-def]
    """Ask for an entry of a list."""
    fetch(adj.neighbor, adj.start[v] + at)
    fetch(adj.edge, adj.start[v] + at)


@njit(counted=False)
def put(key, other, taken, positions, adj, top):  # type: ignore[no-untyped-def]
    """Append edges, in the slots `taken`, to their lists, for which there is room (see `fits`).

    `top[0]` is where the pool ends.
    """
    for i in range(key.size):
        if i + 2 * STAGE < key.size:
            _ask_for_list(key[i + 2 * STAGE], adj)
            fetch(positions, taken[i + 2 * STAGE])
        if i + STAGE < key.size:
            _ask_for_entry(key[i + STAGE], adj.degree[key[i + STAGE]], adj)
        v = key[i]
        n = adj.degree[v]
        if n == adj.capacity[v]:
            old, new = adj.start[v], top[0]
            for k in range(n):
                adj.neighbor[new + k] = adj.neighbor[old + k]
                adj.edge[new + k] = adj.edge[old + k]
            adj.start[v] = new
            adj.capacity[v] = more_room(n)
            top[0] += more_room(n)
        adj.neighbor[adj.start[v] + n] = other[i]
        adj.edge[adj.start[v] + n] = taken[i]
        adj.degree[v] = n + 1
        positions[taken[i]] = n


@inner(counted=False)
def _ask_to_drop(i, gone, key, positions, adj):  # type: ignore[no-untyped-def]
    """Ask for what edges behind the `i`-th need: slots, lists, their entries, who moves up."""
    if i + 4 * STAGE < gone.size:
        fetch(key, gone[i + 4 * STAGE])
        fetch(positions, gone[i + 4 * STAGE])
    if i + 3 * STAGE < gone.size:
        _ask_for_list(key[gone[i + 3 * STAGE]], adj)
    if i + 2 * STAGE < gone.size:
        v = key[gone[i + 2 * STAGE]]
        _ask_for_entry(v, positions[gone[i + 2 * STAGE]], adj)
        _ask_for_entry(v, adj.degree[v] - 1, adj)
    if i + STAGE < gone.size:
        v = key[gone[i + STAGE]]
        fetch(positions, adj.edge[adj.start[v] + adj.degree[v] - 1])


@inner(counted=False)
def drop(gone, key, positions, adj):  # type: ignore[no-untyped-def]
    """Take the edges of some slots out of their lists; the last entry takes the place of each.

    `key` is by slot here; it stays as it is.
    """
    for i in range(gone.size):
        _ask_to_drop(i, gone, key, positions, adj)
        slot = gone[i]
        v = key[slot]
        at, last = positions[slot], adj.degree[v] - 1
        if at != last:
            first = adj.start[v]
            adj.neighbor[first + at] = adj.neighbor[first + last]
            adj.edge[first + at] = adj.edge[first + last]
            positions[adj.edge[first + at]] = at
        adj.degree[v] = last
        positions[slot] = -1


@inner(counted=False)
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


@njit(counted=False)
def compact(adj, neighbor, edge, room):  # type: ignore[no-untyped-def]
    """Copy every list into a new pool.

    Lists that have outgrown their first size get `room` entries of slack.
    """
    total = 0
    for v in range(adj.degree.size):
        if v + 2 * STAGE < adj.degree.size:
            _ask_for_entry(v + 2 * STAGE, 0, adj)
        old = adj.start[v]
        for k in range(adj.degree[v]):
            neighbor[total + k] = adj.neighbor[old + k]
            edge[total + k] = adj.edge[old + k]
        adj.start[v] = total
        adj.capacity[v] = adj.degree[v] + min(room, adj.capacity[v] - adj.degree[v])
        total += adj.capacity[v]
    return total


@njit(counted=False)
def out_of_range(ids, limit):  # type: ignore[no-untyped-def]
    """Index of the first id outside `[0, limit)`, or -1."""
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= limit:
            return i
    return -1
