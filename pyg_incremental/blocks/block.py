"""One block of rows through the steps of one layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.blocks.aggregation import aggregated
from pyg_incremental.blocks.budget import PER_EDGE, Lists, Prices
from pyg_incremental.blocks.in_edges import BlockEdges
from pyg_incremental.errors import RowCountError
from pyg_incremental.ops import aggregations
from pyg_incremental.ops.maps import PART as OF_MAPS
from pyg_incremental.program.steps import Domain, Step, Value
from pyg_incremental.rows import Backend

Ids = NDArray[np.int64]
Place = tuple[str, Lists] | str | None
"""Which rows of a value: at each `'source'` or for each `'edge'` of some lists, or the block's.

Of the block's, `PART` names those that maps hold of a few rows at a time, and `KEPT` those that are
handed out.
"""
PART, KEPT = "part", "kept"
MEANWHILE = 4
"""How many times what a message reads and adds to is held while it is computed, at most."""


class Values(Protocol):
    """Where a block finds what it reads."""

    backend: Backend

    def rows_at(self, value: Value, ids: Ids | range) -> Tensor:
        """Rows of a value of an earlier layer, `[k, ...]`, on the device on which blocks run.

        `ids` are places of nodes, int64 `[k]`.
        """
        ...

    def lends(self, value: Value, ids: Ids | range) -> bool:
        """Whether these rows are a part of what is held in memory anyway.

        `ids` are places of nodes, int64 `[k]`.
        """
        ...

    def edge_rows(self, value: Value, places: Ids) -> Tensor:
        """Rows of an edge value, `[k, ...]`, at some places, integers `[k]`."""
        ...

    def content(self, value: Value) -> Any:
        """A value without rows."""
        ...


def row_bytes(rows: Tensor) -> int:
    """Bytes of one of some rows, `[k, ...]`."""
    return rows.element_size() * rows.shape[1:].numel()


class Block:
    """Some rows, computed through some steps.

    Args:
        values: Where it finds what it reads.
        ids: The nodes whose rows these are, int64 `[num_rows]`, in ascending order.
        edges: Their in-edges, for each list over which a step gathers.
        into: Where the rows of kept values are to be written, `[num_rows, ...]`, as far as there is
            room already.
        spare: Where rows of aggregations go that nobody reads any more, for others to be written
            to; None to let go of them.

    Attributes:
        peak: Bytes that were held at once.
    """

    def __init__(
        self,
        values: Values,
        ids: Ids | range,
        edges: Mapping[Lists, BlockEdges],
        into: Mapping[Value, Tensor] | None = None,
        spare: list[Tensor] | None = None,
    ) -> None:
        self._values, self._ids, self._edges = values, ids, edges
        self._into, self._spare = dict(into or {}), spare
        self._sums: set[Value] = set()
        self._rows: dict[tuple[Value, Place], Tensor] = {}
        self._lent: set[tuple[Value, Place]] = set()  # what is held anyway, and counted elsewhere
        self._held: Counter[Place] = Counter()
        self._most: Counter[Place] = Counter()
        self._widths: dict[Value, int] = {}  # of what an aggregation reads and makes, for a row
        self._lists = sum(e.nbytes for e in edges.values())
        self.peak = self._lists

    def run(self, steps: Sequence[Step], kept: set[Value]) -> dict[Value, Tensor]:
        """Compute the steps, in order.

        Returns:
            The rows of those values that are kept, `[num_rows, ...]`, but for what is written
            `into` given ones.
        """
        at = 0
        while at < len(steps):
            step, behind = steps[at], at + 1
            if step.over is not None:
                self._hold((step.output, None), self._aggregate(step, step.over))
                self._sums.add(step.output)
                if step.output in self._into:
                    self._into[step.output][:] = self._rows[step.output, None]
            elif step.computes:
                while behind < len(steps) and steps[behind].computes:
                    behind += 1
                self._map(steps[at:behind], kept.union(*(s.inputs for s in steps[behind:])), kept)
            else:
                raise TypeError(f"a block cannot compute '{step}'")
            at = behind
            self._let_go(steps[at:], kept)
        return {
            v: rows
            for (v, place), rows in self._rows.items()
            if place is None and v in kept and v not in self._into
        }

    def _let_go(self, steps: Sequence[Step], kept: set[Value]) -> None:
        """Keep only what the steps to come read."""
        needed: set[tuple[Value, Place]] = {(v, None) for v in kept}
        for s in steps:
            places: list[Place] = [None]
            if s.over is not None:
                places += [("source", s.over), ("edge", s.over)]
            needed.update((v, place) for v in s.inputs for place in places)
        for key in [key for key in self._rows if key not in needed]:
            rows = self._rows.pop(key)
            self._held[key[1]] -= 0 if key in self._lent else rows.nbytes
            # Of so many rows maps have made copies, and none of what they made is a part of these.
            if self._spare is not None and key[0] in self._sums and len(rows) > OF_MAPS:
                self._spare.append(rows)

    def _hold(self, key: tuple[Value, Place], rows: Tensor, lent: bool = False) -> None:
        self._rows[key] = rows
        if lent:
            self._lent.add(key)
        else:
            self._count(key[1], rows.nbytes)

    def _count(self, place: Place, nbytes: int) -> None:
        """So many bytes more are held."""
        self._held[place] += nbytes
        self._most[place] = max(self._most[place], self._held[place])
        self.peak = max(self.peak, self._lists + self._held.total())

    def _map(self, maps: Sequence[Step], wanted: set[Value], kept: set[Value]) -> None:
        """Maps that follow each other, some rows at a time.

        Args:
            maps: The maps.
            wanted: The values that somebody reads behind them.
            kept: Those of them that are kept.
        """
        count = len(self._ids)
        found: dict[Value, Tensor] = {}
        for first in range(0, max(count, 1), OF_MAPS):
            last = min(first + OF_MAPS, count)
            for value, rows in self._part(maps, wanted, first, last).items():
                if value not in found:
                    found[value] = self._found(value, rows, kept)
                if found[value] is not rows:
                    found[value][first:last] = rows

    def _found(self, value: Value, rows: Tensor, kept: set[Value]) -> Tensor:
        """Where all rows of a value go, of which the first ones, `[k, ...]`, are there."""
        count = len(self._ids)
        if value in self._into:
            all_rows = self._into[value]
            if all_rows.dtype != rows.dtype or all_rows.shape[1:] != rows.shape[1:]:
                raise RowCountError(
                    f"'{value}' is {rows.dtype} {list(rows.shape[1:])} in one block and "
                    f"{all_rows.dtype} {list(all_rows.shape[1:])} in another; the model has to run "
                    "whole"
                )
            self._hold((value, None), all_rows, lent=True)
            return all_rows
        all_rows = rows if len(rows) == count else rows.new_empty(count, *rows.shape[1:])
        if value not in kept:
            self._hold((value, None), all_rows)
        else:  # of which a later block need not hold its own
            self._hold((value, None), all_rows, lent=True)
            self._count(KEPT, all_rows.nbytes)
        return all_rows

    def _part(
        self, maps: Sequence[Step], wanted: set[Value], first: int, last: int
    ) -> dict[Value, Tensor]:
        """The rows from `first` to before `last` of those values of some maps that are wanted."""
        here: dict[Value, Tensor] = {}
        lent: set[Value] = set()
        held, ids = 0, self._ids[first:last]

        def rows_of(value: Value) -> Any:
            nonlocal held
            if value.domain is Domain.WHOLE:
                return self._values.content(value)
            if value in here:
                return here[value]
            if (value, None) in self._rows:
                return self._rows[value, None][first:last]
            rows = here[value] = self._values.rows_at(value, ids)
            if self._values.lends(value, ids):
                lent.add(value)
            else:
                held += rows.nbytes
            return rows

        readers = Counter(v for s in maps for v in {*s.inputs})
        for step in maps:
            made: Tensor = step.compute(*(rows_of(v) for v in step.inputs))
            if len(made) != last - first:
                raise RowCountError(
                    f"step '{step.output}' made {len(made)} rows for {last - first} nodes; the "
                    "model has to run whole"
                )
            here[step.output] = made
            held += made.nbytes
            self._most[PART] = max(self._most[PART], held)
            self.peak = max(self.peak, self._lists + self._held.total() + held)
            readers.subtract({*step.inputs})
            for v in {*step.inputs, step.output}:
                if v in here and not readers[v] and v not in wanted:
                    held -= 0 if v in lent else here[v].nbytes
                    del here[v]
        return {s.output: here[s.output] for s in maps if s.output in wanted}

    def _own(self, value: Value) -> Tensor:
        """The rows of a value at the nodes of the block."""
        if (value, None) not in self._rows:
            rows = self._values.rows_at(value, self._ids)
            self._hold((value, None), rows, self._values.lends(value, self._ids))
        return self._rows[value, None]

    def _aggregate(self, step: Step, key: Lists) -> Tensor:
        edges = self._edges[key]

        read: dict[tuple[Value, str], Tensor] = {}

        def rows_of(value: Value, role: str) -> Tensor:
            read[value, role] = rows = found(value, role)
            return rows

        def found(value: Value, role: str) -> Tensor:
            if role == "target":
                return self._own(value)
            place = (role, key)
            if (value, place) not in self._rows:
                if role == "edge":
                    self._hold((value, place), self._values.edge_rows(value, edges.edge))
                else:
                    rows = self._values.rows_at(value, edges.nodes)
                    self._hold((value, place), rows, self._values.lends(value, edges.nodes))
            return self._rows[value, place]

        state = 0

        def count(nbytes: int) -> None:
            nonlocal state
            state = nbytes
            self._count(None, nbytes)

        made = aggregated(step, key[1], edges, rows_of, self._values.backend, count)
        self._held[None] -= state
        self._widths[step.output] = row_bytes(made) + sum(row_bytes(r) for r in read.values())
        return made

    def learn(self, prices: Prices, num_sources: Mapping[Lists, int], steps: list[Step]) -> None:
        """Write down what this block has shown of the prices of its steps; they only go up."""
        count = max(len(self._ids), 1)
        prices.row = max(prices.row, -(-self._most[None] // count))
        prices.part = max(prices.part, -(-self._most[PART] // min(count, OF_MAPS)))
        for key, edges in self._edges.items():
            numbers = len(edges.nodes)
            most = min(len(edges.neighbor) + len(self._ids), num_sources[key])
            prices.shared[key] = min(1.0, numbers / max(most, 1))
            far = -(-self._most["source", key] // max(numbers, 1))
            prices.source[key] = max(prices.source.get(key, 0), far)
            along = PER_EDGE + -(-self._most["edge", key] // max(len(edges.edge), 1))
            prices.edge[key] = max(prices.edge.get(key, 0), along)
        for s in aggregations(steps):
            if s.messages_at_once:
                key, width = s.over, MEANWHILE * self._widths.get(s.output, 0)
                prices.message[key] = max(prices.message.get(key, 0), width)
                prices.at_once[key] = max(prices.at_once.get(key, 0), s.messages_at_once)
