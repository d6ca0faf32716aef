"""Plain values, arrays and tensors as bytes, and back. Nothing in the bytes is ever executed.

Files and messages of ranks hold the same two things: a text, and behind it the arrays. The text is
JSON, and says of each array what it is, and of the value how it is put together:

    [[["t", "float32", [2, 3]], ...], [LIST, ["d", 0], ...]]

Lists, tuples, dicts, arrays, records and errors are JSON lists that begin with a number that tells
them apart; everything else in the text is a number, a string, a truth value or null. A record is a
dataclass or named tuple that was registered here (see `record`), so a text can name a class, but
only one of a few, and can do no more than fill its fields.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental import errors

T = TypeVar("T")
Bytes = NDArray[np.uint8]
LIST, TUPLE, DICT, ARRAY, RECORD, ERROR = range(6)
ALIGN = 8
"""Arrays begin at multiples of so many bytes."""
FEW = 16
"""Ids that may as well be written in eight bytes each."""
_CPU = torch.device("cpu")
_TENSORS = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
        torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    )
}  # fmt: skip
_ARRAYS = {
    name: np.dtype(name)
    for name in (
        "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    )
}  # fmt: skip
_SHORT = "short"
"""The dtype of int64 ids that are written in four bytes each."""


class FrameError(ValueError):
    """Bytes are not a value that was written here, or a value cannot be written."""


class _Record(NamedTuple):
    kind: type[Any]
    fields: Callable[[Any], tuple[Any, ...]]
    width: int


_RECORDS: dict[str, _Record] = {}
_ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        Exception, RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError,
        NotImplementedError, ArithmeticError, ZeroDivisionError, OverflowError, AssertionError,
        MemoryError, OSError, FileNotFoundError, FileExistsError, PermissionError, TimeoutError,
        errors.IncrementalError, errors.InvalidDeltaError, errors.UnsupportedModelError,
        errors.StaleStateError, errors.StateFileError,
    )
}  # fmt: skip


def record(kind: type[T]) -> type[T]:
    """Let a dataclass or named tuple be part of values; it is put together from its fields."""
    named = [f.name for f in fields(kind)] if is_dataclass(kind) else list(kind._fields)  # type: ignore[attr-defined]
    get = attrgetter(*named)
    read = get if len(named) > 1 else lambda value: (get(value),)
    _RECORDS[kind.__name__] = _Record(kind, read, len(named))
    return kind


def error_kind(kind: type[T]) -> type[T]:
    """Let an exception be part of values; it is put together from its message."""
    _ERRORS[kind.__name__] = kind  # type: ignore[assignment]
    return kind


def is_elsewhere(value: Any) -> bool:
    """Whether a value is a tensor on an accelerator."""
    return isinstance(value, Tensor) and value.device.type != "cpu"


# Writing -----------------------------------------------------------------------------------------


@dataclass
class Frame:
    """A value, ready to be written.

    Attributes:
        text: The text, padded to a multiple of `ALIGN`.
        arrays: The arrays, each uint8 `[n]`.
    """

    text: bytes
    arrays: list[Bytes]

    @property
    def sizes(self) -> list[int]:
        """How many bytes each array takes, padded."""
        return [padded(a.size) for a in self.arrays]


def padded(size: int) -> int:
    """The next multiple of `ALIGN`."""
    return -(-size // ALIGN) * ALIGN


def frame_of(value: Any) -> Frame:
    """Write a value.

    Args:
        value: Numbers, strings, truth values, None, tensors and NumPy arrays; lists, tuples and
            dicts of them, records, and exceptions.

    Raises:
        FrameError: If there is anything else in it.
    """
    table: list[Any] = []
    arrays: list[Bytes] = []

    def put(value: Any) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is float or kind is str:
            return value
        if kind is dict:
            held: list[Any] = [DICT]
            for key, item in value.items():
                held += put(key), put(item)
            return held
        if kind is list or kind is tuple:
            return [LIST if kind is list else TUPLE, *map(put, value)]
        known = _RECORDS.get(kind.__name__)
        if known is not None and known.kind is kind:
            return [RECORD, kind.__name__, *map(put, known.fields(value))]
        if isinstance(value, (np.ndarray, Tensor)):
            entry, data = _array(value) if isinstance(value, np.ndarray) else _tensor(value)
            table.append(entry)
            arrays.append(data)
            return [ARRAY, len(arrays) - 1]
        if isinstance(value, Exception):
            return [ERROR, *_named_error(value)]
        if isinstance(value, (np.integer, np.floating, np.bool_)):
            return value.item()
        raise FrameError(f"a {kind.__name__} cannot be written without code")

    body = put(value)
    text = json.dumps([table, body], separators=(",", ":")).encode()
    return Frame(text + b" " * (padded(len(text)) - len(text)), arrays)


def _array(array: NDArray[Any]) -> tuple[list[Any], Bytes]:
    name = array.dtype.name
    if name not in _ARRAYS:
        raise FrameError(f"an array of {array.dtype} cannot be written")
    if array.dtype == np.int64 and _are_short(array):
        name, array = _SHORT, array.astype(np.int32)
    flat = np.ascontiguousarray(array).reshape(-1)
    return ["n", name, list(array.shape)], flat.view(np.uint8)


def _tensor(tensor: Tensor) -> tuple[list[Any], Bytes]:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _TENSORS or tensor.layout is not torch.strided:
        raise FrameError(f"a tensor of {tensor.dtype}, {tensor.layout} cannot be written")
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.numel() == 1:
        flat = flat.as_strided((1,), (1,))  # one element may have any stride, and be contiguous
    data = flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8)
    return ["e" if is_elsewhere(tensor) else "t", name, list(tensor.shape)], data


def _are_short(ids: NDArray[np.int64]) -> bool:
    """Whether some ids are worth to be written in four bytes each, and fit."""
    limits = np.iinfo(np.int32)
    return bool(ids.size >= FEW and limits.min <= ids.min() and ids.max() <= limits.max)


def _named_error(error: Exception) -> tuple[str, str]:
    """The nearest class of an exception that is known here, and what it says."""
    said = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if _ERRORS.get(type(error).__name__) is type(error):
        return type(error).__name__, said
    known = (k.__name__ for k in type(error).__mro__ if _ERRORS.get(k.__name__) is k)
    name = next(known)
    return "RuntimeError" if name == "Exception" else name, f"{type(error).__name__}: {said}"


# Reading -----------------------------------------------------------------------------------------


class _Slot(NamedTuple):
    """An array as the text describes it."""

    where: str
    name: str
    shape: list[int]
    size: int


def value_of(
    text: bytes, room: int, take: Callable[[int], Bytes], device: torch.device = _CPU
) -> Any:
    """Read a value.

    Args:
        text: The text.
        room: How many bytes of arrays there are.
        take: Gives the next so many of them, uint8 `[n]`, in memory of its own.
        device: Where tensors go that were on an accelerator.

    Raises:
        FrameError: If it is not a value that was written here, whatever is wrong with it.
    """
    try:
        table, body = json.loads(text)
        slots = [_slot(*entry) for entry in table]
    except (ValueError, TypeError, RecursionError) as error:
        raise FrameError(f"the text cannot be read ({error})") from error
    needed = sum(padded(slot.size) for slot in slots)
    if needed != room:
        raise FrameError(f"there are {room} bytes of arrays, but they need {needed}")
    arrays: list[Any] = []
    for slot in slots:
        data = take(padded(slot.size))
        if data.size != padded(slot.size):
            raise FrameError("the arrays are cut off")
        arrays.append(_made(slot, data[: slot.size], device))
    try:
        return _Reader(arrays).value(body)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise FrameError(f"the text makes no value ({type(error).__name__}: {error})") from error


def _slot(where: str, name: str, shape: list[int]) -> _Slot:
    if where == "n":
        width = 4 if name == _SHORT else _ARRAYS[name].itemsize if name in _ARRAYS else 0
    else:
        width = _TENSORS[name].itemsize if where in ("t", "e") and name in _TENSORS else 0
    if not width or not all(type(n) is int and 0 <= n < 1 << 48 for n in shape):
        raise FrameError(f"no array of {name} {shape}")
    return _Slot(where, name, shape, math.prod(shape) * width)


def _made(slot: _Slot, data: Bytes, device: torch.device) -> Any:
    if slot.where == "n":
        if slot.name == _SHORT:
            return data.view(np.int32).reshape(slot.shape).astype(np.int64)
        return data.view(_ARRAYS[slot.name]).reshape(slot.shape)
    dtype = _TENSORS[slot.name]
    if not data.size:
        return torch.empty(slot.shape, dtype=dtype, device=device if slot.where == "e" else _CPU)
    rows = torch.from_numpy(data).view(dtype).view(slot.shape)
    return rows.to(device) if slot.where == "e" else rows


class _Reader:
    """Puts a value together; each array is part of it once."""

    def __init__(self, arrays: list[Any]) -> None:
        self._arrays = arrays

    def value(self, held: Any) -> Any:
        """A value, from what the text says of it."""
        if not isinstance(held, list):
            if isinstance(held, dict):
                raise FrameError("an object")
            return held
        tag, *rest = held
        if tag == LIST:
            return [self.value(v) for v in rest]
        if tag == TUPLE:
            return tuple([self.value(v) for v in rest])
        if tag == DICT:
            keys = [self.value(k) for k in rest[::2]]
            found = dict(zip(keys, [self.value(v) for v in rest[1::2]], strict=True))
            if len(found) != len(keys):
                raise FrameError("a dict has a key twice")
            return found
        if tag == ARRAY:
            (at,) = rest
            if at < 0 or self._arrays[at] is None:
                raise FrameError("an array is used twice")
            found, self._arrays[at] = self._arrays[at], None
            return found
        if tag == RECORD:
            known = _RECORDS[rest[0]]
            if len(rest) != known.width + 1:
                raise FrameError(f"{rest[0]} has {known.width} fields")
            return known.kind(*[self.value(v) for v in rest[1:]])
        if tag == ERROR:
            name, said = rest
            return _ERRORS[name](str(said))
        raise FrameError(f"no value begins with {tag!r}")


# Messages ----------------------------------------------------------------------------------------


def packed(value: Any, room: Callable[[int], Bytes]) -> Bytes:
    """A value as one piece of bytes, uint8 `[n]`; `room` gives the memory.

    Raises:
        FrameError: If it cannot be written.
    """
    frame = frame_of(value)
    size = len(frame.text)
    data = room(ALIGN + size + sum(frame.sizes))
    data[:ALIGN].view(np.int64)[0] = size
    data[ALIGN : ALIGN + size] = np.frombuffer(frame.text, np.uint8)
    at = ALIGN + size
    for array, wide in zip(frame.arrays, frame.sizes, strict=True):
        data[at : at + array.size] = array
        data[at + array.size : at + wide] = 0
        at += wide
    return data


def unpacked(data: Bytes, device: torch.device = _CPU) -> Any:
    """What `packed` was given. Arrays and tensors lie in `data`.

    Raises:
        FrameError: If it was given nothing of the kind.
    """
    size = int(data[:ALIGN].view(np.int64)[0]) if data.size >= ALIGN else -1
    if size < 0 or size > data.size - ALIGN:
        raise FrameError(f"a message of {data.size} bytes is cut off")
    at = ALIGN + size
    if at % ALIGN or data.ctypes.data % ALIGN:
        data = data.copy()

    def take(count: int) -> Bytes:
        nonlocal at
        at += count
        return data[at - count : at]

    return value_of(data[ALIGN:at].tobytes(), data.size - at, take, device)
