"""What runs one step, and what others may ask of it instead of its class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.ops.message import BoundFunction
from pyg_incremental.rows import Cell, Context, Rows
from pyg_incremental.typing import Array

At = Callable[[Cell], int]
"""The place of a value in the table of cells (see `kernels.compiled.layout`)."""


class Operator(ABC):
    """Runs one step: `full` makes all rows, `rows_changed` those that an update changes.

    Where a step is part of a plan for the machine (see `kernels.compiled.layout`), it says why it
    may not be (`unknown`) and writes what it is (`lay_out`).

    Attributes:
        step: The step.
        out: What it makes.
        context: What it shares with other steps on the same nodes.
        inputs: What it reads row by row or whole; an aggregation says that in its own words.
        function: What its messages are, if these are functions of edges.
        is_given: Whether it takes what is handed in.
        computes: Whether its rows are a function, `fn`, of the same rows of its inputs.
        gathers: Whether it is an aggregation.
        takes_values: Whether it may read what has no rows, and follows that.
        takes_edges: Whether it has to see the edges that come and go before anything else does.
        kind_of_row: What the machine calls its kind.
        kernels: Of which kinds it calls kernels, see `kernels.kept`, beside those that all do.
        small_way: How the machine does it, as `Update.stats` calls that; empty if in one way only.
    """

    is_given: ClassVar[bool] = False
    computes: ClassVar[bool] = False
    gathers: ClassVar[bool] = False
    takes_values: ClassVar[bool] = False
    takes_edges: ClassVar[bool] = False
    kind_of_row: ClassVar[int] = m.NOTHING
    kernels: Sequence[str] = ()
    small_way: ClassVar[str] = ""
    inputs: Sequence[Cell] = ()
    function: BoundFunction | None = None

    def __init__(self, step: Any, out: Cell, context: Context) -> None:
        self.step, self.out, self.context = step, out, context

    @abstractmethod
    def full(self) -> None:
        """Make all rows afresh."""

    @abstractmethod
    def rows_changed(self) -> None:
        """Follow what changed in what it reads; tell which rows of the output have."""

    def take_graphs(self, graphs: Mapping[Cell, Any], over: Callable[[str], Context]) -> None:
        """Take what it reads whole: few steps read a graph, or rows of edges, so.

        Args:
            graphs: What holds each graph, see `InputExecutor`.
            over: Returns what steps over the edges of a graph share.
        """
        return

    def all_rows(self) -> list[Rows]:
        """Everything that is kept for each node."""
        return [self.out]

    def unknown(self, graph: DynamicGraph, dtype: torch.dtype, wide: torch.dtype) -> str:
        """Why the machine does not know it; empty if it does.

        Args:
            graph: The graph whose edges change.
            dtype: That of all rows of the machine.
            wide: Of which some sums may be.
        """
        return "this kind of step is not known"

    def lay_out(self, row: Array, numbers: Array, at: At, wide: bool) -> None:
        """Write what kind of step it is, and what it reads, int64 `[columns]` and floats `[2]`.

        Args:
            row: Its row in the table of steps, zeros.
            numbers: Its row of floats.
            at: The place of each value.
            wide: Whether what it computes is computed in float64, and most is not.
        """
        row[m.KIND] = self.kind_of_row
