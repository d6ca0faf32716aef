"""Other values of what has no rows: which rows come out different, and where that leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pyg_incremental.graph.edge_store import EdgeEvents, Edges
from pyg_incremental.ops.edge_map import differ
from pyg_incremental.ops.maps import InputExecutor
from pyg_incremental.ops.operator import Operator
from pyg_incremental.program.steps import Domain
from pyg_incremental.rows import NO_EVENTS, Cell

MOST = 0.5
"""The part of the edges of a graph up to which those that differ count as changed edges; where
more do, what is made of them is made afresh."""


class OtherValues:
    """Takes new tensors in the place of inputs without rows, and says what to follow.

    Args:
        executors: All of them, in order.
        inputs: Those of inputs by name.
        given: The tensors, of any shape, by the names of inputs.

    Attributes:
        cells: What has no rows, and is another one now.
    """

    def __init__(
        self,
        executors: Sequence[Operator],
        inputs: Mapping[str, InputExecutor],
        given: Mapping[str, Tensor],
    ) -> None:
        self._executors = executors
        self._given = {inputs[name].out: tensor for name, tensor in given.items()}
        self._made = [e for e in executors if e.computes and e.out.domain is Domain.WHOLE]
        self.cells: list[Cell] = [*self._given]
        for e in self._made:
            if any(c in self.cells for c in e.inputs):
                self.cells.append(e.out)

    def are_followed(self) -> bool:
        """Whether all that read them, or what is made of them, follow such."""
        reached = {*self.cells}
        for e in self._executors:
            if e.out.maker is not None:
                return False
            if e.out in reached or reached.isdisjoint(e.inputs if e.inputs else self._read(e)):
                continue
            if not e.takes_values:
                return False
            if e.out.domain is Domain.WHOLE:
                reached.add(e.out)
        return True

    def _read(self, e: Operator) -> set[Cell]:
        """What a step reads that says so in words of its own."""
        by_value = {c.value: c for c in self.cells}
        return {by_value[v] for v in e.step.inputs if v in by_value}

    def __enter__(self) -> None:
        """Put them where they belong for a while."""
        self._before = [cell.content for cell in self.cells]
        try:
            self.take()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for cell, content in zip(self.cells, self._before, strict=True):
            cell.content = content

    def take(self) -> None:
        """Put them where they belong, and what is made of them alone."""
        for cell, tensor in self._given.items():
            cell.content = tensor
        for e in self._made:
            if e.out in self.cells:
                e.full()

    def events(self, edge_maps: Sequence[Operator]) -> dict[str, EdgeEvents] | None:
        """The edges with other rows now, as changed ones; None where these are most.

        Args:
            edge_maps: What makes rows of edges that read no node.
        """
        new: dict[Cell, Tensor] = {}
        moved: dict[str, Tensor] = {}
        graphs = {}
        for e in edge_maps:
            dirty = any(c in self.cells or c in new for c in e.inputs)
            if not e.computes or not dirty:
                continue
            graph, name = e.context.graph, e.out.value.kind
            slots = torch.from_numpy(graph.slots_in_order())
            rows = [
                c.content if c.domain is Domain.WHOLE else new[c] if c in new else c.read(slots)
                for c in e.inputs
            ]
            new[e.out] = e.step.fn(*rows)
            other = differ(e.out.read(slots), new[e.out]).cpu()
            moved[name] = moved[name] | other if name in moved else other
            graphs[name] = graph, slots
        found = {}
        for name, (graph, slots) in graphs.items():
            if int(moved[name].sum()) > MOST * len(slots):
                return None
            changed: Edges = graph.edges(slots[moved[name]].numpy())
            found[name] = NO_EVENTS._replace(changed=changed)
        return {name: e for name, e in found.items() if len(e.changed.slots)}
