"""The rows that blocks read: handed in, kept from an earlier layer, or made again of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.blocks.kept import KeptRows, taken
from pyg_incremental.blocks.node_order import NodeOrder
from pyg_incremental.blocks.schedule import Schedule
from pyg_incremental.call import full_pass
from pyg_incremental.call.bound_call import dtype_of
from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.roles import Roles
from pyg_incremental.program.steps import Domain, Step, Value
from pyg_incremental.rows import AT_ONCE, Backend

Ids = NDArray[np.int64]


class AtHand:
    """What there is to be read.

    Args:
        plan: The program of a call.
        roles: What its tensors are, with the edges.
        tensors: The tensors of the call by name, `[num_nodes, ...]` and `[num_edges, ...]`.
        schedule: The layers of the program.
        places: The places of nodes, by which rows are read.
        device: Where they are wanted.
        in_memory: Whether kept rows are held in memory.

    Attributes:
        kept: The rows that are kept from layer to layer.
        contents: Values without rows, as far as they have been made.
        gathered: Bytes of the rows that were read.
        edges_kept: Bytes of the rows of edges that were made and are kept.
    """

    def __init__(
        self,
        plan: CallPlan,
        roles: Roles,
        tensors: Mapping[str, Any],
        schedule: Schedule,
        places: NodeOrder,
        device: torch.device,
        in_memory: bool,
    ) -> None:
        self._graphs, self._roles, self._tensors = plan.program.graphs, roles, tensors
        self._schedule, self._places, self._device = schedule, places, device
        self._in_memory = in_memory
        self._relations = {r.graph: r for r in roles.relations}
        self._edge_data: dict[Value, Tensor] = {}
        for r in roles.relations:
            for name, rows in roles.data_of(r, tensors).items():
                self._edge_data |= {
                    v: rows
                    for v in plan.program.inputs.values()
                    if v.name == name and v.domain is Domain.EDGE
                }
        nodes = (tensors[n] for n in roles.nodes)
        self._like = torch.empty(0, dtype=dtype_of(plan.site.model, nodes), device=device)
        self.backend = Backend("auto", self._like)
        self.kept: dict[Value, KeptRows] = {}
        self.contents: dict[Value, Any] = {}
        self.gathered = self.edges_kept = 0

    def rows_at(self, value: Value, ids: Ids | range) -> Tensor:
        """Rows of a value at some places, int64 `[k]`: `[k, ...]`, read or made of what is kept."""
        made = self._schedule.made[value]
        if made.begins is not None:
            every = np.arange(ids.start, ids.stop) if isinstance(ids, range) else ids
            return self._joined(made, made.begins, every)
        if value in self.kept:
            rows = self.kept[value].at(ids)
        elif made.constant is not None:
            return self._like.new_full((len(ids), 1), made.constant)
        elif made.computes:
            args = [
                self.content(v) if v.domain is Domain.WHOLE else self.rows_at(v, ids)
                for v in made.inputs
            ]
            again: Tensor = made.compute(*args)
            return again
        else:
            given = self._tensors[value.name] if made.parameter is None else made.parameter()
            rows = taken(given.detach(), self._places.nodes(value.kind, ids))
        self.gathered += rows.nbytes
        return rows.to(self._device)

    def _joined(self, step: Step, begins: int, ids: Ids) -> Tensor:
        """Rows of a value, `[k, ...]`, at ids, int64 `[k]`; from one on they are held elsewhere."""
        others, own = self.kept[step.output], step.inputs[0]
        behind = ids >= begins
        rows = others.rows.new_empty(len(ids), *others.rows.shape[1:], device=self._device)
        for which, read, first in (
            (np.flatnonzero(~behind), lambda some: self.rows_at(own, some), 0),
            (np.flatnonzero(behind), others.at, begins),
        ):
            for at in range(0, len(which), AT_ONCE):
                some = which[at : at + AT_ONCE]
                rows[torch.from_numpy(some).to(self._device)] = read(ids[some] - first).to(
                    self._device
                )
        self.gathered += int(behind.sum()) * self.row_bytes(step.output)
        return rows

    def lends(self, value: Value, ids: Ids | range) -> bool:
        """Whether `rows_at` returns a part of rows that are held in memory anyway.

        `ids` are places of nodes, int64 `[k]`.
        """
        if not self._in_memory or self._device.type != "cpu" or not isinstance(ids, range):
            return False
        made = self._schedule.made[value]
        if made.begins is not None:
            return False
        if value in self.kept:
            return self.kept[value].lends(ids)
        as_given = isinstance(self._places.nodes(value.kind, ids), range)
        return as_given and made.is_given

    def edge_rows(self, value: Value, places: Ids) -> Tensor:
        """Rows of an edge value, `[k, ...]`, at places, integers `[k]`, in the list of edges."""
        made = self._schedule.made[value]
        if value in self._edge_data:
            rows = self._edge_data[value]
            at = torch.from_numpy(np.asarray(places, np.int64))
            return rows.detach()[at.to(rows.device)].to(self._device)
        args = [
            self.content(v) if v.domain is Domain.WHOLE else self.edge_rows(v, places)
            for v in made.inputs
        ]
        made_rows: Tensor = made.compute(*args)
        return made_rows

    def keep_edges(self, value: Value, rows: Tensor) -> None:
        """Keep rows of all edges of a graph, `[num_edges, ...]`."""
        self._edge_data[value] = rows
        self.edges_kept += rows.nbytes

    def all_edge_rows(self, value: Value) -> Tensor:
        """The rows of an edge value, `[num_edges, ...]`, at all edges, in order."""
        if value in self._edge_data:
            return self._edge_data[value].to(self._device)
        return self.edge_rows(value, np.arange(self._roles.edge_index[value.kind].shape[1]))

    def content(self, value: Value) -> Any:
        """A value without rows."""
        if value in self.contents:
            return self.contents[value]
        relation = self._relations.get(value.name)
        if relation is None or value not in self._graphs:
            return self._tensors[value.name]
        state = {"edge_index": self._roles.edge_index[relation.graph]}
        state |= self._roles.data_of(relation, self._tensors)
        made = full_pass.graph_object(relation, state, self._roles.num_nodes, self._device)
        self.contents[value] = made
        return made

    def lends_all(self, values: Iterable[Value]) -> bool:
        """Whether it lends all rows of some values, but for ones, which cost little."""
        made = self._schedule.made
        return all(
            self.lends(v, range(self._roles.num_nodes[v.kind]))
            for v in values
            if made[v].constant is None
        )

    def row_bytes(self, value: Value) -> int:
        """Bytes of one row of a value of an earlier layer; of one that is made again, a guess."""
        rows: Tensor | None = None
        if value in self.kept:
            rows = self.kept[value].rows
        elif value in self._edge_data:
            rows = self._edge_data[value]
        elif value.name in self._tensors and not self._schedule.made[value].inputs:
            rows = self._tensors[value.name]
        if rows is None:
            return sum(map(self.row_bytes, self._schedule.made[value].inputs))
        return rows.element_size() * rows.shape[1:].numel()
