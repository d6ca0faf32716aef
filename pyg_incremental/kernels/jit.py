"""Compiling kernels, and keeping what was compiled on disk for the next process.

Numba keeps a function for as long as the file that defines it stays as it is. But a kernel contains
those of other files that it calls, and the constants of others still: an old one beside a new
layout of memory would write to the wrong places. So what was kept is valid for as long as no file
of the package that kernels may be made of has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache

from pyg_incremental.errors import IncrementalWarning

_PACKAGE = Path(__file__).parents[1]


@cache
def sources() -> str:
    """SHA-256 over every file of the package that kernels may be made of."""
    digest = hashlib.sha256()
    rooms = ("kernels", "distributed", "sampling/kernels")
    files = [file for room in rooms for file in _PACKAGE.glob(f"{room}/**/*.py")]
    for file in sorted([*files, _PACKAGE / "typing.py"]):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(_PACKAGE).as_posix()}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


class _Named(CompileResultCacheImpl):
    """Names the files of a function after the sources that it may be made of.

    Two processes may compile at the same time, so it is not enough that an index of files says what
    these are made of: neither may ever read what the other is about to overwrite.
    """

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        base: str = super().get_filename_base(fullname, abiflags)  # type: ignore[no-untyped-call]
        return f"{base}.{sources()[:16]}"


class _Kept(FunctionCache):
    _impl_class = _Named

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a function, and remove what was kept of it from other sources."""
        super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        of_this, _, sources_of_this = self._impl.filename_base.rpartition(".")
        with contextlib.suppress(OSError):  # another process does the same
            for file in Path(self.cache_path).glob(f"{of_this.rpartition('-')[0]}-*"):
                if f".{sources_of_this}." not in file.name:
                    file.unlink()


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` for kernels of this package.

    Where no folder can be written to, neither beside the package nor that of the user nor the one
    that `NUMBA_CACHE_DIR` names, every process compiles for itself, and a warning says so once.

    Args:
        **options: As for Numba; with `cache=True`, which goes without saying.
    """
    options.pop("cache", None)

    def compiled(function: Callable[..., Any]) -> Any:
        made: Any = numba.njit(**options)(function)
        if not config.DISABLE_JIT:  # type: ignore[attr-defined]
            kept = _kept(function)
            if kept is not None:
                made._cache = kept
        return made

    return compiled


def _kept(function: Callable[..., Any]) -> FunctionCache | None:
    """Where the compiled function is kept; None if nowhere."""
    try:
        return _Kept(function)  # type: ignore[no-untyped-call]
    except (RuntimeError, OSError):
        _warn_once()
        return None


@cache
def _warn_once() -> None:
    warnings.warn(
        "compiled kernels cannot be kept: no folder for them can be written to, so every process "
        "compiles them anew (about a minute); name one with the environment variable "
        "NUMBA_CACHE_DIR",
        IncrementalWarning,
        stacklevel=2,
    )
