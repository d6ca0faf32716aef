"""One aggregation on a block of rows: its own executor on the block as a small graph.

Every kind of aggregation knows how to make all rows of a graph (`Aggregator.full`). A block is a
graph of its own, of the rows to be made and of the neighbours that they read, so that there is one
code, and one set of kernels, for a whole graph and for a block of one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.blocks.in_edges import BlockEdges
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import Edges
from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.ops import Aggregator
from pyg_incremental.program.steps import Domain, Step, Value
from pyg_incremental.rows import Backend, Cell, Context, NodeSet
from pyg_incremental.typing import Array


class BlockGraph:
    """A block as a graph: what aggregations ask of one when they make all rows.

    Args:
        edges: Its edges; slot `i` holds number `i`.
        reverse: Whether they are gathered over out-edges.
    """

    def __init__(self, edges: BlockEdges, reverse: bool) -> None:
        self._edges, self._reverse = edges, reverse
        degree = edges.degree
        start = np.cumsum(degree, dtype=np.int64) - degree
        count = len(edges.neighbor)
        self.num_edges = count
        # An aggregation gathers over one of the two lists and asks for no other.
        lists = Adjacency(start, degree, degree, edges.neighbor, np.arange(count, dtype=np.int32))
        self.out = self.inn = lists
        self.slots = SimpleNamespace(order=edges.edge, in_at=np.zeros(count, np.int32))

    def edges(self, slots: Array) -> Edges:
        """The edges in some slots, integers `[k]`, with the numbers of their ends."""
        gathered = np.repeat(np.arange(len(self._edges.degree)), self._edges.degree)[slots]
        far = self._edges.neighbor[slots].astype(np.int64)
        return Edges(slots, *((gathered, far) if self._reverse else (far, gathered)))


def aggregated(
    step: Step,
    reverse: bool,
    edges: BlockEdges,
    rows_of: Callable[[Value, str], Tensor],
    backend: Backend,
    count: Callable[[int], None],
) -> Tensor:
    """The rows of an aggregation on a block, `[num_rows, ...]`.

    Args:
        step: The aggregation.
        reverse: Whether it gathers over out-edges.
        edges: The in-edges of the block.
        rows_of: Returns the rows of a value at the `'source'` of the edges, for each number; at
            their `'target'`, for each row; or for each `'edge'`.
        backend: Kernels and arrays.
        count: Is told how many bytes the rows of the aggregation and their state take.
    """
    sources = set(step.gathered)
    cells: dict[Value, Cell] = {}
    nodes = NodeSet(backend, len(edges.degree))

    def cell(value: Value) -> Cell:
        if value not in cells:
            cells[value] = made = Cell(value, backend, None if value in sources else nodes)
            if value is not step.output:
                far = "source" if value in sources else "target"
                role = "edge" if value.domain is Domain.EDGE else far
                made.hold(rows_of(value, role).contiguous())
        return cells[value]

    graph = cast(DynamicGraph, BlockGraph(edges, reverse))
    aggregator: Aggregator = step.bind(cell, Context(nodes, graph, backend))
    aggregator.is_followed = False
    with torch.no_grad():
        aggregator.full()
    held = [rows.rows for rows in aggregator.all_rows() if rows.rows is not None]
    count(sum(t.nbytes for t in held))
    return cells[step.output].current()
