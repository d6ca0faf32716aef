"""Ranks that talk through MPI (the `mpi` extra: mpi4py, and Open MPI from pip)."""

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.distributed.errors import RankFailedError
from pyg_incremental.distributed.wire.comm import Integers, joined, offsets
from pyg_incremental.kernels.lent import Lent

BUSY = 2e-3
"""Seconds for which a rank asks again and again, before it naps in between."""
NAP = 5e-5


class MPICommunicator:
    """Ranks of MPI, as `mpiexec` starts them.

    Collectives are started without blocking and asked for until the time is up, because MPI itself
    waits for ever for a rank that has left.

    Args:
        timeout: Seconds after which a rank that has not answered counts as dead.
        comm: An `mpi4py` communicator; it is duplicated. All ranks by default.

    Raises:
        ImportError: If mpi4py is not installed.
    """

    def __init__(self, timeout: float = 60.0, comm: Any = None) -> None:
        try:
            from mpi4py import MPI
        except ImportError as error:
            raise ImportError(
                "MPICommunicator needs mpi4py and an MPI library: pip install "
                "'pyg-incremental[mpi]', then start the program with mpiexec"
            ) from error
        self._comm = (MPI.COMM_WORLD if comm is None else comm).Dup()
        self._comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._failure, self._byte = MPI.Exception, MPI.BYTE
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        self.timeout = timeout
        self._lent = Lent()

    def share(self, row: Integers) -> Integers:
        """Every rank's integers; see `Communicator.share`."""
        mine = np.ascontiguousarray(row)
        every = np.empty((self.size, mine.size), np.int64)
        self._run("Iallgather", mine, every)
        return every

    def send(self, parts: Sequence[Tensor], counts: Integers) -> list[Tensor]:
        """All-to-all of bytes, uint8 `[n]` for each rank; see `Communicator.send`."""
        sizes_in, sizes_out = counts[:, self.rank], counts[self.rank]
        given = joined(parts).numpy()
        got = self._lent.array(np.uint8, int(sizes_in.sum()))
        at_in, at_out = offsets(sizes_in), offsets(sizes_out)
        self._run(
            "Ialltoallv",
            [given, (sizes_out, at_out[:-1]), self._byte],
            [got, (sizes_in, at_in[:-1]), self._byte],
        )
        return list(torch.from_numpy(got).split(sizes_in.tolist()))

    def _run(self, collective: str, given: Any, got: Any) -> None:
        """Start a collective and wait for it; a short while busily, then with naps.

        Busily it gives way to whoever wants the core, which takes a microsecond; the shortest nap
        takes a hundred, several times what most collectives take.
        """
        began = time.perf_counter()
        try:
            request = getattr(self._comm, collective)(given, got)
            while not request.Test():
                waited = time.perf_counter() - began
                if waited > self.timeout:
                    raise RankFailedError(
                        f"rank {self.rank} of {self.size} waited for more than {self.timeout:g} s "
                        "for another rank. Restart the ranks and load the last save"
                    )
                if waited < BUSY:
                    _give_way()
                else:
                    time.sleep(NAP)
        except self._failure as error:
            raise RankFailedError(
                f"rank {self.rank} of {self.size} lost another rank ({error}). Restart the ranks "
                "and load the last save"
            ) from error

    def close(self) -> None:
        """Free the duplicate of the communicator; a collective."""
        if self._comm is not None:
            self._comm.Free()
        self._comm = None


def _give_way() -> None:
    """Let another process have the core, if one wants it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)
