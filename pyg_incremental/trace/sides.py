"""Rows at both ends of pairs at once: `h[edge_label_index]`, `[2, num_pairs, channels]`.

They are rows of the pairs with the ends in a dimension of their own, `[num_pairs, 2, channels]`.
What picks an end, or reduces over both, is a row map.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from pyg_incremental.program.steps import Value
from pyg_incremental.trace.ids import arguments_of
from pyg_incremental.trace.looped import Looped
from pyg_incremental.trace.one_step import OneStep
from pyg_incremental.trace.written import Written

_REDUCES = ("sum", "prod", "mean", "amax", "amin")


@dataclass(frozen=True)
class Sides:
    """Rows at both ends of pairs, `[2, num_pairs, ...]`.

    Attributes:
        rows: The same as `[num_pairs, 2, ...]`, a value of domain `EDGE`.
    """

    rows: Value


ARRANGED = (Looped, OneStep, Sides)
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
    at: Any = None
    if name == "__getitem__":
        at = node.args[1]
        if isinstance(at, tuple) and at and all(part == slice(None) for part in at[1:]):
            at = at[0]
    elif name == "select" and given.get("dim") == 0:
        at = given.get("index")
    if type(at) is int and at in (0, 1, -1, -2):
        return program.map(node.name, partial(_one, at), [held.rows])
    if name == "unbind" and given.get("dim", 0) == 0:
        return tuple(
            program.map(f"{node.name}_{i}", partial(_one, i), [held.rows]) for i in range(2)
        )
    dims = given.get("dim")
    if isinstance(dims, (list, tuple)) and len(dims) == 1:
        (dims,) = dims
    if name in _REDUCES and dims == 0 and given.keys() == {"input", "dim"}:
        return program.map(node.name, partial(_reduced, name), [held.rows])
    return None


def _one(at: int, rows: Tensor) -> Tensor:
    return rows[:, at]


def _reduced(name: str, rows: Tensor) -> Tensor:
    made: Tensor = getattr(torch, name)(rows, dim=1)
    return made
