"""Layer-wise evaluation on ranks: each computes the rows of its own nodes, block by block."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData

from pyg_incremental.blocks import given
from pyg_incremental.call.bound_call import device_of
from pyg_incremental.call.plan import CallPlan
from pyg_incremental.distributed.call import SharedCall, plan_of
from pyg_incremental.distributed.part.in_blocks import INSTEAD, Budget, PartInBlocks
from pyg_incremental.distributed.placement.ownership import Ownership
from pyg_incremental.distributed.placement.shard import Shard
from pyg_incremental.distributed.readings import collective
from pyg_incremental.distributed.start import Starting
from pyg_incremental.errors import InvalidDeltaError, UnsupportedModelError
from pyg_incremental.session.settings import Settings
from pyg_incremental.telemetry.progress import shown

_REFUSED = {
    "nodes": "all rows are computed; take those of your nodes out of what comes back",
    "num_neighbors": "no rank knows all edges, of which some would be drawn",
    "order": "blocks take the nodes of a rank by their ids; partition_by='metis' puts nodes with "
    "common neighbours on one rank",
    "out": "what comes back are the rows of a rank's own nodes",
    "seed": "nothing is drawn",
}


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation gives on one rank.

    Attributes:
        nodes: The nodes that the rows belong to, global ids, ascending, int64 `[n]`, by kind if
            there are several: those of this rank, or all.
        out: What the model returns at these, `[n, out_channels]`, in the structure of its output.
    """

    nodes: Any
    out: Any


class Evaluating(Starting):
    """Evaluation without a store; a base of `DistributedIncrementalModel`."""

    @collective("evaluate")
    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def evaluate(
        self,
        data: Data | HeteroData | Mapping[str, Any] | None = None,
        *,
        shards: str | os.PathLike[str] | None = None,
        arguments: Mapping[str, Any] | None = None,
        partition_by: Ownership = "metis",
        memory: int | str = "4GB",
        directory: str | os.PathLike[str] | None = None,
        device: torch.device | str | None = None,
        gather: bool = False,
        progress: bool = True,
        **others: Any,
    ) -> Evaluated:
        """Compute the output layer by layer, each rank its own rows in blocks that fit in memory.

        Nothing is stored, and nothing that is stored changes. Before each layer the ranks exchange
        the rows of nodes that others see, as in a first pass, as many at once as fit.

        Args:
            data: A whole graph, alike on every rank, as `pyg_incremental.evaluate` takes it; by
                default the current one.
            shards: In its place a folder of shards, as for `from_shards`.
            arguments: Further arguments of the model, for shards.
            partition_by: Of a whole graph, who owns its nodes, as in a call.
            memory: Bytes that this rank may take beside its own part of the features and edges, a
                number or such as `'4GB'`; ranks may differ.
            directory: Where rows and neighbour lists are kept, as `.npy` files, in place of memory,
                each rank's in a folder of its own. An evaluation that was killed begins anew.
            device: Where this rank computes blocks; by default where the features are.
            gather: Return the rows of all nodes, on every rank.
            progress: Show on a terminal of the first rank its rows per second and the time left.
            **others: Other arguments of `pyg_incremental.evaluate` are refused, with the reason.

        Returns:
            The rows of this rank's nodes (or of all), and global ids.

        Raises:
            UnsupportedModelError: On every rank, if some step needs all rows, if the output has no
                row for each node, or for what is refused.
            InvalidDeltaError: On every rank, if the arguments do not fit together.
            PartitionError: On every rank, if partition or shards do not fit.
            StaleStateError: On every rank, if the model is in training mode; without data, before
                the first pass, or if what a rank stores is stale.
            MemoryError: On the rank on which the in-edges of one node alone do not fit; on the
                others `RankFailedError`.
            RankFailedError: If a rank has died or raised in the middle.
        """

        def read() -> Budget:
            _refuse(others, data is not None, shards is not None, arguments is not None)
            return Budget(given.bytes_of(memory), directory, device)

        budget = self._together(read)
        if data is not None:
            call, shard = self._cut(lambda: given.call_of(self.model, data), partition_by)
        elif shards is not None:
            call, shard = self._read(shards, dict(arguments or {}))
        else:
            self._together(self._refuse_stale)
            call, shard = self._called(), self._together(self._require().shard)
        found = self._in_blocks(call, shard, budget)
        with shown(progress and not self.rank, unit=" rows", unit_scale=True, smoothing=0) as bar:
            bar.reset(found.evaluator.total)
            found.run(bar.update)
        own, ids, out = found.result()
        nodes = self._by_kind({kind: torch.from_numpy(held) for kind, held in own.items()})
        if not gather:
            return Evaluated(nodes, out)
        every = self._gathered(nodes, nodes)[0]
        return Evaluated(every, self._gathered(ids, out)[1])

    def _in_blocks(self, call: SharedCall, shard: Shard, budget: Budget) -> PartInBlocks:
        """This rank's part of an evaluation, ready to run."""
        self._refuse_other_models()
        self.rounds.device = device_of(self.model, shard.nodes.values())
        counts = {kind: len(ranks) for kind, ranks in shard.owner.items()}

        def plan() -> CallPlan:
            return plan_of(call, counts, Settings(), INSTEAD)

        return PartInBlocks(self._together(plan), shard, call.sample.others, self.rounds, budget)


def _refuse(others: Mapping[str, Any], data: bool, shards: bool, arguments: bool) -> None:
    """Refuse what does not fit together."""
    for name in others:
        if name not in _REFUSED:
            raise InvalidDeltaError(f"evaluate: there is no argument '{name}'")
        raise UnsupportedModelError(
            f"evaluate: {name} is not there on ranks: {_REFUSED[name]}; or use {INSTEAD}, in one "
            "process"
        )
    if data and shards:
        raise InvalidDeltaError("evaluate: give data or shards, not both")
    if arguments and not shards:
        raise InvalidDeltaError(
            "evaluate: arguments belong to shards; of a whole graph they are part of data"
        )
