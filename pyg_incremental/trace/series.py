"""A recurrent layer over each node's own series, `[num_nodes, steps, channels]`.

With `batch_first=True` it works on every node by itself: what it returns for all steps is a row
map, and so is each of its last states, of which it returns `[layers, num_nodes, channels]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.trace.ids import arguments_of
from pyg_incremental.trace.names import called
from pyg_incremental.trace.written import Written

_LAYERS = (nn.RNN, nn.GRU, nn.LSTM)


@dataclass(frozen=True)
class LayerRows:
    """Node rows of several layers, `[layers, num_nodes, channels]`.

    Attributes:
        rows: Those of each layer.
    """

    rows: tuple[Value, ...]


def is_over_series(layer: Any, rank: int) -> bool:
    """Whether a layer takes each row, of so many dimensions, for a series of its own."""
    if type(layer) not in _LAYERS or not layer.batch_first or layer.training or rank != 3:
        return False
    return not (layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer))


def sizes_of_series(count: Any, real: Any) -> Any:
    """The sizes of what such a layer returns for so many rows: of all steps, and of its states."""
    out, states = real
    several = states if isinstance(states, tuple) else (states,)
    sizes = tuple([state.shape[0], count, *state.shape[2:]] for state in several)
    return [count, *out.shape[1:]], sizes if isinstance(states, tuple) else sizes[0]


def of_series(written: Written, node: fx.Node, fn: Any) -> Any:
    """What an operation makes of series, or of the states of all layers; None if it does not.

    Args:
        written: What is written so far.
        node: The operation.
        fn: The function or module that it calls.
    """
    first = node.args[0] if node.args else None
    held = written.env.get(first) if isinstance(first, fx.Node) else None
    if isinstance(held, LayerRows):
        return _one_of(held, node)
    if not isinstance(held, Value) or held.domain is not Domain.NODE:
        return None
    rank = written.recorded.real[first].dim()  # type: ignore[index]
    alone = arguments_of(node, ("input", "hx")).get("hx") is None if is_over_series(fn, rank) else 0
    if not alone:
        return None
    add = partial(written.program.map, inputs=[held], costly=True)
    states = [
        LayerRows(
            tuple(add(f"{node.name}_{part}_{k}", partial(_state, fn, part, k)) for k in range(n))
        )
        for part, n in enumerate([_count(fn)] * (2 if isinstance(fn, nn.LSTM) else 1))
    ]
    out = add(node.name, partial(_steps, fn))
    return out, (states[0] if len(states) == 1 else tuple(states))


def _one_of(held: LayerRows, node: fx.Node) -> Value | None:
    """The rows of one layer, if an operation picks these."""
    name = called(node)
    at: Any = None
    if name == "__getitem__":
        at = node.args[1]
    elif name == "select" and node.args[1:2] == (0,) and not node.kwargs:
        at = node.args[2]
    elif name == "squeeze" and (*node.args[1:], *node.kwargs.values()) == (0,):
        at = 0 if len(held.rows) == 1 else None
    return held.rows[at] if type(at) is int else None


def _count(layer: nn.RNNBase) -> int:
    return layer.num_layers * (2 if layer.bidirectional else 1)


def _steps(layer: nn.RNNBase, rows: Tensor) -> Tensor:
    made: Tensor = layer.forward(rows)[0]
    return made


def _state(layer: nn.RNNBase, part: int, at: int, rows: Tensor) -> Tensor:
    state = layer.forward(rows)[1]
    made: Tensor = (state[part] if isinstance(layer, nn.LSTM) else state)[at]
    return made


def joined(rows: Value | tuple[Value, ...], written: Written, name: str) -> Value:
    """Rows of one step, or of some layers, as the tensor that the model has."""
    reason = f"{name}: its result does not have one row for each input row"
    several = list(rows) if isinstance(rows, tuple) else [rows]
    return written.program.whole(name, _stacked, several, Domain.WHOLE, reason)


def _stacked(*rows: Tensor) -> Tensor:
    return torch.stack(rows)
