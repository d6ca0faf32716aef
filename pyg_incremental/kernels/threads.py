"""Threads that share the work of one kernel."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
_pools: dict[int, ThreadPoolExecutor] = {}


def number_of_threads() -> int:
    """How many threads share large steps: `torch.get_num_threads()`, down to a power of two."""
    return 1 << (torch.get_num_threads().bit_length() - 1)


def in_parts(count: int, work: Callable[[int], T]) -> list[T]:
    """`work(0), ..., work(count - 1)`, each in a thread of its own, the first in this one.

    The work has to let go of Python's lock, or nothing is gained.
    """
    if count == 1:
        return [work(0)]
    pool = _pools.get(count)
    if pool is None:
        name = f"pyg_incremental-{count}"
        pool = _pools.setdefault(count, ThreadPoolExecutor(count - 1, thread_name_prefix=name))
    others = [pool.submit(work, part) for part in range(1, count)]
    try:
        first = work(0)
    finally:
        done = [other.result() for other in others]
    return [first, *done]


if hasattr(os, "register_at_fork"):  # not everywhere
    os.register_at_fork(after_in_child=_pools.clear)  # threads do not survive a fork
