"""What a stream has done, in numbers."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_BATCHES = 4096
"""The last batches, of which it is known how long their events have waited."""
_COUNTS = ("events", "applied", "dead", "repeated", "expired", "updates", "alerts")


@dataclass
class StreamStats:
    """What a stream has done; the first seven are saved with its state.

    Attributes:
        events: Events that were read, each once.
        applied: Those that are in the state.
        dead: Those that were left out, and went to the dead letters.
        repeated: Those whose `event_id` had come before, and were passed over.
        expired: Edges that left as they fell out of the window.
        updates: Deltas that were applied.
        alerts: Alerts that were handed over.
        missed: Events that were answered later than `max_latency` after they had arrived.
        checkpoints: Checkpoints that were begun.
        failed: Alerts and dead letters for which a callback or a sink raised.
    """

    events: int = 0
    applied: int = 0
    dead: int = 0
    repeated: int = 0
    expired: int = 0
    updates: int = 0
    alerts: int = 0
    missed: int = 0
    checkpoints: int = 0
    failed: int = 0
    _waited: "deque[np.ndarray[Any, np.dtype[np.float64]]]" = field(
        default_factory=lambda: deque(maxlen=_BATCHES), repr=False
    )

    def latency(self, share: float) -> float:
        """Within how many seconds of its arrival so many of the last events were answered.

        An event is answered when its alerts have been handed over. It has arrived when the source
        says so, or else when it was read.

        Args:
            share: How many of them, such as 0.99.
        """
        waited = [*self._waited]
        return float(np.quantile(np.concatenate(waited), share)) if waited else 0.0

    def note(self, waited: "np.ndarray[Any, np.dtype[np.float64]]", limit: float | None) -> None:
        """Take notice of how long events have waited, in seconds, `[k]`."""
        self._waited.append(waited)
        if limit is not None:
            self.missed += int((waited > limit).sum())

    def saved(self) -> dict[str, int]:
        """What a checkpoint holds of them."""
        return {name: getattr(self, name) for name in _COUNTS}

    def restore(self, saved: Mapping[str, int]) -> None:
        """Go on from what a checkpoint holds."""
        for name in _COUNTS:
            setattr(self, name, saved[name])
