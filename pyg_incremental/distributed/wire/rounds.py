"""What ranks say to each other, built of the two collectives of a `Communicator`.

Every round begins with one small collective, in which each rank shares how many bytes it has for
each other rank, what it is doing, and whether it is still well. So an empty round ends there; a
rank that has raised an error tells the others with its next round, whatever they are doing, instead
of letting them wait; and ranks that do not do the same thing notice before any of them has read
what was meant for something else.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.distributed.errors import (
    OutOfStepError,
    RankFailedError,
    is_on_all_ranks,
    on_all_ranks,
)
from pyg_incremental.distributed.wire.comm import Communicator, Integers
from pyg_incremental.distributed.wire.interrupts import HeldBack
from pyg_incremental.encoding.framing import Bytes, FrameError, packed, unpacked
from pyg_incremental.kernels.lent import Lent

T = TypeVar("T")
FAILED = -1
OPERATIONS = (
    "nothing", "the first call", "from_shards", "refresh", "apply_delta", "inverse", "verify",
    "save", "load", "gather_out", "state_digest", "bootstrap", "evaluate",
)  # fmt: skip
"""What ranks do together."""
_ROUND, _OPERATION = 12, 4
"""Bits of the word that says what a rank is doing; what it has done before takes the others."""
LARGEST = 1 << 30
"""Bytes that one rank sends another in one collective; MPI counts them in 32 bits."""


class Rounds:
    """The conversation of one rank with the others, counted.

    Args:
        comm: How bytes travel.

    Attributes:
        rank: The number of this rank.
        size: The number of ranks.
        device: Where tensors go that were on an accelerator of the rank that has sent them.
        held_back: A block in which Ctrl-C waits.
        bytes_sent: Bytes sent to other ranks so far.
        bytes_received: Bytes received from other ranks so far.
        count: Number of rounds so far.
        seconds_waiting: Time spent in the small collectives: mostly waiting for slower ranks.
        seconds_sending: Time spent in moving bytes.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self.device = torch.device("cpu")
        self.held_back = HeldBack()
        self.bytes_sent = self.bytes_received = self.count = 0
        self.seconds_waiting = self.seconds_sending = 0.0
        self._broken = ""
        self._lent = Lent()
        self._sequence = self._operation = self._round = 0

    # Operations ----------------------------------------------------------------------------------

    @contextmanager
    def operation(self, name: str) -> Iterator[None]:
        """What all ranks do together from here on; within another one it is part of that.

        A rank that ends it with an error of its own tells the others.
        """
        if self._operation:
            yield
            return
        self._sequence, self._round = self._sequence + 1, 0
        self._operation = OPERATIONS.index(name)
        try:
            yield
        except BaseException as error:
            if not is_on_all_ranks(error):
                self.fail()
            raise
        finally:
            self._operation = self._round = 0

    def _word(self) -> int:
        """What this rank is doing, as one number."""
        doing = self._sequence << _OPERATION | self._operation
        return doing << _ROUND | self._round & ((1 << _ROUND) - 1)

    # Rounds --------------------------------------------------------------------------------------

    def exchange(self, parts: Sequence[Tensor | None]) -> list[Tensor]:
        """Send each rank its part, uint8 `[n]` (None for nothing); returns what each sent here.

        Raises:
            RankFailedError: If a rank has failed, is dead, or does not answer in time.
            OutOfStepError: If the ranks do not do the same thing.
        """
        if self._broken:
            raise on_all_ranks(
                RankFailedError(
                    f"the ranks are no longer in step: {self._broken}. Restart them and load the "
                    "last save"
                )
            )
        with self.held_back:
            try:
                return self._exchange(parts)
            except BaseException as error:
                if not is_on_all_ranks(error):  # it was half said: nobody knows who waits for what
                    self._broken = f"rank {self.rank} has left a round ({_said(error)})"
                raise

    def _exchange(self, parts: Sequence[Tensor | None]) -> list[Tensor]:
        sizes = [0 if p is None else p.numel() for p in parts]
        row = np.array([self._word(), *sizes], np.int64)
        began = time.perf_counter()
        every = self.comm.share(row)
        self.count += 1
        self._round += 1
        if (every[:, 0] != row[0]).any():
            self._out_of_step(every)
        counts = np.ascontiguousarray(every[:, 1:])
        waited = time.perf_counter()
        self.seconds_waiting += waited - began
        if not counts.any():
            return [_NOTHING] * self.size
        got = self._send([_NOTHING if p is None else p for p in parts], counts)
        if [p.numel() for p in got] != counts[:, self.rank].tolist():
            raise RankFailedError(f"rank {self.rank} did not receive what was announced")
        self.seconds_sending += time.perf_counter() - waited
        self.bytes_sent += int(counts[self.rank].sum() - counts[self.rank, self.rank])
        self.bytes_received += int(counts[:, self.rank].sum() - counts[self.rank, self.rank])
        return got

    def _send(self, parts: list[Tensor], counts: Integers) -> list[Tensor]:
        if counts.max() <= LARGEST:
            return self.comm.send(parts, counts)
        pieces: list[list[Tensor]] = [[] for _ in parts]
        for first in range(0, int(counts.max()), LARGEST):
            some = [p[first : first + LARGEST] for p in parts]
            got = self.comm.send(some, (counts - first).clip(0, LARGEST))
            for piece, more in zip(pieces, got, strict=True):
                piece.append(more)
        return [torch.cat(piece) for piece in pieces]

    def _out_of_step(self, every: Integers) -> None:
        """Raise what every rank raises if one has failed, or they do not do the same thing.

        From here on they are in step again: all have heard the same, and go on from there.
        """
        words = np.where(every[:, 0] == FAILED, every[:, 1], every[:, 0]).tolist()
        doing = [word >> _ROUND for word in words]
        names = [OPERATIONS[d & ((1 << _OPERATION) - 1)] for d in doing]
        self._sequence, self._round = max(d >> _OPERATION for d in doing), 0
        failed = np.flatnonzero(every[:, 0] == FAILED).tolist()
        if failed:
            raise on_all_ranks(
                RankFailedError(
                    f"rank {failed[0]} has raised an error in the middle of {names[failed[0]]} "
                    "(see there). Mend the cause, and call refresh() on every rank if `stale` "
                    "says so on one"
                )
            )
        said = "; ".join(
            f"rank {rank} is in {name} (call {d >> _OPERATION}, round {word & 0xFFF})"
            for rank, (name, d, word) in enumerate(zip(names, doing, words, strict=True))
        )
        raise on_all_ranks(
            OutOfStepError(
                f"the ranks do not do the same thing: {said}. Every method is called by all ranks, "
                "in the same order. Nothing was changed by this call; where `stale` says so, call "
                "refresh() on every rank"
            )
        )

    def fail(self) -> None:
        """Tell the other ranks, which are about to begin a round, that this one cannot go on."""
        if self._broken or self.size == 1:
            return
        row = np.zeros(self.size + 1, np.int64)
        row[:2] = FAILED, self._word()
        with self.held_back:
            try:
                self._out_of_step(self.comm.share(row))
            except BaseException as error:
                if not is_on_all_ranks(error):
                    self._broken = _said(error)
                if not isinstance(error, Exception):
                    raise

    # Values --------------------------------------------------------------------------------------

    def everywhere(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank; None costs nothing."""
        part = None if value is None else self._packed(value)
        return [self._unpacked(got) for got in self.exchange([part] * self.size)]

    def swap(self, values: Sequence[Any]) -> list[Any]:
        """Hand each rank its value; returns what each handed to this one. None costs nothing.

        What a rank hands to itself is not copied.
        """
        parts = [
            None if v is None or rank == self.rank else self._packed(v)
            for rank, v in enumerate(values)
        ]
        got = [self._unpacked(data) for data in self.exchange(parts)]
        got[self.rank] = values[self.rank]
        return got

    def _packed(self, value: Any) -> Tensor:
        return torch.from_numpy(packed(value, self._room))

    def _room(self, size: int) -> Bytes:
        room: Bytes = self._lent.array(np.uint8, size)
        return room

    def _unpacked(self, data: Tensor) -> Any:
        if not data.numel():
            return None
        try:
            return unpacked(data.numpy(), self.device)
        except FrameError as error:
            raise RankFailedError(
                f"rank {self.rank} cannot read what another rank has sent ({error}); all ranks "
                "have to run the same version of this package"
            ) from error


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def raise_first(values: Sequence[Any]) -> None:
    """Raise the first of some values that is an error; all ranks have the same."""
    for value in values:
        if isinstance(value, Exception):
            raise on_all_ranks(value)


def together(rounds: Rounds, run: Callable[[], T], *, first: bool = False) -> T:
    """Run something that may raise; if it does on one rank, all ranks raise the same.

    Where a rank is interrupted, that one raises the interrupt, and the others say so.

    Args:
        rounds: The conversation.
        run: What to run. It holds no round.
        first: Return what the first rank got.
    """
    error: BaseException | None = None
    value: Any = None
    try:
        value = run()
    except BaseException as raised:
        error = raised
    if error is not None and not isinstance(error, Exception):
        said: Any = RankFailedError(f"rank {rounds.rank} was interrupted ({_said(error)})")
    else:
        said = error if error is not None or not first else value
    got = rounds.everywhere(said)
    if error is not None and not isinstance(error, Exception):
        raise on_all_ranks(error)
    raise_first(got)
    return got[0] if first else value  # type: ignore[no-any-return]


_NOTHING = torch.empty(0, dtype=torch.uint8)
