"""Events from a file with a line of JSON for each."""

import json
import os
import time

from pyg_incremental.sources.log import AT_ONCE, Decode, LogSource


class JsonLinesSource(LogSource):
    """Reads a file that others may still append to; its position is a number of bytes.

    Args:
        path: The file.
        follow: Whether more may come: a last line without its end is then still being written, and
            is given when it is whole. Else the file ends where it ends.
        start: The position to begin at.
        wait: Seconds to wait for more where there is nothing, if `follow`.
        decode: What a line says.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        follow: bool = False,
        start: int = 0,
        wait: float = 0.01,
        decode: Decode = json.loads,
    ) -> None:
        super().__init__(start, decode)
        self._path, self._follow, self._wait = path, follow, wait

    def _records(self, after: int, wait: bool) -> list[tuple[int, bytes]]:
        found = self._behind(after)
        if not found and wait and self._follow:
            time.sleep(self._wait)
            found = self._behind(after)
        return found

    def _behind(self, after: int) -> list[tuple[int, bytes]]:
        found, place = [], after
        with open(self._path, "rb") as file:
            file.seek(after)
            for line in file:
                if self._follow and not line.endswith(b"\n"):
                    break
                place += len(line)
                if not line.isspace():
                    found.append((place, line))
                    if len(found) == AT_ONCE:
                        break
        return found
