"""Arrays by their address.

An array that crosses into compiled code costs as much as some rows, so what many calls need is
written down once, as addresses and sizes in a table of integers.
"""

import ctypes
from typing import Any

import numpy as np
from numba import carray, config, njit, types  # type: ignore[attr-defined]
from numba.extending import intrinsic


def address_of(array: Any) -> int:
    """Where the first element of an array stands."""
    address: int = array.__array_interface__["data"][0]
    return address


if config.DISABLE_JIT:  # type: ignore[attr-defined]
    _SOMEWHERE = np.empty(1)

    def _pointer(address, like):  # type: ignore[no-untyped-def]
        kind = np.ctypeslib.as_ctypes_type(np.asarray(like).dtype)
        at = int(address) or address_of(_SOMEWHERE)
        return ctypes.cast(at, ctypes.POINTER(kind))

else:

    @intrinsic
    def _pointer(typing_context, address, like):  # type: ignore[no-untyped-def]
        """An address, as a pointer to elements of the type of `like`."""
        pointer = types.CPointer(like)  # type: ignore[no-untyped-call]

        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            return builder.inttoptr(arguments[0], context.get_value_type(pointer))

        return pointer(address, like), codegen


@njit(cache=True)
def rows_at(address, count, width, like):  # type: ignore[no-untyped-def]
    """The array `[count, width]` of the type of `like` at an address; without rows at zero."""
    shape = (int(count) if address else 0, int(width))
    return carray(_pointer(address, like), shape)  # type: ignore[no-untyped-call]


@njit(cache=True)
def line_at(address, count, like):  # type: ignore[no-untyped-def]
    """The array `[count]` of the type of `like` at an address; empty at zero."""
    shape = (int(count) if address else 0,)
    return carray(_pointer(address, like), shape)  # type: ignore[no-untyped-call]
