"""The compiled kernels in plain torch: same names, same arguments, any device, obviously right.

Neighbour lists are tensors on the host; indices travel to the device of the rows. See
`kernels.compiled` for the conventions.
"""

from pyg_incremental.kernels.reference.rows import (
    commit,
    expand,
    reach,
    unite,
    unite_ends,
)
from pyg_incremental.kernels.reference.softmax import softmax_edges, softmax_push, softmax_rows
from pyg_incremental.kernels.reference.sums import sum_edges, sum_push, sum_rows

__all__ = [
    "commit",
    "expand",
    "reach",
    "softmax_edges",
    "softmax_push",
    "softmax_rows",
    "sum_edges",
    "sum_push",
    "sum_rows",
    "unite",
    "unite_ends",
]
