"""What a model holds beside parameters and buffers: in attributes, lists, dicts and objects."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn
from torch_geometric import EdgeIndex

from pyg_incremental.trace.copies import KNOWN, notes_of

_DEPTH = 5
"""How deep attributes are looked into: containers in containers, objects in objects."""
_ELSEWHERE = ("_parameters", "_buffers", "_modules", "_incremental")
_MANY = 4096
"""Longer lists of what is no tensor are not gone through."""


class Held(NamedTuple):
    """Something with memory, and where it stands.

    Attributes:
        home: What holds it: the attributes of a module or object, a list, a tuple or a dict.
        key: Under which name or number.
        value: A tensor, or an array of NumPy, of any shape; or what holds some of these.
        name: What messages call it.
    """

    home: Any
    key: Any
    value: Any
    name: str


def held_beside(model: nn.Module) -> list[Held]:
    """All tensors and arrays that can be reached from the modules of a model by attributes.

    And what they are reached through, which may be replaced as well.
    Those are left out that convs note for themselves from call to call.
    """
    found: list[Held] = []
    seen: set[int] = set()
    for path, m in model.named_modules():
        ignored = {*_ELSEWHERE, *notes_of(m)}
        for name, value in vars(m).items():
            if name not in ignored and not name.endswith("_hooks"):
                called = f"{path}.{name}" if path else name
                found += _look_into(vars(m), name, value, called, _DEPTH, seen)
    return found


def _look_into(
    home: Any, key: Any, value: Any, name: str, depth: int, seen: set[int]
) -> Iterator[Held]:
    if isinstance(value, (Tensor, np.ndarray)):
        if isinstance(value, Tensor) or value.dtype.kind in "biufc":
            yield Held(home, key, value, name)
        return
    if not depth or id(value) in seen or isinstance(value, (nn.Module, type)):
        return
    inner = value
    if isinstance(value, (list, tuple)):
        inside: Any = enumerate(value) if len(value) <= _MANY or _any_held(value) else ()
        form = "{}[{}]"
    elif isinstance(value, dict):
        inside, form = list(value.items()), "{}[{!r}]"
    elif hasattr(value, "__dict__") and type(value).__module__.partition(".")[0] not in KNOWN:
        inner, form = vars(value), "{}.{}"
        inside = list(inner.items())
    else:
        return
    seen.add(id(value))
    found: list[Held] = []
    for k, v in inside:
        found += _look_into(inner, k, v, form.format(name, k), depth - 1, seen)
    if found:
        yield Held(home, key, value, name)
        yield from found


def _any_held(values: Any) -> bool:
    return any(isinstance(v, (Tensor, np.ndarray)) for v in values[:8])


def tensor_of(value: Any) -> Tensor | None:
    """The plain tensor whose memory and version a value has; None if it is no tensor."""
    if isinstance(value, EdgeIndex):
        plain: Tensor = value.as_tensor()
        return plain
    return value if isinstance(value, Tensor) else None
