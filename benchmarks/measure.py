"""Time a stream of deltas, one `apply_delta` each, and see what memory a process has."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pyg_incremental import GraphDelta, IncrementalModel

WARM_UP = 3  # the first updates are not counted


def stream(
    inc: IncrementalModel, deltas: Iterable[GraphDelta], size: int, seconds: float
) -> dict[str, float]:
    """Apply deltas of `size` updates until they or the seconds run out."""
    took = []
    ends = time.perf_counter() + seconds
    for delta in deltas:
        began = time.perf_counter()
        inc.apply_delta(delta)
        took.append(time.perf_counter() - began)
        if began > ends and len(took) > 2 * WARM_UP:
            break
    if len(took) <= WARM_UP:
        raise SystemExit(f"the workload has only {len(took)} batches of {size} updates.")
    counted = np.array(took[WARM_UP:])
    return {
        "p50_ms": 1e3 * float(np.median(counted)),
        "p99_ms": 1e3 * float(np.percentile(counted, 99)),
        "updates_per_s": size / float(counted.mean()),
        "batches": len(took),
    }


def resident_bytes() -> int:
    """The memory of the process in bytes, as the kernel counts it, without what nobody holds."""
    gc.collect()
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
