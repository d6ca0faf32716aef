"""Compiling kernels, and keeping what was compiled on disk for the next process.

Numba keeps a function for as long as the file that defines it stays as it is. But a kernel contains
those of other files that it calls, and the constants of others still: an old one beside a new
layout of memory would write to the wrong places. So what was kept is valid for as long as no file
that the kernel may be made of has changed: see `sources`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
from numba import config
from numba._dynfunc import make_function
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, LoweringPass, register_pass
from numba.core.typed_passes import NativeLowering, NopythonRewrites
from numba.extending import typeof_impl

from pyg_incremental.kernels.kept import alone, folder_of, sources


class _Folder:
    """Tells Numba where a function is kept; what its methods are called is up to Numba."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._py_file, self._line = py_file, py_func.__code__.co_firstlineno
        self._folder = folder_of(py_file)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Folder:
        """The place of one function."""
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        """The folder."""
        return str(self._folder)

    def ensure_cache_path(self) -> None:
        """See that it is there."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def get_source_stamp(self) -> str:
        """What the function was compiled from; no times, which change when files are copied."""
        return sources(self._py_file)

    def get_disambiguator(self) -> str:
        """What tells functions of one name in one file apart."""
        return str(self._line)


class _Named(CompileResultCacheImpl):
    """Names the files of a function after the sources that it may be made of.

    Two processes may compile at the same time, so it is not enough that an index of files says what
    these are made of: neither may ever read what the other is about to overwrite.
    """

    def __init__(self, py_func: Callable[..., Any]) -> None:
        self._locator_classes = [_Folder]
        self._sources = sources(py_func.__code__.co_filename)
        super().__init__(py_func)  # type: ignore[no-untyped-call]

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        base: str = super().get_filename_base(fullname, abiflags)  # type: ignore[no-untyped-call]
        return f"{base}.{self._sources[:16]}"


class _Kept(FunctionCache):
    _impl_class = _Named

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a function, beside what is kept of it from other sources.

        In an image that cannot be written to, what nobody compiled ahead of time is not kept.

        One process at a time: two that compile one kernel for different types would read the same
        index, and give both the name of one file.
        """
        with alone("saving"), contextlib.suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def njit(counted: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` for kernels of this package.

    Wherever an array is handed on, or a row taken out of it, Numba counts one more reference, and
    one less when that is done with: two atomic operations, as long as it takes to add two rows.

    Args:
        counted: Whether references are counted. They need not be where a kernel neither makes
            arrays, nor returns any, nor calls what does: nobody would free these. Methods of
            arrays, such as `ravel`, do (see `tests/contract/test_no_leaks.py`).
        **options: As for Numba; with `cache=True`, which goes without saying. What lets C call a
            kernel is left out, as nobody does.
    """
    options.pop("cache", None)
    options |= {"no_cfunc_wrapper": True, "_nrt": counted}

    def compiled(function: Callable[..., Any]) -> Any:
        made: Any = numba.njit(**options)(function)
        if not config.DISABLE_JIT:  # type: ignore[attr-defined]
            with contextlib.suppress(OSError):  # no folder at all, not even a temporary one
                made._cache = _Kept(function)  # type: ignore[no-untyped-call]
        return made

    return compiled


class Kernel(partial[Any]):
    """A kernel that is a part of others as well.

    Numba would optimize it and make machine code of it before it optimizes it as a part of others,
    and a program would wait for code that nobody calls yet. So there are two of it: to call it is
    to call the one that is there for Python, which is compiled then.

    Attributes:
        part: What kernels call.
    """

    part: Any

    def __new__(cls, function: Callable[..., Any], **options: Any) -> Kernel:
        """Args: what it does, and options as for Numba."""
        made = super().__new__(cls, njit(**options)(function))
        made.part = inner(**options)(function)
        return made

    def __getattr__(self, name: str) -> Any:
        """What Numba knows of it."""
        return getattr(self.func, name)


@typeof_impl.register(Kernel)
def _type_of_kernel(kernel: Kernel, context: Any) -> Any:
    """Where a kernel calls another one, it calls its part."""
    return typeof_impl(kernel.part, context)


def shared(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`njit` for kernels that are parts of others as well.

    Args:
        **options: As for Numba.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        if config.DISABLE_JIT:  # type: ignore[attr-defined]
            return function
        return Kernel(function, **options)

    return compiled


def entry_of(kernel: Any) -> Any:
    """What Numba knows a kernel as that Python calls."""
    return kernel.func if isinstance(kernel, Kernel) else kernel


@register_pass(mutates_CFG=False, analysis_only=True)  # type: ignore[no-untyped-call]
class _Unfinished(FunctionPass):
    """Leaves it to the kernel to optimize what it is made of.

    Numba optimizes a function together with all that it calls, so what is called at depth five
    would be five times over. Once is enough, and a quarter sooner done.
    """

    _name = "unfinished"

    def __init__(self) -> None:
        """Nothing to keep."""
        super().__init__()  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        """Give the function a place for its code that is neither optimized nor put into memory."""
        library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        library._optimize_final_module = lambda: None
        library._finalize_final_module = lambda: setattr(library, "_finalized", True)
        state.library, state.flags.no_compile = library, True
        return False


@register_pass(mutates_CFG=False, analysis_only=True)  # type: ignore[no-untyped-call]
class _Known(LoweringPass):
    """Makes a part known to what calls it, without machine code of its own.

    Numba would make that of everything that is called at depth five, five times over, and of code
    that is not optimized, which takes longest.
    """

    _name = "known"

    def __init__(self) -> None:
        """Nothing to keep."""
        super().__init__()  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        """Do what Numba does beside making machine code."""
        lowered, library = state.cr, state.library
        about = lowered.fndesc
        name = about.qualname.split(".")[-1]
        stands_for = make_function(about.lookup_module(), name, name, 0, lowered.env, (library,))
        state.targetctx.insert_user_function(stands_for, about, [library])
        state.reload_init.extend(library._reload_init)
        state.cr = lowered._replace(cfunc=stands_for)
        return True


class _Part(CompilerBase):
    """Compiles a part of a kernel."""

    def define_pipelines(self) -> list[Any]:
        """As ever, but for the last steps."""
        passes: Any = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        passes.add_pass_after(_Unfinished, NopythonRewrites)
        passes.add_pass_after(_Known, NativeLowering)
        passes.finalize()
        return [passes]


def inner(counted: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` for what only kernels call: a part of each of them.

    It can't be called from Python, for which it would take longer to compile, and is not kept.

    Args:
        counted: Whether references to arrays are counted, see `njit`.
        **options: As for Numba.
    """
    about: dict[str, Any] = {
        "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _Part,
        "_nrt": counted, **options,
    }  # fmt: skip
    made: Callable[[Callable[..., Any]], Any] = numba.njit(**about)
    return made
