"""Small random graphs on which a conv is tried before anything is claimed about it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_incremental.ops import Neighborhood
from pyg_incremental.trace.anchors import anchored

SIZES = ((14, 24), (40, 120), (4, 0), (300, 1500), (5, 6))
"""Nodes and edges of each kind of graph; the first kind has everything that may be a trap, and in
the last one all edges end in one node."""
HUB = ((1, 2, 3, 4, 5, 0, 0, 0), (0, 0, 0, 0, 0, 6, 7, 2))
LOOPS = ((2, 5, 12, 0), (2, 5, 12, 0))


class Form(NamedTuple):
    """How a graph is given to a conv.

    Attributes:
        anchored: Between anchors (see `anchored`), for convs that fail without.
        by_target: Sorted by target, for convs that fail on other edges.
    """

    anchored: bool = False
    by_target: bool = False


PLAIN = Form()


@dataclass(frozen=True)
class World:
    """A graph, with the rows of every node value and of every edge value.

    Attributes:
        nodes: Rows `[num_nodes, ...]`.
        edges: Rows `[num_edges, ...]`.
        graph: int64 `[2, num_edges]`.
        form: How it is given to a conv.
    """

    nodes: list[Tensor]
    edges: list[Tensor]
    graph: Tensor
    form: Form = PLAIN

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self.nodes[0].shape[0]

    @property
    def given(self) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Copies of nodes, edges and graph in its form."""
        nodes, edges, graph = self.nodes, self.edges, self.graph
        if self.form.by_target:
            order = graph[1].argsort(stable=True)
            edges, graph = [e[order] for e in edges], graph[:, order]
        if self.form.anchored:
            return anchored([[t] for t in nodes], edges, graph)
        return [t.clone() for t in nodes], [t.clone() for t in edges], graph.clone()

    @property
    def own(self) -> slice:
        """Where the nodes stand in the result for what is given."""
        return slice(1, 1 + self.size) if self.form.anchored else slice(None)

    def seen_by(self, rows: Tensor, reverse: bool) -> Neighborhood:
        """What `rows`, distinct, int64 `[k]`, see.

        The edges of a row come in any order, as in an adjacency list.
        """
        end = 0 if reverse else 1
        place = torch.full((self.size,), -1, device=rows.device)
        place[rows] = torch.arange(len(rows), device=rows.device)
        slots = torch.arange(self.graph.shape[1], device=rows.device).flip(0)
        slots = slots[place[self.graph[end][slots]] >= 0]
        index = place[self.graph[end][slots]]
        by_row = index.argsort(stable=True)
        slots, index = slots[by_row], index[by_row]
        far = self.graph[1 - end][slots]
        return Neighborhood(
            source=tuple(t[far] for t in self.nodes),
            target=tuple(t[rows] for t in self.nodes),
            edge=tuple(e[slots] for e in self.edges),
            index=index,
            num_rows=len(rows),
            order=slots,
            ids=rows,
            neighbor=far,
        )


@dataclass(frozen=True)
class Draw:
    """Draws graphs and rows.

    Attributes:
        nodes: Example rows `[n, ...]` of each node value.
        edges: Example rows `[m, ...]` of each edge value.
        chance: What it draws from.
        dtype: The dtype of floating-point rows, or None for that of the examples.
        noise: Whether such rows of nodes, and of edges, are noise; they are mixtures of two rows of
            the example if not.
        form: The form of its graphs.
        reverse: Whether a row gathers over its out-edges.
    """

    nodes: Sequence[Tensor]
    edges: Sequence[Tensor]
    chance: torch.Generator
    dtype: torch.dtype | None = None
    noise: tuple[bool, bool] = (False, False)
    form: Form = PLAIN
    reverse: bool = False

    def world(self, kind: int) -> World:
        """A graph of one of the kinds of `SIZES`."""
        size, count = SIZES[kind]
        graph = torch.randint(max(size - 3, 1), (2, count), generator=self.chance)
        if not kind:  # besides: a hub, self-loops, parallel edges; the last nodes are isolated
            loops = torch.tensor(LOOPS)
            graph = torch.cat([graph, torch.tensor(HUB), loops, graph[:, :3], loops[:, :1]], 1)
            graph = graph[:, self.order(graph.shape[1])]
        elif kind == len(SIZES) - 1:
            graph[0 if self.reverse else 1] = 0
        edges = [self._rows(e, graph.shape[1], is_edge=True) for e in self.edges]
        return World(self.rows(size), edges, graph.to(self.nodes[0].device), self.form)

    @property
    def varies(self) -> bool:
        """Whether floating-point rows are noise, or the example has different ones."""
        kinds = zip(self.noise, (self.nodes, self.edges), strict=True)
        floats = [e for noise, kind in kinds if not noise for e in kind if e.is_floating_point()]
        return all(bool((e != e[:1]).any()) for e in floats)

    def rows(self, count: int) -> list[Tensor]:
        """Rows `[count, ...]` of each node value."""
        return [self._rows(e, count, is_edge=False) for e in self.nodes]

    def order(self, count: int) -> Tensor:
        """The numbers below `count` in random order."""
        return torch.randperm(count, generator=self.chance)

    def subsets(self, kind: int) -> Iterator[Tensor]:
        """Nodes to compute together, in any order."""
        size = SIZES[kind][0]
        order = self.order(size).to(self.nodes[0].device)
        yield order
        yield from order[:12].split(5)
        if not kind:
            yield from order.split(1)

    def _rows(self, example: Tensor, count: int, is_edge: bool) -> Tensor:
        at = torch.randint(max(1, len(example)), (2, count), generator=self.chance)
        rows = example.detach() if len(example) else example.new_zeros(1, *example.shape[1:])
        one, two = (rows[a.to(rows.device)] for a in at)
        if not rows.dtype.is_floating_point:
            return one
        one, two = (t.to(self.dtype or t.dtype).nan_to_num(0, 0, 0) for t in (one, two))
        if self.noise[is_edge]:
            # Edge data is often a weight or a pseudo-coordinate, which lies between 0 and 1.
            noise = torch.rand if is_edge else torch.randn
            return noise(one.shape, generator=self.chance, dtype=torch.float64).to(one)
        share = torch.rand((count, *[1] * (one.dim() - 1)), generator=self.chance).to(one)
        return one * share + two * (1 - share)
