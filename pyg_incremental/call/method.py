"""Which module is meant: a model, a method of one, or what `torch.compile` has made of one."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

from torch import nn

from pyg_incremental.errors import UnsupportedModelError

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def module_of(model: Any, method: str | None = None) -> nn.Module:
    """The module that computes what is asked for.

    Args:
        model: A module, or a method of one, such as `model.encode`. Of a compiled module it is the
            one inside: updates have compiled code of their own.
        method: The name of the method, if it is not `forward`.

    Raises:
        UnsupportedModelError: If there is no such module or method.
    """
    if inspect.ismethod(model) and isinstance(model.__self__, nn.Module) and method is None:
        model, method = model.__self__, model.__name__
    if not isinstance(model, nn.Module):
        raise UnsupportedModelError(
            f"expected a torch.nn.Module (got {type(model).__name__}); {_cure(model)}"
        )
    model = getattr(model, "_orig_mod", model)
    return model if method in (None, "forward", "__call__") else _seen_as(model, str(method))


def refuse_without_forward(model: nn.Module) -> None:
    """Refuse a module that has other methods and no `forward`.

    Raises:
        UnsupportedModelError: If it is one.
    """
    kind = type(model)
    written = any("forward" in vars(base) for base in kind.__mro__ if base is not nn.Module)
    if written or "forward" in vars(model):  # a script has a descriptor there, which raises
        return
    known = _methods_of(kind)
    cure = f"follow a method of it: to_incremental(model.{known[0]})" if known else "write one"
    raise UnsupportedModelError(f"{kind.__name__} has no forward (its methods: {known}); {cure}")


def _methods_of(kind: type[nn.Module]) -> list[str]:
    """In the order in which they are written, those of the class first."""
    own = (base for base in kind.__mro__ if base not in nn.Module.__mro__)
    written = ((n, f) for base in own for n, f in vars(base).items())
    found = (n for n, f in written if inspect.isfunction(f) and not hasattr(nn.Module, n))
    return list(dict.fromkeys(found))


def _cure(model: Any) -> str:
    """What to pass in the place of what is no module."""
    if isinstance(getattr(model, "model", None), nn.Module):
        return "that wraps one: use it as it is, or pass the module, inc.model"
    if isinstance(model, type):
        return f"pass a trained model, an object: {model.__name__}(...)"
    if isinstance(model, Mapping):
        return "build the model, load_state_dict(...) into it, and pass the model"
    if isinstance(model, (str, os.PathLike)):
        return "pass the trained model itself; of a file of saved rows load(path, model)"
    return "pass the trained model itself"


def _seen_as(model: nn.Module, method: str) -> nn.Module:
    """The same module, all of it shared, whose `forward` is one of its other methods."""
    kind = type(model)
    function = inspect.getattr_static(kind, method, None)
    if not inspect.isfunction(function):
        known = _methods_of(kind)
        raise UnsupportedModelError(
            f"to_incremental: {kind.__name__} has no method '{method}' (expected one of {known})"
        )
    if any(vars(model)[hooks] for hooks in _HOOKS):
        raise UnsupportedModelError(
            f"to_incremental: {kind.__name__} has hooks, which run around forward and not around "
            f"'{method}'; remove them, or write a module whose forward calls '{method}'"
        )
    parts = {"forward": function, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    seen: nn.Module = object.__new__(type(kind.__name__, (kind,), parts))
    seen.__dict__ = model.__dict__
    return seen
