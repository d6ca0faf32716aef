"""Which modules and functions compute each row from the same row of their inputs, in eval mode.

Both are allow-lists: what is not known runs on all rows, which is always exact.
"""

import operator as _op
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn.conv.hetero_conv import group

ACTIVATIONS = (
    nn.CELU, nn.ELU, nn.GELU, nn.GLU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh,
    nn.LeakyReLU, nn.LogSigmoid, nn.Mish, nn.PReLU, nn.RReLU, nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU,
    nn.Sigmoid, nn.Softplus, nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Threshold,
)  # fmt: skip
_ROW_MODULES = (
    *ACTIVATIONS, nn.Identity, nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout, nn.Linear,
    nn.Bilinear, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.Embedding, nn.GRUCell, nn.LSTMCell,
    nn.RNNCell, pyg.Linear, pyg.MessageNorm, pyg.JumpingKnowledge,
)  # fmt: skip
FRESH_MODULES = (
    *ACTIVATIONS, nn.Identity, nn.Dropout, nn.Linear, nn.BatchNorm1d, nn.LayerNorm, nn.RMSNorm,
    nn.Embedding, pyg.Linear, pyg.BatchNorm, pyg.LayerNorm, pyg.MessagePassing,
)  # fmt: skip
"""Modules whose result shares no memory with their argument, or stands for it."""
COSTLY_MODULES = (
    nn.Linear,
    nn.Bilinear,
    nn.GRUCell,
    nn.LSTMCell,
    nn.RNNCell,
    pyg.Linear,
    pyg.MLP,
    nn.Sequential,
)


def as_it_is(rows: Any) -> Any:
    """The identity."""
    return rows


def why_not_row_wise(module: Callable[..., Any]) -> str:
    """Why a module may mix rows, or an empty string if it cannot."""
    kind: type[Any] = type(module)
    name = kind.__name__
    if not isinstance(module, nn.Module):
        return (
            ""
            if module in _ELEMENTWISE
            else f"{getattr(module, '__name__', name)} is not known to be row-wise"
        )
    if module._forward_hooks or module._forward_pre_hooks:
        return f"hooks watch {name}"
    layer: Any = module  # what is asked for below differs from kind to kind
    if kind in (nn.Softmax, nn.LogSoftmax, nn.Softmin):
        return "" if layer.dim in (-1, 1) else f"{name} runs over dim={layer.dim}"
    if kind is nn.Flatten:
        return "" if layer.start_dim != 0 else "Flatten starts at dim 0"
    if kind is nn.Unflatten:
        return "" if layer.dim not in (0,) else "Unflatten splits dim 0"
    if kind is nn.BatchNorm1d or kind is pyg.DiffGroupNorm or kind is pyg.InstanceNorm:
        inner = layer.norm if kind is pyg.DiffGroupNorm else layer
        return (
            ""
            if inner.track_running_stats
            else f"{name} without tracked statistics uses those of all rows"
        )
    if kind is pyg.BatchNorm:
        return why_not_row_wise(layer.module)
    if kind is pyg.LayerNorm:
        return (
            ""
            if layer.mode == "node"
            else "LayerNorm(mode='graph') uses the statistics of all rows"
        )
    if kind is nn.Sequential or kind is nn.ModuleList:
        return next(filter(None, map(why_not_row_wise, layer)), "")
    if kind is pyg.MLP:
        parts = [*layer.lins, *layer.norms, *([layer.act] if layer.act is not None else [])]
        return next(filter(None, map(why_not_row_wise, parts)), "")
    if kind in _ROW_MODULES:
        return ""
    if isinstance(module, nn.Linear) and kind.forward is nn.Linear.forward:
        return ""
    return f"{name} is not known to be row-wise"


_ELEMENTWISE_NAMES = [
    "add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "neg", "negative",
    "pow", "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "square", "abs",
    "absolute", "sign", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "erf",
    "sigmoid", "logit", "relu", "relu_", "clamp", "clamp_", "clamp_min", "clamp_max", "clip",
    "where", "maximum", "minimum", "fmax", "fmin", "reciprocal", "floor", "ceil", "round", "trunc",
    "remainder", "fmod", "floor_divide", "lerp", "addcmul", "addcdiv", "isnan", "isinf", "isfinite",
    "nan_to_num", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not",
    "logical_xor", "zeros_like", "ones_like", "add_", "sub_", "mul_", "div_", "exp_", "sigmoid_",
    "tanh_", "neg_", "sqrt_", "abs_", "pow_", "masked_fill", "masked_fill_", "float", "double",
    "half", "to", "type", "contiguous", "clone", "detach", "bool", "int", "long", "celu", "selu",
    "gelu", "elu", "leaky_relu", "silu", "mish", "softplus", "softsign", "hardtanh", "hardswish",
    "hardsigmoid", "relu6", "logsigmoid", "tanhshrink", "softshrink", "hardshrink", "threshold",
    "elu_", "leaky_relu_", "prelu",
]  # fmt: skip
_ELEMENTWISE: set[Any] = set()
for _name in _ELEMENTWISE_NAMES:
    for _home in (torch, F, torch.Tensor):
        if hasattr(_home, _name):
            _ELEMENTWISE.add(getattr(_home, _name))
    if hasattr(torch.Tensor, _name):
        _ELEMENTWISE.add(_name)
_ELEMENTWISE |= {
    _op.add, _op.sub, _op.mul, _op.truediv, _op.neg, _op.pow, _op.pos, _op.iadd, _op.isub, _op.imul,
    _op.itruediv, _op.abs, _op.eq, _op.ne, _op.lt, _op.le, _op.gt, _op.ge, _op.and_, _op.or_,
    _op.invert, _op.mod, _op.floordiv,
}  # fmt: skip
_OVER_DIM = {
    torch.softmax, F.softmax, torch.log_softmax, F.log_softmax, F.softmin, torch.mean, torch.sum,
    torch.prod, torch.amax, torch.amin, torch.norm, torch.cumsum, torch.logsumexp, torch.var,
    torch.std, F.normalize, torch.unsqueeze, torch.squeeze, torch.chunk, torch.split, torch.unbind,
    torch.flatten, torch.max, torch.min, torch.argmax, torch.argmin, F.glu, torch.narrow, "softmax",
    "log_softmax", "mean", "sum", "prod", "amax", "amin", "norm", "cumsum", "logsumexp", "var",
    "std", "unsqueeze", "squeeze", "chunk", "split", "unbind", "flatten", "max", "min", "argmax",
    "argmin", "narrow",
}  # fmt: skip
_PAIRWISE = {torch.max, torch.min, "max", "min"}
_DIM_AT = {
    torch.chunk: 2,
    torch.split: 2,
    "chunk": 2,
    "split": 2,
    torch.norm: 2,
    "norm": 2,
    F.normalize: 2,
}
_DIM_DEFAULT = {F.normalize: 1, F.glu: -1}
VIEWS = {
    "view", "reshape", "getitem", "chunk", "split", "unbind", "t", "T", "transpose", "permute",
    "squeeze", "unsqueeze", "flatten", "unflatten", "narrow", "select", "detach", "contiguous",
    "expand", "expand_as", "view_as", "to", "float", "double", "type", "dropout", "alpha_dropout",
    "feature_alpha_dropout", "getattr", "movedim", "swapaxes", "swapdims", "real", "diagonal",
    "index_select", "__getitem__",
}  # fmt: skip
"""Functions whose result may share memory with their argument."""
RESHAPES = {torch.reshape, "view", "reshape"}
_JOINS = {torch.cat, torch.concat, torch.stack, torch.hstack, torch.column_stack}
_PRODUCTS = {torch.matmul, torch.mm, _op.matmul, "matmul", "mm", F.linear}
COSTLY_FUNCTIONS = _PRODUCTS
_SAME = {F.dropout, F.alpha_dropout, F.feature_alpha_dropout}
_NORMS = {F.layer_norm, F.rms_norm}


def why_not_row_function(
    fn: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    ranks: Sequence[int | None],
    rank: int | None,
) -> str:
    """Why a call of a function may mix rows, or an empty string if it cannot.

    Args:
        fn: The function, or the name of a tensor method.
        args: Its arguments; row values are recognised by `ranks`.
        kwargs: Its keyword arguments.
        ranks: For each argument the number of dimensions of a row value, or None where it is not
            one.
        rank: The number of dimensions of the result, whose first dimension is known to be the rows.
    """
    name = fn if isinstance(fn, str) else getattr(fn, "__name__", str(fn))
    if fn in _SAME:
        training = kwargs.get("training", args[2] if len(args) > 2 else True)
        return (
            f"{name} is active although the model is in eval mode" if training is not False else ""
        )
    row_ranks = {r for r in ranks if r is not None}
    if fn in _ELEMENTWISE or (
        fn in _PAIRWISE and len(row_ranks) == 1 and len(ranks) > 1 and ranks[1] is not None
    ):
        wrong = len(row_ranks) > 1 or (rank is not None and row_ranks != {rank})
        return f"{name} aligns rows with columns" if wrong else ""
    first = ranks[0] if ranks else None
    if fn in _PRODUCTS:
        others = [r for r in ranks[1:] if r is not None]
        return (
            ""
            if first is not None and first >= 2 and not others
            else f"{name} multiplies rows with rows"
        )
    if fn in _NORMS:
        shape = kwargs.get("normalized_shape", args[1] if len(args) > 1 else ())
        plain = isinstance(shape, (tuple, list)) and all(isinstance(d, int) for d in shape)
        return (
            "" if first is not None and plain and len(shape) < first else f"{name} runs over rows"
        )
    if fn in RESHAPES or fn is group:
        return ""
    if fn in _JOINS:
        dim = (
            1
            if fn in (torch.hstack, torch.column_stack)
            else kwargs.get("dim", args[1] if len(args) > 1 else 0)
        )
        return _dim_reason(name, dim, rank)
    if fn in _OVER_DIM:
        at = _DIM_AT.get(fn, 1)
        dim = kwargs.get("dim", args[at] if len(args) > at else _DIM_DEFAULT.get(fn))
        if fn in (torch.flatten, "flatten"):
            dim = kwargs.get("start_dim", dim)
        if fn in (torch.unsqueeze, "unsqueeze"):
            return _dim_reason(name, dim, rank)
        return _dim_reason(name, dim, first)
    return f"{name} is not known to be row-wise"


def _dim_reason(name: str, dim: Any, rank: int | None) -> str:
    dims = dim if isinstance(dim, (tuple, list)) else [dim]
    inside = rank is not None and all(
        isinstance(d, int) and -rank < d < rank and d != 0 for d in dims
    )
    return "" if inside else f"{name} runs over dim={dim}"


def why_not_index(index: Any) -> str:
    """Why indexing may mix rows, or an empty string if it picks columns only."""
    first = index[0] if isinstance(index, tuple) and index else index
    if first is Ellipsis or (isinstance(first, slice) and first == slice(None)):
        return (
            ""
            if isinstance(index, tuple)
            else ("" if first == slice(None) else "it picks columns by ...")
        )
    return "it picks rows by index"
