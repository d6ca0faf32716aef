"""Where alerts and dead letters go: any callable that takes them one by one."""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from pyg_incremental.errors import IncrementalError
from pyg_incremental.stream.line_file import LineFile

Sink = Callable[[Any], Any]


class DeadLetter(NamedTuple):
    """An event that was left out.

    Attributes:
        position: Its position in the source; each event has its own, so it shows a repeat.
        value: What the source gave.
        reason: Why it was left out.
    """

    position: Any
    value: Any
    reason: str


class JsonLines:
    """Appends what it is called with to a file, an object of JSON on each line; see `LineFile`.

    Args:
        path: The file; it is made if it is not there.

    Raises:
        OSError: If it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = LineFile(path)
        self.flush, self.close = self._file.flush, self._file.close

    def __call__(self, record: Any) -> None:
        """Append one record, a named tuple."""
        self._file.write(line_of(record))


def line_of(record: Any) -> bytes:
    """A named tuple as an object of JSON on one line."""
    return json.dumps(record._asdict(), default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return repr(value)


class Deliveries:
    """Hands records to a sink; what it raises stops nothing and is counted.

    Args:
        sink: The sink.

    Attributes:
        given: How many records were handed over.
        failed: How many of them the sink raised for.
        error: What it raised last.
    """

    def __init__(self, sink: Sink) -> None:
        if not callable(sink):
            raise IncrementalError(
                f"Stream: expected something to call (got {type(sink).__name__}); pass a function, "
                "or a sink such as JsonLines('alerts.jsonl')"
            )
        self._sink = sink
        self.given = self.failed = 0
        self.error: Exception | None = None

    def give(self, records: Iterable[Any]) -> None:
        """Hand records over, one by one."""
        sink = self._sink
        for record in records:
            self.given += 1
            try:
                sink(record)
            except Exception as error:  # a sink is anybody's
                self.failed, self.error = self.failed + 1, error

    def flush(self) -> None:
        """See that what was handed over is kept, where the sink knows how (`flush`).

        Raises:
            Exception: Whatever the sink raises: a checkpoint must not be written then.
        """
        flush = getattr(self._sink, "flush", None)
        if flush is not None:
            flush()
