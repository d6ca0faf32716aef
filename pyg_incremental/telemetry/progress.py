"""Bars for what takes long."""

import os
import sys
import threading
from typing import Any

PATIENCE = 1.0
"""Seconds that a first pass may take before it shows a bar."""


class _NoBar:
    """What is called as a bar is, and shows nothing."""

    initial = 0

    def __enter__(self) -> "_NoBar":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, _: float = 1) -> None:
        """Take notice of what was done."""

    def reset(self, _: float | None = None) -> None:
        """Begin anew, with so much to do."""


def shown(progress: bool, **options: Any) -> Any:
    """A bar on a terminal, and none elsewhere; see `tqdm`.

    Where there is none `tqdm` is not called at all: it takes a lock of the process, and one that is
    shared with other processes, to make a bar that it never shows.

    Args:
        progress: Whether there is to be one.
        **options: Of `tqdm`.
    """
    if not progress or not hasattr(sys.stderr, "isatty") or not sys.stderr.isatty():
        return _NoBar()
    from tqdm import tqdm  # torch_geometric brings it

    if not _shown:
        _shown.append(tqdm)
    return tqdm(disable=False, **options)


_shown: list[Any] = []
"""The class of bars, once there was one."""


def _lock_anew() -> None:
    """A thread that does not go on in a child may have held the lock of bars."""
    for bars in _shown:
        bars.set_lock(threading.RLock())


if hasattr(os, "register_at_fork"):  # not everywhere
    os.register_at_fork(after_in_child=_lock_anew)
