"""Threads that share a model take turns; a process that was forked from them begins anew."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from pyg_incremental.errors import IncrementalError
from pyg_incremental.kernels.locks import anew_in_child, paused_by_fork

T = TypeVar("T")


class ReadWriteLock:
    """Who may look at a state, and who may change it.

    Whoever changes it passes `gate` and holds `lock`; whoever looks at it holds both. So a reader
    that waits goes before the next change, however fast these follow each other, and sees no half
    of one.

    A thread can come back to a state in the midst of a change of its own: from the model's forward,
    a hook in it, or a signal handler. It is refused, as it would find half a change.

    Attributes:
        gate: Held by a reader that reads or is the next to.
        is_awaited: Whether somebody holds the gate, for whoever would not take it for nothing.
        lock: Held by whoever reads or writes; a reader may take it again.
        model: Held while the model itself runs, which its caches allow once at a time; taken before
            the other two.
        change: What whoever holds the lock changes, in the words of a message; empty if they read.
            Set by whoever takes the lock first; what it says while nobody does counts for nothing.
    """

    def __init__(self) -> None:
        self.change = ""
        self.begin_anew()
        anew_in_child(self)
        paused_by_fork(self)

    def begin_anew(self) -> None:
        """Nobody holds anything.

        What one of the threads that are no more has left half done is noticed as after any other
        interrupt.
        """
        self.gate = threading.RLock()
        self.is_awaited = False
        self.lock = threading.RLock()
        self.model = threading.RLock()

    def pause(self, until: float) -> bool:
        """Wait until nobody but this thread reads, changes or runs anything, and keep it so.

        Args:
            until: How long to wait at most, a moment of `time.monotonic`.

        Returns:
            Whether it is so; if not, nothing has to be resumed.
        """
        taken: list[threading.RLock] = []
        for lock in (self.model, self.gate, self.lock):
            self.is_awaited |= lock is self.lock
            if not lock.acquire(timeout=max(0.0, until - time.monotonic())):
                for other in reversed(taken):
                    other.release()
                return False
            taken.append(lock)
        return True

    def resume(self) -> None:
        """Let others go on after `pause`."""
        self.lock.release()
        self.is_awaited = False
        self.gate.release()
        self.model.release()

    @property
    def is_mine(self) -> bool:
        """Whether this thread reads or changes the state already."""
        return bool(self.lock._is_owned())  # type: ignore[attr-defined]

    @property
    def under_way(self) -> str:
        """Which change this thread is in the midst of, in the words of a message; empty if none."""
        return self.change if self.is_mine else ""

    def read(self, look: Callable[[], T]) -> T:
        """What `look` returns, with no change going on.

        Raises:
            IncrementalError: If this very thread is in the midst of a change.
        """
        if self.is_mine:
            if self.change:
                raise self.refused("a reader")
            return look()
        return self.ahead(look)

    def let_a_reader_go_first(self) -> None:
        """Return when a reader that waits has had its turn."""
        with self.gate:
            pass

    def refused(self, what: str) -> IncrementalError:
        """The error of whoever comes back in the midst of their own change or look."""
        return IncrementalError(
            f"{what} was called while {self.change or 'a look at what is stored'} is going on in "
            "this very thread: from inside the model's forward, a hook, or a signal handler. It is "
            "not through, so there is no whole state to work on. Call it afterwards, or from "
            "another thread"
        )

    # The locks are taken by `with` around the call that needs them, and never by a generator or an
    # `__enter__` in Python: where Ctrl-C ends one of those, a lock stays taken as long as somebody
    # keeps the traceback, as notebooks do.

    def alone(self, change: str, work: Callable[[], T]) -> T:
        """What `work` returns, which makes everything anew.

        Nobody reads, updates, or runs the model beside it, which can write to what is stored
        whatever mode PyTorch is in.

        Args:
            change: What is done, in the words of a message.
            work: Does it.

        Raises:
            IncrementalError: If this thread is in the midst of a change, or of a look.
        """
        if self.is_mine:
            raise self.refused(change)

        def done() -> T:
            with torch.inference_mode(mode=False), torch.no_grad():
                return work()

        with self.model:
            return self.ahead(done, change)

    def ahead(self, work: Callable[[], T], change: str = "") -> T:
        """What `work` returns, before the next change, however soon that would begin.

        Args:
            work: Reads or changes the state.
            change: What it changes, in the words of a message.
        """
        with self.gate:
            self.is_awaited = True
            with self.lock:
                self.change = change
                done = work()
            self.is_awaited = False  # after an error it says so for nothing, until the next time
            return done
