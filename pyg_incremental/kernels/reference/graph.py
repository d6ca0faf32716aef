"""The kernels of the graph in NumPy: same names, same arguments, same structures in memory.

What goes over a whole graph runs on whole arrays; what a delta does to the lists goes edge by edge.
Slots may come to stand in other places of the table of pairs than the compiled kernels put them,
and are found by both.

Ids of nodes and slots are integers, `[k]` of each list; lists and slots are as `Adjacency` and
`Slots` have them; the table of pairs is int32 `[size]`, `places` are int64 `[24]`, edges `[2, k]`.
"""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.kernels.adjacency import Adjacency, Slots
from pyg_incremental.kernels.graph_at import (
    DEGREE,
    DST,
    EDGE,
    IN_AT,
    INN,
    NEIGHBOR,
    NODES,
    NUM_SLOTS,
    OLDER,
    ORDER,
    OUT,
    OUT_AT,
    POOL,
    ROOM,
    SRC,
    START,
    TABLE,
    TABLE_SIZE,
    TOPS,
)
from pyg_incremental.kernels.pairs import EMPTY, GONE
from pyg_incremental.kernels.samples import SEED, WORD

Ids = NDArray[Any]
Table = NDArray[np.int32]

# Neighbour lists ----------------------------------------------------------------------------------


def group(
    key: Ids, other: Ids, degree: Ids, start: Ids, neighbor: Ids, edge: Ids, at: Ids, slack: int
) -> int:
    """Fill neighbour lists; see `adjacency.group`, arrays as above."""
    count = np.bincount(key, minlength=degree.size)
    room = count + slack
    degree[:], start[:] = count, np.cumsum(room) - room
    order = np.argsort(key, kind="stable")
    node = key[order]
    position = np.arange(key.size) - (np.cumsum(count) - count)[node]
    at[order] = position
    neighbor[start[node] + position] = other[order]
    edge[start[node] + position] = order
    return int(room.sum())


def _more_room(n: int) -> int:
    return n + max(4, n // 4)


def needed(key: Ids, adj: Adjacency) -> int:
    """How much of the pool the lists move to; see `adjacency.needed`, arrays as above."""
    nodes, more = np.unique(key, return_counts=True)
    wanted = adj.degree[nodes] + more
    grows = wanted > adj.capacity[nodes]
    room = 0
    for v, size in zip(nodes[grows].tolist(), wanted[grows].tolist(), strict=True):
        n = int(adj.capacity[v])
        while n < size:
            n = _more_room(n)
            room += n
    return room


def fits(key: Ids, adj: Adjacency, top: int) -> bool:
    """Whether the pool has room for what is `needed`; arrays as above."""
    return bool(int(top) + needed(key, adj) <= adj.neighbor.size)


def compact(adj: Adjacency, neighbor: Ids, edge: Ids, room: int) -> int:
    """Copy every list into a new pool; see `adjacency.compact`, arrays as above."""
    degree = adj.degree.astype(np.int64)
    capacity = degree + np.minimum(room, adj.capacity - degree)
    start = np.cumsum(capacity) - capacity
    node = np.repeat(np.arange(degree.size), degree)
    position = np.arange(node.size) - np.repeat(np.cumsum(degree) - degree, degree)
    neighbor[start[node] + position] = adj.neighbor[adj.start[node] + position]
    edge[start[node] + position] = adj.edge[adj.start[node] + position]
    adj.start[:], adj.capacity[:] = start, capacity
    return int(capacity.sum())


def out_of_range(ids: Ids, limit: int) -> int:
    """Index of the first id, int64 `[k]`, outside `[0, limit)`, or -1."""
    wrong = (ids < 0) | (ids >= limit)
    return int(wrong.argmax()) if wrong.any() else -1


def _put(key: Ids, other: Ids, taken: Ids, positions: Ids, adj: Adjacency, top: Ids) -> None:
    for v, u, slot in zip(key.tolist(), other.tolist(), taken.tolist(), strict=True):
        n = int(adj.degree[v])
        if n == adj.capacity[v]:
            old, new, room = int(adj.start[v]), int(top[0]), _more_room(n)
            adj.neighbor[new : new + n] = adj.neighbor[old : old + n]
            adj.edge[new : new + n] = adj.edge[old : old + n]
            adj.start[v], adj.capacity[v] = new, room
            top[0] += room
        at = int(adj.start[v]) + n
        adj.neighbor[at], adj.edge[at], adj.degree[v], positions[slot] = u, slot, n + 1, n


def _drop(gone: Ids, key: Ids, positions: Ids, adj: Adjacency) -> None:
    for slot, v in zip(gone.tolist(), key[gone].tolist(), strict=True):
        first, at, last = int(adj.start[v]), int(positions[slot]), int(adj.degree[v]) - 1
        if at != last:
            moved = adj.edge[first + last]
            adj.neighbor[first + at], adj.edge[first + at] = adj.neighbor[first + last], moved
            positions[moved] = at
        adj.degree[v], positions[slot] = last, -1


def _listed(nodes: Ids, adj: Adjacency) -> Ids:
    """The slots in the lists of some nodes, one list behind the other."""
    starts, degrees = adj.start[nodes].tolist(), adj.degree[nodes].tolist()
    lists = [adj.edge[at : at + n] for at, n in zip(starts, degrees, strict=True)]
    return np.concatenate([np.empty(0, np.int64), *lists])


# The table of pairs -------------------------------------------------------------------------------


def _hash(u: Ids, v: Ids, mask: int) -> Ids:
    """As `pairs._hash`."""
    h = (u.astype(np.uint64) << np.uint64(32)) ^ v.astype(np.uint64)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    at: Ids = ((h ^ (h >> np.uint64(31))) & np.uint64(mask)).astype(np.int64)
    return at


def _seek(us: Ids, vs: Ids, table: Table, slots: Slots) -> Ids:
    """Where each pair stands in the table, or -1."""
    mask = table.size - 1
    at, found, left = _hash(us, vs, mask), np.full(us.size, -1), np.arange(us.size)
    while left.size:
        here = at[left]
        head = table[here]
        some = np.maximum(head, 0)
        same = (head >= 0) & (slots.src[some] == us[left]) & (slots.dst[some] == vs[left])
        found[left[same]] = here[same]
        left = left[~same & (head != EMPTY)]
        at[left] = (at[left] + 1) & mask
    return found


def _heads(us: Ids, vs: Ids, table: Table, slots: Slots) -> Ids:
    at = _seek(us, vs, table, slots)
    found: Ids = np.where(at >= 0, table[at], -1)
    return found


def _enter_heads(heads: Ids, table: Table, slots: Slots) -> int:
    """Put slots of pairs that are not in the table yet into it: all that are left, in turns."""
    mask, used, left = table.size - 1, 0, np.arange(heads.size)
    at = _hash(slots.src[heads], slots.dst[heads], mask)
    while left.size:
        here = at[left]
        before = table[here]
        free = before < 0
        table[here[free]] = heads[left[free]]  # of several at one place the last one stays there
        stays = free & (table[here] == heads[left])
        used += int(np.count_nonzero(before[stays] == EMPTY))
        left = left[~stays]
        at[left] = (at[left] + 1) & mask
    return used


def enter(chosen: Ids, table: Table, slots: Slots) -> int:
    """Enter slots, oldest edge first; returns how many empty places were used. As above."""
    if not chosen.size:
        return 0
    pair = (slots.src[chosen].astype(np.int64) << 32) | slots.dst[chosen]
    order = np.argsort(pair, kind="stable")
    chain, pair = chosen[order], pair[order]
    first = np.concatenate([[True], pair[1:] != pair[:-1]])
    last = np.concatenate([first[1:], [True]])
    heads = chain[last]
    at = _seek(slots.src[heads], slots.dst[heads], table, slots)
    known = at >= 0
    older = np.concatenate([[-1], chain[:-1]])
    older[first] = np.where(known, table[at], -1)
    slots.older[chain] = older
    table[at[known]] = heads[known]
    return _enter_heads(heads[~known], table, slots)


def move(old: Table, table: Table, slots: Slots) -> int:
    """Enter all pairs of one table into an empty one; returns how many places were used."""
    return _enter_heads(old[old >= 0].astype(np.int64), table, slots)


def _leave(gone: Ids, table: Table, slots: Slots) -> None:
    gone = gone[np.argsort(-slots.order[gone], kind="stable")]  # youngest first
    places = _seek(slots.src[gone], slots.dst[gone], table, slots)
    reached: dict[int, int] = {}  # in the chain of each place, lest it is walked for each slot
    for slot, at in zip(gone.tolist(), places.tolist(), strict=True):
        head, older = int(table[at]), int(slots.older[slot])
        if head == slot:
            table[at] = older if older >= 0 else GONE
            continue
        newer = reached.get(at, head)
        while slots.older[newer] != slot:
            newer = int(slots.older[newer])
        slots.older[newer], reached[at] = older, newer


def find(us: Ids, vs: Ids, table: Table, slots: Slots, found: Ids) -> None:
    """The most recently added slot of each pair, or -1; arrays as above."""
    found[:] = _heads(us, vs, table, slots)


def find_distinct(us: Ids, vs: Ids, table: Table, slots: Slots, found: Ids) -> tuple[bool, bool]:
    """Like `find`; see `pairs.find_distinct`."""
    find(us, vs, table, slots, found)
    first = np.unique(found, return_index=True)[1]
    is_again = np.ones(found.size, bool)
    is_again[first] = False
    stops = is_again | (found < 0)
    n = int(stops.argmax()) if stops.any() else found.size
    complete = n == found.size
    return bool(complete or found[n] < 0), complete


def find_without(removed: Ids, us: Ids, vs: Ids, table: Table, slots: Slots, found: Ids) -> None:
    """Like `find` if the slots `removed` were gone."""
    without = set(removed.tolist())
    heads = _heads(us, vs, table, slots).tolist()
    for i, head in enumerate(heads):
        slot = head
        while slot >= 0 and slot in without:
            slot = int(slots.older[slot])
        found[i] = slot


def _youngest(us: Ids, vs: Ids, table: Table, slots: Slots, found: Ids) -> None:
    """What `pairs.claim` finds: of a pair listed k times the k youngest. Nothing changes."""
    next_of: dict[int, int] = {}
    for i, at in enumerate(_seek(us, vs, table, slots).tolist()):
        slot = next_of.get(at, int(table[at])) if at >= 0 else -1
        found[i] = slot
        if slot >= 0:
            next_of[at] = int(slots.older[slot])


# What every update does ---------------------------------------------------------------------------


def _line(address: int, count: int, kind: Any) -> Any:
    """The array `[count]` at an address."""
    if not count:
        return np.empty(0, kind)
    size = int(count) * np.dtype(kind).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(int(address)), kind)


def _lists(places: Ids, at: int) -> Adjacency:
    nodes, pool = places[at + NODES], places[at + POOL]
    return Adjacency(
        _line(places[at + START], nodes, np.int64),
        _line(places[at + DEGREE], nodes, np.int32),
        _line(places[at + ROOM], nodes, np.int32),
        _line(places[at + NEIGHBOR], pool, np.int32),
        _line(places[at + EDGE], pool, np.int32),
    )


def _slots(places: Ids) -> Slots:
    columns = (SRC, DST, OUT_AT, IN_AT, OLDER, ORDER)
    return Slots(*(_line(places[c], places[NUM_SLOTS], np.int32) for c in columns))


def _table(places: Ids) -> Any:
    return _line(places[TABLE], places[TABLE_SIZE], np.int32)


def accept(places: Ids, added: Ids, gone: Ids, ids: Ids, num_nodes: int, found: Ids) -> bool:
    """Whether a delta is valid; see `graph_at.accept`, arrays as above."""
    for some in (added, gone, ids):
        if out_of_range(some.reshape(-1), num_nodes) >= 0:
            return False
    if np.unique(ids).size < ids.size:
        return False
    table, slots = _table(places), _slots(places)
    distinct, complete = find_distinct(gone[0], gone[1], table, slots, found)
    if distinct:
        return complete
    _youngest(gone[0], gone[1], table, slots, found)
    return bool((found >= 0).all())


def leaving(
    src: Ids, dst: Ids, sources: Ids, targets: Ids, out: Adjacency, inn: Adjacency, table: Table,
    slots: Slots, listed: Ids, more: Ids,
) -> int:  # fmt: skip
    """The slots that leave; see `graph_at.leaving`, arrays as above."""
    _youngest(src, dst, table, slots, listed)
    incident = np.concatenate([_listed(sources, out), _listed(targets, inn)])
    once = np.sort(np.unique(incident, return_index=True)[1])
    incident = incident[once]
    left = incident[~np.isin(incident, listed)]
    more[: left.size] = left
    return int(left.size)


def change_list(places: Ids, side: int, ends: Ids, left: Ids, taken: Ids) -> None:
    """Take edges out of the lists of one side, and append others; see `graph_at.change_list`.

    Arrays as above.
    """
    slots, top = _slots(places), _line(places[TOPS], 2, np.int64)[side : side + 1]
    lists = _lists(places, INN if side else OUT)
    positions = slots.in_at if side else slots.out_at
    _drop(left, slots.dst if side else slots.src, positions, lists)
    _put(ends[side], ends[1 - side], taken, positions, lists, top)


def change_pairs(places: Ids, ends: Ids, left: Ids, taken: Ids, order: int) -> int:
    """The same in the table; see `graph_at.change_pairs`, arrays as above."""
    table, slots = _table(places), _slots(places)
    _leave(left, table, slots)
    slots.src[taken], slots.dst[taken] = ends
    slots.order[taken] = np.arange(order, order + taken.size)
    return enter(taken, table, slots)


# Memory -------------------------------------------------------------------------------------------


_PRIME, _MASK = 0x100000001B3, 0xFFFFFFFFFFFFFFFF


def mixed(
    addresses: Ids, pieces: Ids, always: int, first: int, last: int, keys: NDArray[np.uint64]
) -> int:
    """One number for words, int64 `[k]`, and pieces, int64 `[n, 2]`; see `samples.mixed`."""
    found = turn = SEED
    for address in addresses.tolist():
        word = ctypes.c_uint32.from_address(address).value
        found = ((found ^ word) * _PRIME) & _MASK
    for begin, size in pieces[:always].tolist():
        found = ((found ^ _of_piece(begin, size, keys)) * _PRIME) & _MASK
    for begin, size in pieces[first:last].tolist():
        turn = ((turn ^ _of_piece(begin, size, keys)) * _PRIME) & _MASK
    return found ^ turn


def _of_piece(begin: int, size: int, keys: NDArray[np.uint64]) -> int:
    held = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(begin))
    count = size // WORD
    words, rest = held[: WORD * count].view(np.uint32), held[WORD * count :]
    many = (keys[:count] * words).sum(dtype=np.uint64)
    few = (keys[count : count + rest.size] * rest).sum(dtype=np.uint64)
    return (size + int(many) + int(few)) & _MASK


def take_rows(rows: Ids, ids: Ids, found: Ids) -> None:
    """Copy `rows[ids]`, of `[n, ...]` and int64 `[k]`, to `found`, `[k, ...]`."""
    rows.take(ids, 0, out=found, mode="clip")
