"""Arrays by their address.

An array that crosses into compiled code costs as much as some rows, so what many calls need is
written down once, as addresses and sizes in a table of integers.
"""

import ctypes
import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray, config, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from pyg_incremental.kernels.jit import inner

_LINE = 64
"""Bytes of a cache line."""


def address_of(array: Any) -> int:
    """Where the first element of an array stands."""
    address: int = array.__array_interface__["data"][0]
    return address


def zeros(dtype: Any, *shape: int) -> Any:
    """Zeros that begin with a cache line, so that rows of whole lines touch no other.

    Large ones lie in huge pages where the system has them, for which NumPy asks; rows are read in
    no order, and small pages cost time then.
    """
    count = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(count + _LINE, np.uint8)
    first = -address_of(room) % _LINE
    return room[first : first + count].view(dtype).reshape(shape)


if config.DISABLE_JIT:  # type: ignore[attr-defined]
    _SOMEWHERE = np.empty(1)

    def _pointer(address, like):  # type: ignore[no-untyped-def]
        kind = np.ctypeslib.as_ctypes_type(np.asarray(like).dtype)
        at = int(address) or address_of(_SOMEWHERE)
        return ctypes.cast(at, ctypes.POINTER(kind))

    def _prefetch(address):  # type: ignore[no-untyped-def]
        """Nothing to do ahead of time."""

else:

    @intrinsic
    def _pointer(typing_context, address, like):  # type: ignore[no-untyped-def]
        """An address, as a pointer to elements of the type of `like`."""
        pointer = types.CPointer(like)  # type: ignore[no-untyped-call]

        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            return builder.inttoptr(arguments[0], context.get_value_type(pointer))

        return pointer(address, like), codegen

    @intrinsic
    def _prefetch(typing_context, address):  # type: ignore[no-untyped-def]
        """Ask for the cache line at an address. Any address will do: a wrong one is ignored."""
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)

        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
            # To read, to be kept in the second cache, data: what is asked for far ahead is more
            # than the first one holds beside what is being computed.
            builder.call(ask, [builder.inttoptr(arguments[0], byte), *map(number, (0, 2, 1))])
            return context.get_dummy_value()

        return types.void(types.int64), codegen


@inner()
def rows_at(address, count, width, like):  # type: ignore[no-untyped-def]
    """The array `[count, width]` of the type of `like` at an address; without rows at zero."""
    shape = (int(count) if address else 0, int(width))
    return carray(_pointer(address, like), shape)  # type: ignore[no-untyped-call]


@inner()
def line_at(address, count, like):  # type: ignore[no-untyped-def]
    """The array `[count]` of the type of `like` at an address; empty at zero."""
    shape = (int(count) if address else 0,)
    return carray(_pointer(address, like), shape)  # type: ignore[no-untyped-call]


@inner()
def borrowed(line):  # type: ignore[no-untyped-def]
    """The same contiguous array `[count]`, kept alive by somebody else: it counts no references.

    To count them takes an atomic operation wherever an array is handed on.
    """
    return line_at(np.int64(line.ctypes.data), line.size, line.dtype.type(0))


@inner()
def borrowed_rows(rows):  # type: ignore[no-untyped-def]
    """The same of rows `[count, width]`."""
    return rows_at(np.int64(rows.ctypes.data), rows.shape[0], rows.shape[1], rows.dtype.type(0))


@inner(counted=False)
def fill(line, value):  # type: ignore[no-untyped-def]
    """`line[:] = value`, which takes long to compile."""
    for i in range(line.size):
        line[i] = value


@inner(counted=False)
def fetch(rows, i):  # type: ignore[no-untyped-def]
    """Ask for row `i` ahead of time.

    Rows are read in no order, so that each one is a wait for memory; asked for some rows ahead,
    many waits are one. All its lines are: a row may end in one more than its width tells.
    """
    wide = rows.strides[0]
    at = rows.ctypes.data + np.int64(i) * wide
    for line in range(at & -_LINE, at + wide, _LINE):
        _prefetch(line)  # type: ignore[no-untyped-call]


@inner(counted=False)
def fetch_element(rows, i, f):  # type: ignore[no-untyped-def]
    """Ask for the line of element `f` of row `i` ahead of time, and for no other of the row."""
    at = rows.ctypes.data + np.int64(i) * rows.strides[0]
    _prefetch(at + np.int64(f) * rows.strides[1])  # type: ignore[no-untyped-call]
