"""Files that are written whole or not at all, and that are on the disk when they are there.

A file is written beside its place, under a name that ends in `.part`, is flushed to the disk, and
then takes its place in one step, which is flushed as well. Whoever dies on the way leaves the part,
on which nobody holds a lock any more; the next one who writes the same file removes it.
"""

import contextlib
import errno
import hashlib
import importlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

fcntl: Any
try:
    fcntl = importlib.import_module("fcntl")
except ImportError:  # Windows, which refuses to remove a file that somebody holds open
    fcntl = None

_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"), (stat.S_ISBLK, "a block device"),
)  # fmt: skip
ASIDE = ".next"
"""How a file is called that another process writes, and that is to take the place of one."""
_PIECE = 1 << 22
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends well.

    The mode of a file that was there is kept, and a new one has the usual mode; where `path` is a
    symbolic link, the file that it leads to is replaced, and the link stays.

    Raises:
        OSError: If it cannot be written, or is there and no regular file: another one in the place
            of a pipe, a device or a socket would cut off those who use it. What was there is as it
            was then.
    """
    target = Path(os.path.realpath(path))
    what = why_no_file(target)
    if what:
        raise OSError(f"'{path}' is {what}, which is not replaced; name a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"'{path}' cannot be written: there is no folder '{target.parent}'; make it first"
        )
    _remove_left_over(target)
    part, handle = _begun(target)
    try:
        with os.fdopen(handle, "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(part, stat.S_IMODE(os.stat(target).st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # elsewhere an open file cannot be moved
                os.replace(part, target)
        if fcntl is None:
            os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    sync_folder(target.parent)


def taken_in(
    aside: str | os.PathLike[str], path: str | os.PathLike[str], written: Callable[[], None]
) -> None:
    """Wait for a whole file, and put it into the place of another one.

    Raises:
        OSError: If it cannot be. What was there is as it was then.
    """
    try:
        written()
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
    sync_folder(Path(path).parent)


def remove_asides(path: str | os.PathLike[str]) -> None:
    """Remove what was written to take the place of a file, where nobody is left to put it there."""
    name = re.compile(re.escape(Path(path).name) + r"\.[0-9a-f]{16}" + re.escape(ASIDE))
    for entry in os.scandir(Path(path).parent):
        if name.match(entry.name):
            remove_if_left_over(entry.path)


def why_no_file(path: str | os.PathLike[str]) -> str:
    """What a path leads to if it is there and no regular file, in words; else an empty string."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # whoever opens it will say why
        return ""
    if stat.S_ISREG(mode):
        return ""
    return next((what for is_it, what in _KINDS if is_it(mode)), "no regular file")


def _begun(target: Path) -> tuple[Path, int]:
    """A new file beside another one, locked, and its handle."""
    while True:
        part = target.with_name(f"{target.name}.{secrets.token_hex(8)}.part")
        handle = os.open(part, _NEW, 0o666)
        try:
            _lock(handle)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(part)):
                    return part, handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # it was taken for a left over one before it was locked


def _lock(handle: int) -> bool:
    """Lock a file for as long as it is open; returns whether nobody else has."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: nothing is known of other writers
        return False
    return True


def _remove_left_over(target: Path) -> None:
    """Remove parts of a file whose writers are no more."""
    name = re.compile(re.escape(target.name) + r"\.[0-9a-f]{16}\.part")
    with contextlib.suppress(OSError):
        for entry in os.scandir(target.parent):
            if name.fullmatch(entry.name):
                remove_if_left_over(entry.path)


def remove_if_left_over(part: str | os.PathLike[str]) -> None:
    """Remove a part, unless somebody is still writing to it."""
    with contextlib.suppress(OSError):
        handle = os.open(part, os.O_RDONLY)
        try:
            if _lock(handle):
                os.unlink(part)
        finally:
            os.close(handle)


def sync_file(path: str | os.PathLike[str]) -> str:
    """See that what was written to a file is on the disk; returns its checksum."""
    with open(path, "r+b") as file:
        os.fsync(file.fileno())
    return checksum(path)


def checksum(path: str | os.PathLike[str]) -> str:
    """SHA-256 over all bytes of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def checksum_of(content: Mapping[str, Any]) -> str:
    """SHA-256 over plain values by name."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class LockedFile:
    """A file that is locked for as long as this is held, by one process of all that ask for it.

    The system lets go of it when the process ends, however that ends.

    Args:
        path: The file; it is made if it is not there.

    Attributes:
        is_ours: Whether nobody else holds it; also where the file system has no locks.

    Raises:
        OSError: If the file cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        while True:
            file = os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR, 0o666), "r+b")
            self.is_ours = _may_be_locked(file.fileno())
            with contextlib.suppress(FileNotFoundError):
                if not self.is_ours or os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    break
            file.close()  # who had it has removed it before it was locked
        self._file: BinaryIO | None = file
        if not self.is_ours:
            file.close()

    def release(self) -> None:
        """Let others have it; the file goes."""
        if self._file is None or self._file.closed:
            return
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        self._file.close()

    def leave(self) -> None:
        """Hold it no longer, in a process that was forked: the other one holds it as before."""
        if self._file is not None:
            self._file.close()


def _may_be_locked(handle: int) -> bool:
    """Lock a file, where that can be done; returns whether nobody else has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """See that what was made, moved or removed in a folder is so on the disk."""
    if fcntl is None:  # no folder can be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
