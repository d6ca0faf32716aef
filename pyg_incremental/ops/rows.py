"""The exact fallback for anything that a row computes from its in-neighbourhood.

The row is computed again. It serves every reduction without a rule of its own (median, standard
deviation, power mean, maximum, ...).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pyg_incremental.kernels.threads import together
from pyg_incremental.ops.base import Aggregate, Aggregator
from pyg_incremental.ops.edge_function import MANY_EDGES
from pyg_incremental.program.steps import Value
from pyg_incremental.rows import AT_ONCE, Cell, Context, Ids


@dataclass(frozen=True, slots=True, eq=False)
class Neighborhood:
    """What some rows see: their in-edges, one behind the other, in order of the rows.

    Attributes:
        source: For each source value its rows at the edges' sources, `[num_edges, ...]`.
        target: For each target value the rows themselves, `[num_rows, ...]`.
        edge: For each edge value its rows, `[num_edges, ...]`.
        index: The row that each edge leads to, int64 `[num_edges]`, ascending.
        num_rows: Number of rows.
        order: Ascending with the time at which each edge came, int64 `[num_edges]`.
        ids: The node that each row belongs to, int64 `[num_rows]`. Ids are names: they tell which
            ends are the same node, and nothing else about it.
        neighbor: The node at the other end of each edge, int64 `[num_edges]`.
    """

    source: tuple[Tensor, ...]
    target: tuple[Tensor, ...]
    edge: tuple[Tensor, ...]
    index: Tensor
    num_rows: int
    order: Tensor
    ids: Tensor
    neighbor: Tensor

    @property
    def is_loop(self) -> Tensor:
        """Which edges are self-loops, bool `[num_edges]`."""
        return self.neighbor == self.ids[self.index]

    @property
    def by_age(self) -> Tensor:
        """The edges by row and then by age, int64 `[num_edges]`: as a sorted edge list has them."""
        by_age = self.order.argsort()
        return by_age[self.index[by_age].argsort(stable=True)]


@dataclass(frozen=True, eq=False)
class NeighborhoodRows(Aggregate):
    """`out[rows] = fn(neighbourhood of rows)`.

    Rows are recomputed wherever anything in their neighbourhood changed.
    """

    kind: ClassVar[str] = "rows"
    is_local: ClassVar[bool] = True
    messages_at_once: ClassVar[int] = AT_ONCE
    recomputes: ClassVar[bool] = True
    fn: Callable[[Neighborhood], Tensor]
    sources: tuple[Value, ...]
    targets: tuple[Value, ...]
    edges: tuple[Value, ...]

    @property
    def gathered(self) -> tuple[Value, ...]:
        """All sources."""
        return self.sources

    def bind(self, cell: Callable[[Value], Cell], context: Context) -> "NeighborhoodRowsState":
        """The executor: it computes rows again."""
        return NeighborhoodRowsState(self, cell, context)


class NeighborhoodRowsState(Aggregator):
    """Recomputes the rows whose neighbourhood changed."""

    takes_edges: ClassVar[bool] = False

    def __init__(
        self, step: NeighborhoodRows, cell: Callable[[Value], Cell], context: Context
    ) -> None:
        super().__init__(step, cell(step.output), context)
        self.fn: Callable[..., Any] = step.fn
        self.sources = [cell(v) for v in step.sources]
        self.targets = [cell(v) for v in step.targets]
        self.edges = [cell(v) for v in step.edges]

    def full(self) -> None:
        """Compute all rows, some at a time."""
        context = self.context
        self.out.put(
            torch.cat([self.fn(self._around(some)[0]) for some in self._some(context.all_nodes)]),
            context.capacity,
        )

    def _some(self, ids: Ids) -> Iterator[Ids]:
        """Rows in parts that are computed at a time; one part without rows if there is none."""
        if not ids.count:
            yield ids
        for _, part in self._parts(ids, self._lists()[1]):
            yield part

    def _around(self, ids: Ids) -> tuple[Neighborhood, int]:
        """What some rows see, and how many edges were read."""
        context = self.context
        backend = context.backend
        arrays = self._expand(ids, self._lists()[1])
        index, source, slot = (backend.ids_from(a).tensor for a in arrays)
        sources = tuple(c.read(source) for c in self.sources)
        edges = tuple(c.read(slot) for c in self.edges)
        targets = tuple(c.read(ids.tensor) for c in self.targets)
        device = backend.like.device
        order = torch.from_numpy(context.graph.slots.order)[slot].long()
        around = Neighborhood(
            sources,
            targets,
            edges,
            index.to(device),
            ids.count,
            order.to(device),
            ids.tensor.to(device),
            source.to(device),
        )
        return around, len(slot)

    def edges_changed(self) -> None:
        """Nothing to do: the targets of event edges are computed again."""

    def rows_changed(self) -> None:
        """Compute the rows again whose neighbourhood changed."""
        ids, reached = self._touched()
        if not ids.count:
            return
        around, edges = self._around(ids)
        with together(edges > MANY_EDGES):
            changed = self.out.commit(ids, self.fn(around), self.context.first_new)
        self._report(ids.count, changed, reached + edges, ids.count, "pull")

    def pull(self, ids: Ids) -> int:
        """Compute some rows, int64 `[k]`, again; returns the number of edges read."""
        read = 0
        for some in self._some(ids):
            around, edges = self._around(some)
            with together(edges > MANY_EDGES):
                self.out.write(some, self.fn(around))
            read += edges
        return read

    def _touched(self) -> tuple[Ids, int]:
        """The rows whose neighbourhood changed, and how many edges were read to find them."""
        context = self.context
        scratch = context.scratch
        own = tuple(c.ids for c in self.targets if c.ids is not None)
        found = self._collect(any(c.old_changed is not None for c in self.edges), own)
        count, reached = found.count, 0
        for cell in self.sources:
            if cell.ids is not None:
                count, read = context.kernels.reach(
                    cell.ids.array,
                    self._lists()[0],
                    self.drop,
                    scratch.touched,
                    count,
                    scratch.stamp,
                    found.epoch,
                )
                reached += read
        return scratch.taken(count), reached
