"""A folder with the state of a stream: a checkpoint, and the updates since then."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyg_incremental.encoding.whole_file import LockedFile, remove_asides
from pyg_incremental.errors import IncrementalError
from pyg_incremental.model import IncrementalModel
from pyg_incremental.sources.sqlite import Durability
from pyg_incremental.stream.journal import Entry, UpdateLog, entries_after

STATE = "state"


class Folder:
    """Where a stream keeps what it needs to go on after a crash; one process has it at a time.

    Model state and position of the source are one file, which takes the place of the one before in
    one step: whoever is killed leaves one or the other.

    Args:
        path: The folder; it is made if it is not there.
        durability: What the keys of alerts survive: `'process'`, its end by `kill -9`, or
            `'power'`, a loss of power, for an fsync with each update. A checkpoint survives both.

    Raises:
        IncrementalError: If another stream has it.
        OSError: If it cannot be written.
    """

    def __init__(self, path: Path, durability: Durability) -> None:
        if durability not in ("process", "power"):
            raise ValueError(f"durability: expected 'process' or 'power' (got {durability!r})")
        path.mkdir(parents=True, exist_ok=True)
        self._path, self._is_synced = path, durability == "power"
        self._lock = LockedFile(path / "lock")
        if not self._lock.is_ours:
            raise IncrementalError(
                f"'{path}' belongs to a stream that runs; stop that one, or give this one a folder "
                "of its own"
            )
        remove_asides(path / STATE)
        self._journal: UpdateLog | None = None
        self._writer: threading.Thread | None = None
        self._failed: Exception | None = None

    @property
    def has_state(self) -> bool:
        """Whether there is a checkpoint."""
        return (self._path / STATE).exists()

    def restore(self, inc: IncrementalModel) -> list[Entry]:
        """Take up the checkpoint; returns the updates since then, which are to be done again.

        Raises:
            StateFileError: If it is damaged, or belongs to another model.
        """
        inc.restore(self._path / STATE)
        self._journal = UpdateLog(self._path, inc.version, self._is_synced)
        return entries_after(self._path, inc.version)

    def note(self, entry: Entry) -> None:
        """An update is in, and nobody has heard of it yet; an error is raised by what follows."""
        if self._journal is not None:
            try:
                self._journal.note(entry)
            except OSError as error:
                self._failed = error

    def write(self, inc: IncrementalModel, extra: Callable[[], Any], wait: bool) -> None:
        """Write a checkpoint; updates wait for a fork, or where that cannot be, for a copy.

        Args:
            inc: The model.
            extra: Makes what else belongs to it.
            wait: Whether to return when it is on the disk; else it is written in the background.

        Raises:
            OSError: If it cannot be written; the one before counts then.
        """
        self.settle()
        path, version = self._path / STATE, inc.version
        write = None if wait else inc.saved_aside(path, lambda: self._of_child(extra))
        if write is None:
            write = partial(inc.copied(extra=extra()), path)
        if self._journal is None:
            self._journal = UpdateLog(self._path, version, self._is_synced)
        else:
            self._journal.begin(version)
        if wait:
            self._write(write, version)
            return
        self._writer = threading.Thread(target=self._in_background, args=(write, version))
        self._writer.start()

    def _of_child(self, extra: Callable[[], Any]) -> Any:
        """What belongs to a checkpoint that a child writes, who must not hold the folder.

        Else nobody had it as long as the child is at work, if this process is killed.
        """
        self._lock.leave()
        return extra()

    def _write(self, write: Callable[[], None], version: int) -> None:
        write()
        if self._journal is not None:
            self._journal.forget(version)

    def _in_background(self, write: Callable[[], None], version: int) -> None:
        try:
            self._write(write, version)
        except Exception as error:  # it is raised where somebody can do something about it
            self._failed = error

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written in the background."""
        return self._writer is not None and self._writer.is_alive()

    def settle(self) -> None:
        """Wait for a checkpoint that is being written.

        Raises:
            OSError: If it could not be.
        """
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        self.raise_what_failed()

    def raise_what_failed(self) -> None:
        """Raise what has happened to a checkpoint in the background or to the journal, once.

        Raises:
            OSError: If it could not be written.
        """
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Let others have the folder."""
        try:
            self.settle()
        finally:
            if self._journal is not None:
                self._journal.close()
            self._lock.release()
