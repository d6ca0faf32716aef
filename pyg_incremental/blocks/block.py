"""One block of rows through the steps of one layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.aggregate import (
    Aggregate,
    Extremum,
    FunctionSoftmax,
    FunctionSum,
    NeighborhoodRows,
)
from pyg_incremental.blocks.aggregation import aggregated
from pyg_incremental.blocks.budget import PER_EDGE, Lists, Prices
from pyg_incremental.blocks.in_edges import BlockEdges
from pyg_incremental.errors import RowCountError
from pyg_incremental.program.steps import Domain, RowMap, Step, Value
from pyg_incremental.rows import Backend

Ids = NDArray[np.int64]
Place = tuple[str, Lists] | None
"""Which rows of a value: at each `'source'` or for each `'edge'` of some lists, or the block's."""
PART = 1 << 14
"""Rows of a map computed at a time, so that what it needs meanwhile stays small."""


class Values(Protocol):
    """Where a block finds what it reads."""

    backend: Backend

    def rows_at(self, value: Value, ids: Ids | range) -> Tensor:
        """Rows of a value of an earlier layer, `[k, ...]`, on the device on which blocks run.

        `ids` are places of nodes, int64 `[k]`.
        """
        ...

    def edge_rows(self, value: Value, places: Ids) -> Tensor:
        """Rows of an edge value, `[k, ...]`, at some places, integers `[k]`."""
        ...

    def content(self, value: Value) -> Any:
        """A value without rows."""
        ...


def lists_of(step: Aggregate) -> Lists:
    """Which lists an aggregation gathers over."""
    return step.graph, step.reverse


def computes_messages(step: Step) -> bool:
    """Whether a step computes something for each in-edge."""
    return isinstance(step, (FunctionSum, FunctionSoftmax, NeighborhoodRows)) or (
        isinstance(step, Extremum) and step.message is not None
    )


class Block:
    """Some rows, computed through some steps.

    Args:
        values: Where it finds what it reads.
        ids: The nodes whose rows these are, int64 `[num_rows]`, in ascending order.
        edges: Their in-edges, for each list over which a step gathers.

    Attributes:
        peak: Bytes that were held at once.
    """

    def __init__(self, values: Values, ids: Ids | range, edges: Mapping[Lists, BlockEdges]) -> None:
        self._values, self._ids, self._edges = values, ids, edges
        self._rows: dict[tuple[Value, Place], Tensor] = {}
        self._held: Counter[Place] = Counter()
        self._most: Counter[Place] = Counter()
        self._lists = sum(e.nbytes for e in edges.values())
        self.peak = self._lists

    def run(self, steps: Sequence[Step], kept: set[Value]) -> dict[Value, Tensor]:
        """Compute the steps, in order; returns the rows of those values that are kept."""
        for i, step in enumerate(steps):
            if isinstance(step, Aggregate):
                made = self._aggregate(step)
            elif isinstance(step, RowMap):
                made = self._map(step)
            else:
                raise TypeError(f"a block cannot compute '{step}'")
            self._hold((step.output, None), made)
            self._let_go(steps[i + 1 :], kept)
        return {v: rows for (v, place), rows in self._rows.items() if place is None and v in kept}

    def _let_go(self, steps: Sequence[Step], kept: set[Value]) -> None:
        """Keep only what the steps to come read."""
        needed: set[tuple[Value, Place]] = {(v, None) for v in kept}
        for s in steps:
            places: list[Place] = [None]
            if isinstance(s, Aggregate):
                places += [("source", lists_of(s)), ("edge", lists_of(s))]
            needed.update((v, place) for v in s.inputs for place in places)
        for key in [key for key in self._rows if key not in needed]:
            self._held[key[1]] -= self._rows.pop(key).nbytes

    def _hold(self, key: tuple[Value, Place], rows: Tensor) -> None:
        self._rows[key] = rows
        self._count(key[1], rows.nbytes)

    def _count(self, place: Place, nbytes: int) -> None:
        """So many bytes more are held."""
        self._held[place] += nbytes
        self._most[place] = max(self._most[place], self._held[place])
        self.peak = max(self.peak, self._lists + self._held.total())

    def _map(self, step: RowMap) -> Tensor:
        """The rows of a map, some at a time."""
        given = [
            self._values.content(v) if v.domain is Domain.WHOLE else self._own(v)
            for v in step.inputs
        ]
        rowed = [v.domain is not Domain.WHOLE for v in step.inputs]
        count = len(self._ids)

        def part(first: int, last: int) -> Tensor:
            args = [a[first:last] if r else a for a, r in zip(given, rowed, strict=True)]
            made: Tensor = step.fn(*args)
            if len(made) != last - first:
                raise RowCountError(
                    f"step '{step.output}' made {len(made)} rows for {last - first} nodes; the "
                    "model has to run whole"
                )
            return made

        first = part(0, min(PART, count))
        if count <= PART:
            return first
        rows = first.new_empty(count, *first.shape[1:])
        rows[:PART] = first
        for begin in range(PART, count, PART):
            rows[begin : begin + PART] = part(begin, min(begin + PART, count))
        return rows

    def _own(self, value: Value) -> Tensor:
        """The rows of a value at the nodes of the block."""
        if (value, None) not in self._rows:
            self._hold((value, None), self._values.rows_at(value, self._ids))
        return self._rows[value, None]

    def _aggregate(self, step: Aggregate) -> Tensor:
        key = lists_of(step)
        edges = self._edges[key]

        def rows_of(value: Value, role: str) -> Tensor:
            if role == "target":
                return self._own(value)
            place = (role, key)
            if (value, place) not in self._rows:
                if role == "edge":
                    rows = self._values.edge_rows(value, edges.edge)
                else:
                    rows = self._values.rows_at(value, edges.nodes)
                self._hold((value, place), rows)
            return self._rows[value, place]

        state = 0

        def count(nbytes: int) -> None:
            nonlocal state
            state = nbytes
            self._count(None, nbytes)

        made = aggregated(step, edges, rows_of, self._values.backend, count)
        self._held[None] -= state
        return made

    def learn(self, prices: Prices, num_sources: Mapping[Lists, int], steps: list[Step]) -> None:
        """Write down what this block has shown of the prices of its steps; they only go up."""
        count = max(len(self._ids), 1)
        prices.row = max(prices.row, -(-self._most[None] // count))
        for key, edges in self._edges.items():
            numbers = len(edges.nodes)
            most = min(len(edges.neighbor) + len(self._ids), num_sources[key])
            prices.shared[key] = min(1.0, numbers / max(most, 1))
            far = -(-self._most["source", key] // max(numbers, 1))
            prices.source[key] = max(prices.source.get(key, 0), far)
            along = PER_EDGE + -(-self._most["edge", key] // max(len(edges.edge), 1))
            prices.edge[key] = max(prices.edge.get(key, 0), along)
        for s in steps:
            if isinstance(s, Aggregate) and computes_messages(s):
                key = lists_of(s)
                width = prices.source.get(key, 0) + prices.row
                prices.message[key] = max(prices.message.get(key, 0), 4 * width)
