"""What a figure was measured on: a number without it says nothing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numba
import torch

import pyg_incremental

PACKAGES = (
    "pyg-incremental",
    "torch",
    "torch_geometric",
    "numpy",
    "numba",
    "torch_sparse",
    "pyg_lib",
    "pymetis",
)


def describe() -> dict[str, object]:
    """Processor, cores, threads and versions; no names of machines or users."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def use_threads(count: int) -> None:
    """Let torch and Numba use so many threads, Numba no more than there are cores."""
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
    torch.set_num_threads(count)  # after it: where Numba runs by OpenMP, it begins with all cores


def available_memory() -> float:
    """Bytes that a program may still ask for; infinity where the system does not say."""
    info = Path("/proc/meminfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("MemAvailable"):
                return 1024.0 * int(line.split()[1])
    return float("inf")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    if package == "pyg-incremental":  # it may run from the repository, without being installed
        return pyg_incremental.__version__
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
