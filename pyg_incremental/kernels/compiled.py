"""Numba kernels for rows and edges on the CPU. `reference.py` has the same functions in plain torch.

Conventions: `store`, `state`, `message` are `[num_nodes, channels]`; `ids` are unique int64 rows; `old` holds the replaced rows of
`ids` in the same order; `stamp` and `epoch` mark the rows already collected (`stamp[v] == epoch`); collected rows are written to the front of
`touched` and their number is returned. `weight` has one value per edge slot, or none at all for weight one. `drop` leaves out
self-loops. NaN and infinities are data, so no kernel may assume they are absent; sums of magnitudes may be reassociated, because
they only feed the drift bound.
"""

import math

import numpy as np
from numba import njit

REACH = 16.0
"""How far a logit may exceed its row's reference before the row is made afresh: exp(16) is far from any overflow."""


@njit(cache=True, fastmath={"reassoc"})
def _magnitude(row):  # type: ignore[no-untyped-def]
    total = row.dtype.type(0)
    for f in range(row.size):
        total += abs(row[f])
    return total


@njit(cache=True)
def commit(store, ids, new, old, first_new, changed, where):  # type: ignore[no-untyped-def]
    """Write `new` into the rows `ids`; rows from `first_new` on always count as changed.

    With integer views of floats the comparison is bitwise, with floats it is by value (NaN equals NaN). `old`, if it has rows,
    takes what was there. `changed` and `where` take the ids that changed and their positions in `ids`.
    """
    n = 0
    keep = old.shape[0] > 0
    width = store.shape[1]
    for i in range(ids.size):
        v = ids[i]
        differs = v >= first_new
        for f in range(width):
            a, b = store[v, f], new[i, f]
            differs |= (a != b) & ((a == a) | (b == b))
        if keep and differs:
            for f in range(width):
                old[n, f] = store[v, f]
        for f in range(width):
            store[v, f] = new[i, f]
        if differs:
            changed[n] = v
            where[n] = i
            n += 1
    return n


@njit(cache=True)
def unite(ids, touched, count, stamp, epoch):  # type: ignore[no-untyped-def]
    """Collect `ids` behind the `count` rows already in `touched`."""
    for i in range(ids.size):
        v = ids[i]
        if stamp[v] != epoch:
            stamp[v] = epoch
            touched[count] = v
            count += 1
    return count


@njit(cache=True)
def unite_ends(src, dst, drop, touched, count, stamp, epoch):  # type: ignore[no-untyped-def]
    """Collect the targets of some edges behind the `count` rows already in `touched`."""
    for i in range(dst.size):
        v = dst[i]
        if stamp[v] != epoch and not (drop and src[i] == v):
            stamp[v] = epoch
            touched[count] = v
            count += 1
    return count


@njit(cache=True)
def last_of_each(ids, stamp, epoch, keep):  # type: ignore[no-untyped-def]
    """Positions of the last occurrence of every id, written to the END of `keep` in ascending order; returns their number."""
    n = 0
    for i in range(ids.size - 1, -1, -1):
        if stamp[ids[i]] != epoch:
            stamp[ids[i]] = epoch
            n += 1
            keep[ids.size - n] = i
    return n


@njit(cache=True)
def reach(ids, out, drop, touched, count, stamp, epoch):  # type: ignore[no-untyped-def]
    """Collect the targets of the out-edges of `ids`. Returns (rows collected, edges read)."""
    edges = 0
    for i in range(ids.size):
        u = ids[i]
        edges += out.degree[u]
        for k in range(out.start[u], out.start[u] + out.degree[u]):
            v = out.neighbor[k]
            if stamp[v] != epoch and not (drop and v == u):
                stamp[v] = epoch
                touched[count] = v
                count += 1
    return count, edges


@njit(cache=True)
def expand(ids, adj, loops, index, neighbor, edge):  # type: ignore[no-untyped-def]
    """Write out the lists of `ids` one behind the other: position in `ids`, neighbour, edge slot. Returns how many.

    `loops`: 0 all edges, 1 without self-loops, 2 self-loops only.
    """
    n = 0
    for i in range(ids.size):
        v = ids[i]
        for k in range(adj.start[v], adj.start[v] + adj.degree[v]):
            u = adj.neighbor[k]
            if loops == 0 or (loops == 1) == (u != v):
                index[n] = i
                neighbor[n] = u
                edge[n] = adj.edge[k]
                n += 1
    return n


# Sums ----------------------------------------------------------------------------------------


@njit(cache=True)
def _sum_row(v, state, drift, message, weight, inn, drop):  # type: ignore[no-untyped-def]
    """Sum one row afresh over its in-edges."""
    row = state[v]
    row[:] = 0
    drift[v] = 0
    for k in range(inn.start[v], inn.start[v] + inn.degree[v]):
        u = inn.neighbor[k]
        if drop and u == v:
            continue
        if weight.size:
            w = weight[inn.edge[k]]
            for f in range(row.size):
                row[f] += row.dtype.type(message[u, f]) * w
        else:
            for f in range(row.size):
                row[f] += message[u, f]


@njit(cache=True)
def sum_rows(ids, state, drift, message, weight, inn, drop):  # type: ignore[no-untyped-def]
    """Sum the rows `ids` afresh. Returns the number of edges read."""
    edges = 0
    for i in range(ids.size):
        _sum_row(ids[i], state, drift, message, weight, inn, drop)
        edges += inn.degree[ids[i]]
    return edges


@njit(cache=True)
def sum_edges(state, drift, message, src, dst, factor, sign, drop):  # type: ignore[no-untyped-def]
    """Add `sign * factor * message` of each listed edge to its target; no `factor` means one."""
    width = state.shape[1]
    for i in range(src.size):
        u, v = src[i], dst[i]
        if drop and u == v:
            continue
        w = state.dtype.type(sign * factor[i] if factor.size else sign)
        for f in range(width):
            state[v, f] += w * message[u, f]
        drift[v] += abs(w) * _magnitude(message[u])


@njit(cache=True)
def sum_push(  # type: ignore[no-untyped-def]
    state, drift, limit, message, weight, ids, old, out, inn, drop, touched, count, stamp, epoch
):
    """Push `message - old` of the rows `ids` along their out-edges, then mend and settle every row touched.

    A row is summed afresh when the magnitude that has moved through it exceeds `limit` times its own: additions have then
    cost it that many units in the last place. NaN and infinities fail the comparison too, and so does an empty row that is
    not exactly zero, so one rule mends drift, cancellation and non-finite messages that leave.

    Returns:
        (rows touched, edges pushed, rows summed afresh, edges read for that)
    """
    width = state.shape[1]
    diff = np.empty(width, state.dtype)
    edges = 0
    for i in range(ids.size):
        u = ids[i]
        for f in range(width):
            diff[f] = state.dtype.type(message[u, f]) - state.dtype.type(old[i, f])
        moved = _magnitude(diff)
        if moved == 0:
            continue
        edges += out.degree[u]
        for k in range(out.start[u], out.start[u] + out.degree[u]):
            v = out.neighbor[k]
            if drop and v == u:
                continue
            if weight.size:
                w = weight[out.edge[k]]
                for f in range(width):
                    state[v, f] += w * diff[f]
                drift[v] += abs(w) * moved
            else:
                for f in range(width):
                    state[v, f] += diff[f]
                drift[v] += moved
            if stamp[v] != epoch:
                stamp[v] = epoch
                touched[count] = v
                count += 1
    fresh, read = 0, 0
    for i in range(count):
        v = touched[i]
        if inn.degree[v] == 0:
            state[v] = 0
            drift[v] = 0
        elif drift[v] != 0:
            size = _magnitude(state[v])
            drift[v] += size
            if not (drift[v] / limit <= size and size < np.inf):
                _sum_row(v, state, drift, message, weight, inn, drop)
                fresh += 1
                read += inn.degree[v]
    return count, edges, fresh, read


# Softmax-weighted sums -----------------------------------------------------------------------
#
# A message row is [values, heads * channels | logit part of the source, heads]. A state row is
# [numerator, heads * channels | mass, heads | reference, heads]: with e the logit of an edge, mass = sum exp(e - reference) and
# numerator = sum exp(e - reference) * value. `edge` holds logit parts of the edge slots, `loop` the whole logit (before
# leaky ReLU) of a self-loop that every row has; either may be empty.


@njit(cache=True)
def _logit(a, slope):  # type: ignore[no-untyped-def]
    return a if a > 0 else (a * slope if a <= 0 else a)


@njit(cache=True)
def _softmax_term(row, h, heads, channels, message, shift, sign):  # type: ignore[no-untyped-def]
    """Add one edge of logit `shift + reference` to head `h` of a state row; returns the mass that moved."""
    p = math.exp(shift)
    width = heads * channels
    row[width + h] += sign * p
    for c in range(h * channels, (h + 1) * channels):
        row[c] += sign * p * message[c]
    return p


@njit(cache=True)
def _softmax_row(v, state, drift, message, target, edge, loop, slope, inn, drop):  # type: ignore[no-untyped-def]
    """One row afresh over its in-edges and its self-loop, with the largest logit as reference."""
    heads = target.shape[1]
    channels = message.shape[1] // heads - 1
    width = heads * channels
    row = state[v]
    row[:] = 0
    drift[v] = 0
    begin, end = inn.start[v], inn.start[v] + inn.degree[v]
    for h in range(heads):
        top = -np.inf
        for k in range(begin, end):
            u = inn.neighbor[k]
            if drop and u == v:
                continue
            a = message[u, width + h] + target[v, h]
            if edge.size:
                a += edge[inn.edge[k], h]
            a = _logit(a, slope)
            if not a <= top:
                top = a
        if loop.size:
            a = _logit(loop[v, h], slope)
            if not a <= top:
                top = a
        row[width + heads + h] = top
        for k in range(begin, end):
            u = inn.neighbor[k]
            if drop and u == v:
                continue
            a = message[u, width + h] + target[v, h]
            if edge.size:
                a += edge[inn.edge[k], h]
            _softmax_term(row, h, heads, channels, message[u], _logit(a, slope) - top, 1)
        if loop.size:
            _softmax_term(row, h, heads, channels, message[v], _logit(loop[v, h], slope) - top, 1)


@njit(cache=True)
def softmax_rows(ids, state, drift, message, target, edge, loop, slope, inn, drop):  # type: ignore[no-untyped-def]
    """The rows `ids` afresh. Returns the number of edges read."""
    edges = 0
    for i in range(ids.size):
        _softmax_row(ids[i], state, drift, message, target, edge, loop, slope, inn, drop)
        edges += inn.degree[ids[i]]
    return edges


@njit(cache=True)
def _softmax_edge(v, source, state, drift, target, edge_row, slope, sign):  # type: ignore[no-untyped-def]
    """Add or retract one edge. A logit far above the reference makes the drift infinite, so that the row is made afresh."""
    heads = target.shape[1]
    channels = source.size // heads - 1
    width = heads * channels
    row = state[v]
    for h in range(heads):
        a = source[width + h] + target[v, h]
        if edge_row.size:
            a += edge_row[h]
        shift = _logit(a, slope) - row[width + heads + h]
        if not shift <= REACH:
            drift[v, 0] = np.inf
            return
        p = _softmax_term(row, h, heads, channels, source, shift, sign)
        drift[v, 0] += p
        drift[v, 1] += p * _magnitude(source[h * channels : (h + 1) * channels])


@njit(cache=True)
def softmax_edges(state, drift, message, target, src, dst, edge_rows, slope, sign, drop):  # type: ignore[no-untyped-def]
    """Add (`sign` 1) or retract (-1) the listed edges with the messages and logits as they are stored."""
    for i in range(src.size):
        if drop and src[i] == dst[i]:
            continue
        row = edge_rows[i] if edge_rows.size else edge_rows.ravel()
        _softmax_edge(dst[i], message[src[i]], state, drift, target, row, slope, sign)


@njit(cache=True)
def _softmax_settle(v, state, drift, limit, heads, channels):  # type: ignore[no-untyped-def]
    """Whether every head still has enough of its bits: mass and numerator each outweigh what moved through them."""
    width = heads * channels
    sound = True
    mass, size = state.dtype.type(0), state.dtype.type(0)
    for h in range(heads):
        m = state[v, width + h]
        s = _magnitude(state[v, h * channels : (h + 1) * channels])
        sound &= (
            (drift[v, 0] / limit <= m) & (drift[v, 1] / limit <= s) & (m < np.inf) & (s < np.inf)
        )
        mass += m
        size += s
    drift[v, 0] += mass
    drift[v, 1] += size
    return sound


@njit(cache=True)
def softmax_push(  # type: ignore[no-untyped-def]
    state,
    drift,
    limit,
    message,
    target,
    edge,
    loop,
    slope,
    ids,
    old,
    out,
    inn,
    drop,
    touched,
    count,
    renewed,
    stamp,
    epoch,
):
    """Replace the terms of the changed sources `ids`, then mend and settle every row touched.

    The first `renewed` rows of `touched` are made afresh, because their own term in the logits (or their self-loop)
    changed; the terms of their in-edges are not touched one by one.

    Returns:
        (rows touched, edges pushed, rows made afresh, edges read for that)
    """
    heads = target.shape[1]
    channels = message.shape[1] // heads - 1
    edges, fresh, read = 0, 0, 0
    for i in range(renewed):
        drift[touched[i], 0] = np.inf
    for i in range(ids.size):
        u = ids[i]
        edges += out.degree[u]
        for k in range(out.start[u], out.start[u] + out.degree[u]):
            v = out.neighbor[k]
            if drop and v == u:
                continue
            if stamp[v] != epoch:
                stamp[v] = epoch
                touched[count] = v
                count += 1
            if drift[v, 0] < np.inf:
                row = edge[out.edge[k]] if edge.size else edge.ravel()
                _softmax_edge(v, old[i], state, drift, target, row, slope, -1)
                if drift[v, 0] < np.inf:
                    _softmax_edge(v, message[u], state, drift, target, row, slope, 1)
    for i in range(count):
        v = touched[i]
        if inn.degree[v] == 0 and not loop.size:
            state[v] = 0
            drift[v] = 0
        elif drift[v, 0] != 0 and not _softmax_settle(v, state, drift, limit, heads, channels):
            _softmax_row(v, state, drift, message, target, edge, loop, slope, inn, drop)
            fresh += 1
            read += inn.degree[v]
    return count, edges, fresh, read
