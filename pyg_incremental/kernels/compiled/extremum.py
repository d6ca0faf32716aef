"""Largest or smallest messages over in-edges, channel by channel, each with the edge it came along.

Channel `f` of row `v` holds the message of the edge slot `owner[v, f]`, and zero where that is
`EMPTY`: the row has no in-edge. Where it is `EXPOSED`, the edge that owned the channel has left or
has another message now; what the channel holds is then what it held before.

Messages are ordered totally, so that neither the order in which they come nor any that came before
has a part in the result. NaN is ahead of everything, as in `torch.amax` and `torch.amin`; of the
two zeros the positive one is the larger; among equal messages the lowest slot is ahead.

Edges are listed: `message[at[i]]`, times `weight[slot[i]]` if there are weights, goes to `dst[i]`
along the edge of slot `slot[i]`.
"""

import math

import numpy as np

from pyg_incremental.kernels.address import fetch, fetch_element, fill
from pyg_incremental.kernels.jit import inner, shared

EMPTY = -1
EXPOSED = -2
NOBODY = np.iinfo(np.int32).max
"""In place of an owner: any edge is ahead of it."""
MANY = 6
"""Reading all channels of an edge costs as much as jumping to one in so many of them."""
WIDE = 32
"""From so many channels on hardly a row goes without a loss that nothing covers."""
AHEAD = 4
"""How many edges ahead of their use rows are asked for."""
LINE = 64
"""Bytes of a cache line."""


@inner(counted=False)
def _takes(a, b, slot, owner, one):  # type: ignore[no-untyped-def]
    """Whether `a` of a slot comes before `b` of its owner when the largest is sought.

    `one` is a one of the type of `a`.
    """
    x, y, tie = math.copysign(one, a), math.copysign(one, b), slot < owner
    same = (a == b) & ((x > y) | ((x == y) & tie))
    return (a > b) | same | ((a != a) & ((b == b) | tie))


@inner(counted=False)
def _has(state, owner, v, f, m, slot, sign):  # type: ignore[no-untyped-def]
    """Whether message `m` of a slot is to have channel `f` of row `v`.

    `sign` is one for the largest and minus one for the smallest. An exposed channel takes what it
    held before from any edge. Without branches: so loops over it run on vectors.
    """
    a, b, o, one = sign * m, sign * state[v, f], owner[v, f], state.dtype.type(1)
    ahead_of = owner.dtype.type(NOBODY) if o == EXPOSED else o
    return (o == EMPTY) | _takes(a, b, slot, ahead_of, one)


@shared(counted=False)
def extremum_retract(owner, dst, slot, stamp, lost):  # type: ignore[no-untyped-def]
    """Expose the channels that the listed edges own, and stamp their rows with `lost`."""
    for i in range(dst.size):
        if i + AHEAD < dst.size:
            fetch(owner, dst[i + AHEAD])
        v, s = dst[i], owner.dtype.type(slot[i])
        owned = False  # most edges own nothing, and this loop runs on vectors
        for f in range(owner.shape[1]):
            owned |= owner[v, f] == s
        if owned:
            stamp[v] = lost
            for f in range(owner.shape[1]):
                if owner[v, f] == s:
                    owner[v, f] = EXPOSED


@shared(counted=False)
def extremum_insert(state, owner, message, at, weight, dst, slot, largest):  # type: ignore[no-untyped-def]
    """Offer the listed messages to their targets; they cover exposed channels where they can."""
    sign = state.dtype.type(1 if largest else -1)
    w, nan = state.dtype.type(1), state.dtype.type(np.nan)
    for i in range(dst.size):
        if i + AHEAD < dst.size:
            fetch(message, at[i + AHEAD])
            fetch(state, dst[i + AHEAD])
            fetch(owner, dst[i + AHEAD])
        u, v, s = np.uint64(at[i]), np.uint64(dst[i]), owner.dtype.type(slot[i])
        if weight.size:
            w = state.dtype.type(weight[s])
        has_any = False  # most messages have nothing, and then nothing is written
        for f in range(state.shape[1]):
            has_any |= _has(state, owner, v, f, w * message[u, f], s, sign)
        if has_any:
            for f in range(state.shape[1]):
                m = w * message[u, f]
                has = _has(state, owner, v, f, m, s, sign)
                state[v, f] = (m if m == m else nan) if has else state[v, f]
                owner[v, f] = s if has else owner[v, f]


@shared(counted=False)
def extremum_exposed(owner, rows, stamp, lost, found):  # type: ignore[no-untyped-def]
    """Those of some rows that have an exposed channel go to `found`; returns their number.

    Only a row that is stamped with `lost` can have one.
    """
    n = 0
    for i in range(rows.size):
        if i + AHEAD < rows.size:
            fetch(owner, rows[i + AHEAD])
        v = rows[i]
        if stamp[v] == lost:
            for f in range(owner.shape[1]):
                if owner[v, f] == EXPOSED:
                    found[n] = v
                    n += 1
                    break
    return n


@inner(counted=False)
def _offer_row(best, own, messages, u, slot, w):  # type: ignore[no-untyped-def]
    """Let `w` times message `u` have the channels in which it is ahead of `best`.

    A function of its own, without branches: so this loop runs on vectors.
    """
    row, one = messages[u], best.dtype.type(1)
    for f in range(best.size):
        a, b, o = w * row[f], best[f], own[f]
        takes = _takes(a, b, slot, o, one)
        best[f] = a if takes else b
        own[f] = slot if takes else o


@inner(counted=False)
def _cover(rows, owners, v, best, own, sign, afresh):  # type: ignore[no-untyped-def]
    """Write what was found to row `v`: to exposed channels, or to all; likewise on vectors."""
    state, owner = rows[v], owners[v]
    none, nan, empty = state.dtype.type(0), state.dtype.type(np.nan), owner.dtype.type(EMPTY)
    for f in range(best.size):
        m, o = sign * best[f], own[f]
        m = m if m == m else nan
        best[f] = m if o != NOBODY else none
        own[f] = o if o != NOBODY else empty
    if afresh:
        for f in range(best.size):
            state[f], owner[f] = best[f], own[f]
        return
    for f in range(best.size):
        covers = owner[f] == EXPOSED
        state[f] = best[f] if covers else state[f]
        owner[f] = own[f] if covers else owner[f]


@shared()
def extremum_fill(  # type: ignore[no-untyped-def]
    state, owner, message, at, weight, rows, index, slot, largest, stamp, read, afresh
):
    """Make the exposed channels of some rows afresh from all of their in-edges.

    With `afresh` those are all channels, whoever owns them, and nothing that stands there is read.
    `index` is the position in `rows` that a listed edge leads to, ascending. Rows that have an
    in-edge are stamped with `read`; the others become empty.

    Returns:
        (rows, channels) that have been read
    """
    sign = w = state.dtype.type(1 if largest else -1)
    width = state.shape[1]
    exposed, lines = np.empty(width, np.int64), np.empty(width, np.int64)
    a_line = LINE // state.itemsize
    best, own = np.empty(width, state.dtype), np.empty(width, owner.dtype)
    lowest, nobody = state.dtype.type(-np.inf), owner.dtype.type(NOBODY)
    i, num_rows, num_channels = 0, 0, 0
    for r in range(rows.size):
        v, n, first = np.uint64(rows[r]), 0, i  # no index from the end
        if r + AHEAD < rows.size:
            fetch(state, rows[r + AHEAD])
            fetch(owner, rows[r + AHEAD])
        if afresh:
            n = width
        else:
            for f in range(width):
                n += owner[v, f] == EXPOSED
        whole = n * MANY > width  # one loop over neighbours in memory is faster than many jumps
        num_lines = 0
        if not whole:
            n = 0
            for f in range(width):
                if owner[v, f] == EXPOSED:
                    if not n or f // a_line != exposed[n - 1] // a_line:
                        lines[num_lines] = f
                        num_lines += 1
                    exposed[n] = f
                    n += 1
        fill(best, lowest)
        fill(own, nobody)
        while i < index.size and index[i] == r:
            ahead = i + AHEAD
            if ahead < index.size and (whole or index[ahead] != r):
                fetch(message, at[ahead])
            elif ahead < index.size:
                for k in range(num_lines):  # a wait for memory each
                    fetch_element(message, at[ahead], lines[k])
            u, s = np.uint64(at[i]), owner.dtype.type(slot[i])
            if weight.size:
                w = sign * state.dtype.type(weight[s])
            if whole:
                _offer_row(best, own, message, u, s, w)
            else:
                for k in range(n):
                    f = np.uint64(exposed[k])
                    m = w * message[u, f]
                    if not m < best[f] and _takes(m, best[f], s, own[f], sign):  # most are less
                        best[f], own[f] = m, s
            i += 1
        _cover(state, owner, v, best, own, sign, afresh)
        if i > first:
            stamp[v] = read
            num_rows += 1
            num_channels += n
    return num_rows, num_channels


@shared(counted=False)
def extremum_settle(now, before, rows, first_new, stamp, lost, read, changed):  # type: ignore[no-untyped-def]
    """Which of the touched `rows` differ from `before`; those from `first_new` on always do.

    With integer views of floats the comparison is bitwise, with floats it is by value. `changed`
    takes the rows that differ, and the front of `before` what stood there.

    Returns:
        (rows that differ; of those that were not read again: how many are as they were, how many
        changed without losing an owner, and how many changed and lost one)
    """
    n, resilient, no_reset, covered = 0, 0, 0, 0
    for i in range(rows.size):
        if i + AHEAD < rows.size:
            fetch(now, rows[i + AHEAD])
        v = rows[i]
        differs = False
        for f in range(now.shape[1]):
            a, b = now[v, f], before[i, f]
            differs |= (a != b) & ((a == a) | (b == b))
        if stamp[v] != read:
            if not differs:
                resilient += 1
            elif stamp[v] == lost:
                covered += 1
            else:
                no_reset += 1
        if differs or v >= first_new:
            changed[n] = v
            if n < i:
                for f in range(now.shape[1]):
                    before[n, f] = before[i, f]
            n += 1
    return n, resilient, no_reset, covered
