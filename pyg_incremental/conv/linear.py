"""Linear layers and edge weights as row maps that read their parameters when they run."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import Linear as PyGLinear

from pyg_incremental.program.steps import NotIncremental, Program, Value


def flat_weight(program: Program, value: Value) -> Value:
    """Edge weights `[num_edges]` or `[num_edges, 1]` as one number per edge."""
    return program.map("edge_weight", _flat, [value], key="flat")


def _flat(w: Tensor) -> Tensor:
    if w.dim() > 1 and w.shape[1:].numel() != 1:
        raise NotIncremental(f"edge weights have shape {list(w.shape)}, not one number per edge")
    w = w.reshape(-1)
    return w if w.dtype.is_floating_point else w.to(torch.get_default_dtype())


def pays(weight: Tensor) -> bool:
    """Whether a map of this weight `[out, in]` is worth moving in front of a linear aggregation.

    The two agree, since `lin(sum(x)) = sum(lin(x))`; messages then are at most twice as wide.
    """
    return weight.shape[0] <= 2 * weight.shape[1]


def linear(
    module: torch.nn.Module, bias: bool = True, bias_of: torch.nn.Module | None = None
) -> Callable[[Tensor], Tensor]:
    """A linear layer as a function that reads its parameters when it runs.

    Args:
        module: The layer.
        bias: Whether its bias is added.
        bias_of: Another layer whose bias is added in its place.
    """
    for layer in (module, bias_of):
        if layer is not None and (
            type(layer).forward not in (torch.nn.Linear.forward, PyGLinear.forward)
            or "weight" not in layer._parameters  # made of others, as by weight_norm
        ):
            raise NotIncremental(f"{type(layer).__name__} stands in the place of a linear layer")
    weight, biases = module._parameters, (bias_of or module)._parameters
    if (bias or bias_of is not None) and biases.get("bias") is not None:
        return lambda x: F.linear(x, weight["weight"], biases["bias"])  # type: ignore[arg-type]
    return lambda x: F.linear(x, weight["weight"])  # type: ignore[arg-type]
