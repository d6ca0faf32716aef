"""What a rank knows of one boundary: its ghosts, and who holds ghosts of its own nodes."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.distributed.errors import RankFailedError
from pyg_incremental.distributed.numbering.local_ids import Ghosts, Own
from pyg_incremental.distributed.wire.rounds import Rounds
from pyg_incremental.kernels.address import fetch
from pyg_incremental.kernels.adjacency import out_of_range
from pyg_incremental.kernels.jit import njit
from pyg_incremental.kernels.lent import Lent
from pyg_incremental.kernels.threads import take_into

Ids = NDArray[np.int64]
_AHEAD = 32
"""How many ids ahead of its use a single number is asked for."""
_NONE = np.empty(0, np.int64)


@dataclass
class Traffic:
    """What one exchange of one update has moved.

    Attributes:
        name: The value that was exchanged.
        rows_sent: Rows sent, each counted once for every rank it went to.
        rows_received: Rows received.
        bytes_sent: Bytes sent to other ranks.
        bytes_received: Bytes received from other ranks.
        row_bytes: Bytes of one row, its address included.
    """

    name: str
    rows_sent: int
    rows_received: int
    bytes_sent: int
    bytes_received: int
    row_bytes: int


@dataclass
class Link:
    """One boundary: the edges of one graph, in one direction.

    Attributes:
        far: The kind of nodes that the program calls own nodes and ghosts together.
        own: The nodes of that kind that this rank owns.
        ghosts: The ghosts of this rank.
        rounds: The conversation with the other ranks.
        traffic: What was moved is noted here, for all boundaries of a rank.
        newly: For each rank the own nodes (and their ids there) of which it holds ghosts since the
            running update: it needs their rows even if they did not change.
    """

    far: str
    own: Own
    ghosts: Ghosts
    rounds: Rounds
    traffic: list[Traffic]
    newly: dict[int, tuple[Ids, Ids]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # For each rank the id that each own node has there, -1 for none; made when first needed.
        self._there: list[NDArray[np.int32] | None] = [None] * self.rounds.size
        self._lent = Lent()

    def subscribe(self, rank: int, local: Ids, there: Ids) -> None:
        """From now on another rank holds ghosts of some own nodes, under the ids `there`.

        Ids are int64 `[k]`. Until `settle` it is one that holds them newly.
        """
        if local.size:
            self.newly[rank] = local, there

    def settle(self) -> None:
        """The running update is through."""
        for rank, (local, there) in self.newly.items():
            self._room(rank)[local] = there
        self.newly = {}

    def unsubscribe(self, rank: int, local: Ids) -> None:
        """From now on another rank needs no rows of some own nodes, int64 `[k]`."""
        if local.size:
            self._room(rank)[local] = -1

    def _room(self, rank: int) -> NDArray[np.int32]:
        held, size = self._there[rank], self.own.limit
        if held is None or held.size < size:
            room = np.full(size, -1, np.int32)
            if held is not None:
                room[: held.size] = held
            self._there[rank] = held = room
        return held

    def needed(self, rank: int, ids: Ids) -> tuple[Ids, NDArray[np.int32]]:
        """Those of some own nodes, int64 `[k]`, of which a rank holds ghosts, and their ids there.

        Those of which it holds ghosts since the running update are left out.
        """
        held = self._there[rank]
        if held is None or not ids.size:
            return _NONE, _NONE.astype(np.int32)
        here, there = np.empty(ids.size, np.int64), np.empty(ids.size, np.int32)
        count = _held(ids, held, here, there)
        return here[:count], there[:count]

    def boundary(self, rank: int) -> Ids:
        """The own nodes of which another rank holds ghosts."""
        held = self._there[rank]
        return _NONE if held is None else np.flatnonzero(held >= 0)

    def swap(
        self, name: str, rows: Tensor, packed: list[tuple[Ids, NDArray[np.int32]]]
    ) -> tuple[Ids, Tensor]:
        """Send every rank rows under the ids they have there; returns what comes here.

        Args:
            name: The value, for the record.
            rows: Its rows here, `[n, ...]`.
            packed: For each rank ids here and there, `[k]` each.

        Returns:
            Ids here, int64 `[n]`, and their rows `[n, ...]`.

        Raises:
            RankFailedError: If something else comes.
        """
        row_bytes = rows.element_size() * rows.shape[1:].numel() + 4
        before = self.rounds.bytes_sent, self.rounds.bytes_received
        got = self.rounds.exchange([_bytes_of(rows, *ids, self._lent) for ids in packed])
        arrived = [_rows_of(part, rows) for part in got if part.numel()]
        ids = np.concatenate([_NONE, *(at for at, _ in arrived)])
        if out_of_range(ids, self.ghosts.end) >= 0:
            raise RankFailedError(
                f"rank {self.rounds.rank} was sent rows of '{name}' for ids that are no ghosts"
            )
        new = [some for _, some in arrived]
        sent = sum(len(there) for _, there in packed)
        self.traffic.append(
            Traffic(
                name, sent, len(ids), self.rounds.bytes_sent - before[0],
                self.rounds.bytes_received - before[1], row_bytes,
            )
        )  # fmt: skip
        return ids, new[0] if len(new) == 1 else torch.cat([rows[:0], *new])


@njit(cache=True)
def _held(ids: Ids, held: NDArray[np.int32], here: Ids, there: NDArray[np.int32]) -> int:
    """Write down the ids that another rank holds, here and there; returns how many."""
    count = 0
    for i in range(ids.size):
        if i + _AHEAD < ids.size:
            fetch(held, ids[i + _AHEAD])
        if ids[i] < held.size and held[ids[i]] >= 0:
            here[count], there[count] = ids[i], held[ids[i]]
            count += 1
    return count


def _bytes_of(rows: Tensor, here: Ids, there: NDArray[np.int32], lent: Lent) -> Tensor | None:
    """Rows `here`, then the ids that they have there, as bytes."""
    count, width = len(there), rows.element_size() * rows.shape[1:].numel()
    if not count:
        return None
    data = lent.array(np.uint8, count * (width + 4))
    if width:
        room = data[: count * width]
        if rows.is_cpu:
            flat = rows.contiguous().view(len(rows), -1)
            flat = flat if flat.dtype in (torch.float32, torch.float64) else flat.view(torch.uint8)
            raw = flat.numpy()
            take_into(raw, here, room.view(raw.dtype).reshape(count, -1))
        else:
            some = rows[torch.from_numpy(here).to(rows.device)].cpu().contiguous()
            room[:] = some.view(-1).view(torch.uint8).numpy()
    data[count * width :] = there.view(np.uint8)
    return torch.from_numpy(data)


def _rows_of(data: Tensor, like: Tensor) -> tuple[Ids, Tensor]:
    """Ids here, int64 `[n]`, and rows `[n, ...]`, as they were written."""
    width = like.element_size() * like.shape[1:].numel()
    count, rest = divmod(data.numel(), width + 4)
    if rest:
        raise RankFailedError(f"{data.numel()} bytes came, which are no rows of {width} bytes")
    raw = data[: count * width]
    if raw.data_ptr() % like.element_size() or raw.storage_offset() % like.element_size():
        raw = raw.clone()
    rows = raw.view(like.dtype).view(count, *like.shape[1:])
    return data[count * width :].numpy().view(np.int32).astype(np.int64), rows.to(like.device)
