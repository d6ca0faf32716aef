"""The loops that touch rows and edges: compiled (Numba) and plain torch, with the same signatures."""

import time


def warm_up() -> float:
    """Load or compile every kernel for float32 and float64, so that no update pays for it.

    Compiled code is cached on disk beside the package (or in the directory that `NUMBA_CACHE_DIR` names), so only the first process on a
    machine compiles.

    Returns:
        Seconds spent.
    """
    from pyg_incremental.kernels.warm import run_each_once

    began = time.perf_counter()
    run_each_once()
    return time.perf_counter() - began
