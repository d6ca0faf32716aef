"""Where compiled kernels are kept, and whether all of them are there."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numba
from numba import config
from numba.core.registry import cpu_target

from pyg_incremental.errors import IncrementalWarning

PACKAGE = Path(__file__).parents[1]
_OWN, _TEMPORARY = "pyg_incremental", "pyg_incremental-until-exit-"
_ENDINGS = (".nbi", ".nbc", ".complete", ".lock")
DTYPES = ("float32", "float64")
"""Of which there are compiled kernels."""
SMALL = (
    "loop", "sum", "softmax", "extremum", "edge_map", "function", "wide_map", "wide_sum",
)  # fmt: skip
"""Kinds of what small updates call, and what comes first; `loop` is what all of them do."""
LARGE = ("large_sum", "graph", "rows", "sums", "softmaxes", "extrema", "threads")
"""Kinds of what larger ones do."""
KINDS = SMALL + LARGE
AROUND = ("kept.py", "loading.py", "takeover.py", "warm.py")
"""Files beside the kernels that are no part of any."""


def sources(file: str | Path = __file__) -> str:
    """SHA-256 over all that the kernels of a file may be made of.

    That are the files of this room, and for kernels of other rooms those of theirs.

    Args:
        file: The file; by default one of this room.
    """
    return _sources(_own_folder(Path(file)))


@cache
def _sources(own: Path | None) -> str:
    here = PACKAGE / "kernels"
    files = {*here.glob("**/*.py"), PACKAGE / "typing.py"}
    files -= {*here.glob("reference/*.py"), *(here / name for name in AROUND)}
    return _digest(sorted(files | {*own.glob("**/*.py")} if own else files))


def _own_folder(file: Path) -> Path | None:
    """The folder beside `kernels` that holds all a kernel of a file may be made of, if one does."""
    try:
        parts = file.resolve().relative_to(PACKAGE.resolve()).parts
    except ValueError:
        return None
    if parts[0] == "kernels":
        return None
    return PACKAGE.joinpath(*parts[:-1]) if parts[-2:-1] == ("kernels",) else PACKAGE / parts[0]


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.relative_to(PACKAGE).as_posix()}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


@cache
def _machine() -> str:
    """What compiled code depends on besides its sources, and which kernels are meant by all."""
    processor = cpu_target.target_context.codegen().magic_tuple()  # as in Numba's own index
    parts = [numba.__version__, sys.implementation.cache_tag, *processor]
    parts.append(_digest([PACKAGE / "kernels" / "warm.py"]))
    return hashlib.sha256(":".join(map(str, parts)).encode()).hexdigest()


@cache
def root() -> Path:
    """The folder in which kernels are kept, those of every version of the package.

    That is one in the folder which `NUMBA_CACHE_DIR` names; else one of the user; else a temporary
    one, about which a warning is given. It need not be written to if it has all kernels already, as
    in an image that was warmed up.
    """
    named: str = config.CACHE_DIR  # type: ignore[attr-defined]
    folder = Path(named or os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / _OWN
    if _can_be_written(folder) or any(_marker(folder, of, "loop").exists() for of in DTYPES):
        return folder
    return _temporary()


def _temporary() -> Path:
    warnings.warn(
        "compiled kernels cannot be kept: no folder for them can be written to, so every process "
        "compiles them anew (about a minute); name one with the environment variable "
        "NUMBA_CACHE_DIR",
        IncrementalWarning,
        stacklevel=2,
    )
    folder = tempfile.mkdtemp(prefix=_TEMPORARY)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder) / _OWN


def is_kept_for_others() -> bool:
    """Whether what is kept outlasts this process."""
    return not root().parent.name.startswith(_TEMPORARY)


def clear() -> int:
    """Delete all kernels that are kept, of every version of the package; how many bytes they took.

    A process that has them in memory goes on; the next one compiles.

    Raises:
        OSError: If they cannot be deleted.
    """
    size, files = num_bytes(), _files()
    for file in files:
        file.unlink(missing_ok=True)
    folders = sorted({folder for file in files for folder in file.parents}, reverse=True)
    for folder in [f for f in folders if f.is_relative_to(root())]:
        with contextlib.suppress(OSError):  # something else is in it
            folder.rmdir()
    return size


def num_bytes() -> int:
    """How many bytes are kept."""
    return sum(file.stat().st_size for file in _files())


def _files() -> list[Path]:
    """What is kept, and nothing else: the folder may be one that somebody has for more."""
    return [file for file in root().rglob("*") if file.suffix in _ENDINGS]


def _can_be_written(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _within(root: Path, file: Path) -> Path:
    """The folder for what a file defines."""
    try:
        return root.joinpath(*file.resolve().parent.relative_to(PACKAGE.resolve()).parts)
    except ValueError:
        return root / file.parent.name


def folder_of(file: str) -> Path:
    """The folder in which the kernels of a file are kept; it is there.

    Raises:
        OSError: If it cannot be made.
    """
    folder = _within(root(), Path(file))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# Whether all are there ----------------------------------------------------------------------------


def _marker(root: Path, dtype: str, kind: str) -> Path:
    """The file which says that all kernels of these sources, on such a machine, are kept."""
    name = f"{dtype}.{kind}.{sources()[:16]}.{_machine()[:16]}.complete"
    return _within(root, Path(__file__)) / name


def is_complete(dtype: str, *of: str) -> bool:
    """Whether all kernels of some kinds for a dtype are kept; of all kinds by default."""
    return all(_marker(root(), dtype, kind).exists() for kind in of or KINDS)


def is_now_complete(dtype: str, kind: str) -> None:
    """All kernels of a kind for a dtype are kept."""
    with contextlib.suppress(OSError):  # what cannot be written to has them already
        _marker(root(), dtype, kind).touch()


@contextlib.contextmanager
def alone(doing: str) -> Iterator[None]:
    """While no other process does the same in the same folder, where the system has locks of files.

    Args:
        doing: What it does: compiles the kernels of some kind, or saves one.
    """
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows: both compile, and each file is put at once
        yield
        return
    try:
        lock = (folder_of(__file__) / f"{doing}.lock").open("w")
    except OSError:  # an image that was warmed up
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
