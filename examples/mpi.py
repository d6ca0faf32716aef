"""One model over several processes with MPI; it does what `distributed.py` does.

    pip install "pyg-incremental[mpi]"                   # brings mpiexec as well
    mpiexec -n 2 python examples/mpi.py

In a container, as root, mpiexec wants `--allow-run-as-root`; with more ranks than cores it wants
`--oversubscribe`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from distributed import parser, run

from pyg_incremental.distributed import MPICommunicator


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as one of the processes of mpiexec."""
    args = parser().parse_args(arguments)
    torch.set_num_threads(1)
    comm = MPICommunicator()
    gap = run(comm, args)
    comm.close()
    return 0 if gap < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
