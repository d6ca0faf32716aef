"""Compiled code that calls another kernel by its address, not by its source.

Numba compiles a function together with all that it calls. What calls `machine.update` would be
compiled for as long as that is, a minute and more, and hold all of it a second time.
"""

from typing import Any

from numba import config, typeof, types
from numba.core import cgutils
from numba.extending import intrinsic

from pyg_incremental.kernels.compiled.machine import update

_RESULT = types.UniTuple(types.int64, 3)  # type: ignore[no-untyped-call]


def address_for(*like: Any) -> int:
    """Where the code of `machine.update` is, for arguments like these."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return 0
    asked = tuple(map(typeof, like))
    if asked not in update.overloads:
        update.compile(asked)
    code = update.overloads[asked]
    address: int = code.library.get_pointer_to_function(code.fndesc.llvm_func_name)
    return address


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def update_at(address, arguments):  # type: ignore[no-untyped-def]
        """The same, not compiled."""
        return update(*arguments)

else:

    @intrinsic
    def update_at(typing_context, address, arguments):  # type: ignore[no-untyped-def]
        """Call `machine.update`, compiled for exactly these types, at an address."""

        def codegen(context, builder, signature, values):  # type: ignore[no-untyped-def]
            kinds, convention = signature.args[1].types, context.call_conv
            kind = convention.get_function_type(_RESULT, kinds)
            called = builder.inttoptr(values[0], kind.as_pointer())
            given = [builder.extract_value(values[1], i) for i in range(len(kinds))]
            status, found = convention.call_function(builder, called, _RESULT, kinds, given)
            with cgutils.if_unlikely(builder, status.is_error):  # type: ignore[no-untyped-call]
                convention.return_status_propagate(builder, status)
            return found

        return _RESULT(types.int64, arguments), codegen
