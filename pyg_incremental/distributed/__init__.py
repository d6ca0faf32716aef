"""The same model over several processes, with torch.distributed or MPI.

Each rank owns some nodes and the edges that lead to them, and keeps copies (ghosts) of the messages
of remote sources. Where an aggregation follows, the ranks exchange the boundary messages that
changed; everything else is what the single process does.
"""

from pyg_incremental.distributed.errors import OutOfStepError, PartitionError, RankFailedError
from pyg_incremental.distributed.evaluation import Evaluated
from pyg_incremental.distributed.files.shards import write_shards
from pyg_incremental.distributed.model import DistributedIncrementalModel
from pyg_incremental.distributed.placement.partition import (
    HeteroPartition,
    Partition,
    partition,
    partition_hetero,
)
from pyg_incremental.distributed.update import DistributedStats
from pyg_incremental.distributed.wire.comm import Communicator, SingleProcess
from pyg_incremental.distributed.wire.mpi_comm import MPICommunicator
from pyg_incremental.distributed.wire.torch_comm import TorchCommunicator

__all__ = [
    "Communicator",
    "DistributedIncrementalModel",
    "DistributedStats",
    "Evaluated",
    "HeteroPartition",
    "MPICommunicator",
    "OutOfStepError",
    "Partition",
    "PartitionError",
    "RankFailedError",
    "SingleProcess",
    "TorchCommunicator",
    "partition",
    "partition_hetero",
    "write_shards",
]
