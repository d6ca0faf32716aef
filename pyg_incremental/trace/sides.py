"""Rows at both ends of pairs at once: `h[edge_label_index]`, `[2, num_pairs, channels]`.

They are rows of the pairs with the ends in a dimension of their own, `[num_pairs, 2, channels]`.
What picks an end, or reduces over both, is a row map. So it is with several rows of each node that
are stacked in front of each other, as where a conv combines aggregations; and with `rows.t()`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.trace.ids import arguments_of, swaps
from pyg_incremental.trace.looped import CatRows, Looped
from pyg_incremental.trace.one_step import OneStep
from pyg_incremental.trace.picked import Picked
from pyg_incremental.trace.series import LayerRows
from pyg_incremental.trace.written import Written

_REDUCES = ("sum", "prod", "mean", "amax", "amin")
_PICKS = ("max", "min", "median")


@dataclass(frozen=True)
class Sides:
    """Rows at both ends of pairs, `[2, num_pairs, ...]`, or several of each node.

    Attributes:
        rows: The same as `[num_pairs, 2, ...]`, a value of domain `EDGE` or `NODE`.
    """

    rows: Value


ARRANGED = (Looped, CatRows, OneStep, Sides, LayerRows, Picked)
"""What stands for rows in another arrangement."""


def of_sides(written: Written, node: fx.Node, name: str, held: Sides) -> Any:
    """What an operation makes of rows at both ends; None if that is no row map of the pairs.

    Args:
        written: What is written so far.
        node: The operation.
        name: What it is called.
        held: The rows that it is given first.
    """
    program, given = written.program, arguments_of(node, ("input", "dim", "index"))
    if swaps(node, name) and written.recorded.real[node.args[0]].dim() == 2:  # type: ignore[index]
        return held.rows
    at: Any = None
    if name == "__getitem__":
        at = node.args[1]
        if isinstance(at, tuple) and at and all(part == slice(None) for part in at[1:]):
            at = at[0]
    elif name == "select" and given.get("dim") == 0:
        at = given.get("index")
    count = len(written.recorded.real[node.args[0]])  # type: ignore[index]
    if type(at) is int and -count <= at < count:
        return program.map(node.name, partial(_one, at), [held.rows])
    if name == "unbind" and given.get("dim", 0) == 0:
        return tuple(
            program.map(f"{node.name}_{i}", partial(_one, i), [held.rows]) for i in range(count)
        )
    dims = given.get("dim")
    if isinstance(dims, (list, tuple)) and len(dims) == 1:
        (dims,) = dims
    if name in _REDUCES and dims == 0 and given.keys() == {"input", "dim"}:
        return program.map(node.name, partial(_reduced, name), [held.rows])
    if name in _PICKS and dims == 0 and given.keys() == {"input", "dim"}:
        return tuple(
            program.map(f"{node.name}_{i}", partial(_picked, name, i), [held.rows])
            for i in range(2)
        )
    return None


def beside(written: Written, node: fx.Node) -> Sides | None:
    """`stack` of rows of the same nodes in front of each other; None if it is something else."""
    given = arguments_of(node, ("tensors", "dim"))
    parts = given["tensors"]
    if not isinstance(parts, (list, tuple)) or given.get("dim", 0) != 0:
        return None
    held = [written.env.get(part) if isinstance(part, fx.Node) else None for part in parts]
    rows = [v for v in held if isinstance(v, Value) and v.domain is Domain.NODE]
    if len(rows) < len(held) or len({v.kind for v in rows}) != 1:
        return None
    made = written.program.map(node.name, _stacked, rows)
    written.examples.setdefault(made, written.recorded.real[node].transpose(0, 1))
    return Sides(made)


def _stacked(*rows: Tensor) -> Tensor:
    return torch.stack(rows, 1)


def as_sides(written: Written, name: str, held: Sides) -> Value:
    """Rows at both ends as the tensor that the model has."""
    reason = f"{name}: its result does not have one row for each input row"
    turn = partial(torch.transpose, dim0=0, dim1=1)
    return written.program.whole(name, turn, [held.rows], Domain.WHOLE, reason)


def _one(at: int, rows: Tensor) -> Tensor:
    return rows[:, at]


def _picked(name: str, part: int, rows: Tensor) -> Tensor:
    made: Tensor = getattr(torch, name)(rows, dim=1)[part]
    return made


def _reduced(name: str, rows: Tensor) -> Tensor:
    made: Tensor = getattr(torch, name)(rows, dim=1)
    return made
