"""Values through a pipe, where nobody waits for longer than they may."""

from __future__ import annotations

import contextlib
import math
import os
import select
import struct
import time
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from pyg_incremental.encoding.framing import Bytes, packed, unpacked

_HEAD = struct.Struct("<q")
_AT_ONCE = 1 << 20
"""Bytes that are asked for at a time."""


class Channel:
    """One end of a pipe for questions and answers; the other end has one, too.

    A pipe takes some hundred kilobytes. What is larger goes in pieces, and both directions move at
    a time: two ends that only send would wait for each other. A value that is half sent or half
    received when time runs out goes on with the next call.

    Args:
        pipe: The end of a pipe, which nobody else uses.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        os.set_blocking(pipe.fileno(), False)
        self._out: deque[memoryview] = deque()
        self._is_begun = False  # whether a part of the first one has left
        self._in = bytearray()
        self._came: deque[Any] = deque()
        self._owed = 0  # values that were begun to be sent, and are not answered
        self._moved = time.monotonic()

    def put(self, value: Any) -> None:
        """Have a value sent by the calls of `take` that follow.

        Those that wait from before are forgotten if nothing of them has left yet.
        """
        while len(self._out) > int(self._is_begun):
            self._out.pop()
        if not self._owed:
            self._moved = time.monotonic()
        data = packed(value, _room)
        self._out.append(memoryview(_HEAD.pack(data.size) + data.tobytes()))

    def send(self, value: Any) -> None:
        """Send a value, however long it takes.

        Raises:
            OSError: If nobody is at the other end.
        """
        self.put(value)
        while self._out:
            self._move(None)

    def take(self, until: float = math.inf, silence: float = math.inf) -> Any:
        """The next value that comes; None if it does not come in time.

        Args:
            until: When to give up (of `time.monotonic`).
            silence: Seconds in which something has to come from the other end, or go into it.

        Raises:
            EOFError: If nobody is at the other end.
            OSError: Likewise.
        """
        while not self._came:
            limit = min(until, self._moved + silence)
            if not self._move(None if limit == math.inf else limit):
                return None
            if time.monotonic() > until and not self._came:
                return None
        return self._came.popleft()

    def close(self) -> None:
        """Let go of the pipe."""
        self._pipe.close()

    def _move(self, until: float | None) -> bool:
        """Wait until bytes can come or go, and let them; whether there was time for that."""
        handle = self._pipe.fileno()
        ready = select.poll()
        ready.register(handle, select.POLLIN | (select.POLLOUT if self._out else 0))
        left = None if until is None else max(0, math.ceil(1e3 * (until - time.monotonic())))
        found = ready.poll(left)
        if not found:
            return False
        events = found[0][1]
        with contextlib.suppress(BlockingIOError):
            if events & select.POLLOUT:
                self._push(handle)
        with contextlib.suppress(BlockingIOError):
            if events & ~select.POLLOUT:
                self._pull(handle)
        return True

    def _push(self, handle: int) -> None:
        sent = os.write(handle, self._out[0])
        if self._is_begun:  # the other end has taken some in: the pipe was full
            self._moved = time.monotonic()
        self._owed += not self._is_begun
        self._out[0] = self._out[0][sent:]
        self._is_begun = len(self._out[0]) > 0
        if not self._is_begun:
            self._out.popleft()

    def _pull(self, handle: int) -> None:
        some = os.read(handle, _AT_ONCE)
        if not some:
            raise EOFError
        self._moved = time.monotonic()
        self._in += some
        while len(self._in) >= _HEAD.size:
            end = _HEAD.size + _HEAD.unpack_from(self._in)[0]
            if len(self._in) < end:
                break
            self._came.append(unpacked(np.frombuffer(self._in[_HEAD.size : end], np.uint8)))
            self._owed = max(0, self._owed - 1)
            self._in = self._in[end:]


def _room(size: int) -> Bytes:
    return np.empty(size, np.uint8)
