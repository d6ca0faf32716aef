"""Loading compiled kernels from disk, without letting them serve yet."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from numba.core.compiler_lock import global_compiler_lock

from pyg_incremental.kernels import adjacency, compiled, graph_at, kept, pairs, samples
from pyg_incremental.kernels.compiled import machine, row_ops, rows
from pyg_incremental.kernels.compiled.kinds import KERNELS
from pyg_incremental.kernels.jit import entry_of

Job = tuple[str, str, tuple[Any, ...]]
"""Module and name of a kernel, and types of its arguments."""


def kernel_of(job: Job) -> Any:
    """The kernel that a job is about."""
    return entry_of(getattr(import_module(job[0]), job[1]))


def entries() -> list[Any]:
    """The kernels that Python calls; others are parts of these."""
    found = [getattr(compiled, name) for name in compiled.__all__ if name != "REACH"]
    names = {
        adjacency: ("group", "needed", "fits", "compact", "out_of_range"),
        pairs: ("enter", "find", "find_distinct", "find_without", "move"),
        graph_at: (
            "accept", "accept_now", "leaving", "change_list", "change_pairs", "has_changed",
        ),
        samples: ("mixed",),
        rows: ("take_rows",),
        row_ops: ("run_rows",),
        machine: machine.ENTRIES,
    }  # fmt: skip
    found += KERNELS.values()
    found += [getattr(module, name) for module, of in names.items() for name in of]
    return [*map(entry_of, found)]


def load_all(
    dtypes: Sequence[str], jobs: Sequence[Job], loaded: set[tuple[Any, Any]]
) -> list[tuple[Any, Any]]:
    """Load the code of all kernels for some dtypes, and of some others, that is kept by now.

    Args:
        dtypes: The dtypes.
        jobs: The others.
        loaded: Kernels and types of arguments that have been loaded before; takes more.

    Returns:
        The kernel and what Numba knows of its code, each, for `put`.
    """
    found = []
    others = [d for d in kept.DTYPES if d not in dtypes]
    wanted = [(kernel, types) for kernel in entries() for types in _kept(kernel)]
    wanted = [w for w in wanted if dtypes and not _is_for(w[1], others, dtypes)]
    for kernel, types in [*wanted, *((kernel_of(job), job[2]) for job in jobs)]:
        if types in kernel.overloads or (kernel, types) in loaded:
            continue
        loaded.add((kernel, types))
        with global_compiler_lock:
            code = kernel._cache.load_overload(types, kernel.targetctx)
        if code is not None:
            found.append((kernel, code))
    return found


def _is_for(types: tuple[Any, ...], others: Sequence[str], dtypes: Sequence[str]) -> bool:
    """Whether arguments are of dtypes that are not asked for."""
    said = str(types)
    return any(d in said for d in others) and not any(d in said for d in dtypes)


def _kept(kernel: Any) -> Iterator[tuple[Any, ...]]:
    """The types of arguments for which there is code on disk."""
    file = getattr(kernel._cache, "_cache_file", None)
    for types, *_ in file._load_index() if file is not None else ():
        yield types


def is_kept(kernel: Any, types: tuple[Any, ...]) -> bool:
    """Whether there is code on disk for some types of arguments."""
    return types in _kept(kernel)


def put(kernel: Any, code: Any) -> None:
    """Let loaded code serve."""
    if tuple(code.signature.args) not in kernel.overloads:
        kernel.targetctx.insert_user_function(code.entry_point, code.fndesc, [code.library])
        kernel.add_overload(code)


def compile_all(jobs: Sequence[Job]) -> None:
    """Compile some kernels; one that fails does not keep others from it."""
    for job in jobs:
        try:
            kernel_of(job).compile(job[2])
        except Exception as error:  # whatever Numba raises for types it has nothing for
            sys.stderr.write(f"{job[0]}.{job[1]}{job[2]}: {error}\n")
