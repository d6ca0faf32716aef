"""What can go wrong between ranks."""

from typing import TypeVar

from pyg_incremental.encoding.framing import error_kind
from pyg_incremental.errors import IncrementalError

E = TypeVar("E", bound=BaseException)


@error_kind
class PartitionError(IncrementalError, ValueError):
    """A partition, or the shards on disk, do not fit the graph, each other or the ranks."""


@error_kind
class RankFailedError(IncrementalError, RuntimeError):
    """Another rank has raised, died, or not answered in time; the ranks are no longer in step."""


@error_kind
class OutOfStepError(IncrementalError, RuntimeError):
    """The ranks have called methods that do not belong together; all of them raise this."""


def on_all_ranks(error: E) -> E:
    """Mark an error as one that every rank raises, so that none has to be told of it."""
    error.__dict__["on_all_ranks"] = True
    return error


def is_on_all_ranks(error: BaseException) -> bool:
    """Whether every rank raises this error."""
    return bool(error.__dict__.get("on_all_ranks"))
