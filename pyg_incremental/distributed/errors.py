"""What can go wrong between ranks."""

from pyg_incremental.errors import IncrementalError


class PartitionError(IncrementalError, ValueError):
    """A partition, or the shards on disk, do not fit the graph, each other or the ranks."""


class RankFailedError(IncrementalError, RuntimeError):
    """Another rank has raised, died, or not answered in time; the ranks are no longer in step."""
