"""A delta as the bytes of one record of a log, and back; nothing in the bytes is executed."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.encoding.framing import FrameError, packed, unpacked

_NAMES = {field.name: field.default for field in fields(GraphDelta)}


def encoded(delta: GraphDelta) -> bytes:
    """A delta of numbers, lists, arrays and tensors as bytes.

    Raises:
        ValueError: If something else is in it, such as a table.
    """
    given = {name: getattr(delta, name) for name in _NAMES}
    said = {k: v for k, v in given.items() if v is not _NAMES[k]}
    return packed(said, _room).tobytes()


def decoded(data: bytes) -> GraphDelta:
    """The delta that `encoded` was given.

    Raises:
        ValueError: If the bytes are none. Whether the delta fits the graph is seen to by who
            applies it.
    """
    said = unpacked(np.frombuffer(bytearray(data), np.uint8))
    if not isinstance(said, dict) or not said.keys() <= _NAMES.keys():
        raise FrameError(f"expected the fields of a GraphDelta (got {type(said).__name__})")
    return GraphDelta(**said)


def _room(size: int) -> NDArray[np.uint8]:
    return np.empty(size, np.uint8)
