"""The hops of a sample: from nodes to the sources of their sampled in-edges, each node once.

A node that was found is written as `query * 2^32 + node`, where seeds with subgraphs of their own
are queries of their own; else there is one query, the zeroth, and this is the id of the node.
"""

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.kernels.address import address_of, fetch, line_at, rows_at
from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.kernels.graph_at import lists_at
from pyg_incremental.kernels.jit import inner, njit
from pyg_incremental.sampling.kernels.rows import EDGE, HELD, PLACE, STAGE, START

Ids = NDArray[np.int64]
HEADS, NODES, POOL, ROOM, IDS, SLOTS = range(7, 13)
"""Columns of places, behind those of lists (see `kernels.graph_at`)."""
_LOW = 2**32 - 1
_EMPTY = np.int32(-1)
ROW, COL, ID = range(3)
"""Rows of edges that were found."""
_EXPECTED = 320
"""Nodes and edges for which there is room at once: as many as one seed has of [25, 10]."""


@inner()
def _find(found, table, nodes):  # type: ignore[no-untyped-def]
    """Where a node that was found stands in the table, or the empty place where it is to be put."""
    mask = np.uint64(table.size - 1)
    h = np.uint64(found)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    at = np.int64((h ^ (h >> np.uint64(29))) & mask)
    while table[at] != _EMPTY and nodes[table[at]] != found:
        at = np.int64(np.uint64(at + 1) & mask)
    return at


@njit(cache=True)
def table_of(nodes, more):  # type: ignore[no-untyped-def]
    """A hash table from nodes that were found to where they stand, with room for `more`, int32.

    Of a node that is listed twice it leads to the first place.
    """
    size = 16
    while size < 2 * (nodes.size + more):
        size *= 2
    table = np.full(size, _EMPTY)
    for i in range(nodes.size):
        at = _find(nodes[i], table, nodes)
        if table[at] == _EMPTY:
            table[at] = i
    return table


@njit(cache=True)
def _counted(frontier, fanout, heads, lists):  # type: ignore[no-untyped-def]
    """How many edges a hop takes."""
    count = 0
    for i in range(frontier.size):
        if i + STAGE < frontier.size:
            fetch(heads, frontier[i + STAGE] & _LOW)
        v = frontier[i] & _LOW
        count += lists.degree[v] if fanout < 0 else min(fanout, heads[v, HELD])
    return count


@inner()
def _longer(ids, count):  # type: ignore[no-untyped-def]
    """A copy with room for so many."""
    found = np.empty(max(count, ids.size), np.int64)
    found[: ids.size] = ids
    return found


@inner()
def _ask_for_row(found, fanout, heads, pool):  # type: ignore[no-untyped-def]
    """Ask for all that is read of a row."""
    v = found & _LOW
    start, held = heads[v, START], heads[v, HELD]
    for j in range(start, start + min(fanout, held), 2):
        fetch(pool, j)


@inner()
def _expanded(  # type: ignore[no-untyped-def]
    target,
    at_target,
    fanout,
    heads,
    pool,
    lists,
    edge_of,
    table,
    nodes,
    found,
    edges,
    made,
    goes_on,
):
    """Write the in-edges of a node, and the nodes that are new; returns how many there are then.

    Of the arrays, `found` nodes and `made` edges are written already.
    """
    v, query = target & _LOW, target & ~_LOW
    begin = lists.start[v] if fanout < 0 else heads[v, START]
    many = lists.degree[v] if fanout < 0 else min(fanout, heads[v, HELD])
    for j in range(begin, begin + many):
        if fanout < 0:
            u, e = np.int64(lists.neighbor[j]), edge_of[lists.edge[j]]
        else:
            u, e = pool[j, PLACE] & _LOW, pool[j, EDGE]
        at = _find(u | query, table, nodes)
        if table[at] == _EMPTY:
            table[at] = found
            nodes[found] = u | query
            found += 1
            if goes_on:
                fetch(heads, u)  # what the next hop begins with
        edges[ROW, made], edges[COL, made], edges[ID, made] = table[at], at_target, e
        made += 1
    return found, made


@njit(cache=True)
def hop(frontier, offset, fanout, heads, pool, lists, edge_of, nodes):  # type: ignore[no-untyped-def]
    """The sampled in-edges of some nodes.

    Args:
        frontier: The nodes, int64 `[m]`.
        offset: Where the first of them stands among the nodes of its type.
        fanout: How many in-edges each node has at most; -1 for all that there are.
        heads: Rows of best edges, see `rows`.
        pool: What they hold.
        lists: All in-edges, see `kernels.adjacency`; only read for a fan-out of -1.
        edge_of: The id of each edge by slot, likewise.
        nodes: What the queries have found already of the type of the sources, int64 `[n]`.

    Returns:
        For each edge, where its source and its target stand, and its id, int64 `[3, e]`; and the
        nodes that are new, int64 `[r]`.
    """
    count, known = _counted(frontier, fanout, heads, lists), nodes.size
    table, nodes = table_of(nodes, count), _longer(nodes, known + count)
    edges = np.empty((3, count), np.int64)
    found, made = known, 0
    for i in range(frontier.size):
        if i + STAGE < frontier.size:
            _ask_for_row(frontier[i + STAGE], fanout, heads, pool)
        found, made = _expanded(
            frontier[i], offset + i, fanout, heads, pool, lists, edge_of, table, nodes, found,
            edges, made, False,
        )  # fmt: skip
    return edges, nodes[known:found].copy()


def places_of(heads: Ids, pool: Ids, lists: Adjacency, edge_of: Ids) -> Ids:
    """Where samples and in-edges are, int64 `[13]`: each array that is handed over takes time.

    Args:
        heads: Rows of best edges, see `rows`.
        pool: What they hold.
        lists: All in-edges, see `kernels.adjacency`; only read for a fan-out of -1.
        edge_of: The id of each edge by slot, likewise.
    """
    places = [*map(address_of, lists), lists.degree.size, lists.neighbor.size]
    for array in (heads, pool, edge_of):
        places += [address_of(array), array.shape[0]]
    return np.array(places, np.int64)


@njit(cache=True)
def walk(seeds, fanouts, places, counts):  # type: ignore[no-untyped-def]
    """All hops from some seeds on, in a graph of one type; the same as `hop` after `hop`.

    Args:
        seeds: The seeds, int64 `[k]`.
        fanouts: How many in-edges a node has at most in each hop, int64 `[hops]`; -1 for all.
        places: Where samples and in-edges are in memory, see `places_of`.
        counts: Takes how many nodes and how many edges there are in each hop, int64
            `[2, hops + 1]`; edges begin in column 1.

    Returns:
        The nodes, int64 `[n]`; for each edge, where its source and its target stand, and its id,
        int64 `[3, e]`.
    """
    heads = rows_at(places[HEADS], places[NODES], 4, np.int64(0))
    pool = rows_at(places[POOL], places[ROOM], 3, np.int64(0))
    lists, edge_of = lists_at(places, 0), line_at(places[IDS], places[SLOTS], np.int64(0))
    table, nodes = table_of(seeds, _EXPECTED), _longer(seeds, _EXPECTED)
    edges = np.empty((3, _EXPECTED), np.int64)
    counts[0, 0] = found = seeds.size
    first = made = 0
    for h in range(fanouts.size):
        end, before, fanout = found, made, fanouts[h]
        count = _counted(nodes[first:end], fanout, heads, lists)
        if found + count > nodes.size:
            nodes = _longer(nodes, found + count)
        if made + count > edges.shape[1]:
            more = np.empty((3, made + count), np.int64)
            more[:, :made] = edges[:, :made]
            edges = more
        if 2 * (found + count) > table.size:
            table = table_of(nodes[:found], count)
        for i in range(first, min(end, first + STAGE)):
            _ask_for_row(nodes[i], fanout, heads, pool)
        for i in range(first, end):
            if i + STAGE < end:
                _ask_for_row(nodes[i + STAGE], fanout, heads, pool)
            found, made = _expanded(
                nodes[i], i, fanout, heads, pool, lists, edge_of, table, nodes, found, edges, made,
                h + 1 < fanouts.size,
            )  # fmt: skip
        first, counts[0, h + 1], counts[1, h + 1] = end, found - end, made - before
    return nodes[:found], edges[:, :made]
