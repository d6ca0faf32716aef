"""Which conv has a program."""

from collections.abc import Callable

import torch

from pyg_incremental.conv.call import ConvCall, NotIncremental, has_hooks
from pyg_incremental.program import Value

Builder = Callable[[ConvCall], Value]

_BUILDERS: dict[type[torch.nn.Module], Builder] = {}


def register(conv: type[torch.nn.Module]) -> Callable[[Builder], Builder]:
    """Declare how a conv class is written as a program.

    Subclasses count only if they leave the computation alone.
    """

    def add(builder: Builder) -> Builder:
        _BUILDERS[conv] = builder
        return builder

    return add


_HOOKS_OF_A_CONV = (
    "forward",
    "message",
    "aggregate",
    "update",
    "edge_update",
    "message_and_aggregate",
    "propagate",
)


def builder_of(conv: torch.nn.Module) -> Builder:
    """The builder for a conv.

    Raises:
        NotIncremental: If there is none, or the conv is not computed as its class says.
    """
    kind = next((c for c in type(conv).__mro__ if c in _BUILDERS), None)
    if kind is None:
        raise NotIncremental(f"{type(conv).__name__} has no program")
    for name in _HOOKS_OF_A_CONV:
        defined = next(c for c in type(conv).__mro__ if name in vars(c))
        own = vars(defined)[name]
        if name == "propagate" and own is vars(defined).get("_jinja_propagate"):
            continue  # PyG generates one for every class
        if name in vars(conv) and name != "propagate":
            raise NotIncremental(f"its {name} was replaced")
        if not issubclass(kind, defined) and not getattr(own, "keeps_computation", False):
            raise NotIncremental(f"{type(conv).__name__} overrides {kind.__name__}.{name}")
    if has_hooks(conv):
        raise NotIncremental("hooks or an explainer watch it")
    return _BUILDERS[kind]


def registered() -> list[type[torch.nn.Module]]:
    """The conv classes with a program."""
    return list(_BUILDERS)
