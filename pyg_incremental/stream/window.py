"""A window over event times: what is too old leaves, what comes too late is left out."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pyg_incremental.stream.schema import Schema

Times = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Window:
    """Edges whose time is older than a length leave, as deletions.

    Time is that of events (`Schema(time=)`), so a stream that is read again does the same. The
    watermark is the latest time that has come less `lateness`: nothing earlier is waited for. The
    window reaches from it back by `length`.

    Attributes:
        length: How long an edge stays.
        lateness: By how much events may be out of order.
        late: What becomes of an event from before the watermark: `'keep'`, as long as it is in the
            window, or `'drop'`. One from before the window is left out either way.
        ahead: By how much an event may be later than the latest before it, so that one with a
            wrong clock does not empty the window; None for any.
        every: In what steps the window moves; a hundredth of its length by default. Each step that
            is reached costs a look at all times, and an update.
        by: The edge input with the times; see `IncrementalModel.expire`.

    Raises:
        ValueError: If a length or step is not positive, or `late` is neither.
    """

    length: float
    lateness: float = 0.0
    late: Literal["keep", "drop"] = "keep"
    ahead: float | None = None
    every: float | None = None
    by: str = "edge_time"

    def __post_init__(self) -> None:
        if not self.length > 0 or self.lateness < 0 or not self.step > 0:
            raise ValueError(
                f"Window: expected a length and a step above 0, and a lateness of 0 or more (got "
                f"length={self.length}, every={self.every}, lateness={self.lateness})"
            )
        if self.late not in ("keep", "drop"):
            raise ValueError(f"late: expected 'keep' or 'drop' (got {self.late!r})")

    def check(self, schema: Schema) -> None:
        """See that a schema says which field is the time.

        Raises:
            ValueError: If it does not.
        """
        if schema.time is None or self.by not in schema.edge_data:
            raise ValueError(
                "window: expected a schema that says which field is the time, as in "
                f"Schema(time='at', edge_data={{{self.by!r}: 'at'}}) (got time="
                f"{schema.time!r}, edge_data={dict(schema.edge_data)})"
            )

    @property
    def step(self) -> float:
        """In what steps the window moves."""
        return self.length / 100 if self.every is None else self.every

    def begins(self, latest: float) -> float:
        """Where the window begins when the latest time was this: a whole number of steps."""
        if latest == -math.inf:
            return latest
        return math.floor((latest - self.lateness - self.length) / self.step) * self.step

    def refused(self, times: Times, latest: float) -> dict[int, str]:
        """Why events are left out, by their places.

        Args:
            times: The times of events in the order in which they come, `[k]`.
            latest: The latest time before them.
        """
        refused: dict[int, str] = {}
        if self.ahead is None and (times[1:] >= times[:-1]).all() and times[0] >= latest:
            return refused
        for at, time in enumerate(times.tolist()):
            if self.ahead is not None and latest != -math.inf and time > latest + self.ahead:
                refused[at] = (
                    f"its time {time} is more than {self.ahead} after {latest}, the latest"
                )
            elif time < (begins := self.begins(latest)):
                refused[at] = f"its time {time} is before the window, which begins at {begins}"
            elif self.late == "drop" and time < latest - self.lateness:
                refused[at] = f"its time {time} is before the watermark, {latest - self.lateness}"
            else:
                latest = max(latest, time)
        return refused
