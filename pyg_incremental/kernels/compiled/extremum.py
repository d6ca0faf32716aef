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
from numba import njit

from pyg_incremental.kernels.address import fetch

EMPTY = -1
EXPOSED = -2
MANY = 6
"""Reading all channels of an edge costs as much as jumping to one in so many of them."""
AHEAD = 4
"""How many edges ahead of their use rows are asked for."""


@njit(cache=True)
def _ahead(a, b, one):  # type: ignore[no-untyped-def]
    """Whether `a` comes before `b` when the largest is sought."""
    signs = (a == b) & (math.copysign(one, a) > math.copysign(one, b))
    return (a > b) | ((a != a) & (b == b)) | signs


@njit(cache=True)
def _offer(state, owner, v, f, m, slot, sign):  # type: ignore[no-untyped-def]
    """Let message `m` have channel `f` of row `v` if it is ahead of what stands there.

    `sign` is one for the largest and minus one for the smallest. An exposed channel takes what it
    held before from any edge.
    """
    a, b, o = sign * m, sign * state[v, f], owner[v, f]
    if o == EMPTY or _ahead(a, b, sign) or ((o == EXPOSED or slot < o) and not _ahead(b, a, sign)):
        state[v, f] = m if m == m else state.dtype.type(np.nan)
        owner[v, f] = slot


@njit(cache=True)
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


@njit(cache=True)
def extremum_insert(state, owner, message, at, weight, dst, slot, largest):  # type: ignore[no-untyped-def]
    """Offer the listed messages to their targets; they cover exposed channels where they can."""
    sign = state.dtype.type(1 if largest else -1)
    w = state.dtype.type(1)
    for i in range(dst.size):
        if i + AHEAD < dst.size:
            fetch(message, at[i + AHEAD])
            fetch(state, dst[i + AHEAD])
            fetch(owner, dst[i + AHEAD])
        u, v, s = at[i], dst[i], owner.dtype.type(slot[i])
        if weight.size:
            w = state.dtype.type(weight[s])
        for f in range(state.shape[1]):
            _offer(state, owner, v, f, w * message[u, f], s, sign)


@njit(cache=True)
def extremum_exposed(owner, rows, stamp, lost, found):  # type: ignore[no-untyped-def]
    """Those of some rows that have an exposed channel go to `found`; returns their number.

    Only a row that is stamped with `lost` can have one.
    """
    n = 0
    for i in range(rows.size):
        v = rows[i]
        if stamp[v] == lost:
            for f in range(owner.shape[1]):
                if owner[v, f] == EXPOSED:
                    found[n] = v
                    n += 1
                    break
    return n


@njit(cache=True)
def extremum_fill(  # type: ignore[no-untyped-def]
    state, owner, message, at, weight, rows, index, slot, largest, stamp, read
):
    """Make the exposed channels of some rows afresh from all of their in-edges.

    `index` is the position in `rows` that a listed edge leads to, ascending. Rows that have an
    in-edge are stamped with `read`; the others become empty.

    Returns:
        (rows, channels) that have been read
    """
    sign = state.dtype.type(1 if largest else -1)
    w = state.dtype.type(1)
    width = state.shape[1]
    exposed, is_exposed = np.empty(width, np.int64), np.empty(width, np.bool_)
    values, slots = np.empty(width, state.dtype), np.empty(width, owner.dtype)
    i, num_rows, num_channels = 0, 0, 0
    for r in range(rows.size):
        v, n, first = rows[r], 0, i
        for f in range(state.shape[1]):
            if owner[v, f] == EXPOSED:
                state[v, f] = 0
                owner[v, f] = EMPTY
                exposed[n] = f
                n += 1
        whole = n * MANY > exposed.size
        if whole:
            for f in range(exposed.size):
                is_exposed[f] = owner[v, f] == EMPTY
                values[f], slots[f] = state[v, f], owner[v, f]
        while i < index.size and index[i] == r:
            if i + AHEAD < index.size:
                fetch(message, at[i + AHEAD])
            u, s = at[i], owner.dtype.type(slot[i])
            if weight.size:
                w = state.dtype.type(weight[s])
            if whole:  # one loop over neighbours in memory is faster than many jumps
                for f in range(exposed.size):
                    _offer(state, owner, v, f, w * message[u, f], s, sign)
            else:
                for k in range(n):
                    f = exposed[k]
                    _offer(state, owner, v, f, w * message[u, f], s, sign)
            i += 1
        if whole:  # the other channels keep what they have
            for f in range(exposed.size):
                if not is_exposed[f]:
                    state[v, f], owner[v, f] = values[f], slots[f]
        if i > first:
            stamp[v] = read
            num_rows += 1
            num_channels += n
    return num_rows, num_channels


@njit(cache=True)
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
