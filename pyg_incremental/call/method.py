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
        known = [n for n, f in inspect.getmembers(kind, inspect.isfunction) if n not in _of_modules]
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


_of_modules = frozenset(dir(nn.Module))
