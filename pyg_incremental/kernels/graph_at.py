"""What every update does to a graph, which is given as one line of addresses."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.kernels import adjacency, pairs
from pyg_incremental.kernels.address import address_of, line_at
from pyg_incremental.kernels.adjacency import Adjacency, Slots
from pyg_incremental.kernels.jit import inner, njit, shared

# Columns: lists along out-edges and along in-edges, slots, hash table, ends of both pools.
START, DEGREE, ROOM, NEIGHBOR, EDGE, NODES, POOL = range(7)
OUT, INN = 0, 7
SRC, DST, OUT_AT, IN_AT, OLDER, ORDER, NUM_SLOTS, TABLE, TABLE_SIZE, TOPS = range(14, 24)
COLUMNS = 24


def places_of(
    out: Adjacency, inn: Adjacency, slots: Slots, table: NDArray[np.int32], tops: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where the parts of a graph are, int64 `[24]`."""
    places: list[Any] = []
    for lists in (out, inn):
        places += [*map(address_of, lists), lists.degree.size, lists.neighbor.size]
    places += [*map(address_of, slots), slots.src.size, address_of(table), table.size]
    return np.array([*places, address_of(tops)], np.int64)


@inner()
def lists_at(places, at):  # type: ignore[no-untyped-def]
    """The neighbour lists described from column `at` on."""
    nodes, pool, long, short = places[at + NODES], places[at + POOL], np.int64(0), np.int32(0)
    return Adjacency(
        line_at(places[at + START], nodes, long),
        line_at(places[at + DEGREE], nodes, short),
        line_at(places[at + ROOM], nodes, short),
        line_at(places[at + NEIGHBOR], pool, short),
        line_at(places[at + EDGE], pool, short),
    )


@inner()
def _slots(places):  # type: ignore[no-untyped-def]
    count, short = places[NUM_SLOTS], np.int32(0)
    return Slots(
        line_at(places[SRC], count, short),
        line_at(places[DST], count, short),
        line_at(places[OUT_AT], count, short),
        line_at(places[IN_AT], count, short),
        line_at(places[OLDER], count, short),
        line_at(places[ORDER], count, short),
    )


@inner()
def _table(places):  # type: ignore[no-untyped-def]
    return line_at(places[TABLE], places[TABLE_SIZE], np.int32(0))


@inner()
def _are_distinct(ids, num_nodes):  # type: ignore[no-untyped-def]
    """Whether all ids are in `[0, num_nodes)`, and none is listed twice."""
    ascend, before = True, -1
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= num_nodes:
            return False
        ascend &= ids[i] > before
        before = ids[i]
    if ascend:
        return True
    order, distinct = adjacency.ascending(ids), True
    for i in range(1, order.size):
        distinct &= ids[order[i]] != ids[order[i - 1]]
    return distinct


@shared(counted=False)
def accept(places, added, gone, ids, num_nodes, found):  # type: ignore[no-untyped-def]
    """Whether all ids are in `[0, num_nodes)`, `ids` are distinct and every edge is there.

    `added` and `gone` are edges, `[2, k]`; `found` takes the slots of `gone` (see `pairs.claim`).
    """
    for edges in (added, gone):
        for i in range(edges.shape[1]):
            for end in range(2):
                if edges[end, i] < 0 or edges[end, i] >= num_nodes:
                    return False
    if not _are_distinct(ids, num_nodes):
        return False
    table, slots = _table(places), _slots(places)
    distinct, complete = pairs.find_distinct(gone[0], gone[1], table, slots, found)
    if distinct:
        return complete
    pairs.claim(gone[0], gone[1], table, slots, found)
    complete = True
    for i in range(found.size):
        complete &= found[i] >= 0
    pairs.unclaim(found, table, slots)
    return complete


@njit(counted=False)
def leaving(src, dst, sources, targets, out, inn, table, slots, listed, more):  # type: ignore[no-untyped-def]
    """The slots that leave, see `EdgeStore.resolve_removal`: of listed pairs, and with nodes.

    What is claimed on the way is given back before this returns, and nothing is allocated in
    between: whatever is raised, is raised before or after it.

    Args:
        src: Sources of the listed pairs.
        dst: Their targets.
        sources: Nodes of which every other edge that starts there leaves too.
        targets: Nodes of which every other edge that leads there leaves too.
        out: Neighbour lists along out-edges.
        inn: Those along in-edges.
        table: The table of pairs.
        slots: The slots.
        listed: Takes the slots of the listed pairs, -1 for one that is not there.
        more: Takes the slots that leave with the nodes.

    Returns:
        How many leave with the nodes.
    """
    pairs.claim(src, dst, table, slots, listed)
    count = adjacency.incident(sources, slots, out, more)
    count += adjacency.incident(targets, slots, inn, more[count:])
    for i in range(count):
        slots.out_at[more[i]] = ~slots.out_at[more[i]]
    pairs.unclaim(listed, table, slots)
    return count


@shared(counted=False, nogil=True)
def accept_now(places, added, gone, ids, num_nodes, free, num_free, end, slots):  # type: ignore[no-untyped-def]
    """Whether a delta is valid, and the graph can take it without growing.

    Args:
        places: Where the graph is.
        added: The edges that come, `[2, k]`.
        gone: The edges that leave, `[2, m]`.
        ids: Nodes; see `accept`.
        num_nodes: How many there are.
        free: A stack of slots that may be used again.
        num_free: How many it holds.
        end: The first slot that was never used.
        slots: Two rows: takes the slots of the edges that leave, and of those that come, behind
            whether the delta was accepted, so that these are known.
    """
    left, taken = slots[0, 1 : 1 + gone.shape[1]], slots[1, 1 : 1 + added.shape[1]]
    if not accept(places, added, gone, ids, num_nodes, left):
        return False
    tops = line_at(places[TOPS], 2, np.int64(0))
    for side in range(2):
        if not adjacency.fits(added[side], lists_at(places, INN if side else OUT), tops[side]):
            return False
    reused = min(taken.size, num_free)
    for i in range(reused):
        taken[i] = free[num_free - reused + i]
    for i in range(reused, taken.size):
        taken[i] = end + i - reused
    slots[0, 0] = slots[1, 0] = 1
    return True


@shared(counted=False, nogil=True)
def change_list(places, side, ends, left, taken):  # type: ignore[no-untyped-def]
    """Take the slots `left` out of the lists of one side, and append edges in the slots `taken`.

    Side 0 has the lists of the sources, 1 those of the targets; `ends` are both ends of the edges,
    `[2, k]`. Both sides and `change_pairs` may run beside each other.
    """
    slots, top = _slots(places), line_at(places[TOPS], 2, np.int64(0))[side : side + 1]
    lists = lists_at(places, INN if side else OUT)
    positions = slots.in_at if side else slots.out_at
    adjacency.drop(left, slots.dst if side else slots.src, positions, lists)
    adjacency.put(ends[side], ends[1 - side], taken, positions, lists, top)


@shared(counted=False, nogil=True)
def change_pairs(places, ends, left, taken, order):  # type: ignore[no-untyped-def]
    """The same in the table, and write the ends and ages of the edges that come, from `order` on.

    It writes to slots that no edge is in. Returns how many places of the table were used.
    """
    pairs.leave(left, _table(places), _slots(places))
    return pairs.enter_new(ends[0], ends[1], taken, order, _table(places), _slots(places))


@shared(counted=False)
def has_changed(free, num_free, slots, added, removed):  # type: ignore[no-untyped-def]
    """So many edges have come and left as was accepted (see `accept_now`).

    The slots of those that left go on the stack.
    """
    reused = min(added, num_free)
    for i in range(removed):
        free[num_free - reused + i] = slots[0, 1 + i]
