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

    A batch takes `a + b * events + c * reached`, where `reached` is how many out-edges the targets
    of its edges have: what a changed row is handed on to. The three come from what was measured,
    by recursive least squares with forgetting.

    Args:
        max_size: The largest batch.
        max_latency: Within how many seconds of its arrival an event has to be answered; None for
            no such limit.
    """

    def __init__(self, max_size: int, max_latency: float | None) -> None:
        if max_size < 1:
            raise ValueError(f"max_size: expected a number of events, 1 or more (got {max_size})")
        if max_latency is not None and not max_latency > 0:
            raise ValueError(f"max_latency: expected seconds, above 0 (got {max_latency})")
        self.max_size, self.max_latency = max_size, max_latency
        self._cost = np.array([1e-4, 1e-5, 0.0])
        self._spread = np.diag([1e-4, 1e-6, 1e-10])
        self._error = 0.0
        self._measured = 0

    def size(self, waited: float) -> int:
        """The largest batch that is answered in time, if the first event has waited for so long.

        Where it is too late for that one, the batch is as large as one that comes now may be:
        smaller ones would make those behind it late as well.
        """
        if self.max_latency is None:
            return self.max_size
        if self._measured < 3:
            return min(self.max_size, _FIRST)
        room = self.max_latency - waited
        if room <= self.predicted(1, 0.0):
            room = self.max_latency
        each = max(float(self._cost[1]) + float(self._cost[2]) * self._reach, 1e-9)
        fixed = max(float(self._cost[0]), 0.0) + _MARGIN * math.sqrt(self._error)
        return int(min(self.max_size, max(1.0, (room - fixed) / each)))

    _reach = 0.0

    def predicted(self, events: int, reached: float) -> float:
        """How many seconds a batch is expected to take at most."""
        expected = float(self._cost @ (1.0, events, reached))
        return max(expected, 0.0) + _MARGIN * math.sqrt(self._error)

    def fits(self, reached: "np.ndarray[tuple[int], np.dtype[np.float64]]", waited: float) -> int:
        """How many of some events fit into the time that is left, at least one.

        Args:
            reached: How many out-edges the target of each has, `[k]`.
            waited: How long the first one has waited, in seconds.
        """
        count = len(reached)
        if self.max_latency is None or self._measured < 3 or not count:
            return count
        room = self.max_latency - waited
        if room <= self.predicted(1, float(reached[0])):
            room = self.max_latency
        events = np.arange(1, count + 1)
        expected = self._cost[0] + self._cost[1] * events + self._cost[2] * np.cumsum(reached)
        late = expected + _MARGIN * math.sqrt(self._error) > room
        return max(1, int(np.argmax(late))) if late.any() else count

    def note(self, events: int, reached: float, seconds: float) -> None:
        """Take a measurement in."""
        if not events:
            return
        at = np.array([1.0, events, reached])
        error = seconds - float(self._cost @ at)
        gain = self._spread @ at / (_FORGET + at @ self._spread @ at)
        self._cost = self._cost + gain * error
        spread = (self._spread - np.outer(gain, at @ self._spread)) / _FORGET
        if np.trace(spread) < 1e3:  # else batches have been alike for long: nothing to forget
            self._spread = spread
        self._cost[1:] = np.maximum(self._cost[1:], 0.0)
        weight = max(1 - _FORGET, 1 / (1 + self._measured))
        self._error += weight * (error * error - self._error)
        self._reach += weight * (reached / events - self._reach)
        self._measured += 1
