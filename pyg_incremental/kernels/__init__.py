"""The loops that touch rows and edges.

They are there twice, with the same signatures: compiled (Numba) and in plain torch.
"""

from pyg_incremental.kernels.takeover import warm_up

__all__ = ["warm_up"]
