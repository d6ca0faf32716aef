"""What PyG makes of the graph alone, which each conv of a model makes anew: looked into once."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn
from torch_geometric.nn.conv import gcn_conv
from torch_geometric.utils import (  # fmt: skip
    add_remaining_self_loops,
    add_self_loops,
    get_laplacian,
    remove_self_loops,
)

from pyg_incremental.trace.listener import Observer
from pyg_incremental.trace.replaced import homes_of, replaced

_FUNCTIONS = (
    gcn_conv.gcn_norm, add_remaining_self_loops, add_self_loops, get_laplacian, remove_self_loops,
)  # fmt: skip
"""They write to none of their arguments, and give the same for the same."""


@contextlib.contextmanager
def repeats_seen_by(observer: Observer, modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let it be seen which of these functions are called; nobody else may trace.

    Args:
        observer: Who is to see it.
        modules: The model, in whose files the functions may go by names of their own.
    """
    thread = threading.get_ident()

    def seen(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread or observer.is_busy:
                return function(*args, **kwargs)
            return observer.repeatable(function, args, kwargs)

        return run

    with replaced({*homes_of(modules), gcn_conv}, {f: seen(f) for f in _FUNCTIONS}):
        yield
