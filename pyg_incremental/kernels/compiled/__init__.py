"""Numba kernels for rows and edges on the CPU.

`kernels.reference` has the same functions in plain torch.

Conventions: `store`, `state`, `message` are `[num_nodes, channels]`; `ids` are unique int64 rows;
`old` holds the replaced rows of `ids` in the same order; `stamp` and `epoch` mark the rows already
collected (`stamp[v] == epoch`); collected rows are written to the front of `touched` and their
number is returned. `weight` has one value per edge slot, or none at all for weight one. `drop`
leaves out self-loops. NaN and infinities are data, so no kernel may assume they are absent; sums of
magnitudes may be reassociated, because they only feed the drift bound. Edges are listed by their
slots and ends, one array each.
"""

from pyg_incremental.kernels.compiled.extremum import (
    extremum_exposed,
    extremum_fill,
    extremum_insert,
    extremum_retract,
    extremum_settle,
)
from pyg_incremental.kernels.compiled.pushes import sum_push
from pyg_incremental.kernels.compiled.rows import commit, expand, reach, unite, unite_ends
from pyg_incremental.kernels.compiled.softmax import (
    REACH,
    softmax_edges,
    softmax_push,
    softmax_rows,
    softmax_settle,
)
from pyg_incremental.kernels.compiled.sums import sum_edges, sum_renew, sum_rows, sum_settle

__all__ = [
    "REACH",
    "commit",
    "expand",
    "extremum_exposed",
    "extremum_fill",
    "extremum_insert",
    "extremum_retract",
    "extremum_settle",
    "reach",
    "softmax_edges",
    "softmax_push",
    "softmax_rows",
    "softmax_settle",
    "sum_edges",
    "sum_push",
    "sum_renew",
    "sum_rows",
    "sum_settle",
    "unite",
    "unite_ends",
]
