"""Calls of a method that do not keep its owner alive.

What a session is replaced by has its memory at once then, not when Python next looks for cycles.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakMethod

P = ParamSpec("P")
T = TypeVar("T")


def weakly(method: Callable[P, T]) -> Callable[P, T]:
    """The same call, for as long as the object lives whose method it is."""
    held = WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        found = held()
        assert found is not None, "its owner is gone"
        return found(*args, **kwargs)

    return call
