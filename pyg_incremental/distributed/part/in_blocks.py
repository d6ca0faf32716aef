"""One rank's part of an evaluation: its own rows, layer by layer, block by block."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.blocks.evaluator import Evaluator
from pyg_incremental.blocks.files import Files
from pyg_incremental.blocks.layer_store import LayerStore
from pyg_incremental.call.bound_call import device_of
from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.roles import Roles
from pyg_incremental.call.traced import Output
from pyg_incremental.distributed.boundary.rewrite import directions, name_of, suffix_of
from pyg_incremental.distributed.part.local_plan import agree, local_plan
from pyg_incremental.distributed.part.region import Borders
from pyg_incremental.distributed.placement.shard import Shard
from pyg_incremental.distributed.wire.rounds import Rounds, together
from pyg_incremental.session.outputs import in_structure

Ids = NDArray[np.int64]
INSTEAD = "pyg_incremental.evaluate"


@dataclass(frozen=True)
class Budget:
    """What a rank may take, and where.

    Attributes:
        memory: Bytes that it may take beside its part of the graph.
        directory: Where rows and neighbour lists are kept; None for memory.
        device: Where blocks are computed; None for where the features are.
        rows_in_block: The number of rows of every block; None to choose it by memory.
    """

    memory: int
    directory: str | os.PathLike[str] | None = None
    device: torch.device | str | None = None
    rows_in_block: int | None = None


class PartInBlocks:
    """The rows of one rank's nodes; made by all ranks at the same time.

    Args:
        plan: How the call is computed in one process; its roles hold no graph.
        shard: What this rank owns. Its edges are let go of.
        others: Tensors that are neither node rows nor edge rows, by name.
        rounds: The conversation with the other ranks.
        budget: What this rank may take.

    Attributes:
        evaluator: What computes them.

    Raises:
        UnsupportedModelError: If some step needs all rows.
        PartitionError: If the ranks do not run the same model.
        StateFileError: On every rank, if the directory of one holds another evaluation.
    """

    def __init__(
        self,
        plan: CallPlan,
        shard: Shard,
        others: dict[str, Any],
        rounds: Rounds,
        budget: Budget,
    ) -> None:
        agree(plan, rounds, INSTEAD)
        self._borders = borders = Borders(
            plan.roles.relations, directions(plan.program), shard, rounds
        )
        tensors = {n: borders.own[plan.roles.nodes[n]].at_ids(t) for n, t in shard.nodes.items()}
        tensors |= others
        edge_index, values = self._edges(plan.roles, shard, tensors)
        local = local_plan(plan, borders)
        self._plan = local = replace(
            local, roles=replace(local.roles, edge_index=edge_index, values=values)
        )
        self._store = store = together(rounds, lambda: self._made(budget, rounds))
        home = device_of(plan.site.model, shard.nodes.values())
        self.evaluator = Evaluator(
            local, local.roles, tensors, budget.memory, store, None,
            torch.device(home if budget.device is None else budget.device), budget.rows_in_block,
        )  # fmt: skip

    def _edges(
        self, roles: Roles, shard: Shard, tensors: dict[str, Any]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The local graphs, int64 `[2, k]` each, and the values of those that are matrices."""
        edge_index, values = {}, {}
        for d in self._borders.links:
            edge_index[name_of(d)], data = self._borders.local_edges(d, shard)
            tensors |= data
            if d[0] in roles.values:
                relation = self._borders.relations[d[0]]
                values[name_of(d)] = data[f"{relation.values}{suffix_of(d)}"]
        shard.edge_index.clear()
        return edge_index, values

    def _made(self, budget: Budget, rounds: Rounds) -> LayerStore:
        program = self._plan.program
        if budget.directory is None:
            return LayerStore()
        path = Path(budget.directory) / f"rank-{rounds.rank}-of-{rounds.size}"
        return Files(path, program, {"program": str(program)}, goes_on=False)

    def run(self, tell: Callable[[int], None]) -> None:
        """Compute all layers; `tell` is called with the number of rows after each block.

        Before each layer the ranks exchange the rows of nodes that others see.
        """
        try:
            self.evaluator.run(tell)
        finally:
            self._store.leave()

    def result(self) -> tuple[dict[str, Ids], Any, Any]:
        """What came out.

        Returns:
            The global ids of this rank's nodes of each kind, ascending, int64 `[n]`; the ids of the
            rows of each output, and these rows, `[n, ...]`, in the structure of the output.
        """
        own = {kind: held.globals[held.real()] for kind, held in self._borders.own.items()}
        outputs, structure = self._plan.program.outputs, self._plan.traced.structure

        def real(place: Output, rows: Tensor) -> Tensor:
            return rows[: len(own[outputs[place.index].kind])]

        def ids(place: Output) -> Tensor:
            return torch.from_numpy(own[outputs[place.index].kind])

        out = in_structure(structure, real, self.evaluator.result(None))
        return own, in_structure(structure, ids), out
