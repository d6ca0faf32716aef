"""Softmax-weighted sums over in-edges.

A message row is [values, heads * channels | logit part of the source, heads]. A state row is
[numerator, heads * channels | mass, heads | reference, heads]: with e the logit of an edge, mass =
sum exp(e - reference) and numerator = sum exp(e - reference) * value. `edge` holds logit parts of
the edge slots, `loop` the whole logit (before leaky ReLU) of a self-loop that every row has; either
may be empty.
"""

import math

import numpy as np

from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.compiled.rows import columns, size_of
from pyg_incremental.kernels.compiled.sums import rest_of
from pyg_incremental.kernels.jit import inner, shared

AHEAD = 4
"""How many edges or rows ahead of their use rows are asked for."""
REACH = 16.0
"""How far a logit may exceed its row's reference before the row is made afresh.

exp(16) is far from any overflow.
"""


@inner(counted=False)
def logit(a, slope, state):  # type: ignore[no-untyped-def]
    """Leaky ReLU, rounded as it is kept in a state row.

    A row's reference is one of its logits. Far from zero that logit would be no exact match for
    itself unless both were rounded alike, and a difference of 1e5 is 0 or infinity behind `exp`.
    """
    return state.dtype.type(a if a > 0 else (a * slope if a <= 0 else a))


@inner(counted=False)
def shift_of(a, reference):  # type: ignore[no-untyped-def]
    """How far a logit exceeds a reference, in float64.

    Not rounded, so that an edge weighs the same whichever reference it was first added under.
    """
    return np.float64(a) - np.float64(reference)


@inner(counted=False)
def softmax_term(row, low, h, heads, channels, message, shift, sign):  # type: ignore[no-untyped-def]
    """Add one edge of logit `shift + reference` to head `h` of a state row.

    All in float64, see `sums`; `low` goes with the row, and may be empty.

    Returns the mass that moved.
    """
    p, width = math.exp(shift), heads * channels
    w, (first, last) = sign * p, columns(h, channels)
    if low.size:
        mass = np.float64(row[width + h]) + np.float64(low[width + h]) + w
        row[width + h] = mass
        low[width + h] = rest_of(mass, row[width + h])
        for c in range(first, last):
            total = np.float64(row[c]) + np.float64(low[c]) + w * np.float64(message[c])
            high = row.dtype.type(total)
            row[c] = high
            low[c] = rest_of(total, high)
    else:
        row[width + h] += w
        for c in range(first, last):
            row[c] += w * message[c]
    return p


@inner(counted=False)
def moved_by(row, low, h, heads, channels, scale, p, message, unit):  # type: ignore[no-untyped-def]
    """What a term counts in the drift of head `h`: in mass, and in the numerator.

    Where a row has a `low`, the addition rounds what the row has become as well.
    """
    first, last = h * channels, (h + 1) * channels
    mass, size = unit * p, unit * p * size_of(message[first:last], scale[first:last])
    if low.size:
        mass += abs(row[heads * channels + h])
        size += size_of(row[first:last], scale[first:last])
    return mass, size


@inner(counted=False)
def softmax_exchange(row, low, h, heads, channels, now, p, before, q):  # type: ignore[no-untyped-def]
    """Add `p * now` to head `h` of a state row and take `q * before` from it, in one rounding."""
    width, (first, last) = heads * channels, columns(h, channels)
    if low.size:
        mass = np.float64(row[width + h]) + np.float64(low[width + h]) + (p - q)
        row[width + h] = mass
        low[width + h] = rest_of(mass, row[width + h])
        for c in range(first, last):
            moves = p * np.float64(now[c]) - q * np.float64(before[c])
            total = np.float64(row[c]) + np.float64(low[c]) + moves
            high = row.dtype.type(total)
            row[c] = high
            low[c] = rest_of(total, high)
    else:
        row[width + h] += p - q
        for c in range(first, last):
            row[c] += p * now[c] - q * before[c]


@inner(counted=False)
def sizes_of(messages, u, heads, channels, scale, sizes):  # type: ignore[no-untyped-def]
    """The magnitude of the values of each head of message `u`."""
    for h in range(heads):
        first, last = h * channels, (h + 1) * channels
        sizes[h] = size_of(messages[u, first:last], scale[first:last])


@inner(counted=False)
def exchanged_by(row, low, h, heads, channels, scale, p, size, q, size_before):  # type: ignore[no-untyped-def]
    """What an exchange counts in the drift of head `h`; see `moved_by`."""
    first, last = h * channels, (h + 1) * channels
    mass, moved = p + q, p * size + q * size_before
    if low.size:
        mass += abs(row[heads * channels + h])
        moved += size_of(row[first:last], scale[first:last])
    return mass, moved


@inner(counted=False)
def add_term(sums, h, heads, channels, message, shift):  # type: ignore[no-untyped-def]
    """Add one edge of logit `shift + reference` to head `h` of `[numerator | mass]` in float64."""
    p, (first, last) = math.exp(shift), columns(h, channels)
    sums[heads * channels + h] += p
    for c in range(first, last):
        sums[c] += p * np.float64(message[c])


@inner(counted=False)
def write_sums(sums, row, low):  # type: ignore[no-untyped-def]
    """Write `[numerator | mass]` in float64 to a state row, and what that loses to `low`."""
    for c in range(sums.size):
        row[c] = sums[c]
    if low.size:
        for c in range(sums.size):
            low[c] = rest_of(sums[c], row[c])
        low[sums.size :] = 0


@inner(counted=False)
def add_below(sums, top, h, heads, channels, message, a):  # type: ignore[no-untyped-def]
    """Add one edge of logit `a` to head `h`, whose largest logit so far is `top[h]`.

    If `a` is larger, the sum so far is taken to it. An edge of minus infinity weighs nothing beside
    any other; what it weighs if there are none is for `_softmax_row` to say.
    """
    if not a <= top[h]:
        by, (first, last) = math.exp(shift_of(top[h], a)), columns(h, channels)
        sums[heads * channels + h] *= by
        for c in range(first, last):
            sums[c] *= by
        top[h] = a
    shift = -np.inf if a == -np.inf else shift_of(a, top[h])
    add_term(sums, h, heads, channels, message, shift)


@inner(counted=False)
def _softmax_row(  # type: ignore[no-untyped-def]
    v, state, low, drift, message, target, edge, loop, slope, inn, drop, sums
):
    """One row afresh over its in-edges and its self-loop, with the largest logit as reference.

    It is added up in `sums`, float64 `[heads * channels + heads]`, and rounded once.
    """
    heads = target.shape[1]
    channels = message.shape[1] // heads - 1
    width = heads * channels
    slope = message.dtype.type(slope)
    row = state[v]
    sums[:], drift[v] = 0, 0
    top = row[width + heads :]
    top[:] = -np.inf
    begin, end, count = inn.start[v], inn.start[v] + inn.degree[v], 0
    for k in range(begin, end):
        u = inn.neighbor[k]
        if k + AHEAD < end:
            fetch(message, inn.neighbor[k + AHEAD])
        if drop and u == v:
            continue
        count += 1
        for h in range(heads):
            a = message[u, width + h] + target[v, h]
            if edge.size:
                a += edge[inn.edge[k], h]
            add_below(sums, top, h, heads, channels, message[u], logit(a, slope, state))
    if loop.size:
        count += 1
        for h in range(heads):
            a = logit(loop[v, h], slope, state)
            add_below(sums, top, h, heads, channels, message[v], a)
    for h in range(heads):
        if count and top[h] == -np.inf:  # PyG has 0 / 0 there
            sums[width + h] = np.nan
    write_sums(sums, row, low[v] if low.size else row[:0])


@shared()
def softmax_rows(  # type: ignore[no-untyped-def]
    ids, state, low, drift, message, target, edge, loop, slope, inn, drop
):
    """The rows `ids` afresh. Returns the number of edges read."""
    edges, sums = 0, np.empty(state.shape[1] - target.shape[1], np.float64)
    for i in range(ids.size):
        _softmax_row(ids[i], state, low, drift, message, target, edge, loop, slope, inn, drop, sums)
        edges += inn.degree[ids[i]]
    return edges


@inner(counted=False, forceinline=True)
def _softmax_edge(  # type: ignore[no-untyped-def]
    v, source, state, low, drift, scale, target, edge_row, slope, sign, unit
):
    """Add or retract one edge.

    A logit far above the reference makes the drift infinite, so that the row is made afresh. So
    does the first edge of an empty row that nothing has moved through: it has no reference yet.
    """
    heads = target.shape[1]
    channels = source.size // heads - 1
    width = heads * channels
    slope = source.dtype.type(slope)
    row, rest = state[v], low[v] if low.size else state[v, :0]
    for h in range(heads):
        a = source[width + h] + target[v, h]
        if edge_row.size:
            a += edge_row[h]
        shift = shift_of(logit(a, slope, state), row[width + heads + h])
        if not shift <= REACH or (sign > 0 and row[width + h] == 0 and drift[v, 0] == 0):
            drift[v, 0] = np.inf
            return
        p = softmax_term(row, rest, h, heads, channels, source, shift, sign)
        mass, size = moved_by(row, rest, h, heads, channels, scale, p, source, unit)
        drift[v, 0] += mass
        drift[v, 1] += size


@shared(counted=False)
def softmax_edges(  # type: ignore[no-untyped-def]
    state, low, drift, scale, message, target, src, dst, edge_rows, slope, sign, drop, unit
):
    """Add (`sign` 1) or retract (-1) the listed edges.

    Messages and logits count as they are stored; in the drift each counts `unit` times.
    """
    for i in range(src.size):
        if i + AHEAD < src.size:
            fetch(message, src[i + AHEAD])
            fetch(state, dst[i + AHEAD])
            fetch(drift, dst[i + AHEAD])
            fetch(target, dst[i + AHEAD])
            if low.size:
                fetch(low, dst[i + AHEAD])
        if drop and src[i] == dst[i]:
            continue
        row = edge_rows[i] if edge_rows.size else state[dst[i], :0]
        _softmax_edge(
            dst[i], message[src[i]], state, low, drift, scale, target, row, slope, sign, unit
        )


@inner(counted=False)
def _is_sound(v, state, drift, limit, scale, heads, channels):  # type: ignore[no-untyped-def]
    """Whether every head still has enough of its bits.

    Mass and numerator each have to outweigh what moved through them.
    """
    width = heads * channels
    sound = True
    mass, size = state.dtype.type(0), state.dtype.type(0)
    for h in range(heads):
        m = state[v, width + h]
        first, last = h * channels, (h + 1) * channels
        s = size_of(state[v, first:last], scale[first:last])
        sound &= (drift[v, 0] <= limit * m) & (drift[v, 1] <= limit * s)
        sound &= (m < np.inf) & (s < np.inf)
        mass += m
        size += s
    drift[v, 0] += mass
    drift[v, 1] += size
    return sound


@shared(counted=False)
def softmax_settle(  # type: ignore[no-untyped-def]
    state, low, drift, limit, scale, heads, inn, has_loop, touched, count, again
):
    """Look at the first `count` rows of `touched` after terms came and went.

    A row without in-edges (and without a self-loop of its own) becomes zero; one that has lost too
    many bits in some head is written to `again`. Returns the number of rows in `again`.
    """
    channels = state.shape[1] // heads - 2
    n = 0
    for i in range(count):
        if i + AHEAD < count:
            fetch(state, touched[i + AHEAD])
            fetch(drift, touched[i + AHEAD])
            fetch(inn.degree, touched[i + AHEAD])
        v = touched[i]
        if inn.degree[v] == 0 and not has_loop:
            state[v] = 0
            if low.size:
                low[v] = 0
            drift[v] = 0
        elif (drift[v, 0] != 0 or drift[v, 1] != 0) and not _is_sound(
            v, state, drift, limit, scale, heads, channels
        ):
            again[n] = v
            n += 1
    return n


@inner(counted=False, forceinline=True)
def _exchange_edge(  # type: ignore[no-untyped-def]
    v, message, u, sizes, old, i, sizes_before, state, low, drift, scale, target, edge, slot, slope
):  # fmt: skip
    """Replace the term of one edge, row `i` of `old`, by that of `message[u]`.

    See `_softmax_edge`.
    """
    heads, now, before = target.shape[1], message[u], old[i]
    edge_row = edge[slot] if edge.size else before[:0]
    channels = now.size // heads - 1
    width = heads * channels
    slope = now.dtype.type(slope)
    row, rest = state[v], low[v] if low.size else state[v, :0]
    for h in range(heads):
        a, b = now[width + h] + target[v, h], before[width + h] + target[v, h]
        if edge_row.size:
            a += edge_row[h]
            b += edge_row[h]
        reference = row[width + heads + h]
        to = shift_of(logit(a, slope, state), reference)
        was = shift_of(logit(b, slope, state), reference)
        is_far = not (to <= REACH and was <= REACH)
        if is_far or (row[width + h] == 0 and drift[v, 0] == 0):
            drift[v, 0] = np.inf
            return
        p, q = math.exp(to), math.exp(was)
        softmax_exchange(row, rest, h, heads, channels, now, p, before, q)
        mass, size = exchanged_by(
            row, rest, h, heads, channels, scale, p, sizes[h], q, sizes_before[h]
        )
        drift[v, 0] += mass
        drift[v, 1] += size


@shared()
def softmax_push(  # type: ignore[no-untyped-def]
    state, low, drift, scale, message, target, edge, slope, ids, old, out, drop, touched, count,
    stamp, epoch,
):  # fmt: skip
    """Replace the terms of the changed sources `ids` along their out-edges.

    A row whose drift is infinite is made afresh anyway: the terms of its in-edges are not touched
    one by one.

    Returns:
        (rows touched, edges pushed)
    """
    edges, heads = 0, target.shape[1]
    channels = message.shape[1] // heads - 1
    sizes, sizes_before = np.empty(heads, message.dtype), np.empty(heads, message.dtype)
    for i in range(ids.size):
        u = ids[i]
        edges += out.degree[u]
        end = out.start[u] + out.degree[u]
        sizes_of(message, u, heads, channels, scale, sizes)
        sizes_of(old, i, heads, channels, scale, sizes_before)
        for k in range(out.start[u], end):
            if k + AHEAD < end:
                fetch(state, out.neighbor[k + AHEAD])
                if low.size:
                    fetch(low, out.neighbor[k + AHEAD])
                fetch(drift, out.neighbor[k + AHEAD])
                fetch(stamp, out.neighbor[k + AHEAD])
                fetch(target, out.neighbor[k + AHEAD])
            v = out.neighbor[k]
            if drop and v == u:
                continue
            if stamp[v] != epoch:
                stamp[v] = epoch
                touched[count] = v
                count += 1
            if drift[v, 0] < np.inf:
                _exchange_edge(
                    v, message, u, sizes, old, i, sizes_before, state, low, drift, scale, target,
                    edge, out.edge[k], slope,
                )  # fmt: skip
    return count, edges
