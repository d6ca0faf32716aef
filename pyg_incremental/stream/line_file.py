"""A file that is appended to, line by line."""

import contextlib
import os

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)


class LineFile:
    """Appends lines that are with the system when `write` returns, so they survive a `kill -9`.

    What a crash has left of a line without its end is cut off when the file is opened.

    Args:
        path: The file; it is made if it is not there.

    Raises:
        OSError: If it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._handle = os.open(path, _FLAGS, 0o666)
        self._end = _whole_lines(self._handle)
        self._back()

    def write(self, line: bytes) -> None:
        """Append a line, given without its end: all of it or nothing.

        Raises:
            OSError: If it cannot be written.
        """
        data = line + b"\n"
        try:
            done = 0
            while done < len(data):  # a full disk takes a part of it first
                done += os.write(self._handle, data[done:])
        except BaseException:
            with contextlib.suppress(OSError):
                self._back()
            raise
        self._end += len(data)

    def _back(self) -> None:
        """Cut off what is behind the last line."""
        os.ftruncate(self._handle, self._end)
        os.lseek(self._handle, self._end, os.SEEK_SET)

    def flush(self) -> None:
        """Return when all lines are on the disk."""
        os.fsync(self._handle)

    def close(self) -> None:
        """Let go of the file."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()


def _whole_lines(handle: int) -> int:
    """Where the last whole line of a file ends."""
    end = os.lseek(handle, 0, os.SEEK_END)
    while end:
        first = max(0, end - 4096)
        os.lseek(handle, first, os.SEEK_SET)
        at = os.read(handle, end - first).rfind(b"\n")
        if at >= 0:
            return first + at + 1
        end = first
    return 0
