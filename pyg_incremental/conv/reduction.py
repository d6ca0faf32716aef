"""From a PyG aggregation module to steps: sums, extrema, softmax, and maps around them.

Chosen by `aggr_module`, never by the name of a conv. What has no rule of its own is computed again
row by row, and what is not local to rows is refused.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import aggr

from pyg_incremental.conv.primitives import Primitives
from pyg_incremental.conv.row_local import is_row_local, reduced
from pyg_incremental.conv.sorting import Sorting, is_sort, with_stand_ins
from pyg_incremental.ops import Neighborhood, divided, softmax_result
from pyg_incremental.ops.message import EdgeFunction, Message, Weighted
from pyg_incremental.program.row_wise import as_it_is
from pyg_incremental.program.steps import NotIncremental, Value

Reduction = Callable[[Primitives, Any, Message, str], Value]
_REDUCTIONS: dict[type[nn.Module], Reduction] = {}


def reduction(call: Primitives, module: nn.Module, message: Message, part: str) -> Value:
    """The messages reduced by `module`, `[num_nodes, channels]` (multi-dimensional ones flat).

    Raises:
        NotIncremental: If a row of the module's result depends on other rows' messages.
    """
    rule = _REDUCTIONS.get(type(module)) if call.dtype.is_floating_point else None
    if rule is None or module._forward_hooks or module._forward_pre_hooks:
        return by_rows(call, module, message, part)
    return rule(call, module, message, part)


def _rule(*kinds: type[nn.Module]) -> Callable[[Reduction], Reduction]:
    def add(rule: Reduction) -> Reduction:
        _REDUCTIONS.update(dict.fromkeys(kinds, rule))
        return rule

    return add


def by_rows(call: Primitives, module: nn.Module, message: Message, part: str) -> Value:
    """The exact fallback: a row is computed again from all of its messages."""
    message = as_function(message)

    def messages(around: Neighborhood) -> Tensor:
        at_targets = (t[around.index] for t in around.target)
        rows: Tensor = message.fn(*around.source, *at_targets, *around.edge)
        return rows.flatten(1)

    def fn(around: Neighborhood) -> Tensor:
        return reduced(module, messages(around), around.index, around.num_rows)

    def sort(around: Neighborhood, padding: Tensor | None) -> tuple[Tensor, Tensor]:
        run, at = Sorting(slice(around.num_rows), padding), around.by_age
        if not call.is_coo:  # in a matrix the entries of a row stand in order of their columns
            at = at[around.neighbor[at].argsort(stable=True)]
            at = at[around.index[at].argsort(stable=True)]
        rows = messages(around)[at]
        made = with_stand_ins(module, run)(rows, around.index, dim_size=around.num_rows)
        return made, run.known(around.num_rows)

    if is_sort(module):
        return call.padded_rows(part, sort, message.source, message.target, message.edges)
    if not is_row_local(module, flat=True):
        raise NotIncremental(f"{module} is not local to rows")
    return call.rows(part, fn, message.source, message.target, message.edges)


def as_function(message: Message) -> EdgeFunction:
    """Any message as a function of rows."""
    if isinstance(message, EdgeFunction):
        return message
    if isinstance(message, Weighted):
        return EdgeFunction(_times, (message.source,), (), (message.weight,))
    return EdgeFunction(as_it_is, (message,), (), ())


def _times(rows: Tensor, weight: Tensor) -> Tensor:
    return rows * weight.view(-1, *[1] * (rows.dim() - 1))


def mapped(
    call: Primitives, message: Message, fn: Callable[[Tensor], Tensor], part: str
) -> Message:
    """The message, `[k, channels]`, with a function applied to it, channel by channel."""
    if isinstance(message, Value):
        return call.map(part, fn, message)
    inner = as_function(message)
    return EdgeFunction(
        lambda *rows: fn(inner.fn(*rows).flatten(1)), inner.source, inner.target, inner.edges
    )


@_rule(aggr.SumAggregation)
def _sum(call: Primitives, module: nn.Module, message: Message, part: str) -> Value:
    return call.total(message, part)


@_rule(aggr.MeanAggregation)
def _mean(call: Primitives, module: nn.Module, message: Message, part: str) -> Value:
    return call.map(
        f"{part}_mean", divided, call.total(message, f"{part}_sum"), call.degree(None, call.loops)
    )


@_rule(aggr.MaxAggregation, aggr.MinAggregation)
def _extremum(call: Primitives, module: nn.Module, message: Message, part: str) -> Value:
    return call.extremum(message, isinstance(module, aggr.MaxAggregation), part)


@_rule(aggr.VarAggregation, aggr.StdAggregation)
def _spread(call: Primitives, module: nn.Module, message: Message, part: str) -> Value:
    """Sums of x and x^2 in float64: their difference is small where PyG's root is steep."""

    def moments(x: Tensor) -> Tensor:
        x = x.flatten(1).double()
        return torch.cat([x, x * x], 1)

    finish = _std if isinstance(module, aggr.StdAggregation) else _var
    total = call.total(mapped(call, message, moments, f"{part}_moments"), f"{part}_moments_sum")
    run = partial(finish, dtype=call.dtype)
    # Costly, so that what reads it is a map of its own, all in the dtype of the rows.
    return call.map(f"{part}_spread", run, total, call.degree(None, call.loops), costly=True)


def _var(total: Tensor, count: Tensor, dtype: torch.dtype) -> Tensor:
    mean, mean_of_squares = divided(total, count.double()).chunk(2, 1)
    return (mean_of_squares - mean * mean).to(dtype)


def _std(total: Tensor, count: Tensor, dtype: torch.dtype) -> Tensor:
    out = _var(total, count, torch.float64).clamp(min=1e-5).sqrt()
    return out.masked_fill(out <= math.sqrt(1e-5), 0.0).to(dtype)


@_rule(aggr.SoftmaxAggregation)
def _softmax(call: Primitives, module: Any, message: Message, part: str) -> Value:
    """Every channel is a head of its own, whose value is also its logit."""
    if isinstance(message, Value):
        source = call.map(f"{part}_terms", lambda x: torch.cat([x, x * module.t], 1), message)
        # The target has no part in the logits: a zero for each channel.
        width = call.example(message).shape[1]
        ones = call.program.ones(call.target_kind)
        no_part = call.map(f"{part}_none", lambda one: one.new_zeros(len(one), width), ones)
        state = call.softmax(source, no_part, None, None, 1.0, part=f"{part}_softmax")
        return call.map(part, lambda s: softmax_result(s, s.shape[1] // 3), state)
    inner = as_function(message)

    def terms(*rows: Tensor) -> tuple[Tensor, Tensor]:
        x = inner.fn(*rows).flatten(1)
        return x * module.t, x[:, :, None]

    state = call.softmax_of(replace(inner, fn=terms), None, f"{part}_softmax")
    return call.map(part, lambda s: softmax_result(s, s.shape[1] // 3), state)


@_rule(aggr.PowerMeanAggregation)
def _power_mean(call: Primitives, module: Any, message: Message, part: str) -> Value:
    p, dtype = module.p, call.dtype
    if isinstance(p, (int, float)) and p == 1:
        return _mean(call, module, message, part)
    powers_of = p.detach().flatten().tolist() if isinstance(p, Tensor) else [p]
    if not all(0 < each <= 2 for each in powers_of):
        return by_rows(call, module, message, part)  # the root would magnify what a sum rounds

    def clamped(x: Tensor) -> Tensor:
        return x.clamp(min=module.min_value, max=module.max_value)

    def power(x: Tensor) -> Tensor:
        return clamped(x).pow(module.p).double()

    def root(mean: Tensor) -> Tensor:
        return clamped(mean).pow(1.0 / module.p).to(dtype)

    powers = mapped(call, message, power, f"{part}_powers")
    return call.map(f"{part}_root", root, _mean(call, module, powers, part))


@_rule(aggr.MultiAggregation)
def _several(call: Primitives, module: Any, message: Message, part: str) -> Value:
    parts = [reduction(call, m, message, f"{part}_{i}") for i, m in enumerate(module.aggrs)]
    costly = module.mode in ("proj", "attn")
    return call.map(f"{part}_combined", lambda *a: module.combine(list(a)), *parts, costly=costly)


@_rule(aggr.DegreeScalerAggregation)
def _scaled(call: Primitives, module: Any, message: Message, part: str) -> Value:
    inner = reduction(call, module.aggr, message, f"{part}_inner")

    def scale(rows: Tensor, count: Tensor) -> Tensor:
        return torch.cat([rows * scaled_by(module, name, count) for name in module.scaler], dim=-1)

    return call.map(f"{part}_scaled", scale, inner, call.degree(None, call.loops))


def scaled_by(module: Any, name: str, count: Tensor) -> Any:
    """Corso et al., 2020, Eq. 5; PyG counts an isolated node as one where it divides.

    `count` is the degree, `[k, 1]`, and so is the factor, but 1.0 for `identity`.
    """
    some = count.clamp(min=1)
    if name == "amplification":
        return torch.log(count + 1) / module.avg_deg_log
    if name == "attenuation":
        return module.avg_deg_log / torch.log(some + 1)
    if name == "linear":
        return count / module.avg_deg_lin
    if name == "inverse_linear":
        return module.avg_deg_lin / some
    return 1.0
