"""Whether anything but a module's class has a say in what the module computes.

Hooks, methods that were replaced on one instance, and subclasses that override what a class does
are no part of a program that was written for that class.
"""

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from torch import nn
from torch.nn.modules import module as registry_of_hooks
from torch_geometric.nn import Aggregation, MessagePassing

_NO_COMPUTATION = frozenset({
    "__doc__", "__module__", "__qualname__", "__dict__", "__weakref__", "__annotations__",
    "__annotate__", "__annotate_func__", "__annotations_cache__", "__classdictcell__",
    "__firstlineno__", "__static_attributes__", "__parameters__", "__orig_bases__",
    "__abstractmethods__", "_abc_impl", "__init__", "__init_subclass__", "__new__", "__repr__",
    "__str__", "__dir__", "__hash__", "__eq__", "__getstate__", "__setstate__", "__reduce__",
    "__reduce_ex__", "__copy__", "__deepcopy__", "extra_repr", "reset_parameters",
    "_orig_propagate", "_jinja_propagate", "_orig_edge_updater", "_jinja_edge_updater",
})  # fmt: skip
_GENERATED = ("propagate", "collect", "edge_updater", "edge_collect")
_HOMES = ("torch", "torch_geometric")
_ABSTRACT = (nn.Module, Aggregation, MessagePassing)


def why_watched(module: nn.Module) -> str:
    """Who has a say in what a module or a part of it computes, or an empty string."""
    if (
        registry_of_hooks._global_forward_hooks or registry_of_hooks._global_forward_pre_hooks
    ):  # they see the calls of all modules
        return "hooks on all modules watch it"
    for name, part in module.named_modules():
        what = f"its {name}" if name else "it"
        if has_hooks(part):
            return f"hooks or an explainer watch {what}"
        replaced = next(filter(None, (_replaced(part, key) for key in vars(part))), "")
        if replaced:
            return f"{replaced} of {what} was replaced" if name else f"its {replaced} was replaced"
    return ""


def has_hooks(module: nn.Module) -> bool:
    """Whether hooks run when a module is called, or an explainer watches it.

    Those of a backward pass, and of loading and saving, have no say in the result.
    """
    if isinstance(module, MessagePassing) and module.explain:
        return True
    return any(
        hooks
        for name, hooks in vars(module).items()
        if name.endswith("_hooks") and "state_dict" not in name and "backward" not in name
    )


def _replaced(module: nn.Module, name: str) -> str:
    """The name of an attribute of one instance that hides a method of its class, or nothing."""
    if not isinstance(getattr(type(module), name, None), FunctionType):
        return ""
    held = vars(module)[name]
    if name in _GENERATED and isinstance(held, MethodType) and held.__self__ is module:
        # PyG puts one of these two there when an explainer has come or gone.
        kinds = (f"_orig_{name}", f"_jinja_{name}")
        if held.__func__ in [getattr(type(module), kind, None) for kind in kinds]:
            return ""
    return name


def why_other_parts(module: nn.Module) -> str:
    """Which part of a module is not computed as a class of torch or PyG says, or an empty string.

    Programs of PyG's convs are about such parts only.
    """
    for name, part in module.named_modules():
        kind = type(part)
        base = next(c for c in kind.__mro__ if c.__module__.partition(".")[0] in _HOMES)
        if name and base is not kind and (base in _ABSTRACT or why_another(part, base)):
            return f"its {name} is a {kind.__name__}"
    return ""


def why_another(module: nn.Module, kind: type[nn.Module]) -> str:
    """What a subclass does in another way than `kind`, or an empty string.

    New names count for nothing: `kind` does not know them.
    """
    for name in dir(kind):
        if name in _NO_COMPUTATION:
            continue
        home = next((c for c in type(module).__mro__ if name in vars(c)), kind)
        if issubclass(kind, home):
            continue
        own: Any = vars(home)[name]
        if not getattr(own, "keeps_computation", False) and not _is_generated(name, own, home):
            return name
    return ""


def _is_generated(name: str, own: Callable[..., Any], home: type) -> bool:
    """Whether PyG has written a method for a class, as it does for every one."""
    written = f"{home.__module__}_{home.__name__}_"
    return name in _GENERATED and str(getattr(own, "__module__", "")).startswith(written)
