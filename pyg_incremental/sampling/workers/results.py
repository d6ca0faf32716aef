"""What a service says of what it has done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyg_incremental.errors import InvalidDeltaError


@dataclass(frozen=True)
class Step:
    """What was read from the source at once.

    Attributes:
        token: Queries `after` it see all that was read.
        events: How many events there were.
        position: Where the source was then.
        refused: Deltas that did not fit, and were left out: what was wrong with each.
    """

    token: int
    events: int
    position: Any
    refused: tuple[InvalidDeltaError, ...]


@dataclass
class ServiceStats:
    """What a service has done.

    Attributes:
        events: Events that were read from the source.
        queries: Seeds that were asked for.
        behind: How many of them were answered while events that had been read were not visible.
        events_behind: How many such events there were, summed over all of these seeds.
        missing: Edges that were to be deleted, and were not there.
        replaced: Workers that had to be replaced.
        sampling: What each sampling worker holds.
        serving: What each serving worker holds.
    """

    events: int = 0
    queries: int = 0
    behind: int = 0
    events_behind: int = 0
    missing: int = 0
    replaced: int = 0
    sampling: tuple[dict[str, Any], ...] = ()
    serving: tuple[dict[str, Any], ...] = ()
