"""No update waits for a compiler: plain kernels serve until the compiled ones are there.

A process of its own compiles them and keeps them on disk. (A thread of this process would hold
Python's lock for much of that time, and keep the 0.8 GB that compiling takes.) Both
sets take the same arguments and leave the same rows, lists and marks in memory, so nothing has to
be computed anew when the compiled ones take over, which they do all at once, between two updates.

Numba asks `_compile_for_args` of a kernel for what to call where it has no code for some types of
arguments. Until the compiled kernels take over, that is the plain one.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numba import config, typeof
from numba.core.dispatcher import OmittedArg
from numba.core.serialize import dumps
from numba.core.types import Omitted

from pyg_incremental.kernels import adjacency, compiled, graph_at, kept, pairs, samples, warm
from pyg_incremental.kernels.compiled.rows import take_rows
from pyg_incremental.kernels.loading import Job, is_kept, kernel_of, load_all, put
from pyg_incremental.kernels.locks import anew_in_child

_IS_OFF: bool = config.DISABLE_JIT or not sys.executable  # type: ignore[attr-defined]
_CHILD = """
import os, sys, types
sys.path[:0] = sys.argv[1].split(os.pathsep)
package = types.ModuleType("pyg_incremental")
package.__path__ = [sys.argv[2]]
sys.modules["pyg_incremental"] = package
from pyg_incremental.kernels.warm import fill
fill(sys.argv[3:], sys.stdin.buffer.read())
"""
"""The package without what it imports, of which kernels need nothing: PyG alone takes seconds."""


@cache
def plain_kernels() -> Mapping[Any, Callable[..., Any]]:
    """The plain kernel for each compiled one, with the same arguments: NumPy arrays."""
    from pyg_incremental.kernels import reference
    from pyg_incremental.kernels.reference import graph

    found: dict[Any, Callable[..., Any]] = {
        getattr(compiled, name): partial(_in_torch, getattr(reference, name))
        for name in reference.__all__
    }
    names = {
        adjacency: ("group", "needed", "fits", "compact", "out_of_range"),
        pairs: ("enter", "find", "find_distinct", "find_without", "move"),
        graph_at: ("accept", "leaving", "change_list", "change_pairs"),
        samples: ("mixed",),
    }
    for module, kernels in names.items():
        found |= {getattr(module, name): getattr(graph, name) for name in kernels}
    found[take_rows] = graph.take_rows
    return found


def _in_torch(plain: Callable[..., Any], *args: Any) -> Any:
    """Call a kernel in torch with NumPy arrays, in whose memory it works."""
    done = plain(*(_as_tensor(a) for a in args if not isinstance(a, OmittedArg)))
    if not isinstance(done, tuple):
        return done
    return tuple(part.numpy() if isinstance(part, torch.Tensor) else part for part in done)


def _as_tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    if isinstance(value, adjacency.Adjacency):
        return adjacency.Adjacency(*map(_as_tensor, value))
    return value.item() if isinstance(value, np.generic) else value


class Maker:
    """Makes kernels beside updates.

    Attributes:
        dtypes: All kernels for these are asked for.
        jobs: And these: module, name, and types of arguments of each.
        code: What is in memory then, kernel by kernel.
        failed: Whether it came to nothing.
    """

    def __init__(self, dtypes: Sequence[str], jobs: Sequence[Job]) -> None:
        self.dtypes, self.jobs = dtypes, jobs
        self.code: list[tuple[Any, Any]] = []
        self.failed = False
        self._began = time.perf_counter()

    def is_done(self) -> bool:
        """Whether it is through. Does not wait."""
        return True

    def wait(self) -> None:
        """Return when it is through."""

    def seconds(self) -> float:
        """How long it has been at work."""
        return time.perf_counter() - self._began


class TakeOver:
    """Which kernels serve.

    Attributes:
        is_making: Whether kernels are being compiled or loaded; `poll` then has to be called
            between updates.
        serves_plain: Whether plain kernels stand in for all that are not in memory.
    """

    def __init__(self) -> None:
        self.is_making = self.serves_plain = False
        self._ready: set[str] = set()
        self._dtypes: set[str] = set()
        self._jobs: set[Job] = set()
        self._failed: set[Job] = set()
        self._maker: Maker | None = None
        self._lock = threading.RLock()
        self._stands_in = self._waits = False

    def begin_anew(self) -> None:
        """The thread that loads does not survive a fork: a child compiles what it calls."""
        self._lock = threading.RLock()
        if self.is_making:
            self._stand_back()
            self.__init__()  # type: ignore[misc]

    def is_ready(self, dtype: str) -> bool:
        """Whether compiled kernels serve rows of a dtype; they do where nobody called `begin`."""
        return not self.serves_plain or dtype in self._ready

    def begin(self, dtype: str, maker: Callable[..., Maker] | None = None) -> None:
        """A model is about to be called: have the kernels for its dtype made if there are none.

        Args:
            dtype: Its name.
            maker: Makes kernels; by default a process of its own.
        """
        if _IS_OFF or self._waits or dtype not in kept.DTYPES:
            return
        with self._lock:
            self._stand_in()
            if dtype in self._ready:
                return
            if maker is None and kept.is_complete(dtype):
                self._ready.add(dtype)
                return
            self.serves_plain = True
            self._dtypes.add(dtype)
            self._make(maker or Process)

    def _stand_in(self) -> None:
        """From here on nobody waits for a kernel that has a plain one."""
        if not self._stands_in:
            self._stands_in = True
            for kernel, plain in plain_kernels().items():
                kernel._compile_for_args = partial(self._code_for, kernel, plain)

    def _stand_back(self) -> None:
        """From here on Numba loads or compiles what is called."""
        self._stands_in = self.serves_plain = False
        for kernel in plain_kernels():
            kernel.__dict__.pop("_compile_for_args", None)

    def _code_for(self, kernel: Any, plain: Callable[..., Any], *args: Any) -> Callable[..., Any]:
        """What Numba calls where it has no code in memory: loaded code, or the plain kernel."""
        if self.serves_plain:
            return plain
        types = tuple(map(_type_of, args))
        if is_kept(kernel, types):
            code: Callable[..., Any] = type(kernel)._compile_for_args(kernel, *args)
            return code
        job = kernel.py_func.__module__, kernel.py_func.__name__, types
        with self._lock:
            if job not in self._failed:
                self._jobs.add(job)
                self._make(Process)
        return plain

    def _make(self, maker: Callable[..., Maker]) -> None:
        """Have made what is asked for, unless something is being made."""
        if self._maker is None and (self._dtypes or self._jobs):
            if self._dtypes:
                _say(
                    "plain torch kernels serve until the compiled ones are made beside (about a "
                    "minute, once on a machine)"
                )
            self._maker = maker(sorted(self._dtypes), sorted(self._jobs, key=str))
            self.is_making = True

    def poll(self) -> None:
        """Let compiled kernels take over if they are there. Not in the middle of an update."""
        with self._lock:
            made = self._maker
            if made is None or not made.is_done():
                return
            self._maker, self.is_making = None, False
            if made.failed:
                self._failed |= {*made.jobs}
            else:
                for kernel, code in made.code:
                    put(kernel, code)
                self._ready |= {*made.dtypes}
                self._failed |= {job for job in made.jobs if not _is_there(job)}
                self.serves_plain = not self._ready >= self._dtypes
                if made.dtypes:
                    _say(f"compiled kernels took over after {made.seconds():.0f} s")
            self._dtypes -= {*made.dtypes}
            self._jobs -= {*made.jobs}
            self._make(Process)

    def wait(self, dtype: str = "") -> None:
        """Return when the compiled kernels for a dtype are there, which may take a minute.

        From here on this process waits for a compiler where it has to.
        """
        if _IS_OFF:
            return
        with self._lock:
            self._waits = True
            if dtype in kept.DTYPES and dtype not in self._ready and not kept.is_complete(dtype):
                self.make_here(dtype)
            self._stand_back()

    def make_here(self, *dtypes: str) -> None:
        """Load or compile all kernels for some dtypes, and wait for that."""
        with self._lock:
            while self._maker is not None:
                self._maker.wait()
                self.poll()
            stood_in = self._stands_in
            self._stand_back()
            warm.warm_up(*dtypes)
            self._ready |= {*dtypes}
            if stood_in:
                self._stand_in()


class Process(Maker):
    """A process that compiles, and a thread that loads what it has compiled."""

    def __init__(self, dtypes: Sequence[str], jobs: Sequence[Job]) -> None:
        super().__init__(dtypes, jobs)
        self._loading: threading.Thread | None = None
        root, env = kept.root(), dict(os.environ)
        if root is not None:
            env["NUMBA_CACHE_DIR"] = str(root)
        path = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, path, str(kept.PACKAGE), *dtypes],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), self._process.stdin as to:
                to.write(dumps(list(jobs)))  # type: ignore[no-untyped-call]

    def is_done(self) -> bool:
        """Whether it is through; what it compiled is loaded by a thread."""
        if self._loading is None:
            if self._process.poll() is None:
                return False
            if self._process.returncode:
                self.failed = True
                _say(
                    "compiling kernels failed, so plain torch kernels go on serving; "
                    "`pyg-incremental warm-up` shows why"
                )
                return True
            self._loading = threading.Thread(target=self._load, name="pyg_incremental-kernels")
            self._loading.start()
        return not self._loading.is_alive()

    def _load(self) -> None:
        self.code = load_all(self.dtypes, self.jobs)

    def wait(self) -> None:
        """Return when it is through."""
        self._process.wait()
        if not self.is_done() and self._loading is not None:
            self._loading.join()


def _say(text: str) -> None:
    """A line of progress; there may be nobody to read it."""
    if sys.stderr is not None:
        sys.stderr.write(f"pyg_incremental: {text}\n")


KERNELS = TakeOver()
"""Those of this process."""
anew_in_child(KERNELS)


def _type_of(value: Any) -> Any:
    """What Numba calls the type of an argument."""
    if isinstance(value, OmittedArg):
        return Omitted(value.value)  # type: ignore[no-untyped-call]
    return typeof(value)  # type: ignore[no-untyped-call]


def _is_there(job: Job) -> bool:
    kernel, types = kernel_of(job), job[2]
    return types in kernel.overloads or is_kept(kernel, types)


def warm_up(*dtypes: str) -> float:
    """Load or compile every kernel, so that no update pays for it, and none waits for it.

    Compiled code is kept on disk beside the package, in a folder of the user if the package cannot
    be written to, or in the directory that `NUMBA_CACHE_DIR` names; so only the first process on a
    machine compiles. `pyg-incremental warm-up` does the same from the command line.

    Args:
        *dtypes: For rows of which dtypes: `'float32'`, `'float64'`; both by default.

    Returns:
        Seconds spent.
    """
    began = time.perf_counter()
    if not _IS_OFF:
        KERNELS.make_here(*(dtypes or kept.DTYPES))
    return time.perf_counter() - began
