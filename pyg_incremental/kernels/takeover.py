"""No update waits for a compiler: plain kernels serve until the compiled ones are there.

A process of its own compiles them and keeps them on disk, those of one kind of step after the other
(see `warm`): a model asks for the kinds that it has. (A thread of this process would hold Python's
lock for much of that time, and keep the memory that compiling takes.) Both sets take the same
arguments and leave the same rows, lists and marks in memory, so nothing has to be computed anew
when the compiled ones of a kind take over, which they do between two updates.

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
from collections.abc import Callable, Iterable, Mapping
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
from pyg_incremental.kernels.jit import entry_of
from pyg_incremental.kernels.loading import Job, is_kept, kernel_of, load_all, put
from pyg_incremental.kernels.locks import anew_in_child

_IS_OFF: bool = config.DISABLE_JIT or not sys.executable  # type: ignore[attr-defined]
_CHILD = """
import os, sys, types
sys.path[:0] = sys.argv[1].split(os.pathsep)
package = types.ModuleType("pyg_incremental")
package.__path__ = [sys.argv[2]]
sys.modules["pyg_incremental"] = package
from pyg_incremental.kernels.warm import serve
told = os.fdopen(os.dup(1), "wb", 0)
os.dup2(2, 1)
serve(sys.stdin.buffer, told)
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


Kind = tuple[str, str]
"""A dtype, and a kind of kernels."""


class Maker:
    """Makes kernels beside updates.

    Attributes:
        asked: What is asked for and not there yet: kinds, and jobs.
        made: What is there, one by one: that, and the code that is in memory then.
        processor: Seconds of processor that this took.
        failed: Whether it came to nothing.
    """

    def __init__(self) -> None:
        self.asked: list[Kind | Job] = []
        self.made: list[tuple[Kind | Job, list[tuple[Any, Any]]]] = []
        self.processor, self.failed = 0.0, False
        self.began = time.perf_counter()

    def ask(self, what: Kind | Job) -> bool:
        """Have something made behind what was asked for before; False if it takes no more."""
        self.asked.append(what)
        return True

    def poll(self) -> None:
        """See what has come about. Does not wait."""

    def wait(self) -> None:
        """Return when all is made that was asked for."""


class TakeOver:
    """Which kernels serve.

    Attributes:
        is_making: Whether kernels are being compiled or loaded; `poll` then has to be called
            between updates.
        serves_plain: Whether plain kernels stand in for all that are not in memory.
    """

    def __init__(self) -> None:
        self.is_making = self.serves_plain = False
        self._ready: set[Kind] = set()
        self._lacking: set[Kind] = set()
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

    def is_ready(self, dtype: str, kinds: Iterable[str]) -> bool:
        """Whether compiled kernels of some kinds serve rows of a dtype.

        They do where nobody has asked for kernels: whoever calls one then waits for it.
        """
        return not self._lacking or self._lacking.isdisjoint((dtype, kind) for kind in kinds)

    def begin(
        self, dtype: str, kinds: Iterable[str], maker: Callable[[], Maker] | None = None
    ) -> None:
        """Have kernels made for the kinds of steps that a model has, if there are none.

        Args:
            dtype: The name of the dtype of its rows.
            kinds: Their kinds, see `warm`.
            maker: Makes kernels; by default a process of its own.
        """
        if _IS_OFF or dtype not in kept.DTYPES:
            return
        with self._lock:
            kinds = [k for k in kept.KINDS if k in kinds and (dtype, k) not in self._ready]
            missing = [k for k in kinds if not kept.is_complete(dtype, k)]
            self._ready |= {(dtype, k) for k in kinds if k not in missing}
            if self._waits:
                if missing:
                    self.make_here(dtype, missing)
                return
            self._stand_in()
            for kind in missing:
                if (dtype, kind) not in self._lacking:
                    self.serves_plain = True
                    self._lacking.add((dtype, kind))
                    self._ask((dtype, kind), maker or Process)

    def ask(self, dtype: str, kinds: Iterable[str]) -> None:
        """The same, if that has begun; where it has not, as on ranks, all wait for a compiler."""
        if self._stands_in or self._waits:
            self.begin(dtype, kinds)

    def _stand_in(self) -> None:
        """From here on nobody waits for a kernel that has a plain one."""
        if not self._stands_in:
            self._stands_in = True
            for kernel, plain in plain_kernels().items():
                entry = entry_of(kernel)
                entry._compile_for_args = partial(self._code_for, entry, plain)

    def _stand_back(self) -> None:
        """From here on Numba loads or compiles what is called."""
        self._stands_in = self.serves_plain = False
        for kernel in plain_kernels():
            entry_of(kernel).__dict__.pop("_compile_for_args", None)

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
            if job not in self._failed and (self._maker is None or job not in self._maker.asked):
                self._ask(job, Process)
        return plain

    def _ask(self, what: Kind | Job, maker: Callable[[], Maker]) -> None:
        """Have something made."""
        if self._maker is None:
            self._maker, self.is_making = maker(), True
            if self.serves_plain:
                _say(
                    "plain torch kernels serve until the compiled ones are made beside (some "
                    "seconds for each kind of step, once on a machine)"
                )
        if not self._maker.ask(what):
            ended, self._maker = self._maker, maker()
            self._maker.made += ended.made
            self._maker.ask(what)

    def poll(self) -> None:
        """Let compiled kernels take over that are there. Not in the middle of an update."""
        with self._lock:
            maker = self._maker
            if maker is None:
                return
            maker.poll()
            served_small = not self._lacks(kept.SMALL)
            while maker.made:
                what, code = maker.made.pop(0)
                for kernel, loaded in code:
                    put(kernel, loaded)
                if len(what) == 2:
                    self._ready.add(what)
                    self._lacking.discard(what)
                elif not _is_there(what):
                    self._failed.add(what)
            if not served_small and not self._lacks(kept.SMALL):
                _say(
                    f"compiled kernels took over after {time.perf_counter() - maker.began:.0f} s "
                    f"({maker.processor:.0f} s of processor); small updates run at full speed"
                )
            if maker.failed or not maker.asked:
                self._failed |= {what for what in maker.asked if len(what) == 3}
                self._maker, self.is_making = None, False
                self.serves_plain = bool(self._lacking)

    def _lacks(self, kinds: Iterable[str]) -> bool:
        return any(kind in kinds for _, kind in self._lacking)

    def wait(self) -> None:
        """From here on this process waits for a compiler where it has to."""
        if _IS_OFF:
            return
        with self._lock:
            self._waits = True
            self._stand_back()

    def make_here(self, dtype: str, kinds: Iterable[str] = kept.KINDS) -> None:
        """Load or compile all kernels of some kinds for a dtype, and wait for that."""
        with self._lock:
            while self._maker is not None:
                self._maker.wait()
                self.poll()
            stood_in = self._stands_in
            self._stand_back()
            warm.warm_up(dtype, kinds)
            self._ready |= {(dtype, kind) for kind in kinds}
            self._lacking -= self._ready
            if stood_in:
                self._stand_in()


class Process(Maker):
    """A process that compiles, and a thread that loads what it has compiled."""

    def __init__(self) -> None:
        super().__init__()
        env = {**os.environ, "NUMBA_CACHE_DIR": str(kept.root().parent)}
        path = os.pathsep.join(p for p in sys.path if p)
        self._process: Any = subprocess.Popen(
            [sys.executable, "-c", _CHILD, path, str(kept.PACKAGE)],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        self._lock = threading.Lock()
        self._sent: list[Kind | Job] = []
        self._loaded: list[tuple[Kind | Job, list[tuple[Any, Any]]]] = []
        self._known: set[tuple[Any, Any]] = set()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def ask(self, what: Kind | Job) -> bool:
        """Have something made behind what was asked for before."""
        line = " ".join(what) if len(what) == 2 else f"jobs {dumps([what]).hex()}"  # type: ignore[no-untyped-call]
        with self._lock, contextlib.suppress(OSError, ValueError):  # it has ended
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
            self._sent.append(what)
            return super().ask(what)
        return False

    def _read(self) -> None:
        """Follow what the process says, and end it when it has made all that was asked for."""
        with self._process:
            for done, line in enumerate(self._process.stdout, 1):
                self.processor = float(line.split()[-1])
                loading = threading.Thread(
                    target=self._load, args=(self._sent[done - 1],), name="pyg_incremental-kernels"
                )  # a program that ends waits for it: code is not to be loaded while that goes
                loading.start()
                loading.join()
                with self._lock:
                    if done == len(self._sent):
                        self._process.stdin.close()

    def _load(self, what: Kind | Job) -> None:
        dtypes, jobs = ([what[0]], []) if len(what) == 2 else ([], [what])
        self._loaded.append((what, load_all(dtypes, jobs, self._known)))

    def poll(self) -> None:
        """See what has come about. Does not wait."""
        is_over = not self._reading.is_alive()
        while self._loaded:
            self.made.append(self._loaded.pop(0))
            self.asked.pop(0)
        if is_over and self.asked:
            self.failed = True
            _say(
                "compiling kernels failed, so plain torch kernels go on serving; "
                "`pyg-incremental warm-up` shows why"
            )

    def wait(self) -> None:
        """Return when all is made that was asked for."""
        self._reading.join()


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

    Compiled code is kept on disk in a folder of the user, or in the one that `NUMBA_CACHE_DIR`
    names, so only the first process on a machine compiles. `pyg-incremental warm-up` does the same
    from the command line, and `pyg-incremental cache --clear` takes it back.

    Args:
        *dtypes: For rows of which dtypes: `'float32'`, `'float64'`; both by default.

    Returns:
        Seconds spent.
    """
    began = time.perf_counter()
    if not _IS_OFF:
        for dtype in dtypes or kept.DTYPES:
            KERNELS.make_here(dtype)
    return time.perf_counter() - began
