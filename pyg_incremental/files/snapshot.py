"""Saving the state of a model's rows, and reading it back without executing code from the file.

A file holds

    8 bytes    "PYGINCR" and the format
    8 bytes    how many bytes the text has, int64
    8 bytes    how many bytes the arrays have, int64
    text       what the file holds (see `pyg_incremental.encoding.framing`)
    arrays
    32 bytes   SHA-256 of all that stands before

so every byte of it counts, and one that is cut off or damaged anywhere is refused.
"""

import hashlib
import os
import struct
from typing import Any, BinaryIO

import numpy as np
from torch import Tensor

from pyg_incremental.encoding.framing import Bytes, FrameError, frame_of, value_of
from pyg_incremental.encoding.whole_file import why_no_file, written_whole
from pyg_incremental.errors import StateFileError
from pyg_incremental.files.earlier import ZIP, from_zip
from pyg_incremental.session.parameters import add_tensor

FORMAT = 4
_MAGIC = b"PYGINCR"
_HEAD = struct.Struct("<7sBqq")
_PLAIN = (str, int, float, bool, type(None))


def digest_of(content: Any) -> str:
    """SHA-256 over nested dicts, lists, numbers, strings and tensors.

    Two contents have one digest only if they are the same; lists and tuples count as the same, and
    the order of a dict does not matter.
    """
    digest = hashlib.sha256()

    def feed(value: Any) -> None:
        if isinstance(value, Tensor):
            digest.update(b"T")
            add_tensor(digest, value)
        elif isinstance(value, dict):
            digest.update(f"D{len(value)}:".encode())
            for key in sorted(value, key=str):
                feed(key)
                feed(value[key])
        elif isinstance(value, (list, tuple)):
            digest.update(f"L{len(value)}:".encode())
            for item in value:
                feed(item)
        else:
            said = f"{type(value).__name__}={value!r}".encode()
            digest.update(f"V{len(said)}:".encode())
            digest.update(said)

    feed(content)
    return digest.hexdigest()


def is_plain(value: Any) -> bool:
    """Whether a value can be saved without code.

    That is numbers, strings, None, and lists and dicts of them.
    """
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_plain(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return type(value) in _PLAIN


def write(path: str | os.PathLike[str], content: dict[str, Any]) -> str:
    """Write a state whole or not at all; it is on the disk when this returns.

    Args:
        path: The file. A symbolic link stays one, and the mode of a file that was there is kept.
        content: Plain values and tensors.

    Returns:
        The checksum at its end.

    Raises:
        OSError: If it cannot be written. What was there is as it was then.
    """
    frame = frame_of(content)
    digest = hashlib.sha256()
    head = _HEAD.pack(_MAGIC, FORMAT, len(frame.text), sum(frame.sizes))
    with written_whole(path) as file:
        for piece in (head, frame.text):
            digest.update(piece)
            file.write(piece)
        for array, size in zip(frame.arrays, frame.sizes, strict=True):
            for part in (array.data, bytes(size - array.size)):
                digest.update(part)
                file.write(part)
        file.write(digest.digest())
    return digest.hexdigest()


def read(
    path: str | os.PathLike[str], checksum: str | None = None, earliest: int = FORMAT
) -> dict[str, Any]:
    """Read a state.

    Args:
        path: The file.
        checksum: What `write` has returned, if only that very file will do.
        earliest: The earliest format that will do.

    Raises:
        StateFileError: If the file is cut off, damaged, or not one of ours.
        FileNotFoundError: If there is no such file.
    """
    what = why_no_file(path)
    if what:  # to open a pipe waits until somebody writes to it
        raise StateFileError(f"'{path}' is {what}, and no saved state; name the file")
    try:
        with open(path, "rb") as file:
            content, found = _content(path, file, earliest)
    except FileNotFoundError:
        raise
    except (FrameError, OSError, MemoryError) as error:
        raise StateFileError(
            f"'{path}' cannot be read as a saved state ({type(error).__name__}: {error}); it may "
            "be cut off; save again"
        ) from error
    if checksum is not None and found != checksum:
        raise StateFileError(f"'{path}' is whole, but another file than the one that was saved")
    return content


def read_any(path: str | os.PathLike[str]) -> tuple[int, dict[str, Any]]:
    """Read a state of any format up to the present one; its number, and what it holds as it stands.

    Args:
        path: The file.

    Raises:
        StateFileError: If the file is cut off, damaged, not one of ours, or of a later format.
        FileNotFoundError: If there is no such file.
    """
    what = why_no_file(path)
    if not what:
        with open(path, "rb") as file:
            head = file.read(_HEAD.size)
        if head.startswith(ZIP):
            return 1, from_zip(path)
    return (head[7] if not what and len(head) > 7 else FORMAT), read(path, earliest=2)


def _content(
    path: str | os.PathLike[str], file: BinaryIO, earliest: int
) -> tuple[dict[str, Any], str]:
    head = file.read(_HEAD.size)
    form = head[7] if len(head) > 7 and head.startswith(_MAGIC) else FORMAT
    if head.startswith(ZIP) or not earliest <= form <= FORMAT:
        found = 1 if head.startswith(ZIP) else form
        how = "a later version of this package wrote it" if found > FORMAT else (
            "it cannot be read here: save again"
        )  # fmt: skip
        raise StateFileError(
            f"'{path}' is not a saved state of format {FORMAT}, but of {found}; {how}"
        )
    if not head.startswith(_MAGIC):
        what = "is empty" if not head else f"is not a saved state of format {FORMAT}"
        raise StateFileError(f"'{path}' {what}; name a file that inc.save(path) wrote")
    if len(head) < _HEAD.size:
        raise FrameError("it ends after a few bytes")
    _, _, text_size, room = _HEAD.unpack(head)
    size = os.fstat(file.fileno()).st_size
    if min(text_size, room) < 0 or _HEAD.size + text_size + room + 32 != size:
        raise FrameError(f"it should have {_HEAD.size + text_size + room + 32} bytes, not {size}")
    digest = hashlib.sha256(head)

    def take(count: int) -> Bytes:
        data = np.empty(count, np.uint8)
        got = file.readinto(data.data) if count else 0  # type: ignore[attr-defined]
        digest.update(data[:got].data)
        return data[:got]

    content: Any = value_of(take(text_size).tobytes(), room, take)
    if file.read() != digest.digest():
        raise StateFileError(
            f"'{path}' is damaged: its content does not match its checksum; save again"
        )
    if not isinstance(content, dict):
        raise FrameError(f"it holds a {type(content).__name__}")
    return content, digest.hexdigest()
