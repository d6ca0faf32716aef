"""The hops of a sample: from nodes to the sources of their sampled in-edges, each node once."""

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.jit import njit
from pyg_incremental.sampling.kernels.rows import EDGE, HELD, PLACE, STAGE, START

_LOW = 2**32 - 1
_EMPTY = np.int64(-1)


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
    nodes, batches = seeds, queries
    row, col, edge = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    num_nodes, num_edges = np.empty(fanouts.size + 1, np.int64), np.empty(fanouts.size, np.int64)
    num_nodes[0], first = seeds.size, 0
    for h in range(fanouts.size):
        end = nodes.size
        more_row, more_col, more_edge, new, new_batch = hop(
            nodes[first:end], batches[first:end], first, fanouts[h], heads, pool, lists, edge_of,
            nodes, batches,
        )  # fmt: skip
        row, col = np.concatenate((row, more_row)), np.concatenate((col, more_col))
        edge = np.concatenate((edge, more_edge))
        nodes, batches = np.concatenate((nodes, new)), np.concatenate((batches, new_batch))
        num_nodes[h + 1], num_edges[h] = new.size, more_row.size
        first = end
    return nodes, batches, row, col, edge, num_nodes, num_edges
