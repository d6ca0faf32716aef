"""A hash table from pairs (source, target) to the slots of their edges.

It leads to the slot added last; earlier slots of the same pair are chained behind it.
"""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.adjacency import STAGE, ascending
from pyg_incremental.kernels.jit import inner, njit, shared

EMPTY = -1
GONE = -2


@inner()
def _hash(u, v, mask):  # type: ignore[no-untyped-def]
    h = (np.uint64(u) << np.uint64(32)) ^ np.uint64(v)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((h ^ (h >> np.uint64(31))) & np.uint64(mask))


@inner(counted=False)
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


@inner(counted=False)
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


@inner(counted=False)
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


@njit(counted=False)
def enter(chosen, table, slots):  # type: ignore[no-untyped-def]
    """Enter slots, oldest edge first, into a table that has room.

    Returns how many empty places were used.
    """
    used, mask = 0, table.size - 1
    for i in range(chosen.size):
        if i + 2 * STAGE < chosen.size:
            ahead = chosen[i + 2 * STAGE]
            fetch(table, _hash(slots.src[ahead], slots.dst[ahead], mask))
        if i + STAGE < chosen.size:
            ahead = chosen[i + STAGE]
            head = max(0, table[_hash(slots.src[ahead], slots.dst[ahead], mask)])
            fetch(slots.src, head)
            fetch(slots.dst, head)
        used += _enter(chosen[i], table, slots)
    return used


@njit(counted=False)
def move(old, table, slots):  # type: ignore[no-untyped-def]
    """Enter all pairs of one table into another one, which is empty; chains stay as they are.

    Pairs are taken in the order of their hashes, so both tables are walked from front to back.
    Returns how many places were used.
    """
    used, mask = 0, table.size - 1
    for i in range(old.size):
        if i + 4 * STAGE < old.size:
            ahead = max(0, old[i + 4 * STAGE])
            fetch(slots.src, ahead)
            fetch(slots.dst, ahead)
        head = old[i]
        if head < 0:
            continue
        at = _hash(slots.src[head], slots.dst[head], mask)
        while table[at] != EMPTY:
            at = (at + 1) & mask
        table[at] = head
        used += 1
    return used


@inner(counted=False)
def enter_new(us, vs, taken, order, table, slots):  # type: ignore[no-untyped-def]
    """Put pairs into the slots `taken` and enter these; the first is of age `order`.

    Returns how many empty places were used.
    """
    used = 0
    for i in range(us.size):
        if i + 2 * STAGE < us.size:
            _ask_for_slot(taken[i + 2 * STAGE], slots)
        _ask_for_pair(i, us, vs, table, slots)
        slot = taken[i]
        slots.src[slot] = us[i]
        slots.dst[slot] = vs[i]
        slots.order[slot] = order + i
        used += _enter(slot, table, slots)
    return used


@inner(counted=False)
def _ask_for_slot(slot, slots):  # type: ignore[no-untyped-def]
    """Ask for what a slot holds."""
    fetch(slots.src, slot)
    fetch(slots.dst, slot)
    fetch(slots.older, slot)
    fetch(slots.order, slot)


@inner()
def leave(gone, table, slots):  # type: ignore[no-untyped-def]
    """Take slots out of the table, which keep their ends until they are taken again."""
    mask = table.size - 1
    if gone.size > 1:  # youngest first: a chain of parallel edges is taken apart from its head
        ages, oldest_first = np.empty(gone.size, np.int64), gone
        for i in range(gone.size):
            ages[i] = -slots.order[gone[i]]
        order, gone = ascending(ages), np.empty(gone.size, np.int64)
        for i in range(gone.size):
            gone[i] = oldest_first[order[i]]
    inside, places, num_inside = np.empty(gone.size, np.int64), np.empty(gone.size, np.int64), 0
    for i in range(gone.size):
        if i + 2 * STAGE < gone.size:
            _ask_for_slot(gone[i + 2 * STAGE], slots)
        if i + STAGE < gone.size:
            ahead = gone[i + STAGE]
            fetch(table, _hash(slots.src[ahead], slots.dst[ahead], mask))
        slot = gone[i]
        at = _seek(slots.src[slot], slots.dst[slot], table, slots)
        if table[at] == slot:
            table[at] = slots.older[slot] if slots.older[slot] >= 0 else GONE
        else:
            inside[num_inside], places[num_inside] = slot, at
            num_inside += 1
    if num_inside:
        _unlink(inside[:num_inside], places[:num_inside], table, slots)


@inner()
def _unlink(inside, places, table, slots):  # type: ignore[no-untyped-def]
    """Take slots, youngest first, from within the chains that begin at places of the table.

    Each chain is walked once, however many of its slots leave.
    """
    order = ascending(places)
    for i in range(order.size):
        slot, at = inside[order[i]], places[order[i]]
        if i == 0 or at != places[order[i - 1]]:
            newer = table[at]
        while slots.older[newer] != slot:
            newer = slots.older[newer]
        slots.older[newer] = slots.older[slot]


@shared(counted=False)
def find(us, vs, table, slots, found):  # type: ignore[no-untyped-def]
    """The most recently added slot of each pair, or -1."""
    for i in range(us.size):
        _ask_for_pair(i, us, vs, table, slots)
        at = _seek(us[i], vs[i], table, slots)
        found[i] = table[at] if at >= 0 else -1


@shared(counted=False)
def find_distinct(us, vs, table, slots, found):  # type: ignore[no-untyped-def]
    """Like `find`, which is what `claim` finds if no pair is listed twice.

    Returns:
        (whether that is so, or else a pair is missing before the first repetition; whether all
        pairs are there)
    """
    find(us, vs, table, slots, found)
    n = 0  # how many are marked as by `claim`, for as long as this takes
    while n < found.size and found[n] >= 0 and slots.out_at[found[n]] >= 0:
        slots.out_at[found[n]] = ~slots.out_at[found[n]]
        n += 1
    complete = n == found.size
    distinct = complete or found[n] < 0
    for i in range(n):
        slots.out_at[found[i]] = ~slots.out_at[found[i]]
    return distinct, complete


@inner(counted=False)
def find_left(us, vs, table, slots, found):  # type: ignore[no-untyped-def]
    """The most recently added slot of each pair that is not marked (`out_at` flipped), or -1."""
    for i in range(us.size):
        at = _seek(us[i], vs[i], table, slots)
        slot = table[at] if at >= 0 else -1
        while slot >= 0 and slots.out_at[slot] < 0:
            slot = slots.older[slot]
        found[i] = slot


@njit(counted=False)
def find_without(removed, us, vs, table, slots, found):  # type: ignore[no-untyped-def]
    """Like `find` if the slots `removed` were gone; -1 where no other is left.

    Nothing is allocated, so that nothing can be raised between marking and unmarking.
    """
    for i in range(removed.size):
        slots.out_at[removed[i]] = ~slots.out_at[removed[i]]
    find_left(us, vs, table, slots, found)
    for i in range(removed.size):
        slots.out_at[removed[i]] = ~slots.out_at[removed[i]]


@inner(counted=False)
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


@inner(counted=False)
def unclaim(found, table, slots):  # type: ignore[no-untyped-def]
    """Undo a `claim`, last first, so that every chain is as it was."""
    for i in range(found.size - 1, -1, -1):
        slot = found[i]
        if slot >= 0:
            slots.out_at[slot] = ~slots.out_at[slot]
            _enter(slot, table, slots)
