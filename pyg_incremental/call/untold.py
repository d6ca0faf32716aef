"""Lists and arrays with an entry for each node or edge: they hold values, and cannot be followed.

Only tensors are followed. A list, NumPy array or table that a model is called with stays as it was
in the first call, which is wrong once a node or an edge comes or leaves if it has an entry for each
of them. So it is asked for: as a tensor, or with a word that it stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from torch import Tensor
from torch_geometric.data.data import BaseData

from pyg_incremental.errors import InvalidDeltaError

_OPERATORS = (
    "len", "iter", "getitem", "array", "bool", "eq", "ne", "lt", "le", "gt", "ge", "contains",
    "int", "float", "index", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv",
    "matmul", "rmatmul", "neg", "pow", "reversed", "setitem",
)  # fmt: skip


def has_entries(value: Any, counts: Collection[int]) -> bool:
    """Whether a value that is no tensor may have an entry for each of so many nodes or edges."""
    if value is None or isinstance(value, (str, bytes, Tensor, BaseData, Untold)):
        return False
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return any(n in counts for n in shape)
    if isinstance(value, (list, tuple)) and any(isinstance(v, (Tensor, BaseData)) for v in value):
        return False
    try:
        return len(value) in counts
    except TypeError:
        return False


def refused(name: str, value: Any) -> InvalidDeltaError:
    """The question what such a value is."""
    return InvalidDeltaError(
        f"'{name}' is a {type(value).__name__} with as many entries as there are nodes, edges or "
        "graphs, and only tensors follow deltas; pass a tensor, as by "
        f"torch.as_tensor({name.rpartition('/')[2]}), or say that it stays as it is: "
        f"to_incremental(model, roles={{{name!r}: 'constant'}})"
    )


class Untold:
    """Stands in an object for such a value, of which a model may make no use.

    It is of the class of the value as far as `isinstance` can tell, so that a model which looks at
    that goes the way that it goes with the value.

    Args:
        name: The field.
        value: What the user has there.
    """

    def __init__(self, name: str, value: Any) -> None:
        vars(self).update(name=name, value=value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(vars(self)["value"])

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._read()

    def _read(self, *_: Any, **__: Any) -> Any:
        held = vars(self)
        raise refused(held["name"], held["value"])

    def __reduce__(self) -> tuple[Any, ...]:
        held = vars(self)
        return Untold, (held["name"], held["value"])


for _name in _OPERATORS:
    setattr(Untold, f"__{_name}__", Untold._read)


def is_untold(value: object) -> bool:
    """Whether it stands for a value that has an entry for each node or edge."""
    return type(value) is Untold


def ask_what_is_read(held: Iterable[Any], error: Exception) -> None:
    """Ask what a value is that a model hands to what looks at no operator, such as `from_numpy`.

    Args:
        held: The objects of a call.
        error: What was raised.

    Raises:
        InvalidDeltaError: If that is about such a value.
    """
    found = [vars(value) for part in held for _, value in part.plain if is_untold(value)]
    if found and Untold.__name__ in str(error):
        raise refused(found[0]["name"], found[0]["value"]) from error


def kind_of(value: Any) -> str:
    """The name of the class of the value that one stands for."""
    return type(vars(value)["value"]).__name__


def refuse_constants(
    constants: Iterable[tuple[str, Any]], counts: Collection[int], said: Collection[str]
) -> None:
    """See that no argument has an entry for each node or edge that is no tensor.

    Args:
        constants: The arguments that are no tensors.
        counts: The numbers of nodes and edges.
        said: The arguments that the user has said something of.

    Raises:
        InvalidDeltaError: If there is one.
    """
    for name, value in constants:
        if name not in said and has_entries(value, counts):
            raise refused(name, value)
