"""What a model has in hand, and what shares memory: who writes to one writes to the others."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx


@dataclass(frozen=True)
class HeldTensor:
    """A tensor that the model has in hand.

    Attributes:
        fake: What the model sees: a tensor without values, a `Sealed`, or a constant.
        node: What was written down for it.
        real: What it is on the probe.
    """

    fake: Any
    node: fx.Node
    real: Any


def counts_writes(real: Any) -> bool:
    """Whether a value is a tensor that knows how often it was written to."""
    return isinstance(real, Tensor) and not real.is_inference()


def memory_of(real: Any) -> Any:
    """What two tensors have in common that share memory."""
    if not isinstance(real, Tensor) or real.layout is not torch.strided:
        return id(real)
    return real.untyped_storage().data_ptr() or id(real)


def is_same_place(a: Any, b: Any) -> bool:
    """Whether two tensors are one and the same part of the same memory."""
    return a is b or (
        a.dtype == b.dtype
        and a.shape == b.shape
        and a.stride() == b.stride()
        and a.data_ptr() == b.data_ptr()
    )
