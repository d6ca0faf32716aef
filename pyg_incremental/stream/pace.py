"""How many events to take at once, so that their answers are there in time."""

import math

import numpy as np

_FORGET = 0.98
"""What a measurement counts for after one more."""
_MARGIN = 2.0
"""Standard deviations of what was measured that a prediction is raised by."""
_FIRST = 64
"""Events in the first batches, of which nothing is known yet."""


class Pace:
    """Predicts how long a batch takes, and how large it may be.

    A batch takes `a + b * events` seconds. Both come from what was measured, by recursive least
    squares with forgetting.

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
        self._cost = np.array([1e-4, 1e-5])
        self._spread = np.diag([1e-4, 1e-6])
        self._variance = 0.0
        self._measured = 0

    def size(self) -> int:
        """The largest batch that is answered in time, if its first event has just come.

        Events that have waited longer are as many as ever: smaller batches would make those behind
        them late as well.
        """
        if self.max_latency is None:
            return self.max_size
        if self._measured < 3:
            return min(self.max_size, _FIRST)
        # An event that comes when a batch has begun waits for that one, and for its own.
        room = self.max_latency / 2 - self.predicted(0)
        return int(min(self.max_size, max(1.0, room / max(float(self._cost[1]), 1e-9))))

    def predicted(self, events: int) -> float:
        """How many seconds a batch is expected to take at most."""
        expected = float(self._cost[0] + self._cost[1] * events)
        return max(expected, 0.0) + _MARGIN * math.sqrt(self._variance)

    def note(self, events: int, seconds: float) -> None:
        """Take a measurement in."""
        at = np.array([1.0, events])
        error = seconds - float(self._cost @ at)
        gain = self._spread @ at / (_FORGET + at @ self._spread @ at)
        self._cost = np.maximum(self._cost + gain * error, 0.0)
        spread = (self._spread - np.outer(gain, at @ self._spread)) / _FORGET
        if np.trace(spread) < 1.0:  # else batches have been alike for long: nothing to forget
            self._spread = spread
        weight = max(1 - _FORGET, 1 / (1 + self._measured))
        self._variance += weight * (error * error - self._variance)
        self._measured += 1
