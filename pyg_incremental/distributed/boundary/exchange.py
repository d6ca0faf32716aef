"""The one word that a partitioned program has more: a value, with the rows of ghosts.

`Exchange(value) -> value'` stands before an aggregation that reads `value` at the far end of its
edges. The rows of own nodes are those of `value`; those of ghosts are sent by their owners, once
for each rank that holds one, and only where they changed. Both values share the rows of own nodes
in memory. RIPPLE ("RIPPLE: Scalable Incremental GNN Inferencing on Large
Streaming Graphs", Section on distributed execution) sends a mail per remote target instead, summed
at the sender; that serves linear aggregations only, and needs no ghosts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.distributed.boundary.link import Link
from pyg_incremental.distributed.errors import RankFailedError
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.ops.operator import At, Operator
from pyg_incremental.program.joined import Joined
from pyg_incremental.rows import Cell, Context, Ids
from pyg_incremental.typing import Array

LEAST = 1 << 10
"""Rows that an exchange moves at once, however little memory there is."""
_PER_ROW = 24
"""Bytes beside each row that is moved: its ids here and there."""


@dataclass(frozen=True, eq=False)
class Exchange(Joined):
    """A node value at own nodes and ghosts.

    Attributes:
        link: The boundary that its rows cross.
        shares: Whether the rows of own nodes are those of the input; of several exchanges of one
            value only one can share.
    """

    kind: ClassVar[str] = "exchange"
    brings_executor: ClassVar[bool] = True
    is_collective: ClassVar[bool] = True
    link: Link
    shares: bool

    def executor(self, inputs: list[Cell], out: Cell, context: Context) -> "ExchangeExecutor":
        """The executor: it holds one round with the other ranks in every update."""
        return ExchangeExecutor(self, inputs[0], out, context)

    @property
    def begins(self) -> int:
        """The id of the first ghost, as long as no node has come."""
        return self.link.own.limit

    @property
    def behind(self) -> int:
        """How many ghosts there are, as long as no node has come."""
        return self.link.ghosts.end - self.link.own.limit

    def fetch(
        self, rows_at: Callable[[NDArray[np.int64]], Tensor], like: Tensor, memory: int
    ) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Send the rows that are ghosts elsewhere, and take those of ghosts, some at a time.

        All ranks hold as many rounds as the one that has most to send in the memory that the
        scarcest one has left.

        Args:
            rows_at: Returns rows of own nodes, `[k, ...]`, at local ids, int64 `[k]`.
            like: No row of them, `[0, ...]`.
            memory: About how many bytes may be taken meanwhile.

        Yields:
            Which of the ghosts, counted from the first, int64 `[k]`, and their rows, `[k, ...]`.

        Raises:
            RankFailedError: If something else comes than was asked for.
        """
        link = self.link
        rounds, name = link.rounds, self.output.name
        every = (link.boundary(rank) for rank in range(rounds.size))
        ours = np.unique(np.concatenate([*every, _NO_IDS]))
        width = max(1, like.element_size() * like.shape[1:].numel()) + _PER_ROW
        most = max(LEAST, memory // (width * (1 + rounds.size)))
        told = rounds.everywhere((most, len(ours)))
        at_once = min(t[0] for t in told)
        for first in range(0, max(t[1] for t in told), at_once):
            some = ours[first : first + at_once]
            packed = []
            for rank in range(rounds.size):
                here, there = link.needed(rank, some)
                packed.append((np.searchsorted(some, here), there))
            ids, rows = link.swap(name, rows_at(some) if len(some) else like, packed)
            if len(ids) and ids.min() < self.begins:
                raise RankFailedError(
                    f"rank {rounds.rank} was sent rows of '{name}' for ids that are no ghosts"
                )
            yield ids - self.begins, rows


class ExchangeExecutor(Operator):
    """Keeps the rows of a value at own nodes and ghosts current. Every update is one round.

    Attributes:
        arrived: Ids and rows of the round of the running update, if it was held already.
    """

    def __init__(self, step: Exchange, source: Cell, out: Cell, context: Context) -> None:
        super().__init__(step, out, context)
        self.source, self.inputs = source, [source]
        self.arrived: tuple[NDArray[np.int64], Tensor] | None = None

    def unknown(self, graph: DynamicGraph, dtype: torch.dtype, wide: torch.dtype) -> str:
        """The machine takes part where both values have one memory, of the dtype of its rows."""
        if self.out.tensor.dtype != dtype:
            return f"its rows are of {self.out.tensor.dtype}"
        return "" if self.is_shared else "it has rows of its own"

    def lay_out(self, row: Array, numbers: Array, at: At, wide: bool) -> None:
        """As for all of them, int64 `[columns]` and floats `[2]`."""
        row[m.KIND], row[m.SOURCE] = m.EXCHANGE, at(self.source)

    def full(self) -> None:
        """Take all own rows, and send all that are ghosts elsewhere."""
        link, out, self.arrived = self.step.link, self.out, None
        rows = self.source.current()
        room = self.context.backend.zeros(rows, self.context.capacity, *rows.shape[1:])
        room[: rows.shape[0]] = rows
        every = np.arange(rows.shape[0])
        packed = [link.needed(rank, every) for rank in range(link.rounds.size)]
        ids, received = link.swap(out.value.name, rows, packed)
        room[torch.from_numpy(ids).to(rows.device)] = received
        out.hold(room)
        self.share()

    def share(self) -> None:
        """Let the input keep its rows here, if no id of an own node is that of a ghost."""
        source, out = self.source, self.out
        if self.step.shares and source.out_dtype is None and not self.step.link.own.has_holes:
            source.keeps_old, source.old_if_few = out.keeps_old, False
            source.hold(out.tensor[: source.tensor.shape[0]])

    @property
    def is_shared(self) -> bool:
        """Whether the rows of own nodes are those of the input (either may have been moved)."""
        return self.source.tensor.data_ptr() == self.out.tensor.data_ptr()

    def part(self) -> None:
        """Give the input rows of its own again: some of its ids have become those of ghosts."""
        if self.is_shared:
            self.source.hold(self.source.tensor.clone())

    def rows_changed(self) -> None:
        """Send the changed rows that are ghosts elsewhere, and take those of ghosts here."""
        out, context = self.out, self.context
        read = self._own_rows()
        own = out.ids, out.old
        ids = _NO_IDS if out.ids is None else out.ids.tensor.numpy()
        ghosts, received = self.swap(ids) if self.arrived is None else self.arrived
        self.arrived = None
        if len(ghosts):
            backend = context.backend
            out.reset()
            out.commit(backend.ids_from(backend.host(ghosts)), received, context.first_new)
            self._unite(*own)
        changed = 0 if out.ids is None else out.ids.count
        if read or len(ghosts):
            context.stats.append((out.value.name, "exchange", read + len(ghosts), changed, 0, 0))

    def swap(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], Tensor]:
        """Send what changed at own nodes, int64 `[k]`; returns ids here and rows that come."""
        link: Link = self.step.link
        out = self.out
        packed = [self._packed(rank, ids) for rank in range(link.rounds.size)]
        return link.swap(out.value.name, out.tensor, packed)

    def _own_rows(self) -> int:
        """Take what changed at own nodes; returns how many rows were looked at."""
        source, out, context = self.source, self.out, self.context
        if source.ids is None:
            return 0
        ids, own = source.ids, self.step.link.own
        if self.is_shared:
            out.ids, out.fresh, out.old = ids, source.fresh, source.old
            return ids.count
        rows = source.fresh if source.fresh is not None else source.gather(ids)
        if own.has_holes:  # their ids are those of ghosts here
            real = torch.from_numpy(own.globals >= 0)[ids.tensor]
            ids, rows = context.backend.ids(ids.tensor[real]), rows[real.to(rows.device)]
        if ids.count:
            out.commit(ids, rows, context.first_new)
        self.share()
        return ids.count

    def _unite(self, ids: Ids | None, old: Array) -> None:
        """Rows that changed at own nodes, and those of ghosts, are what has changed."""
        out = self.out
        if ids is None:
            return
        out.fresh = None  # both are in the store
        if out.ids is None:
            out.ids, out.old = ids, old
            return
        join = out.backend.joined
        if out.keeps_old:
            out.old = join([old[: ids.count], out.old[: out.ids.count]])
        out.ids = out.backend.ids_from(join([ids.array, out.ids.array]))

    def _packed(
        self, rank: int, ids: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """What another rank is sent: changed rows, and all rows that it has just asked for."""
        link = self.step.link
        here, there = link.needed(rank, ids)
        if rank in link.newly:
            asked, their_ids = link.newly[rank]
            here = np.concatenate([here, asked])
            there = np.concatenate([there, their_ids.astype(np.int32)])
        return here, there

    def clear(self, ids: Tensor) -> None:
        """Zero the rows of ghosts that come under ids that others had before, int64 `[k]`."""
        rows = self.out.tensor
        rows.index_fill_(0, ids[ids < rows.shape[0]].to(rows.device), 0)


_NO_IDS = np.empty(0, np.int64)
