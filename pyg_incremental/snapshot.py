"""Saving the state of a model's rows, and reading it back without executing code from the file."""

import hashlib
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.errors import StateFileError
from pyg_incremental.parameters import add_tensor

FORMAT = 1
_PLAIN = (str, int, float, bool, type(None))


def digest_of(content: Any) -> str:
    """SHA-256 over nested dicts, lists, numbers, strings and tensors."""
    digest = hashlib.sha256()

    def feed(value: Any) -> None:
        if isinstance(value, Tensor):
            add_tensor(digest, value)
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                digest.update(f"{{{key}:".encode())
                feed(value[key])
        elif isinstance(value, (list, tuple)):
            digest.update(b"[")
            for item in value:
                feed(item)
        else:
            digest.update(f"{type(value).__name__}={value!r};".encode())

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
    return isinstance(value, _PLAIN)


def write(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a state whole or not at all.

    It goes into a temporary file beside `path`, which then takes its place.
    """
    target = Path(path)
    body = {"format": FORMAT, "content": content, "digest": digest_of(content)}
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(body, file)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a state.

    Raises:
        StateFileError: If the file is cut off, damaged, or not one of ours.
        FileNotFoundError: If there is no such file.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about foreign files, which are refused below
            body = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # the unpickler may stumble over anything in a damaged file
        raise StateFileError(
            f"'{path}' cannot be read as a saved state ({type(error).__name__}); it may be cut "
            "off; save again"
        ) from error
    if (
        not isinstance(body, dict)
        or body.get("format") != FORMAT
        or not isinstance(body.get("content"), dict)
    ):
        found = body.get("format") if isinstance(body, dict) else type(body).__name__
        raise StateFileError(f"'{path}' is not a saved state of format {FORMAT} (got {found})")
    content: dict[str, Any] = body["content"]
    if digest_of(content) != body.get("digest"):
        raise StateFileError(
            f"'{path}' is damaged: its content does not match its checksum; save again"
        )
    return content
