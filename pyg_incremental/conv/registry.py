"""Which conv has a program."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch_geometric.nn import MessagePassing

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.watched import why_another, why_other_parts, why_watched
from pyg_incremental.conv.with_weights import WithWeights
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.program.steps import NotIncremental, Value

Builder = Callable[[ConvCall], Value | dict[str, Value] | WithWeights]
"""Writes the program of a conv; one that returns a dict by node type returns a value for each."""

_BUILDERS: dict[type[torch.nn.Module], Builder] = {}


def register(conv: type[torch.nn.Module]) -> Callable[[Builder], Builder]:
    """Declare how a conv class is written as a program.

    Subclasses count only if they leave the computation alone.
    """

    def add(builder: Builder) -> Builder:
        _BUILDERS[conv] = builder
        return builder

    return add


def register_conv(conv: type[MessagePassing]) -> Callable[[Builder], Builder]:
    """Declare how a conv class of your own is written as a program.

    A conv without a program is computed row by row where that is possible. A program says more:
    what is a row map, and what is gathered over the in-edges. It replaces the one that the class
    had, a built-in one included, and serves subclasses that leave the computation alone.
    `pyg_incremental.testing.check_conv` holds it against the conv.

    Args:
        conv: A subclass of `torch_geometric.nn.MessagePassing`.

    Returns:
        A decorator for a function that takes a `ConvCall`, adds steps to it and returns the value
        of the last one. Where the conv is called in a way that the program does not cover, it
        raises `NotIncremental` with the reason.

    Raises:
        UnsupportedModelError: If `conv` is not such a class.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import MessagePassing
        >>> from pyg_incremental import register_conv, to_incremental
        >>> from pyg_incremental.conv import ConvCall
        >>> class Gated(MessagePassing):
        ...     def __init__(self, channels):
        ...         super().__init__(aggr="sum")
        ...         self.lin = torch.nn.Linear(channels, channels)
        ...
        ...     def forward(self, x, edge_index):
        ...         return x + self.propagate(edge_index, x=torch.sigmoid(self.lin(x)) * x)
        >>> @register_conv(Gated)
        ... def gated(call: ConvCall):
        ...     conv = call.conv
        ...     call.only("x")
        ...     x = call.node("x")
        ...     z = call.map("z", lambda x: torch.sigmoid(conv.lin(x)) * x, x, costly=True)
        ...     return call.map("out", torch.add, x, call.sum(z, weight=None))
        >>> inc = to_incremental(Gated(4).eval())
        >>> _ = inc(torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]]))
        >>> print(inc.program)
        x = input()
        edge_index = input()
        Gated.z = map(x)
        Gated.sum = sum(Gated.z)
        Gated.out = map(x, Gated.sum)
        return Gated.out
    """
    if not (isinstance(conv, type) and issubclass(conv, MessagePassing)):
        raise UnsupportedModelError(
            f"register_conv: expected a subclass of MessagePassing (got {conv!r}); write "
            "@register_conv(MyConv) above the function that writes its program"
        )
    return register(conv)


def program_of(conv: torch.nn.Module) -> Builder:
    """The registered program for a conv.

    Raises:
        NotIncremental: If there is none, or the conv is not computed as its class says.
    """
    kind = next((c for c in type(conv).__mro__ if c in _BUILDERS), None)
    if kind is None:
        raise NotIncremental(f"{type(conv).__name__} has no program")
    another = why_another(conv, kind)
    if another:
        raise NotIncremental(f"{type(conv).__name__} overrides {kind.__name__}.{another}")
    parts = why_other_parts(conv) if kind.__module__.startswith("torch_geometric.") else ""
    if parts:
        raise NotIncremental(parts)
    return _BUILDERS[kind]


def has_program(conv: torch.nn.Module) -> bool:
    """Whether a conv is computed as its class says, and that has a program."""
    try:
        program_of(conv)
    except NotIncremental:
        return False
    return not why_watched(conv)


def registered() -> list[type[torch.nn.Module]]:
    """The conv classes with a program."""
    return list(_BUILDERS)


def builders() -> Mapping[type[torch.nn.Module], Builder]:
    """What writes the program of each of them."""
    return MappingProxyType(_BUILDERS)
