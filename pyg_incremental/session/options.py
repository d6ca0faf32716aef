"""What a model computes besides its parameters: options of its layers, and their code."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.modules import module as global_hooks

from pyg_incremental.encoding.likeness import (
    CannotTellError,
    Digests,
    attributes_of,
    names_called,
)

UNKNOWN = "cannot be compared"
"""Stands for what is held in a way that cannot be looked into."""
_PLAIN = (bool, int, float, str, type(None))
_METHODS = ("forward", "message", "message_and_aggregate", "update", "aggregate", "edge_update")
_ELSEWHERE = ("_parameters", "_buffers", "_modules")
_DIGEST = "sha256:"


def options_of(model: nn.Module, digests: Digests | None = None) -> dict[str, Any]:
    """What all modules hold, by name: plain attributes as they are, digests of all others.

    Those are tensors that are no parameters, buffers that are not saved, objects, hooks, and the
    code of the modules with the globals that it reads. Parameters and buffers that are saved are
    not among them.

    Args:
        model: The model.
        digests: Where digests have been made already.
    """
    digests = digests or Digests(names_called(model))
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        begin = f"{path}." if path else ""
        for name, value in attributes_of(module):
            if name not in _ELSEWHERE and not (name.endswith("_hooks") and not value):
                found[f"{begin}{name}"] = said(value, digests)
        for name in getattr(module, "_non_persistent_buffers_set", ()):
            found[f"{begin}{name}"] = said(module._buffers[name], digests)
        for name in _METHODS:
            function = getattr(module, name, None)
            function = getattr(function, "__func__", function)
            if function is not None and not isinstance(function, nn.Module):
                found[f"{begin}{name}()"] = said(function, digests)
        found[f"{begin}()"] = said(type(module), digests)
    for hooks in (global_hooks._global_forward_hooks, global_hooks._global_forward_pre_hooks):
        if hooks:
            found["hooks of all modules"] = said(list(hooks.values()), digests)
    return found


def said(value: Any, digests: Digests) -> Any:
    """A value as it is, if it is plain, its digest otherwise; `UNKNOWN`, if there is none."""
    if _is_plain(value):
        return value
    try:
        return f"{_DIGEST}{digests.of(value)}"
    except CannotTellError as error:
        return f"{UNKNOWN}: {error}"
    except MemoryError:
        raise
    except Exception as error:  # an object may raise anything when it is looked at
        return f"{UNKNOWN}: {type(error).__name__}: {error}"


def is_unknown(value: Any) -> bool:
    """Whether something stands for what cannot be compared."""
    return isinstance(value, str) and value.startswith(UNKNOWN)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """How the options of two models differ, in words."""
    differ = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old == new or (old != old and new != new) or (is_unknown(old) and is_unknown(new)):
            continue
        if name.endswith("()"):
            differ.append(f"{name} has other code")
        elif any(isinstance(v, str) and v.startswith((_DIGEST, UNKNOWN)) for v in (old, new)):
            differ.append(f"{name} is another")
        else:
            differ.append(f"{name} was {old!r}, is {new!r}")
    return differ


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= 16 and all(map(_is_plain, value))
    return type(value) in _PLAIN
