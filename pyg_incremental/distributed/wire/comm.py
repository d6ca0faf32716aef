"""How ranks talk to each other: a protocol of two collectives, and one for a single process.

Everything that the ranks say is built of these two (see `rounds.py`): first every rank shares a few
integers, so that all know who sends how much to whom; then the bytes travel, if there are any. An
implementation has to raise `RankFailedError` where a rank does not answer in time.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Integers = NDArray[np.int64]


class Communicator(Protocol):
    """The ranks of one run.

    Attributes:
        rank: The number of this process, `0 <= rank < size`.
        size: The number of processes.
        timeout: Seconds after which a rank that has not answered counts as dead.
    """

    rank: int
    size: int
    timeout: float

    def share(self, row: Integers) -> Integers:
        """Hand in `[k]` integers and get those of every rank, `[size, k]`; a collective.

        Raises:
            RankFailedError: If a rank is dead or does not answer in time.
        """

    def send(self, parts: Sequence[Tensor], counts: Integers) -> list[Tensor]:
        """Send bytes to every rank and get what the others send here; a collective.

        Args:
            parts: For each rank what it is sent, uint8 `[n]` on the CPU.
            counts: How many bytes each rank (row) sends to each (column), `[size, size]`.

        Returns:
            What each rank has sent here, uint8.

        Raises:
            RankFailedError: If a rank is dead or does not answer in time.
        """

    def close(self) -> None:
        """Let go of what the communicator holds; no collective may follow."""


class SingleProcess:
    """One rank that is alone: the partitioned mode without a second process."""

    rank = 0
    size = 1
    timeout = 0.0

    def share(self, row: Integers) -> Integers:
        """The same integers, `[1, k]`."""
        return row[None]

    def send(self, parts: Sequence[Tensor], counts: Integers) -> list[Tensor]:
        """The same bytes; see `Communicator.send`."""
        return list(parts)

    def close(self) -> None:
        """Nothing is held."""


def offsets(counts: Integers) -> Integers:
    """Where each part begins if they stand one behind the other, and where the last ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Parts of bytes, uint8 of any shape, one behind the other; a single one as it is."""
    some = [p.reshape(-1) for p in parts if p.numel()]
    if len(some) == 1:
        return some[0]
    return torch.cat(some) if some else torch.empty(0, dtype=torch.uint8)
