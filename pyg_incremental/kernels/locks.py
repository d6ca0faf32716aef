"""Locks of the whole process, and what becomes of locks when it forks.

Only the thread that forks goes on in the child. What another thread held there nobody would give
back, so a child would wait for ever. A lock that is held for a moment, and behind which things are
half done, is taken before a fork and given back on both sides. All others begin anew in the child.

PyTorch has locks of its own, one in each parameter among them, which are held while it computes. So
a fork waits for updates that are at work, for some seconds; see `paused_by_fork`.
"""

import os
import threading
import time
from typing import Any, Protocol
from weakref import WeakSet

from llvmlite.binding import ffi  # type: ignore[import-untyped]
from numba.core.compiler_lock import global_compiler_lock

from pyg_incremental.errors import IncrementalError


class OneTracer:
    """Lets one thread at a time run a tracer of PyTorch.

    `torch.fx` patches `nn.Module` for the whole process while it traces, and puts back what it
    found. If two threads trace at the same time, what one of them found is the patch of the other;
    that stays, and hands the modules of a later thread to a tracer that is long through.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def acquire(self) -> None:
        """Wait until nobody traces, unless it is this thread that does."""
        self._lock.acquire()

    def release(self) -> None:
        """Give it back."""
        self._lock.release()

    def __enter__(self) -> None:
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise IncrementalError(
                "a model is being traced in this very thread, from inside which no other trace can "
                "begin: a model's forward, or a hook in it, called a method that runs the model "
                "anew (a first call, refresh, load, evaluate); call it outside of forward"
            )
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Anew(Protocol):
    def begin_anew(self) -> None:
        """Nobody holds anything."""


class _Paused(Protocol):
    def pause(self, until: float) -> bool:
        """Let no work begin, and wait for what is at work; see `paused_by_fork`."""

    def resume(self) -> None:
        """Let work begin."""


PATIENCE = 5.0
"""Seconds for which a fork waits for the work of other threads."""
ONE_TRACER = OneTracer()
"""To be held by whoever runs a tracer, `make_fx` included."""
_anew: "WeakSet[Any]" = WeakSet()
_paused: "WeakSet[Any]" = WeakSet()
_forks = threading.local()


def anew_in_child(thing: _Anew) -> None:
    """Have `thing.begin_anew()` called in every child that is forked while it is there."""
    _anew.add(thing)


def paused_by_fork(thing: _Paused) -> None:
    """Have `thing.pause(until)` called before a fork, and `thing.resume()` after it in the parent.

    `until` is a moment of `time.monotonic`; `pause` returns whether all was still by then. What was
    not is left as it is, so that two that wait for each other do not wait for ever.
    """
    _paused.add(thing)


# Whoever traces may have something compiled, never the other way round. LLVM has a lock of its own,
# which also guards what is done outside of the compiler, such as letting go of code.
_HELD: tuple[Any, ...] = (ONE_TRACER, global_compiler_lock)
_LLVM: Any = getattr(ffi.lib, "_lock", None)


def _before_fork() -> None:
    until = time.monotonic() + PATIENCE
    _forks.still = [thing for thing in list(_paused) if thing.pause(until)]
    for lock in _HELD:
        lock.acquire()
    if _LLVM is not None:
        _LLVM.__enter__()


def _in_parent() -> None:
    _after_fork()
    for thing in _forks.still:
        thing.resume()
    _forks.still = []


def _after_fork() -> None:
    if _LLVM is not None:
        _LLVM.__exit__(None, None, None)
    for lock in reversed(_HELD):
        lock.release()


def _in_child() -> None:
    _after_fork()
    _forks.still = []
    for thing in list(_anew):
        thing.begin_anew()


if hasattr(os, "register_at_fork"):  # not everywhere
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
