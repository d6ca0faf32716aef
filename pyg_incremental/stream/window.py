"""A window over event times: what is too old leaves, what comes too late is left out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pyg_incremental.stream.schema import AnySchema, Columns, Schema, Times, Type


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

    @property
    def step(self) -> float:
        """In what steps the window moves."""
        return self.length / 100 if self.every is None else self.every

    def begins(self, latest: float) -> float:
        """Where the window begins when the latest time was this: a whole number of steps."""
        if latest == -math.inf:
            return latest
        return math.floor((latest - self.lateness - self.length) / self.step) * self.step

    def first_moved(self, before: float, latest: Times) -> int:
        """The first place at which it begins later than before; `len(latest)` for none.

        Args:
            before: The latest time before.
            latest: The latest time at each place, ascending, `[k]`.
        """
        times = np.append(before, latest)
        begins = np.floor((times - self.lateness - self.length) / self.step)
        return int(np.searchsorted(begins[1:], begins[0], side="right"))

    def refuses(self, time: float, latest: float) -> str | None:
        """Why an event of a time is left out; None if it is not.

        Args:
            time: Its time.
            latest: The latest time before it.
        """
        if self.ahead is not None and latest != -math.inf and time > latest + self.ahead:
            return f"its time {time} is more than {self.ahead} after {latest}, the latest"
        if time < (begins := self.begins(latest)):
            return f"its time {time} is before the window, which begins at {begins}"
        if self.late == "drop" and time < latest - self.lateness:
            return f"its time {time} is before the watermark, {latest - self.lateness}"
        return None


Windows = Mapping[Type, Window]
"""The window of each type of edges that has one."""


def windows_of(given: Window | Windows | None, schema: AnySchema) -> Windows:
    """The windows of a stream, by type.

    Args:
        given: One for all edges, or one for each of some types.
        schema: Which field of an event is what.

    Raises:
        ValueError: If a type is none, or its schema does not say which field is the time.
    """
    if given is None:
        return {}
    if isinstance(given, Window):
        given = {of: given for of in schema.types if type(of) is not str}
    for of, window in given.items():
        own = schema.types.get(of)
        if own is None or type(of) is str:
            raise ValueError(f"window: expected types of edges, {[*schema.types]} (got {of!r})")
        _check(window, own, of)
    return dict(given)


def _check(window: Window, schema: Schema, of: Type) -> None:
    if schema.time is None or window.by not in schema.edge_data:
        about = "" if of is None else f" of {of}"
        raise ValueError(
            f"window: expected a schema{about} that says which field is the time, as in "
            f"Schema(time='at', edge_data={{{window.by!r}: 'at'}}) (got time="
            f"{schema.time!r}, edge_data={dict(schema.edge_data)})"
        )


def refused(windows: Windows, types: Sequence[Type], times: Times, latest: float) -> dict[int, str]:
    """Why events come too late or too early, by their places.

    Args:
        windows: The window of each type.
        types: The type of each event, in the order in which they come.
        times: Their times, `[k]`; NaN for none.
        latest: The latest time before them.
    """
    found: dict[int, str] = {}
    in_order = (times[1:] >= times[:-1]).all() and times[0] >= latest
    if in_order and all(window.ahead is None for window in windows.values()):
        return found
    for at, (of, time) in enumerate(zip(types, times.tolist(), strict=True)):
        why = windows[of].refuses(time, latest) if of in windows else None
        if why is not None:
            found[at] = why
        elif time > latest:
            latest = time
    return found


def first_behind(windows: Windows, columns: Columns, before: float, latest: Times) -> int:
    """The first event about an edge that may have left by then: its place; `len(latest)` for none.

    Edges leave behind an update. So where events before it have moved the window, an event that
    deletes or changes an edge has to wait for that.

    Args:
        windows: The window of each type.
        columns: What the events say.
        before: The latest time before all of them, up to which edges have left.
        latest: The latest time before each of them, ascending, `[k]`.
    """
    end = len(latest)
    for of, window in windows.items():
        kinds = [kind for kind in ("edge_del", "edge_change") if kind in columns.get(of, {})]
        moved = window.first_moved(before, latest) if kinds else end
        for kind in kinds:
            at = columns[of][kind].at
            behind = int(np.searchsorted(at, moved))
            end = min(end, int(at[behind])) if behind < at.size else end
    return end
