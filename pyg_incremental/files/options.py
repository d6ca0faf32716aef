"""What a model computes besides its parameters: options of its layers, and their code."""

import hashlib
from collections.abc import Mapping
from types import CodeType
from typing import Any

from torch import nn

_PLAIN = (bool, int, float, str, type(None))
_METHODS = ("forward", "message", "message_and_aggregate", "update", "aggregate", "edge_update")


def options_of(model: nn.Module) -> dict[str, Any]:
    """The plain attributes of all modules by name, and a digest of the code of their methods.

    It is no proof that two models are alike, since a model may read anything; it names what
    differs, and where nothing does, rows of one are taken for those of the other.
    """
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        begin = f"{path}." if path else ""
        for name, value in vars(module).items():
            if name != "training" and _is_plain(value):
                found[f"{begin}{name}"] = value
        for name in _METHODS:
            function = getattr(module, name, None)
            code = getattr(getattr(function, "__func__", function), "__code__", None)
            if isinstance(code, CodeType):
                found[f"{begin}{name}()"] = _digest(code)
    return found


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """How the options of two models differ, in words."""
    said = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old == new or (old != old and new != new):
            continue
        said.append(
            f"{name} has other code" if name.endswith("()") else f"{name} was {old!r}, is {new!r}"
        )
    return said


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= 16 and all(map(_is_plain, value))
    return type(value) in _PLAIN


def _digest(code: CodeType) -> str:
    """SHA-256 over what a function does; where it stands says nothing."""
    digest = hashlib.sha256()

    def feed(code: CodeType) -> None:
        digest.update(code.co_code)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                feed(constant)
            else:
                digest.update(repr(constant).encode())
        digest.update(repr((code.co_names, code.co_freevars)).encode())

    feed(code)
    return digest.hexdigest()
