"""Graphs that a model makes of others: edges turned, joined, filtered, with loops, or merged.

`torch.cat([edge_index, edge_index.flip(0)], 1)`, `add_self_loops`, `edge_index[:, mask]` and
`to_undirected` make a table of edges of other tables. Such a table is a `Relation` like those that
are handed in, and steps run over it as over any other. What stands here says which of its edges
belong to which edge of the others, so that a delta of theirs becomes one of it. In which order its
edges stand nobody may ask.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

LOOP, OWN_LOOP = -1, -2
"""Parts that loops at nodes are of: those without data of their own, and those with."""


@dataclass(frozen=True)
class Compared:
    """A comparison of the ids at the ends of edges.

    Attributes:
        compare: `torch.ne` or its like.
        fixed: For each of its arguments a number, or None for ids.
    """

    compare: Callable[..., Tensor]
    fixed: tuple[int | None, ...]

    def __call__(self, *ids: Tensor) -> Tensor:
        """Compare ids, int64 `[k]` each."""
        rows = iter(ids)
        return self.compare(*(next(rows) if f is None else f for f in self.fixed))

    @property
    def of_ends(self) -> bool:
        """Whether ids are compared with each other, and with no number."""
        return all(f is None for f in self.fixed)


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Rows of edges, computed from what stands at each edge alone.

    Attributes:
        name: The value of the program that has these rows.
        fn: Of data, `[k, ...]` by name, and ends, int64 `[k]` each, the rows, `[k, ...]`.
        reads: The names of the data that it looks at.
        compares: Whether of ids it only knows which is larger, or that they are equal.
    """

    name: str
    fn: Callable[[Mapping[str, Tensor], Tensor, Tensor], Tensor]
    reads: frozenset[str]
    compares: bool = False

    def takes(self, loops: bool) -> bool:
        """Whether it is a mask that takes all self-loops and nothing else; or all but these."""
        if self.reads or not self.compares:
            return False
        src = torch.arange(2).repeat_interleave(2)
        dst = torch.arange(2).repeat(2)
        return bool((self.fn({}, src, dst) == ((src == dst) == loops)).all())


@dataclass(frozen=True)
class DerivedEdges:
    """Edges of another graph.

    Attributes:
        graph: That graph.
        turned: Whether their ends are exchanged.
        keep: Which of them are taken, bool `[k]`; all if it is None.
    """

    graph: str
    turned: bool = False
    keep: EdgeRows | None = None


@dataclass(frozen=True, eq=False)
class Column:
    """Data of derived edges.

    Attributes:
        graph: The graph from whose edges they come; zeros at all other edges.
        rows: What they are there.
        reduce: How those of merged edges become one, as PyG's `scatter` calls it.
    """

    graph: str
    rows: EdgeRows
    reduce: str = ""


@dataclass(eq=False)
class Derived:
    """How the edges of a graph are made of those of others.

    Attributes:
        parts: One part behind the other.
        loops: Whether a loop at every node comes behind them.
        own: The graph whose youngest loop at a node gives the data of that loop; empty for none.
        merged: Whether edges of the same two ends become one.
        columns: The data of its edges that steps read, by name.
        part: Name of the column that says of which part an edge is, int64; empty if nobody asks.
    """

    parts: tuple[DerivedEdges, ...]
    loops: bool = False
    own: str = ""
    merged: bool = False
    columns: dict[str, Column] = field(default_factory=dict)
    part: str = ""

    @property
    def sources(self) -> list[str]:
        """The graphs that it is made of."""
        return [*(part.graph for part in self.parts), *([self.own] if self.own else [])]


def carried(name: str) -> EdgeRows:
    """The data of that name."""
    return EdgeRows(name, lambda data, src, dst: data[name], frozenset([name]))


def as_wide(mask: Tensor, rows: Tensor) -> Tensor:
    """A mask `[k]` of edges as one of rows `[k, ...]`."""
    return mask.view(-1, *[1] * (rows.dim() - 1))


def of_parts(part: Tensor, *rows: Tensor) -> Tensor:
    """For each edge the row of its part, int64 `[k]`."""
    made = rows[0]
    for k, of in enumerate(rows[1:], 1):
        made = torch.where(as_wide(part == k, of), of, made)
    return made
