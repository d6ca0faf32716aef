"""Whether changed messages are pushed, or the rows that they reach are made afresh.

A push writes to a row somewhere in memory for each edge, and looks at the row once more for its
drift; a row made afresh reads a message somewhere for each of its edges, changed or not. What a
push costs in such reads was measured on drawn graphs of the shapes of Reddit and ogbn-products.
"""

from pyg_incremental.kernels.jit import inner

LEAST = 1 << 13
"""Edges up to which messages are pushed, whatever else there is.

What rows made afresh save then is less than it takes to leave compiled code for it, 0.1 to 0.3 ms.
"""
SUM, SOFTMAX, EXTREMUM = 2.6, 2.6, 2.0
"""Reads that a push along an edge costs."""
WIDE_EXTREMUM = 8.0
"""The same of an extremum of rows so wide that hardly one goes without a loss that nothing covers:
what is pushed to is read again all the same. (Where that makes a difference, it was faster than to
push always, and as fast as to pull always or faster; on those graphs, and on the streams of Caida
and MathOverflow.)"""


@inner()
def pull_pays(pushed, own, read, times):  # type: ignore[no-untyped-def]
    """Whether making rows afresh costs less than pushing.

    Args:
        pushed: Edges along which messages changed.
        own: In-edges of the rows that are made afresh in any case; nothing is pushed to these.
        read: In-edges of all rows that are reached, or of all rows, which is more.
        times: Reads that a push along an edge costs.
    """
    if pushed <= LEAST:
        return False
    if own >= read:
        return True
    return own + times * pushed * (1 - own / read) > read
