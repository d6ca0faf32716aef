"""How many events to take at once, so that their answers are there in time."""

import math
from collections import deque
from statistics import median

_KEPT = 16
"""So many of the last batches of a class of sizes count."""
_OLD = 512
"""... but none that was measured so many batches ago."""
_FIRST = 64
"""The largest batch while nothing is known."""
_MEAN_OF = 1000
"""What events reach is the mean of about so many of the last."""
_SPLITS = 8
"""Batches are split where so many small ones are answered within the deadline."""


class Pace:
    """Chooses the size of batches by what batches have taken so far.

    Sizes are classes by powers of two. What an event of a batch takes is the median of what it took
    last in its class; where that was not measured, as much as in the class below, which is more.

    An event at a hub counts as many: it is weighed by the rows that it reaches over one edge, in
    units of what events have reached on average.

    Args:
        max_size: The largest batch.
        max_latency: Within how many seconds of its arrival an event has to be answered; None for
            no such limit.

    Raises:
        ValueError: If one of them is none.
    """

    def __init__(self, max_size: int, max_latency: float | None) -> None:
        if max_size < 1:
            raise ValueError(f"max_size: expected a number of events, 1 or more (got {max_size})")
        if max_latency is not None and not max_latency > 0:
            raise ValueError(f"max_latency: expected seconds, above 0 (got {max_latency})")
        self.max_size, self.max_latency = max_size, max_latency
        self._took: list[deque[tuple[int, float]]] = []
        self._measured = 0
        self._late = 0
        self._reached = 0.0

    def size(self, waited: float) -> int:
        """The largest batch that is answered in time, or a larger one to catch up.

        An event that comes when a batch has begun waits for that one and for its own, so a batch
        may take half of the time. Where events are late already, smaller batches would make those
        behind them later still, as each has a price of its own: sizes double until they are not.

        Args:
            waited: How long the first event of the last batch had waited when it was answered.
        """
        if self.max_latency is None:
            return self.max_size
        self._late = min(self._late + 1, 32) if waited > self.max_latency else self._late // 2
        if not self._took:
            return min(self.max_size, _FIRST << self._late)
        # What takes less than two small batches spends most of that on being a batch.
        room = max(self.max_latency / 2, min(self.max_latency, 2 * self._price()))
        fits = max((c for c in range(len(self._took)) if self.predicted(c) <= room), default=0)
        if fits == len(self._took) - 1:
            fits += self.predicted(fits + 1) <= room
        largest = (2 << fits) - 1
        if self._of_event(fits):  # the larger ones of a class take up to twice as long
            largest = max(1 << fits, min(largest, int(room / self._of_event(fits))))
        return min(self.max_size, largest << self._late)

    def predicted(self, size_class: int) -> float:
        """How many seconds a batch of `2 ** size_class` events takes."""
        return self._of_event(size_class) * float(1 << size_class)

    def _of_event(self, size_class: int) -> float:
        """How many seconds an event takes in a batch of a class; 0 where nothing is known."""
        for known in range(min(size_class, len(self._took) - 1), -1, -1):
            took = [t for at, t in self._took[known] if self._measured - at < _OLD]
            if took:
                return float(median(took))
        return 0.0

    def _price(self) -> float:
        """How many seconds the smallest batches take that were measured; 0 if none were."""
        return next((took for c in range(len(self._took)) if (took := self.predicted(c))), 0.0)

    @property
    def most(self) -> float | None:
        """How many rows a batch may reach: it ends before an event with which it would be late.

        That helps those before a hub, and costs those behind it the price of a batch or two. Where
        batches are small it makes more late than it saves: None, they are not split.
        """
        late = self.max_latency
        if late is None or _SPLITS * self._price() > late:
            return None
        of_event = self._of_event(len(self._took))  # as in the largest batches, in which it is less
        return late / of_event * self._reached if of_event and self._reached else math.inf

    def note(self, events: int, seconds: float, reached: float = 0.0) -> None:
        """Take a measurement in.

        Args:
            events: How many there were.
            seconds: What they took.
            reached: How many rows they have reached; 0 if that is not known.
        """
        if reached:
            # The mean of the last events, in batches of any size.
            share = min(1.0, events / _MEAN_OF) if self._reached else 1.0
            self._reached += share * (reached / events - self._reached)
            events = max(events, round(reached / self._reached))
        size_class = events.bit_length() - 1
        while len(self._took) <= size_class:
            self._took.append(deque(maxlen=_KEPT))
        self._measured += 1
        self._took[size_class].append((self._measured, seconds / events))
