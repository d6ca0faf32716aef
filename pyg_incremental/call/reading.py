"""Which tensors of a call a model reads, found by running a copy of it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch_geometric.data.data import BaseData

from pyg_incremental.call.objects import reads, stores_of


class _Reading(TorchFunctionMode):
    """Notes which of some tensors are read while it is active."""

    def __init__(self, names: Mapping[int, str]) -> None:
        super().__init__()
        self._names = names
        self.read: set[str] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """A function of torch, or a method or property of a tensor."""
        if reads(func):
            self.note((args, kwargs))
        return func(*args, **(kwargs or {}))

    def note(self, value: Any) -> None:
        """Note the tensors in a value."""
        self.read |= {self._names[id(t)] for t in _inside(value) if id(t) in self._names}


def names_read(site: Any) -> set[str]:
    """The names of the tensors of a call that its model reads, or returns.

    How many rows one has counts as read, too. The model itself is not touched.

    Args:
        site: The call, with its tensors.

    Raises:
        Exception: Whatever the model raises.
    """
    tensors: Mapping[str, Any] = site.tensors
    if any(isinstance(m, torch.jit.ScriptModule) for m in site.modules()):
        return set(tensors)  # what it does inside is not seen
    given = {n: t.clone() if isinstance(t, Tensor) else t for n, t in tensors.items()}
    reading = _Reading({id(t): n for n, t in given.items() if isinstance(t, Tensor)})
    own = copy.deepcopy(site.model)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        on_copy = site.on(own)
        with reading:
            result = on_copy(*given.values())
        reading.note(result)
    return reading.read | {n for n, t in given.items() if not isinstance(t, Tensor)}


def _inside(value: Any) -> Iterator[Any]:
    """The tensors in containers and objects."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, BaseData):
        for store in stores_of(value).values():
            yield from _inside(store._mapping)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _inside(part)
    elif isinstance(value, (tuple, list, slice)):
        parts = (value.start, value.stop, value.step) if isinstance(value, slice) else value
        for part in parts:
            yield from _inside(part)
