"""Functions of PyG under the names by which modules have imported them, replaced for a while."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import nn


@contextlib.contextmanager
def replaced(homes: Iterable[Any], instead: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Let others run in the place of functions; nobody else may trace.

    Args:
        homes: The modules of Python in which they go by any name.
        instead: What runs in the place of each.
    """
    places = [
        (home, name, held, run)
        for home in homes
        for name, held in list(vars(home).items())
        for function, run in instead.items()
        if held is function
    ]
    for home, name, _, run in places:
        setattr(home, name, run)
    try:
        yield
    finally:
        for home, name, held, _ in places:
            setattr(home, name, held)


def homes_of(modules: Iterable[nn.Module]) -> set[Any]:
    """The modules of Python in which those of a model are written, and what they inherit of."""
    names = {kind.__module__ for m in modules for kind in type(m).__mro__}
    return {sys.modules[name] for name in names if name in sys.modules}
