"""Work that a forked process does, on what there was at the moment of the fork.

The system copies a page of memory when one of the two processes writes to it, so the work sees one
state, and this process goes on with its own (as Redis saves: redis.io/docs/management/persistence).
The child has one thread, and runs plain code: no threads of Numba, of OpenMP or of PyTorch.
"""

import contextlib
import errno
import gc
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

CAN_FORK = sys.platform == "linux"
"""Elsewhere there is no fork, or libraries of the system do not survive one."""
_GIVES_WAY = 5
_DIED = "the process that wrote it ended before it was through"


def forked(work: Callable[[], Any]) -> Callable[[], None]:
    """Have a child do some work.

    Args:
        work: What it does; nothing of what it changes in memory is seen here.

    Returns:
        What waits for it, to be called once, and raises `OSError` if the work has raised or the
        child died.

    Raises:
        OSError: If there is no memory or no process for a child.
    """
    reads, writes = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python warns of locks that other threads may hold; see `kernels.locks`.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
    except BaseException:
        os.close(reads)
        os.close(writes)
        raise
    if not process:
        _in_child(work, writes)
    os.close(writes)

    def wait() -> None:
        try:
            with contextlib.suppress(ChildProcessError):  # somebody else has seen its end
                os.waitpid(process, 0)
            os.set_blocking(reads, False)
            try:
                said = os.read(reads, 1 << 16)
            except BlockingIOError:
                said = b""
        finally:
            os.close(reads)
        code, message = json.loads(said) if said.endswith(b"]") else (errno.EIO, _DIED)
        if message:
            raise OSError(code, message)

    return wait


def _in_child(work: Callable[[], Any], writes: int) -> None:
    """Do the work, say what came of it, and end."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
        gc.disable()  # it would write to all objects
        torch.set_num_threads(1)
        os.nice(_GIVES_WAY)
        try:
            work()
            said: tuple[int, str] = 0, ""
        except OSError as error:
            said = error.errno or errno.EIO, error.strerror or str(error)
        except BaseException as error:
            said = errno.EIO, f"{type(error).__name__}: {error}"
        os.write(writes, json.dumps((said[0], said[1][:1000])).encode())
    finally:
        os._exit(0)
