"""Threads that share the work of one kernel."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np
import torch

from pyg_incremental.kernels.compiled.rows import take_rows
from pyg_incremental.kernels.lent import Lent

T = TypeVar("T")
MANY = 1 << 18
"""Elements to compute, to push or to copy that are worth waking threads: to go through a megabyte
of float32 takes longer than to wake another thread. Fewer rows are taken by one call of NumPy."""
TURNS = 4
"""Parts that one thread computes in turn, if none is slower than another."""
_COMPILED = (np.float32, np.float64)
_pools: dict[int, ThreadPoolExecutor] = {}
_one_waits = threading.Lock()
_OPENMP: Any = ctypes.CDLL(None) if os.name == "posix" else None  # PyTorch makes its symbols known


class _Local(threading.local):
    """What each thread knows of itself.

    Attributes:
        count: How many threads PyTorch has, where it was told to use one.
    """

    count = 0


_of_this_thread = _Local()
_AS_IT_IS = nullcontext()


def number_of_threads() -> int:
    """How many threads share large steps: as many as PyTorch has."""
    return _of_this_thread.count or torch.get_num_threads()


class Alone:
    """While it is entered, PyTorch computes in this thread alone, but for what is `together`.

    Where other processes keep the cores busy, each operation that threads share waits until all of
    them have had a turn, which takes milliseconds. (`torch.set_num_threads` would count for threads
    that begin to use PyTorch meanwhile, too; OpenMP itself has a number for each thread.)

    Attributes:
        is_off: Whether there is no such number here.
    """

    def __init__(self) -> None:
        self.is_off = False

    def __enter__(self) -> None:
        count = torch.get_num_threads()
        if count > 1 and not self.is_off:
            self.is_off = not _use(1)
            if self.is_off:
                torch.set_num_threads(count)
            else:
                _of_this_thread.count = count

    def __exit__(self, *raised: object) -> None:
        count = _of_this_thread.count
        if count:
            _of_this_thread.count = 0
            _use(count)


def together(is_large: bool) -> AbstractContextManager[None]:
    """In the midst of `Alone`: all threads, if it is for something large."""
    return _all_threads() if is_large and _of_this_thread.count else _AS_IT_IS


@contextmanager
def _all_threads() -> Iterator[None]:
    _use(_of_this_thread.count)
    try:
        yield
    finally:
        _use(1)


def _use(count: int) -> bool:
    """Give OpenMP so many threads for what this one begins; returns whether PyTorch sees that."""
    try:
        _OPENMP.omp_set_num_threads(count)
    except AttributeError:  # PyTorch runs its threads in another way
        return False
    return torch.get_num_threads() == count


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
        wait(others)  # all of them, whatever one of them or this thread raises
    return [first, *(other.result() for other in others)]


def wait_for_all() -> None:
    """Wait until no thread works for anybody any more.

    An interrupt may come between threads, where nobody waits for those that were set to work.
    """
    with _one_waits:  # two barriers would share the threads, and neither have enough
        for count, pool in list(_pools.items()):
            together = threading.Barrier(count)  # each of its threads, and this one
            try:
                for _ in range(count - 1):
                    pool.submit(together.wait)
                together.wait()
            except BaseException:
                together.abort()
                raise


def in_turns(count: int, jobs: int, work: Callable[[int, int], T]) -> list[T]:
    """`work(0, ...), ..., work(jobs - 1, ...)`, each in one of `count` threads.

    The second argument is the number of the thread. Each thread has a share of its own, the first
    one the first jobs, and then takes over the last ones of the others: no thread waits for one
    that began late, or that runs on a slower core.
    """
    done: list[Any] = [None] * jobs
    count = min(count, jobs)
    left = [deque(range(jobs * t // count, jobs * (t + 1) // count)) for t in range(count)]

    def run(thread: int) -> None:
        for other in range(count):
            share = left[(thread + other) % count]
            take = share.pop if other else share.popleft
            while share:
                try:
                    job = take()
                except IndexError:  # another thread was faster
                    break
                done[job] = work(job, thread)

    in_parts(count, run)
    return done


def shares(size: int, count: int) -> list[int]:
    """The bounds of parts of something of a size, some for each of `count` threads."""
    parts = TURNS * count if count > 1 else 1
    return [size * p // parts for p in range(parts + 1)]


def take(rows: Any, ids: Any, lent: Lent | None = None) -> Any:
    """`rows[ids]` of an array `[n, ...]`, by threads where that pays, in memory that is lent.

    Not to be called in one of them: it would wait for itself.
    """
    if ids.size * rows.size < MANY * len(rows) or rows.dtype not in _COMPILED:
        return rows.take(ids, 0)
    found = (lent or Lent()).array(rows.dtype, ids.size, *rows.shape[1:])
    take_into(rows.reshape(len(rows), -1), ids, found.reshape(ids.size, -1))
    return found


def take_into(rows: Any, ids: Any, found: Any) -> None:
    """Write `rows[ids]`, of an array `[n, width]`, to `found`; see `take`."""
    if rows.dtype not in _COMPILED:
        rows.take(ids, 0, out=found, mode="clip")  # else NumPy writes to a copy first
        return
    count = number_of_threads() if found.size > MANY else 1
    bounds = shares(ids.size, count)

    def part(p: int, _: int) -> None:
        some = slice(bounds[p], bounds[p + 1])
        take_rows(rows, ids[some], found[some])

    in_turns(count, len(bounds) - 1, part)


def _after_fork() -> None:
    """Threads do not survive a fork."""
    global _one_waits
    _pools.clear()
    _one_waits = threading.Lock()


if hasattr(os, "register_at_fork"):  # not everywhere
    os.register_at_fork(after_in_child=_after_fork)
