"""Operations of a traced model as functions of the values that they read."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch_geometric.nn import MessagePassing

from pyg_incremental.call.full_pass import plainly
from pyg_incremental.program.steps import Value
from pyg_incremental.trace.nested import rebuilt
from pyg_incremental.trace.written import Written


@dataclass(frozen=True)
class Live:
    """A parameter or buffer."""

    read: Callable[[], Any]


def closure(written: Written, node: fx.Node, fn: Any) -> tuple[Callable[..., Any], list[Value]]:
    """`fn` with everything but program values filled in, and these values."""
    values, learned = written.values(node), written.learned
    held = {n: written.env[n] for n in node.all_input_nodes}
    call: Callable[..., Any] = fn
    hooked = isinstance(fn, nn.Module) and (fn._forward_hooks or fn._forward_pre_hooks)
    if isinstance(fn, nn.Module) and not hooked and type(fn).__call__ is nn.Module.__call__:
        call = fn.forward
    if node in written.recorded.writes:
        call = _on_copies(call)  # the rows handed in may be the stored ones
    others: list[fx.Node] = []
    fx.node.map_arg((node.args[1:], node.kwargs), others.append)
    first = node.args[0] if node.args and not others else None
    if isinstance(first, fx.Node) and [held[first]] == values:
        rest, named = node.args[1:], node.kwargs
        return (lambda rows: call(rows, *rest, **named)) if rest or named else call, values

    def filled(value: Any, rows: tuple[Any, ...]) -> Any:
        """What stands for what a node made."""
        if isinstance(value, Value):
            return rows[values.index(value)] if value in values else learned[value]()
        if isinstance(value, dict):
            return {key: filled(part, rows) for key, part in value.items()}
        if isinstance(value, tuple):
            return tuple(filled(part, rows) for part in value)
        return value.read()

    def reader(arg: Any) -> Callable[[tuple[Any, ...]], Any]:
        """How an argument is had from rows; walking through it takes longer than a small step."""
        if isinstance(arg, fx.Node) and isinstance(held[arg], Value) and held[arg] in values:
            return itemgetter(values.index(held[arg]))
        nodes: list[fx.Node] = []
        fx.node.map_arg(arg, nodes.append)
        if not nodes:
            return lambda rows: arg
        return lambda rows: fx.node.map_arg(arg, lambda n: filled(held[n], rows))

    args = [reader(arg) for arg in node.args]
    kwargs = {name: reader(arg) for name, arg in node.kwargs.items()}

    def run(*rows: Any) -> Any:
        more = {name: read(rows) for name, read in kwargs.items()}
        return call(*[read(rows) for read in args], **more)

    return run, values


def _on_copies(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, for which what it writes to is its own."""

    def copied(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.clone()
        return rebuilt(value, copied) if isinstance(value, (tuple, list, dict)) else value

    return lambda *args, **kwargs: fn(
        *map(copied, args), **{name: copied(value) for name, value in kwargs.items()}
    )


def flattened(rows: Tensor) -> Tensor:
    """Rows `[k, ...]` as a matrix, `[k, channels]`."""
    return rows.reshape(len(rows), rows.shape[1:].numel())


def numbers(rows: Tensor) -> Tensor:
    """Rows `[k, 1]` as the numbers that they hold, `[k]`."""
    return rows[:, 0]


def as_it_runs(conv: MessagePassing) -> Callable[..., Any]:
    """A conv as PyG runs it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with plainly(conv):
            return conv(*args, **kwargs)

    return call


@dataclass(frozen=True)
class Columns:
    """Some columns of rows `[k, channels]`.

    Attributes:
        first: The first of them.
        last: The one behind the last; None for all that are left.
    """

    first: int
    last: int | None

    def __call__(self, rows: Tensor) -> Tensor:
        """These columns, `[k, last - first]`."""
        return rows[:, self.first : self.last]


def beside(*rows: Tensor) -> Tensor:
    """Rows `[k, channels]` beside each other."""
    return torch.cat(rows, -1)
