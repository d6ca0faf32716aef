"""Arrays by their address.

An array that crosses into compiled code costs as much as some rows, so what many calls need is
written down once, as addresses and sizes in a table of integers.
"""

import ctypes
from typing import Any

import numpy as np
from numba import carray, config, njit, types
from numba.extending import intrinsic


def address_of(array: Any) -> int:
    """Where the first element of an array stands."""
    address: int = array.__array_interface__["data"][0]
    return address


if config.DISABLE_JIT:

    def _pointer(address, like):  # type: ignore[no-untyped-def]
        kind = np.ctypeslib.as_ctypes_type(np.asarray(like).dtype)
        return ctypes.cast(int(address), ctypes.POINTER(kind))

else:

    @intrinsic
    def _pointer(typing_context, address, like):  # type: ignore[no-untyped-def]
        """An address, as a pointer to elements of the type of `like`."""
        pointer = types.CPointer(like)

        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            return builder.inttoptr(arguments[0], context.get_value_type(pointer))

        return pointer(address, like), codegen


@njit(cache=True)
def rows_at(address, count, width, like):  # type: ignore[no-untyped-def]
    """The array `[count, width]` of the type of `like` at an address; without rows at zero."""
    return carray(_pointer(address, like), (count if address else 0, width))


@njit(cache=True)
def line_at(address, count, like):  # type: ignore[no-untyped-def]
    """The array `[count]` of the type of `like` at an address; empty at zero."""
    return carray(_pointer(address, like), (count if address else 0,))
