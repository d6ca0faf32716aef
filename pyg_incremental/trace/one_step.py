"""Sequences of one step: `x.unsqueeze(0)`, which a recurrent layer takes for a batch of nodes.

An LSTM or GRU between convs (GeniePath, the MPNN for molecules) gets the rows of all nodes as one
step of as many sequences, `[1, num_nodes, channels]`, and each sequence is worked on by itself. So
what lies between `unsqueeze(0)` and `[0]` is a row map.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.trace.closures import Columns, beside
from pyg_incremental.trace.ids import arguments_of
from pyg_incremental.trace.names import name_of
from pyg_incremental.trace.written import Written

_LAYERS = (nn.RNN, nn.GRU, nn.LSTM)
_LIKE = ("zeros_like", "ones_like")
_LAST = (-1, 2)


@dataclass(frozen=True)
class OneStep:
    """Node rows with a dimension of one in front, `[1, num_nodes, channels]`."""

    rows: Value


class OneSteps:
    """Follows such sequences through a recorded graph.

    Args:
        written: What is written so far.
    """

    def __init__(self, written: Written) -> None:
        self._program, self._env, self._real = written.program, written.env, written.recorded.real
        self._examples = written.examples

    def read(self, node: fx.Node, fn: Any) -> Any:
        """What an operation makes of node rows as a sequence, or of such; None if it does not.

        Args:
            node: The operation.
            fn: The function or module that it calls.
        """
        name = name_of(fn) if node.op == "call_function" else ""
        first = node.args[0] if node.args else None
        if not isinstance(first, fx.Node):
            return self._joined(node) if name == "cat" else None
        held = self._env.get(first)
        if isinstance(held, Value) and held.domain is Domain.NODE:
            lifts = _is_at_front(node, name, "unsqueeze", None) and self._real[node].dim() == 3
            as_row = name in ("view", "reshape") and node.args[1:] == (1, -1)
            lifts = lifts or (as_row and self._real[first].dim() == 1)
            return OneStep(held) if lifts else None
        if isinstance(held, OneStep):
            if _is_at_front(node, name, "squeeze", 0):
                return held.rows
            if self._real[first].dim() == 2:  # one number for each node
                return None
            if name in _LIKE and len(node.args) == 1 and not node.kwargs:
                return self._made(node, getattr(torch, name), [held.rows])
            if type(fn) in _LAYERS:
                return self._through(node, fn)
        return None

    def _joined(self, node: fx.Node) -> OneStep | None:
        """`cat` of such along the channels."""
        given = arguments_of(node, ("tensors", "dim"))
        parts = [self._env.get(part) for part in given["tensors"]]
        if given.get("dim") not in _LAST or self._real[node].dim() != 3:
            return None
        steps = [part for part in parts if isinstance(part, OneStep)]
        return (
            self._made(node, beside, [part.rows for part in steps])
            if len(steps) == len(parts)
            else None
        )

    def filled(self, node: fx.Node, rows: Value) -> OneStep:
        """Rows that are the same for every node, as a sequence."""
        self._examples.setdefault(rows, self._real[node][0])
        return OneStep(rows)

    def _made(self, node: fx.Node, fn: Any, rows: list[Value]) -> OneStep:
        return self.filled(node, self._program.map(node.name, fn, rows))

    def _through(self, node: fx.Node, layer: nn.RNNBase) -> Any:
        """A recurrent layer on a sequence, from a state that is one, too, or none."""
        given = arguments_of(node, ("input", "hx"))
        state = given.get("hx")
        states = [*state] if isinstance(state, (tuple, list)) else [] if state is None else [state]
        held = [self._env.get(part) for part in (given["input"], *states)]
        plain = not (layer.batch_first or layer.bidirectional) and layer.num_layers == 1
        if not plain or not all(isinstance(part, OneStep) for part in held):
            return None
        if layer._forward_hooks or layer._forward_pre_hooks:
            return None
        has_cell = isinstance(layer, nn.LSTM)

        def step(rows: Tensor, *state: Tensor) -> Tensor:
            before: Any = None
            if state:
                before = tuple(part.unsqueeze(0) for part in state)
                before = before if has_cell else before[0]
            _, after = layer.forward(rows.unsqueeze(0), before)
            return torch.cat(after, -1)[0] if has_cell else after[0]

        name, inputs = node.name, [part.rows for part in held]  # type: ignore[union-attr]
        found = self._program.map(name, step, inputs, costly=True)
        real, _ = self._real[node]
        if not has_cell:
            self._examples.setdefault(found, real[0])
            return OneStep(found), OneStep(found)
        wide, parts = real.shape[-1], []
        for part, (first, last) in enumerate(((0, wide), (wide, None))):
            rows = self._program.map(f"{name}_{part}", Columns(first, last), [found])
            self._examples.setdefault(rows, self._real[node][1][part][0])
            parts.append(OneStep(rows))
        return parts[0], tuple(parts)


def _is_at_front(node: fx.Node, name: str, function: str, index: int | None) -> bool:
    """Whether an operation is `function(0)`, or indexes the first dimension alone by `index`."""
    if name == "__getitem__":
        at = node.args[1]
        if isinstance(at, tuple) and at[1:] and all(part == slice(None) for part in at[1:]):
            at = at[0]
        return at is None if index is None else type(at) is int and at == index
    if name == "select" and index is not None:
        return node.args[1:] == (0, index) and not node.kwargs
    return name == function and (*node.args[1:], *node.kwargs.values()) == (0,)
