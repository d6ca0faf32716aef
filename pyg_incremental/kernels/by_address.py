"""Compiled code that calls another kernel by its address, not by its source.

Numba compiles a function together with all that it calls. What calls the steps of a plan would be
compiled anew with every kind of step, for as long as all of them take, and hold them a second time.
"""

from typing import Any

from numba import config, typeof, types
from numba.core import cgutils
from numba.extending import intrinsic

_PLAIN: list[Any] = []
"""Without a compiler an address is a place in this list."""


def address_for(kernel: Any, *like: Any) -> int:
    """Where the code of a kernel is, for arguments like these; loads or compiles it."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        if kernel not in _PLAIN:
            _PLAIN.append(kernel)
        return _PLAIN.index(kernel) + 1
    asked = tuple(map(typeof, like))
    if asked not in kernel.overloads:
        kernel.compile(asked)
    code = kernel.overloads[asked]
    address: int = code.library.get_pointer_to_function(code.fndesc.llvm_func_name)
    return address


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def call_at(address, arguments, like):  # type: ignore[no-untyped-def]
        """The same, not compiled."""
        return _PLAIN[address - 1](*arguments)

else:

    @intrinsic
    def call_at(typing_context, address, arguments, like):  # type: ignore[no-untyped-def]
        """Call a kernel at an address; it was compiled for exactly these types of arguments.

        Whatever it raises is raised here. It returns what is of the type of `like`.
        """
        result: Any = types.unliteral(like)  # type: ignore[no-untyped-call]
        taken: Any = types.unliteral(arguments)  # type: ignore[no-untyped-call]

        def codegen(context, builder, signature, values):  # type: ignore[no-untyped-def]
            kinds, convention = signature.args[1].types, context.call_conv
            kind = convention.get_function_type(result, kinds)
            called = builder.inttoptr(values[0], kind.as_pointer())
            given = [builder.extract_value(values[1], i) for i in range(len(kinds))]
            status, found = convention.call_function(builder, called, result, kinds, given)
            with cgutils.if_unlikely(builder, status.is_error):  # type: ignore[no-untyped-call]
                convention.return_status_propagate(builder, status)
            return found

        return result(types.int64, taken, result), codegen
