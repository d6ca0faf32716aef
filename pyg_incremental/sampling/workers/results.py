"""What a service says of what it has done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyg_incremental.errors import InvalidDeltaError

_KEPT = 8
"""Rounds that are done, and of which it is still known how many events they had read."""


@dataclass(frozen=True)
class ServiceStep:
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

    def reported(
        self, sampling: list[dict[str, Any]], serving: list[dict[str, Any]], replaced: int
    ) -> ServiceStats:
        """The same with what workers say that they hold."""
        return replace(
            self,
            missing=sum(report["missing"] for report in sampling),
            replaced=replaced,
            sampling=tuple(sampling),
            serving=tuple(serving),
        )

    def answered(self, seeds: int, events_behind: int) -> None:
        """Count so many seeds that were answered at once."""
        self.queries += seeds
        if events_behind:
            self.behind += seeds
            self.events_behind += seeds * events_behind


class ReadBy:
    """How many events the last rounds had read.

    Args:
        events: How many by round.
    """

    def __init__(self, events: dict[int, int]) -> None:
        self._events = events

    def note(self, round_: int, events: int, done: int) -> None:
        """A round has read so many; forget those that were done long ago."""
        self._events[round_] = events
        for old in [r for r in self._events if r < done - _KEPT]:
            del self._events[old]

    def behind(self, round_: int, read: int) -> int:
        """How many of the events that were read are not in the answer of a round."""
        seen = [events for other, events in self._events.copy().items() if other <= round_]
        return max(0, read - max(seen, default=read))
