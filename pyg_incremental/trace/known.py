"""Operations that passes over a program know: linear layers, biases, sums of rows, and means."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch_geometric.nn import Linear as PyGLinear

from pyg_incremental.ops import Biased, Linear, OwnMessage, added, divided
from pyg_incremental.program.steps import Value, fn_of
from pyg_incremental.trace.closures import Live, beside, flattened, numbers
from pyg_incremental.trace.names import called, name_of
from pyg_incremental.trace.written import Written

Known = tuple[Callable[..., Tensor], list[Value]]
"""A function that passes over a program know, and what it reads."""


def known(written: Written, node: fx.Node, fn: Any) -> Known | None:
    """An operation on rows `[k, channels]` as a function that passes over a program know.

    Args:
        written: What is written so far.
        node: The operation.
        fn: The function or module that it calls.

    Returns:
        The function and the values that it reads; None if it is none of these.
    """
    env, real = written.env, written.recorded.real
    parts = [env[n] for n in beside_each_other(node) if real[n].dim() == 2]
    if parts and all(isinstance(part, Value) for part in parts):
        return beside, parts
    given = [*node.args, *node.kwargs.values()]
    nodes = [n for n in given if isinstance(n, fx.Node)]
    if not nodes:
        return None
    rowed = (n for n in nodes if isinstance(env[n], Value) and env[n] not in written.learned)
    rows = next(rowed, nodes[0])
    if not isinstance(env[rows], Value) or real[rows].dim() != 2:
        return None
    if isinstance(fn, nn.Linear | PyGLinear):
        layer = _layer(fn) if len(given) == 1 else None
        return None if layer is None else (layer, [env[rows]])
    name = name_of(fn) if node.op == "call_function" else ""
    if node in written.recorded.writes:  # what is read instead is the result
        name = name.removesuffix("_") if real[node].dtype == real[rows].dtype else ""
    if name == "addmm":
        return _mixed(written, node)
    if name == "linear":
        weights = [env[n].read for n in nodes if isinstance(env[n], Live)]
        if nodes[0] is rows and weights and len(weights) == len(nodes) - 1:
            return Linear(weights[0], weights[1] if weights[1:] else None), [env[rows]]
    if name == "mul":
        weight = _number(written, given, rows)
        kept = weight is not None and real[node].dtype == real[rows].dtype
        return (OwnMessage(weight), [env[rows]]) if weight is not None and kept else None
    both = [real[n] for n in nodes if isinstance(real[n], Tensor)]
    if len(given) != 2 or len(both) != 2 or both[0].dtype != both[1].dtype:
        return None
    (other,) = (n for n in nodes if n is not rows) if nodes[0] is not nodes[1] else (rows,)
    if name == "div" and nodes[0] is rows and real[other].shape == real[rows].shape:
        count = _clamped(written, other)
        return None if count is None else (divided, [env[rows], count])
    if name != "add":
        return None
    if isinstance(env[other], Live) and real[other].shape == real[rows].shape[1:]:
        return Biased(env[other].read), [env[rows]]
    alike = isinstance(env[other], Value) and real[other].shape == real[rows].shape
    return (added, [env[n] for n in nodes]) if alike else None


def beside_each_other(node: fx.Node) -> Sequence[fx.Node]:
    """What an operation puts beside each other, rows `[k, channels]`; nothing if it does not."""
    if called(node) not in ("cat", "concat", "concatenate"):
        return ()
    given = dict(zip(("tensors", "dim"), node.args, strict=False)) | node.kwargs
    parts = given["tensors"]
    return parts if given.get("dim") in (-1, 1) else ()  # type: ignore[return-value]


def _mixed(written: Written, node: fx.Node) -> Known | None:
    """`beta h + alpha h W`, of rows `h` and a square `W`, as a linear layer."""
    given: list[Any] = [*node.args]
    scales: dict[str, Any] = {"beta": 1, "alpha": 1} | node.kwargs
    if len(given) != 3 or given[0] is not given[1]:
        return None
    held = written.env.get(given[2])
    plain = all(isinstance(number, (int, float)) for number in scales.values())
    if not isinstance(held, Live) or not plain or len(scales) != 2:
        return None

    def mixed() -> Tensor:
        weight: Tensor = held.read().t()
        own = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
        return torch.add(scales["beta"] * own, weight, alpha=scales["alpha"])

    return Linear(mixed, None), [written.env[given[0]]]


def _number(written: Written, given: list[Any], rows: fx.Node) -> Callable[[], Any] | None:
    """What gives the only number that rows are multiplied with."""
    others = [g for g in given if g is not rows]
    if len(given) != 2 or len(others) != 1:
        return None
    (other,) = others
    if isinstance(other, (int, float)):
        return lambda: other
    if not isinstance(other, fx.Node):
        return None
    held, real = written.env[other], written.recorded.real[other]
    if not isinstance(real, Tensor) or real.numel() != 1 or real.dim() > 1:
        return None
    return held.read if isinstance(held, Live) else written.learned.get(held)


def _clamped(written: Written, node: fx.Node) -> Value | None:
    """The numbers, `[k, 1]`, of which a node has one in each column, those below 1 taken as 1.

    `divided` does that: what counts in-edges is handed to it as it is.
    """
    while isinstance(node, fx.Node) and name_of(node.target) in ("view", "expand_as"):  # type: ignore[arg-type]
        node = node.args[0]  # type: ignore[assignment]
    if not isinstance(node, fx.Node) or name_of(node.target) != "clamp":  # type: ignore[arg-type]
        return None
    limits = {**node.kwargs, **dict(zip(("min", "max"), node.args[1:], strict=False))}
    held, real = written.env[node], written.recorded.real[node]
    if limits != {"min": 1} or not isinstance(held, Value) or real.dim() != 1:
        return None
    count = written.env.get(node.args[0])  # type: ignore[arg-type]
    for step in written.program.steps:
        if step.output is count and fn_of(step) is numbers:
            return step.inputs[0]
    return written.program.map(f"{held}_column", flattened, [held], key="flat")


def _layer(layer: nn.Module) -> Linear | None:
    """A linear layer as it is in PyTorch and in PyG."""
    plain = type(layer).forward in (nn.Linear.forward, PyGLinear.forward)
    hooked = layer._forward_hooks or layer._forward_pre_hooks
    if not plain or hooked or "weight" not in layer._parameters:  # made of others, by weight_norm
        return None
    held: dict[str, Any] = layer._parameters
    bias = None if held.get("bias") is None else lambda: held["bias"]
    return Linear(lambda: held["weight"], bias)
