"""How many rows a block may have: consecutive ranges whose bytes are predicted to fit.

DGI (Section 4.1) sets a limit for the rows and one for the in-edges of a block, and moves both by
what the last block took. Here one limit in bytes stands for both: rows, in-edges and neighbours
have their prices, which the shapes in a small first block tell, and what a range of rows would cost
at most is known from the prefix sums of in-degrees. What the last block has shown is by how much
fewer neighbours there are than edges.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.ops.maps import PART
from pyg_incremental.rows import AT_ONCE

Ids = NDArray[np.int64]
Lists = tuple[str, bool]
"""The in-edges of a graph, or its out-edges where it is gathered in reverse."""
AIM = 0.9
"""The part of the limit that a block is to take."""
FIRST_ROWS, FIRST_EDGES = 64, 4096
"""The first block has about so many."""
PER_EDGE = 24
"""Bytes that one in-edge takes: its ends, its place, and what is sorted with them."""


@dataclass
class Prices:
    """What a block of some steps costs, in bytes, as far as blocks have shown.

    Attributes:
        row: Of a row.
        part: Of a row while maps compute it, which they do for some at a time.
        edge: Of an in-edge, for each list of them.
        source: Of the rows that are read at a neighbour, for each list.
        message: Of the message of an in-edge, if it is computed, for each list.
        at_once: How many messages are there at a time, for each list.
        shared: How many neighbours the last block had for each that it could have had at most.
    """

    row: int = 0
    part: int = 0
    edge: dict[Lists, int] = field(default_factory=dict)
    source: dict[Lists, int] = field(default_factory=dict)
    message: dict[Lists, int] = field(default_factory=dict)
    at_once: dict[Lists, int] = field(default_factory=dict)
    shared: dict[Lists, float] = field(default_factory=dict)

    def of(self, rows: int, edges: Mapping[Lists, int], sources: Mapping[Lists, int]) -> int:
        """What a block costs.

        Args:
            rows: The number of its rows.
            edges: That of its in-edges, for each list.
            sources: That of its neighbours, its own rows included.
        """
        total = self.row * rows + self.part * min(rows, PART)
        for key, count in edges.items():
            total += self.edge.get(key, PER_EDGE) * count
            total += self.source.get(key, 0) * sources[key]
            total += self.message.get(key, 0) * min(count, self.at_once.get(key, AT_ONCE))
        return total


class Ranges:
    """Cuts rows into blocks.

    Args:
        count: The number of rows.
        ends: For each list how many in-edges the first `i` rows have, int64 `[count + 1]`.
        num_sources: For each list the number of nodes at the other ends.
        limit: Bytes that a block may take.
        prices: What it costs.
        lent: The lists over which a block of all rows reads what is held in memory anyway.
    """

    def __init__(
        self,
        count: int,
        ends: Mapping[Lists, Ids],
        num_sources: Mapping[Lists, int],
        limit: int,
        prices: Prices,
        lent: Collection[Lists] = (),
    ) -> None:
        self.count, self.ends, self.num_sources = count, ends, num_sources
        self.limit, self.prices, self.lent = limit, prices, lent

    def edges(self, first: int, last: int) -> dict[Lists, int]:
        """The number of in-edges of the rows from `first` to before `last`."""
        return {key: int(ends[last] - ends[first]) for key, ends in self.ends.items()}

    def predicted(self, first: int, last: int) -> int:
        """What the rows from `first` to before `last` are expected to cost."""
        edges = self.edges(first, last)
        sources = {}
        for key, count in edges.items():
            most = min(count + last - first, self.num_sources[key])
            sources[key] = int(most * self.prices.shared.get(key, 1.0))
        return self.prices.of(last - first, edges, sources)

    @property
    def all_fit(self) -> bool:
        """Whether a block of all rows is expected to fit."""
        sources = {k: 0 if k in self.lent else n for k, n in self.num_sources.items()}
        edges = self.edges(0, self.count)
        return self.prices.of(self.count, edges, sources) <= AIM * self.limit

    def start(self, first: int) -> int:
        """How many rows a small block from `first` on has, before prices are known.

        It has an edge if it can: what an edge costs is to be seen.
        """
        size = min(FIRST_ROWS, self.count - first)
        for ends in self.ends.values():
            most = int(np.searchsorted(ends, ends[first] + FIRST_EDGES, "right")) - 1 - first
            least = int(np.searchsorted(ends, ends[first], "right")) - first
            size = max(min(size, most), min(least, FIRST_EDGES), 1)
        return min(size, self.count - first)

    def end(self, first: int) -> int:
        """Where the block that begins at `first` ends: the largest that is expected to fit."""
        low, high = first + 1, self.count
        while low < high:
            middle = (low + high + 1) // 2
            if self.predicted(first, middle) <= AIM * self.limit:
                low = middle
            else:
                high = middle - 1
        return min(low, self.count)


def too_large(
    took: int, limit: int, memory: int, kind: str, node: int, in_memory: bool
) -> MemoryError:
    """What is said of one row that does not fit: it cannot be cut.

    Only rows and lists that are kept in memory can be told to go to a directory.
    """
    or_else = ", or a directory in which rows and lists are kept" if in_memory else ""
    if limit <= 0:
        return MemoryError(
            f"the rows and neighbour lists that are kept from layer to layer take "
            f"{memory - limit:,} bytes (got memory={memory:,}); give more{or_else}"
        )
    return MemoryError(
        f"the in-edges of {kind or 'node'} number {node} need {took:,} bytes, but of memory="
        f"{memory:,} there are {limit:,} left; give more{or_else}"
    )
