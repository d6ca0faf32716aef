"""Events from a file with a line of JSON for each."""

import json
import os
import time
from typing import Any

from pyg_incremental.sources.log import AT_ONCE, Decode, LogSource

_raw_decode = json.JSONDecoder().raw_decode


def json_value(line: bytes) -> Any:
    """What a line of JSON says, as `json.loads`, which takes twice as long for short ones.

    Raises:
        ValueError: If it is none.
    """
    try:
        text = line.decode().strip(" \t\r\n")
        value, end = _raw_decode(text)
    except ValueError:
        return json.loads(line)  # another encoding; or it says what is wrong
    return value if end == len(text) else json.loads(line)


class JsonLinesSource(LogSource):
    """Reads a file that others may still append to; its position is a number of bytes.

    Args:
        path: The file.
        follow: Whether more may come: a last line without its end is then still being written, and
            is given when it is whole. Else the file ends where it ends.
        start: The position to begin at.
        wait: Seconds to wait for more where there is nothing, if `follow`.
        decode: What a line says; by default as `json.loads`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        follow: bool = False,
        start: int = 0,
        wait: float = 0.01,
        decode: Decode = json_value,
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
