"""`int(batch.max()) + 1`, the number of graphs, and `len(x)` as sizes.

Python's `int` and `len` return a number whatever they are given, so a size that a model reads off a
tensor in that way cannot stay a symbol. While a model is recorded, they ask the recorder first in
the modules that its code is from, and in those of PyG that count so; else they are what they were.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import fx, nn
from torch_geometric.nn.aggr import base
from torch_geometric.utils import _scatter, num_nodes

from pyg_incremental.call import objects
from pyg_incremental.trace.names import name_of
from pyg_incremental.trace.sizes import is_fake

_COUNTING = (_scatter.__name__, num_nodes.__name__, base.__name__, objects.__name__)


@contextlib.contextmanager
def counted_by(size_of: Callable[[Any], Any], modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let `int(value)` be what `size_of(value)` says, unless that is None. One thread at a time."""

    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, int)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, int)

        def __call__(cls, *given: Any, **named: Any) -> Any:
            size = size_of(given[0]) if len(given) == 1 and not named else None
            return int(*given, **named) if size is None else size

    shadow = Kind("int", (), {"from_bytes": int.from_bytes, "bit_length": int.bit_length})

    def length(value: Any) -> Any:
        return value.shape[0] if is_fake(value) and value.dim() else len(value)

    shadows = {"int": shadow, "len": length}
    homes = {kind.__module__ for m in modules for kind in type(m).__mro__}
    own = {n for n in homes if n.partition(".")[0] not in ("torch", "builtins")}
    places = [vars(sys.modules[n]) for n in own.union(_COUNTING) if n in sys.modules]
    taken = [(place, name) for place in places for name in shadows if name not in place]
    for place, name in taken:
        place[name] = shadows[name]
    try:
        yield
    finally:
        for place, name in taken:
            del place[name]


def largest_of(node: fx.Node) -> tuple[fx.Node, int] | None:
    """The tensor of which a node is the largest value, and what is added to that."""
    if node.op != "call_function":
        return None
    name, given = name_of(node.target), [*node.args, *node.kwargs.values()]  # type: ignore[arg-type]
    if name in ("max", "amax") and len(given) == 1 and isinstance(given[0], fx.Node):
        return given[0], 0
    if name in ("add", "sub") and len(given) == 2 and isinstance(given[0], fx.Node):
        found, more = largest_of(given[0]), given[1]
        if found is not None and type(more) is int:
            return found[0], found[1] + (more if name == "add" else -more)
    return None
