"""Which modules compute each row from the same row of their inputs, in eval mode.

This is an allow-list: what is not known runs on all rows, which is always exact. For functions
there is one like it, `tracing.operations`.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn

ACTIVATIONS = (
    nn.CELU, nn.ELU, nn.GELU, nn.GLU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh,
    nn.LeakyReLU, nn.LogSigmoid, nn.Mish, nn.PReLU, nn.RReLU, nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU,
    nn.Sigmoid, nn.Softplus, nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Threshold,
)  # fmt: skip
_ROW_MODULES = (
    *ACTIVATIONS, nn.Identity, nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout, nn.Linear,
    nn.Bilinear, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.Embedding, nn.GRUCell, nn.LSTMCell,
    nn.RNNCell, pyg.Linear, pyg.HeteroLinear, pyg.MessageNorm, pyg.JumpingKnowledge,
    pyg.MaskLabel,
)  # fmt: skip
_OVER_STEPS = (
    nn.Conv1d, nn.ConvTranspose1d, nn.MaxPool1d, nn.AvgPool1d, nn.LPPool1d, nn.AdaptiveAvgPool1d,
    nn.AdaptiveMaxPool1d, nn.ConstantPad1d, nn.ZeroPad1d, nn.ReplicationPad1d, nn.ReflectionPad1d,
    nn.Upsample,
)  # fmt: skip
"""Modules over the last dimension of a series for each row, `[rows, channels, steps]`."""
COSTLY_MODULES = (
    nn.Conv1d,
    nn.TransformerEncoderLayer,
    nn.TransformerEncoder,
    nn.Linear,
    nn.Bilinear,
    nn.GRUCell,
    nn.LSTMCell,
    nn.RNNCell,
    pyg.Linear,
    pyg.HeteroLinear,
    pyg.MLP,
    nn.Sequential,
)


def as_it_is(rows: Any) -> Any:
    """The identity."""
    return rows


def why_not_row_wise(module: Callable[..., Any], rank: int = 2) -> str:
    """Why a module may mix rows, or an empty string if it cannot.

    Args:
        module: The module, or a function that stands in the place of one.
        rank: The number of dimensions of what it is given, the first one the rows.
    """
    kind: type[Any] = type(module)
    if not isinstance(module, nn.Module):
        name = getattr(module, "__name__", kind.__name__)
        return "" if module in _FUNCTIONS else f"{name} is not known to be row-wise"
    for part in module.modules():
        if part._forward_hooks or part._forward_pre_hooks:
            return f"hooks watch {type(part).__name__}"
        if "forward" in vars(part):
            return f"the forward of {type(part).__name__} was replaced"
    if kind in (nn.Sequential, nn.ModuleList):
        return _why_not_chain(module, rank)
    if kind is pyg.MLP:
        layer: Any = module
        parts = [*layer.lins, *layer.norms, *([layer.act] if layer.act is not None else [])]
        return next(filter(None, (why_not_row_wise(part, rank) for part in parts)), "")
    if kind is pyg.BatchNorm:
        return why_not_row_wise(module.module, rank)  # type: ignore[arg-type]
    reason = _RULES[kind](module, rank) if kind in _RULES else None
    if reason is not None:
        return reason
    if kind in _ROW_MODULES:
        return ""
    if isinstance(module, nn.Linear) and kind.forward is nn.Linear.forward:
        return _why_not_last(module, rank)
    return f"{kind.__name__} is not known to be row-wise"


def _why_not_chain(modules: Any, rank: int) -> str:
    for module in modules:
        reason = why_not_row_wise(module, rank)
        if reason:
            return reason
        if isinstance(module, nn.Unflatten):
            rank += len(module.unflattened_size) - 1
        elif isinstance(module, nn.Flatten):
            rank -= (module.end_dim % rank) - (module.start_dim % rank)
    return ""


def _inside(dim: Any, rank: int) -> bool:
    return isinstance(dim, int) and -rank < dim < rank and dim != 0


def _why_not_dim(layer: Any, rank: int) -> str:
    dim = layer.start_dim if isinstance(layer, nn.Flatten) else layer.dim
    return "" if _inside(dim, rank) else f"{type(layer).__name__} runs over dim={dim}"


def _why_not_last(layer: Any, rank: int) -> str:
    """Of what works on the last dimensions: they must leave out the rows."""
    width = len(layer.normalized_shape) if hasattr(layer, "normalized_shape") else 1
    return "" if width < rank else f"{type(layer).__name__} runs over the rows"


def _why_not_tracked(layer: Any, rank: int) -> str:
    inner = layer.norm if isinstance(layer, pyg.DiffGroupNorm) else layer
    if not inner.track_running_stats:
        return f"{type(layer).__name__} without tracked statistics uses those of all rows"
    return _why_not_last(layer, rank)


def _why_not_series(layer: Any, rank: int) -> str:
    return "" if rank == 3 else f"{type(layer).__name__} takes the rows for channels"


def _why_not_attended(layer: Any, rank: int) -> str:
    """Of a Transformer: the steps of each row attend to each other, if rows are the batch."""
    parts = [m for m in layer.modules() if isinstance(m, nn.MultiheadAttention)]
    if rank == 3 and parts and all(m.batch_first for m in parts) and not layer.training:
        return ""
    return f"{type(layer).__name__} without batch_first lets rows attend to each other"


def _why_not_node_mode(layer: Any, rank: int) -> str:
    if layer.mode != "node":
        return "LayerNorm(mode='graph') uses the statistics of all rows"
    return _why_not_last(layer, rank)


_RULES: dict[type[Any], Callable[[Any, int], str]] = {
    **dict.fromkeys(
        (nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.Flatten, nn.Unflatten, nn.GLU), _why_not_dim
    ),
    **dict.fromkeys((nn.BatchNorm1d, pyg.DiffGroupNorm, pyg.InstanceNorm), _why_not_tracked),
    **dict.fromkeys(
        (nn.Linear, pyg.Linear, nn.Bilinear, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.GRUCell,
         nn.LSTMCell, nn.RNNCell, pyg.MessageNorm, pyg.JumpingKnowledge),
        _why_not_last,
    ),
    **dict.fromkeys(_OVER_STEPS, _why_not_series),
    **dict.fromkeys((nn.TransformerEncoderLayer, nn.TransformerEncoder), _why_not_attended),
    pyg.LayerNorm: _why_not_node_mode,
}  # fmt: skip
"""For modules that mix rows under some conditions, why they do, or an empty string."""
_FUNCTIONS = {
    getattr(home, name)
    for home in (torch, F, torch.Tensor)
    for name in (
        "relu", "relu_", "tanh", "tanh_", "sigmoid", "sigmoid_", "elu", "elu_", "leaky_relu",
        "leaky_relu_", "gelu", "selu", "celu", "silu", "mish", "softplus", "softsign", "hardtanh",
        "hardswish", "hardsigmoid", "relu6", "logsigmoid", "tanhshrink", "softshrink", "hardshrink",
        "exp", "expm1", "log1p", "sqrt", "rsqrt", "square", "abs", "sin", "cos", "neg", "erf",
        "sign", "floor", "ceil", "round", "trunc", "reciprocal",
    )
    if hasattr(home, name)
}  # fmt: skip
"""Functions that may stand in the place of an activation."""
