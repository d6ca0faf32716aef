"""What a function of torch is called, whichever way a model has called it.

`torch.relu(h)`, `F.relu(h)`, `h.relu()` and `h.relu_()` are one operation; so are `h + 1` and
`torch.add(h, 1)`.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

_HOMES = (F, torch.special, torch.linalg, torch, torch.Tensor)
_OTHERWISE = {
    torch.embedding: "torch.embedding",  # its arguments are the other way round in F
    torch._C._VariableFunctions.index_select: "index_select",  # PyG has put its own in its place
}
_SAME = {
    "__rsub__": "rsub", "__rdiv__": "rdiv", "__rtruediv__": "rdiv", "__rpow__": "rpow",
    "__floordiv__": "floor_divide", "__rfloordiv__": "rfloor_divide", "__mod__": "remainder",
    "__rmod__": "rremainder", "__and__": "bitwise_and", "__or__": "bitwise_or",
    "__xor__": "bitwise_xor", "__rand__": "bitwise_and", "__ror__": "bitwise_or",
    "__rxor__": "bitwise_xor", "__invert__": "bitwise_not", "__eq__": "eq", "__ne__": "ne",
    "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__pow__": "pow",
    "__matmul__": "matmul", "__rmatmul__": "rmatmul", "__neg__": "neg", "__abs__": "abs",
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul",
    "__div__": "div", "__truediv__": "div", "dsmm": "mm",
    "__iand__": "bitwise_and_", "__ior__": "bitwise_or_", "__ixor__": "bitwise_xor_",
    "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__idiv__": "div_",
    "__ifloordiv__": "floor_divide_", "__imod__": "remainder_", "__ipow__": "pow_",
}  # fmt: skip
"""Dunder methods by the name of the function that they stand for."""
_VALUES = frozenset(
    (
        "item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__complex__",
        "__index__", "__contains__", "__dlpack__", "data_ptr", "equal", "allclose", "is_nonzero",
        "storage", "untyped_storage", "to_dlpack", "set __data__", "set data", "set_", "resize_",
        "resize_as_", "share_memory_", "__deepcopy__", "__reduce_ex__", "register_hook",
    )
)  # fmt: skip


def _named() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for home in _HOMES:
        for name in dir(home):
            fn = getattr(home, name, None)
            if callable(fn) and not isinstance(fn, type):
                plain = name.removeprefix("special_").removeprefix("linalg_")
                found.setdefault(fn, _SAME.get(plain, plain))
    return found | _OTHERWISE


_NAMES = _named()


def name_of(func: Callable[..., Any]) -> str:
    """The name of a function of torch, or how an attribute of a tensor is read; else its own name.

    What is not torch's own is named so that no entry of a table of operations can match.
    """
    own = str(getattr(func, "__name__", type(func).__name__))
    if own in ("__get__", "__set__"):  # a property of a tensor
        return f"{own[2:5]} {getattr(func, '__self__', func).__name__}"
    try:
        return _NAMES.get(func, f"<{own}>")
    except TypeError:  # it cannot be looked up
        return f"<{own}>"


def called(node: fx.Node) -> str:
    """The name of the function that a node calls; empty if it calls none."""
    return name_of(node.target) if node.op == "call_function" else ""  # type: ignore[arg-type]


def name_of_module(path: str, module: nn.Module) -> str:
    """What the module at a path is called: by the path, or by its class if it is the model."""
    return type(module).__name__ if path == "model" else path.removeprefix("model.")


def either_way(name: str) -> str:
    """A comparison by one of its two names: for `a > b` Python may ask `b < a`."""
    return {"gt": "lt", "ge": "le"}.get(name, name)


def shown(target: Any) -> str:
    """What a call of a function is called in an explanation."""
    return name_of(target).strip("<>_") if callable(target) else str(target)


def asks_for_values(name: str) -> bool:
    """Whether what a function returns are values of a tensor, which no trace can follow."""
    return name in _VALUES or name.startswith("set ")
