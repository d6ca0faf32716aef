"""The one word that a partitioned program has more: a value, with the rows of ghosts.

`Exchange(value) -> value'` stands before an aggregation that reads `value` at the far end of its
edges. The rows of own nodes are those of `value`; those of ghosts are sent by their owners, once
for each rank that holds one, and only where they changed. RIPPLE ("RIPPLE: Scalable Incremental GNN
Inferencing on Large Streaming Graphs", Section on distributed execution) sends a mail per remote
target instead, summed at the sender; that serves linear aggregations only, and needs no ghosts.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.distributed.link import Link
from pyg_incremental.program import Step
from pyg_incremental.store import Cell, Context


@dataclass(frozen=True, eq=False)
class Exchange(Step):
    """A node value at own nodes and ghosts.

    Attributes:
        link: The boundary that its rows cross.
    """

    kind: ClassVar[str] = "exchange"
    link: Link

    def executor(self, inputs: list[Cell], out: Cell, context: Context) -> "ExchangeExecutor":
        """The executor: it holds one round with the other ranks in every update."""
        return ExchangeExecutor(self, inputs[0], out, context)


class ExchangeExecutor:
    """Keeps the rows of a value at own nodes and ghosts current. Every update is one round."""

    def __init__(self, step: Exchange, source: Cell, out: Cell, context: Context) -> None:
        self.step, self.source, self.out, self.context = step, source, out, context
        self.inputs = [source]

    def full(self) -> None:
        """Take all own rows, and send all that are ghosts elsewhere."""
        link, out = self.step.link, self.out
        rows = self.source.current()
        room = rows.new_zeros((self.context.capacity, *rows.shape[1:]))
        room[: rows.shape[0]] = rows
        every = np.arange(rows.shape[0])
        packed = []
        for rank in range(link.rounds.size):
            at, there = link.needed(rank, every)
            packed.append((rows[torch.from_numpy(at).to(rows.device)], there))
        ids, received = link.swap(out.value.name, packed)
        room[torch.from_numpy(ids).to(rows.device)] = received
        out.hold(room)

    def rows_changed(self) -> None:
        """Send the changed rows that are ghosts elsewhere, and take those of ghosts here."""
        link, source, out, context = self.step.link, self.source, self.out, self.context
        ids = source.ids.tensor if source.ids is not None else _NO_IDS
        rows = out.tensor[:0]
        if source.ids is not None:
            rows = source.fresh if source.fresh is not None else source.gather(source.ids)
            if link.own.has_holes:  # their ids are those of ghosts here
                real = torch.from_numpy(link.own.globals >= 0)[ids]
                ids, rows = ids[real], rows[real.to(rows.device)]
        packed = [self._packed(rank, ids.numpy(), rows) for rank in range(link.rounds.size)]
        ghosts, received = link.swap(out.value.name, packed)
        if len(ghosts):
            ids = torch.cat([ids, torch.from_numpy(ghosts)])
            rows = torch.cat([rows, received])
        if not len(ids):
            return
        changed = out.commit(context.backend.ids(ids), rows, context.first_new)
        context.stats.append((out.value.name, "exchange", len(ids), changed, 0, 0))

    def _packed(
        self, rank: int, ids: NDArray[np.int64], rows: Tensor
    ) -> tuple[Tensor, NDArray[np.int32]]:
        """What another rank is sent: changed rows, and all rows that it has just asked for."""
        link = self.step.link
        at, there = link.needed(rank, ids)
        chosen = rows[torch.from_numpy(at).to(rows.device)]
        if rank in link.newly:
            asked, their_ids = link.newly[rank]
            current = self.source.read(torch.from_numpy(asked))
            chosen = torch.cat([chosen, current])
            there = np.concatenate([there, their_ids.astype(np.int32)])
        return chosen, there

    def clear(self, ids: Tensor) -> None:
        """Zero the rows of ghosts that come under ids that others had before, int64 `[k]`."""
        rows = self.out.tensor
        rows[ids[ids < rows.shape[0]].to(rows.device)] = 0


_NO_IDS = torch.empty(0, dtype=torch.int64)
