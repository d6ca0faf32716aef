"""Which events went into which version since the last checkpoint, so that a restart does the same.

One line of JSON for each update, appended when it is in and before anybody hears of it. After a
crash the events are taken in the same groups, so versions, and with them the keys of alerts, are
those of before. Nothing depends on it but that: the state is the checkpoint, and what the source
gives from there.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyg_incremental.stream.line_file import LineFile

NAME = "updates-{}.jsonl"


class Entry(NamedTuple):
    """One update.

    Attributes:
        version: The version that it led to.
        position: The position of the source behind its last event.
        refused: The positions of events that were left out on the way, each with the reason.
        parts: Positions on the way behind events that led to no update and were taken by
            themselves.
        time: Where time has come to without an event; None for an update of events, or of a window
            that moved with them.
    """

    version: int
    position: Any
    refused: Sequence[Any]
    parts: Sequence[Any] = ()
    time: float | None = None

    def until(self, position: Any) -> Any:
        """Where the events end that were taken together from a position on."""
        parts = [*self.parts]
        left = parts[parts.index(position) + 1 :] if position in parts else parts
        return left[0] if left else self.position

    def known(self, positions: Sequence[Any]) -> dict[int, str]:
        """Why some of its events were left out, by their places among the given positions."""
        if not self.refused:
            return {}
        reasons = {repr(position): reason for position, reason in self.refused}
        at = {n: reasons.get(repr(position)) for n, position in enumerate(positions)}
        return {n: reason for n, reason in at.items() if reason is not None}


class UpdateLog:
    """The updates since a checkpoint.

    Args:
        folder: Where the files are.
        version: The version of the checkpoint.
        is_synced: Whether each entry is on the disk before anybody hears of the update, so that it
            survives a loss of power; else it survives the end of the process.

    Raises:
        OSError: If it cannot be written.
    """

    def __init__(self, folder: Path, version: int, is_synced: bool) -> None:
        self._folder, self._is_synced = folder, is_synced
        self._file = LineFile(folder / NAME.format(version))

    def note(self, entry: Entry) -> None:
        """Append an entry."""
        self._file.write(json.dumps(entry).encode())
        if self._is_synced:
            self._file.flush()

    def begin(self, version: int) -> None:
        """Go on in a new file, for what comes after a version."""
        self._file.close()
        self._file = LineFile(self._folder / NAME.format(version))

    def forget(self, version: int) -> None:
        """Remove the files of what came before a version, of which there is a checkpoint."""
        for began, file in _files(self._folder):
            if began < version:
                file.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def entries_after(folder: Path, version: int) -> list[Entry]:
    """The updates after a version, one after the other, as far as they were noted.

    A line that was torn is left out, and so is what stands behind it.
    """
    found: dict[int, Entry] = {}
    for _, file in _files(folder):
        for line in file.read_bytes().splitlines(keepends=True):
            try:
                entry = Entry(*json.loads(line))
            except (ValueError, TypeError):
                break
            if not line.endswith(b"\n"):
                break
            found[entry.version] = entry
    in_order = []
    while version + 1 in found:
        version += 1
        in_order.append(found[version])
    return in_order


def _files(folder: Path) -> Iterator[tuple[int, Path]]:
    """The files in the order in which they were begun, each with its version."""
    named = ((f.name.removeprefix("updates-").removesuffix(".jsonl"), f)
             for f in folder.glob(NAME.format("*")))  # fmt: skip
    return iter(sorted((int(version), f) for version, f in named if version.isdigit()))
