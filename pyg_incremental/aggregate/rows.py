"""The exact fallback for anything that a row computes from its in-neighbourhood.

The row is computed again. It serves every reduction without a rule of its own (median, standard
deviation, power mean, maximum, ...).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pyg_incremental.aggregate.base import LOOPS, Aggregate, Aggregator
from pyg_incremental.program import Value
from pyg_incremental.store import Cell, Context, Ids

CHUNK = 65_536
"""Rows computed at a time in a full pass."""


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


@dataclass(frozen=True, eq=False)
class Rows(Aggregate):
    """`out[rows] = fn(neighbourhood of rows)`.

    Rows are recomputed wherever anything in their neighbourhood changed.
    """

    kind: ClassVar[str] = "rows"
    fn: Callable[[Neighborhood], Tensor]
    sources: tuple[Value, ...]
    targets: tuple[Value, ...]
    edges: tuple[Value, ...]

    def bind(self, cell: Callable[[Value], Cell], context: Context) -> "RowsState":
        """The executor: it computes rows again."""
        return RowsState(self, cell, context)


class RowsState(Aggregator):
    """Recomputes the rows whose neighbourhood changed."""

    def __init__(self, step: Rows, cell: Callable[[Value], Cell], context: Context) -> None:
        super().__init__(step, cell(step.output), context)
        self.fn = step.fn
        self.sources = [cell(v) for v in step.sources]
        self.targets = [cell(v) for v in step.targets]
        self.edges = [cell(v) for v in step.edges]

    def full(self) -> None:
        """Compute all rows, some at a time."""
        context = self.context
        ids = context.all_nodes.tensor
        parts = [self._compute(context.backend.ids(some))[0] for some in ids.split(CHUNK)]
        self.out.put(torch.cat(parts), context.capacity)

    def _compute(self, ids: Ids) -> tuple[Tensor, int]:
        context = self.context
        backend = context.backend
        inn = self._lists()[1]
        room = int(inn.degree[ids.array].sum())
        arrays = [backend.room(room) for _ in range(3)]
        count = context.kernels.expand(ids.array, inn, LOOPS[self.step.loops], *arrays)
        index, source, slot = (backend.ids_from(a[:count]).tensor for a in arrays)
        sources = tuple(c.read(source) for c in self.sources)
        edges = tuple(c.read(slot) for c in self.edges)
        targets = tuple(c.read(ids.tensor) for c in self.targets)
        device = backend.like.device
        order = torch.from_numpy(context.graph.slots.order)[slot]
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
        return self.fn(around), room

    def edges_changed(self) -> None:
        """Nothing to do: the targets of event edges are computed again."""

    def rows_changed(self) -> None:
        """Compute the rows again whose neighbourhood changed."""
        context, out = self.context, self.out
        scratch = context.scratch
        own = tuple(c.ids for c in self.targets if c.ids is not None)
        count, _, _, epoch = self._collect(any(c.old_changed is not None for c in self.edges), own)
        reached = 0
        for cell in self.sources:
            if cell.ids is not None:
                count, read = context.kernels.reach(
                    cell.ids.array,
                    self._lists()[0],
                    self.drop,
                    scratch.touched,
                    count,
                    scratch.stamp,
                    epoch,
                )
                reached += read
        if not count:
            return
        ids = scratch.taken(count)
        new, edges = self._compute(ids)
        changed = out.commit(ids, new, context.first_new)
        self._report(count, changed, reached + edges, count)
