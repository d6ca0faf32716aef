"""Steps of optimizers, of which some leave no trace in the tensors that they write to."""

from functools import cache
from typing import Any, Protocol
from weakref import WeakSet

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook


class _Watching(Protocol):
    memory: frozenset[int]
    is_stepped: bool


_watching: "WeakSet[Any]" = WeakSet()


def tell_of_steps(watch: _Watching) -> None:
    """Set `is_stepped` whenever an optimizer of this process writes to any of `memory`.

    That is told of by memory (see `memory_of`): an optimizer may have been given other tensors over
    the same one.
    """
    _begin()
    _watching.add(watch)


def memory_of(tensor: Tensor) -> int:
    """Where the memory begins that a tensor, of any shape, is a part of; zero if it has none."""
    if tensor.layout is not torch.strided:
        return 0
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:  # a tensor of a class that wraps others
        return 0


@cache
def _begin() -> None:
    register_optimizer_step_post_hook(_after_step)


def _after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    watching = list(_watching)
    if not watching:
        return
    stepped = {memory_of(p) for group in optimizer.param_groups for p in group["params"]} - {0}
    for watch in watching:
        if not stepped.isdisjoint(watch.memory):
            watch.is_stepped = True
