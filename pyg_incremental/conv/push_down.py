"""When a linear map is worth moving in front of a linear aggregation.

The two agree, since `lin(sum(x)) = sum(lin(x))`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MLP


def pays(weight: Tensor) -> bool:
    """Whether a map of this weight `[out, in]` makes messages at most twice as wide."""
    return weight.shape[0] <= 2 * weight.shape[1]


def split_first_linear(
    nn: torch.nn.Module,
) -> tuple[torch.nn.Module, Callable[[Tensor], Tensor]] | None:
    """A network as its first linear layer and the rest.

    None if it does not begin with a linear layer that is worth moving.
    """
    if _plain_linear(nn):
        return nn, lambda h: h
    if type(nn) is torch.nn.Sequential and len(nn) and _plain_linear(nn[0]):
        return nn[0], lambda h: _run(list(nn)[1:], h)
    mlp: Any = nn
    if type(nn) is MLP and _plain_linear(mlp.lins[0]) and not nn._forward_hooks:
        return mlp.lins[0], lambda h: _rest_of_mlp(mlp, h)
    return None


def _plain_linear(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or type(module).__name__ != "Linear":
        return False
    return not module._forward_hooks and not module._forward_pre_hooks and pays(weight)


def _run(modules: list[torch.nn.Module], h: Tensor) -> Tensor:
    for module in modules:
        h = module(h)
    return h


def _rest_of_mlp(mlp: MLP, h: Tensor) -> Tensor:
    """What `MLP.forward` does in eval mode after its first linear layer."""
    for i, lin in enumerate(mlp.lins):
        if i:
            h = lin(h)
        if i == len(mlp.norms):
            break  # `plain_last`: nothing follows the last linear layer
        if mlp.act is not None and mlp.act_first:
            h = mlp.act(h)
        h = mlp.norms[i](h)
        if mlp.act is not None and not mlp.act_first:
            h = mlp.act(h)
    return h
