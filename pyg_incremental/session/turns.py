"""Threads that share a model take turns; a process that was forked from them begins anew."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar
from weakref import WeakSet

T = TypeVar("T")


class Turns:
    """Who may look at a state, and who may change it.

    Whoever changes it passes `gate` and holds `lock`; whoever looks at it holds both. So a reader
    that waits goes before the next change, however fast these follow each other, and sees no half
    of one.

    Attributes:
        gate: Held by a reader that reads or is the next to.
        is_awaited: Whether somebody holds the gate, for whoever would not take it for nothing.
        lock: Held by whoever reads or writes; a thread may take it again.
        model: Held while the model itself runs, which its caches allow once at a time; taken before
            the other two.
    """

    def __init__(self) -> None:
        self.begin_anew()
        _every.add(self)

    def begin_anew(self) -> None:
        """Nobody holds anything."""
        self.gate = threading.RLock()
        self.is_awaited = False
        self.lock = threading.RLock()
        self.model = threading.RLock()

    def read(self, look: Callable[[], T]) -> T:
        """What `look` returns, with no change going on."""
        # A thread that is changing the state looks at it as it is: readers wait for this thread.
        if self.lock._is_owned():  # type: ignore[attr-defined]
            return look()
        with self.ahead():
            return look()

    @contextlib.contextmanager
    def ahead(self) -> Iterator[None]:
        """Hold gate and lock: before the next change, however soon that would begin."""
        with self.gate:
            self.is_awaited = True
            try:
                with self.lock:
                    yield
            finally:
                self.is_awaited = False


_every: "WeakSet[Turns]" = WeakSet()


def _after_fork() -> None:
    """Threads do not survive a fork, and what they held nobody would give back.

    What one of them has left half done is noticed as after any other interrupt.
    """
    for turns in list(_every):
        turns.begin_anew()


if hasattr(os, "register_at_fork"):  # not everywhere
    os.register_at_fork(after_in_child=_after_fork)
