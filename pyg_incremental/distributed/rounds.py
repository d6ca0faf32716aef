"""What ranks say to each other, built of the two collectives of a `Communicator`.

Every round begins with one small collective, in which each rank shares how many bytes it has for
each other rank, and whether it is still well. So an empty round ends there; and a rank that has
raised an error tells the others with its next round, whatever they are doing, instead of letting
them wait.
"""

import io
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.distributed.comm import Communicator, Integers
from pyg_incremental.distributed.errors import RankFailedError
from pyg_incremental.kernels.lent import Lent

T = TypeVar("T")
WELL, FAILED = 0, 1
FEW = 16
"""Ids that may as well be written in eight bytes each."""
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
        self.bytes_sent = self.bytes_received = self.count = 0
        self.seconds_waiting = self.seconds_sending = 0.0
        self._broken = ""
        self._lent = Lent()

    def exchange(self, parts: Sequence[Tensor | None]) -> list[Tensor]:
        """Send each rank its part, uint8 `[n]` (None for nothing); returns what each sent here.

        Raises:
            RankFailedError: If a rank has failed, is dead, or does not answer in time.
        """
        sizes = [0 if p is None else p.numel() for p in parts]
        row = np.array([WELL, *sizes], np.int64)
        began = time.perf_counter()
        every = self._share(row)
        counts = np.ascontiguousarray(every[:, 1:])
        waited = time.perf_counter()
        self.seconds_waiting += waited - began
        if not counts.any():
            return [_NOTHING] * self.size
        got = self._send([_NOTHING if p is None else p for p in parts], counts)
        self.seconds_sending += time.perf_counter() - waited
        self.bytes_sent += int(counts[self.rank].sum() - counts[self.rank, self.rank])
        self.bytes_received += int(counts[:, self.rank].sum() - counts[self.rank, self.rank])
        return got

    def _send(self, parts: list[Tensor], counts: Integers) -> list[Tensor]:
        if counts.max() <= LARGEST:
            return self._guarded(lambda: self.comm.send(parts, counts))
        pieces: list[list[Tensor]] = [[] for _ in parts]
        for first in range(0, int(counts.max()), LARGEST):
            some = [p[first : first + LARGEST] for p in parts]
            of_these = (counts - first).clip(0, LARGEST)
            got = self._guarded(lambda s=some, c=of_these: self.comm.send(s, c))  # type: ignore[misc]
            for piece, more in zip(pieces, got, strict=True):
                piece.append(more)
        return [torch.cat(piece) for piece in pieces]

    def everywhere(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank; None costs nothing."""
        part = None if value is None else _packed(value, self._lent)
        return [_unpacked(got, self.device) for got in self.exchange([part] * self.size)]

    def swap(self, values: Sequence[Any]) -> list[Any]:
        """Hand each rank its value; returns what each handed to this one. None costs nothing.

        What a rank hands to itself is not copied.
        """
        parts = [
            None if v is None or rank == self.rank else _packed(v, self._lent)
            for rank, v in enumerate(values)
        ]
        got = [_unpacked(data, self.device) for data in self.exchange(parts)]
        got[self.rank] = values[self.rank]
        return got

    def agree(self, error: Exception | None) -> None:
        """Raise on every rank the same error if any rank has one: that of the lowest rank."""
        raise_first(self.everywhere(error))

    def fail(self) -> None:
        """Tell the other ranks, which are about to begin a round, that this one cannot go on."""
        if self._broken or self.size == 1:
            return
        row = np.zeros(self.size + 1, np.int64)
        row[0] = FAILED
        try:
            self.comm.share(row)
        except RankFailedError as error:
            self._broken = str(error)

    def _share(self, row: Integers) -> Integers:
        every = self._guarded(lambda: self.comm.share(row))
        self.count += 1
        failed = np.flatnonzero(every[:, 0] == FAILED)
        if failed.size:
            raise RankFailedError(
                f"rank {failed[0]} has raised an error in the middle of an update (see there); the "
                "update is incomplete on all ranks. Mend the cause and call refresh() on every rank"
            )
        return every

    def _guarded(self, collective: Callable[[], T]) -> T:
        if self._broken:
            raise RankFailedError(
                f"the ranks are no longer in step: {self._broken}. Restart them and load the last "
                "save"
            )
        try:
            return collective()
        except RankFailedError as error:
            self._broken = str(error)
            raise


def raise_first(values: Sequence[Any]) -> None:
    """Raise the first of some values that is an error."""
    for value in values:
        if isinstance(value, Exception):
            raise value


_NOTHING = torch.empty(0, dtype=torch.uint8)
_AS_ARRAYS = {torch.float32, torch.float64, torch.int64, torch.int32, torch.bool}


def _packed(value: Any, lent: Lent) -> Tensor:
    """A value as bytes. The ranks are one program, so they may trust each other's pickles."""
    try:
        return _written(value, lent)
    except Exception:
        if not isinstance(value, Exception):
            raise
        return _written(RuntimeError(f"{type(value).__name__}: {value}"), lent)


def _written(value: Any, lent: Lent) -> Tensor:
    """How many arrays there are, the bytes of the pickle and of each, and these themselves.

    Arrays stand behind the pickle, so that each is copied once, and read where it arrives.
    """
    pickled, arrays = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(pickled, protocol=5, buffer_callback=arrays.append).dump(value)
    pieces = [pickled.getbuffer(), *(a.raw() for a in arrays)]
    sizes = [p.nbytes for p in pieces]
    begins = _begins(sizes)
    data = lent.array(np.uint8, begins[-1])
    data[: begins[0]].view(np.int64)[:] = [len(arrays), *sizes]
    for piece, begin in zip(pieces, begins, strict=False):
        data[begin : begin + piece.nbytes] = np.frombuffer(piece, np.uint8)
    return torch.from_numpy(data)


def _begins(sizes: Sequence[int]) -> list[int]:
    """Where pieces of so many bytes begin, behind their sizes, and where the last one ends."""
    begins = [8 * (1 + len(sizes))]
    for size in sizes:
        begins.append(begins[-1] + -(-size // 8) * 8)
    return begins


def is_elsewhere(value: Any) -> bool:
    """Whether a value is a tensor on an accelerator."""
    return isinstance(value, Tensor) and value.device.type != "cpu"


class _Pickler(pickle.Pickler):
    """Writes tensors as arrays, which is several times as fast; also those on an accelerator.

    Ids that fit into four bytes travel in four.
    """

    def persistent_id(self, obj: Any) -> Any:
        return obj.detach().cpu().numpy() if is_elsewhere(obj) else None

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Tensor and obj.dtype in _AS_ARRAYS:
            return torch.from_numpy, (obj.detach().numpy(),)
        if type(obj) is np.ndarray and obj.dtype == np.int64 and _are_short(obj):
            return _as_long, (obj.astype(np.int32),)
        return NotImplemented


def _are_short(ids: Integers) -> bool:
    """Whether some ids are worth to be written in four bytes each, and fit."""
    limits = np.iinfo(np.int32)
    return ids.size >= FEW and limits.min <= ids.min() and ids.max() <= limits.max


def _as_long(ids: NDArray[np.int32]) -> Integers:
    return ids.astype(np.int64)


class _Unpickler(pickle.Unpickler):
    """Reads them again: what came from an accelerator goes to that of this rank."""

    def __init__(self, data: Any, arrays: Sequence[Any], device: torch.device) -> None:
        super().__init__(io.BytesIO(data), buffers=arrays)
        self._device = device

    def persistent_load(self, pid: Any) -> Tensor:
        return torch.from_numpy(pid).to(self._device)


def _unpacked(data: Tensor, device: torch.device) -> Any:
    """What `_packed` was given; None where nothing came."""
    if not data.numel():
        return None
    raw = data.numpy()
    count = int(raw[:8].view(np.int64)[0])
    sizes = raw[8 : 8 * (count + 2)].view(np.int64).tolist()
    begins = _begins(sizes)
    pickled, *arrays = (raw[b : b + n] for b, n in zip(begins, sizes, strict=False))
    return _Unpickler(pickled, arrays, device).load()
