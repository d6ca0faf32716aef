"""The kernels of `adjacency` that every update calls, on a graph given as one line of addresses."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pyg_incremental.kernels import adjacency
from pyg_incremental.kernels.address import address_of, line_at
from pyg_incremental.kernels.adjacency import Adjacency, Slots

# Columns: lists along out-edges and along in-edges, slots, hash table, ends of both pools.
START, DEGREE, ROOM, NEIGHBOR, EDGE, NODES, POOL = range(7)
OUT, INN = 0, 7
SRC, DST, OUT_AT, IN_AT, OLDER, ORDER, NUM_SLOTS, TABLE, TABLE_SIZE, TOPS = range(14, 24)


def places_of(
    out: Adjacency, inn: Adjacency, slots: Slots, table: NDArray[np.int32], tops: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where the parts of a graph are, int64 `[24]`."""
    places: list[Any] = []
    for lists in (out, inn):
        places += [*map(address_of, lists), lists.degree.size, lists.neighbor.size]
    places += [*map(address_of, slots), slots.src.size, address_of(table), table.size]
    return np.array([*places, address_of(tops)], np.int64)


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
def _table(places):  # type: ignore[no-untyped-def]
    return line_at(places[TABLE], places[TABLE_SIZE], np.int32(0))


@njit(cache=True)
def accept(places, added, gone, ids, num_nodes, found):  # type: ignore[no-untyped-def]
    """See `adjacency.accept`."""
    return adjacency.accept(added, gone, ids, num_nodes, _table(places), _slots(places), found)


@njit(cache=True)
def fits(places, added):  # type: ignore[no-untyped-def]
    """See `adjacency.fits`."""
    return adjacency.fits(
        added, lists_at(places, OUT), lists_at(places, INN), line_at(places[TOPS], 2, np.int64(0))
    )


@njit(cache=True)
def change(places, added, gone, free, num_free, end, order, left, taken):  # type: ignore[no-untyped-def]
    """See `adjacency.change`."""
    return adjacency.change(
        added, gone, free, num_free, end, order, _slots(places), _table(places),
        lists_at(places, OUT), lists_at(places, INN), line_at(places[TOPS], 2, np.int64(0)), left,
        taken,
    )  # fmt: skip


@njit(cache=True)
def remove(places, gone):  # type: ignore[no-untyped-def]
    """See `adjacency.remove`."""
    adjacency.remove(
        gone, _slots(places), _table(places), lists_at(places, OUT), lists_at(places, INN)
    )


@njit(cache=True)
def insert(places, first, src, dst, taken, order):  # type: ignore[no-untyped-def]
    """See `adjacency.insert`."""
    return adjacency.insert(
        first, src, dst, taken, order, _slots(places), _table(places), lists_at(places, OUT),
        lists_at(places, INN), line_at(places[TOPS], 2, np.int64(0)),
    )  # fmt: skip
