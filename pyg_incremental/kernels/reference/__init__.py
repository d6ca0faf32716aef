"""The compiled kernels in plain torch: same names, same arguments, any device, obviously right.

Neighbour lists are tensors on the host; indices travel to the device of the rows. See
`kernels.compiled` for the conventions.
"""

from pyg_incremental.kernels.reference.extremum import (
    extremum_exposed,
    extremum_fill,
    extremum_insert,
    extremum_retract,
    extremum_settle,
)
from pyg_incremental.kernels.reference.rows import commit, expand, reach, unite, unite_ends
from pyg_incremental.kernels.reference.softmax import (
    softmax_edges,
    softmax_push,
    softmax_rows,
    softmax_settle,
)
from pyg_incremental.kernels.reference.sums import (
    sum_edges,
    sum_push,
    sum_renew,
    sum_rows,
    sum_settle,
)

__all__ = [
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
