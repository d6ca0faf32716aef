"""Ctrl-C waits until the ranks have said what they were saying."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class HeldBack:
    """Holds back the first Ctrl-C for as long as a block runs; a second one goes through.

    Only the main thread gets signals, so elsewhere there is nothing to do. A block within a block
    does nothing. What was held back is raised at the end of the block, unless an error ends it.
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._came = False
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth > 1 or threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(signal.SIGINT)
        if callable(before):
            self._came, self._before = False, before
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            self._before(number, frame)
        self._came = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth or self._before is None:
            return
        before, self._before = self._before, None
        signal.signal(signal.SIGINT, before)
        if self._came and error is None:
            before(signal.SIGINT, None)
