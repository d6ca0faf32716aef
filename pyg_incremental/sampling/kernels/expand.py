"""The hops of a sample: from nodes to the sources of their sampled in-edges, each node once."""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.jit import inner, njit
from pyg_incremental.sampling.kernels.rows import EDGE, HELD, PLACE, STAGE, START

_LOW = 2**32 - 1
_EMPTY = np.int64(-1)
_EXPECTED = 320
"""Nodes and edges for which there is room at once: as many as one seed has of [25, 10]."""


@njit(cache=True)
def _place(node, batch, mask):  # type: ignore[no-untyped-def]
    h = (np.uint64(batch) << np.uint64(32)) ^ np.uint64(node)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((h ^ (h >> np.uint64(29))) & np.uint64(mask))


@njit(cache=True)
def _seek(node, batch, table, nodes, batches, new, new_batch):  # type: ignore[no-untyped-def]
    """Where a pair stands in the table, or -1 - (where it is to be put)."""
    mask, known = table.size - 1, nodes.size
    at = _place(node, batch, mask)
    while table[at] != _EMPTY:
        local = table[at]
        if local < known:
            if nodes[local] == node and batches[local] == batch:
                return at
        elif new[local - known] == node and new_batch[local - known] == batch:
            return at
        at = (at + 1) & mask
    return -1 - at


@njit(cache=True)
def table_of(nodes, batches, more):  # type: ignore[no-untyped-def]
    """A hash table from (batch, node) to where it stands, with room for `more`, int64.

    Of a node that is listed twice it leads to the first place.
    """
    size = 16
    while size < 2 * (nodes.size + more):
        size *= 2
    table = np.full(size, _EMPTY)
    for i in range(nodes.size):
        at = _seek(nodes[i], batches[i], table, nodes, batches, nodes, batches)
        if at < 0:
            table[-1 - at] = i
    return table


@njit(cache=True)
def _counted(frontier, fanout, heads, lists):  # type: ignore[no-untyped-def]
    """How many edges a hop takes."""
    count = 0
    for i in range(frontier.size):
        if i + STAGE < frontier.size:
            fetch(heads, frontier[i + STAGE])
        count += lists.degree[frontier[i]] if fanout < 0 else min(fanout, heads[frontier[i], HELD])
    return count


@njit(cache=True)
def hop(frontier, frontier_batch, offset, fanout, heads, pool, lists, edge_of, nodes, batches):  # type: ignore[no-untyped-def]
    """The sampled in-edges of some nodes.

    Args:
        frontier: The nodes, int64 `[m]`.
        frontier_batch: The query that each belongs to, int64 `[m]`; all zero if there is one.
        offset: Where the first of them stands among the nodes of its type.
        fanout: How many in-edges each node has at most; -1 for all that there are.
        heads: Rows of best edges, see `rows`.
        pool: What they hold.
        lists: All in-edges, see `kernels.adjacency`; only read for a fan-out of -1.
        edge_of: The id of each edge by slot, likewise.
        nodes: Nodes that the query knows already, of the type of the sources, int64 `[n]`.
        batches: The query of each, int64 `[n]`.

    Returns:
        For each edge, where its source and its target stand, and its id, int64 `[e]` each; the
        nodes that are new with their queries, int64 `[r]` each.
    """
    count = _counted(frontier, fanout, heads, lists)
    row, col, edge = (
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
    )
    new, new_batch = np.empty(count, np.int64), np.empty(count, np.int64)
    table = table_of(nodes, batches, count)
    made = found = 0
    for i in range(frontier.size):
        v, batch = frontier[i], frontier_batch[i]
        if i + STAGE < frontier.size:
            fetch(pool, heads[frontier[i + STAGE], START])
        begin = lists.start[v] if fanout < 0 else heads[v, START]
        many = lists.degree[v] if fanout < 0 else min(fanout, heads[v, HELD])
        for j in range(begin, begin + many):
            if fanout < 0:
                u, e = np.int64(lists.neighbor[j]), edge_of[lists.edge[j]]
            else:
                u, e = pool[j, PLACE] & _LOW, pool[j, EDGE]
            at = _seek(u, batch, table, nodes, batches, new, new_batch)
            if at < 0:
                at = -1 - at
                table[at] = nodes.size + found
                new[found], new_batch[found] = u, batch
                found += 1
            row[made], col[made], edge[made] = table[at], offset + i, e
            made += 1
    return row, col, edge, new[:found].copy(), new_batch[:found].copy()


@inner()
def _ask_for_row(v, fanout, heads, pool):  # type: ignore[no-untyped-def]
    """Ask for all that is read of a row."""
    start, held = heads[v, START], heads[v, HELD]
    for j in range(start, start + min(fanout, held), 2):
        fetch(pool, j)


@inner()
def _longer(ids, count):  # type: ignore[no-untyped-def]
    """A copy with room for so many."""
    found = np.empty(max(count, ids.size), np.int64)
    found[: ids.size] = ids
    return found


@inner()
def _expanded(  # type: ignore[no-untyped-def]
    i, fanout, heads, pool, lists, edge_of, table, nodes, batches, found, row, col, edge, made,
    goes_on,
):  # fmt: skip
    """Write the in-edges of the `i`-th node, and the nodes that are new; returns how many of each.

    Of the arrays, `found` nodes and `made` edges are written already.
    """
    v, batch, mask = nodes[i], batches[i], table.size - 1
    begin = lists.start[v] if fanout < 0 else heads[v, START]
    many = lists.degree[v] if fanout < 0 else min(fanout, heads[v, HELD])
    for j in range(begin, begin + many):
        if fanout < 0:
            u, e = np.int64(lists.neighbor[j]), edge_of[lists.edge[j]]
        else:
            u, e = pool[j, PLACE] & _LOW, pool[j, EDGE]
        at = _place(u, batch, mask)
        while table[at] != _EMPTY and (nodes[table[at]] != u or batches[table[at]] != batch):
            at = (at + 1) & mask
        if table[at] == _EMPTY:
            table[at] = found
            nodes[found], batches[found] = u, batch
            found += 1
            if goes_on:
                fetch(heads, u)  # what the next hop begins with
        row[made], col[made], edge[made] = table[at], i, e
        made += 1
    return found, made


@njit(cache=True)
def walk(seeds, queries, fanouts, heads, pool, lists, edge_of):  # type: ignore[no-untyped-def]
    """All hops from some seeds on, in a graph of one type; the same as `hop` after `hop`.

    Args:
        seeds: Their ids, int64 `[k]`.
        queries: The query that each belongs to, int64 `[k]`; all zero if there is one.
        fanouts: How many in-edges a node has at most in each hop, int64 `[hops]`; -1 for all.
        heads: Rows of best edges, see `rows`.
        pool: What they hold.
        lists: All in-edges, see `kernels.adjacency`.
        edge_of: The id of each edge by slot.

    Returns:
        The nodes and the query of each, int64 `[n]`; for each edge, where its source and its target
        stand, and its id, int64 `[e]`; how many nodes and how many edges there are in each hop.
    """
    table = table_of(seeds, queries, _EXPECTED)
    nodes, batches = _longer(seeds, _EXPECTED), _longer(queries, _EXPECTED)
    row, col = np.empty(_EXPECTED, np.int64), np.empty(_EXPECTED, np.int64)
    edge = np.empty(_EXPECTED, np.int64)
    num_nodes, num_edges = np.empty(fanouts.size + 1, np.int64), np.empty(fanouts.size, np.int64)
    num_nodes[0] = found = seeds.size
    first = made = 0
    for h in range(fanouts.size):
        end, before = found, made
        count = _counted(nodes[first:end], fanouts[h], heads, lists)
        if found + count > nodes.size:
            nodes, batches = _longer(nodes, found + count), _longer(batches, found + count)
        if made + count > row.size:
            row, col = _longer(row, made + count), _longer(col, made + count)
            edge = _longer(edge, made + count)
        if 2 * (found + count) > table.size:
            table = table_of(nodes[:found], batches[:found], count)
        for i in range(first, min(end, first + STAGE)):
            _ask_for_row(nodes[i], fanouts[h], heads, pool)
        for i in range(first, end):
            if i + STAGE < end:
                _ask_for_row(nodes[i + STAGE], fanouts[h], heads, pool)
            found, made = _expanded(
                i, fanouts[h], heads, pool, lists, edge_of, table, nodes, batches, found, row, col,
                edge, made, h + 1 < fanouts.size,
            )  # fmt: skip
        first, num_nodes[h + 1], num_edges[h] = end, found - end, made - before
    return (
        nodes[:found], batches[:found], row[:made], col[:made], edge[:made], num_nodes, num_edges,
    )  # fmt: skip
