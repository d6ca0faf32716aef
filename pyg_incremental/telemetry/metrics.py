"""What a model has done, as plain numbers, and as text that Prometheus reads."""

import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from statistics import median
from typing import Any

from pyg_incremental.telemetry.work import UpdateStats, totals_of

_log = logging.getLogger(__name__)

RECENT = 32
"""Updates whose work is added up together, and of which the median is taken."""
SLOW, AT_LEAST = 20, 0.05
"""An update is slow that takes so many times the median, and so many seconds."""

ABOUT = {
    "version": ("gauge", "Updates applied since the first pass."),
    "num_nodes": ("gauge", "Nodes, removed ones included."),
    "num_edges": ("gauge", "Edges."),
    "stale": ("gauge", "1 if updates are refused until refresh(), else 0."),
    "updates": ("counter", "Updates that this process applied."),
    "fallbacks": ("counter", "Updates that ran a full pass, or some steps on all rows."),
    "slow_updates": ("counter", "Updates that took far longer than the median."),
    "update_seconds": ("counter", "Seconds in apply_delta."),
    "update_seconds_median": ("gauge", "Median seconds of the last updates."),
    "full_passes": ("counter", "First passes, loads and refreshes."),
    "full_pass_seconds": ("counter", "Seconds in these."),
    "edges_added": ("counter", "Edges added, both directions counted."),
    "edges_deleted": ("counter", "Edges deleted, those of removed nodes included."),
    "rows_recomputed": ("counter", "Rows computed or touched, over all steps."),
    "rows_changed": ("counter", "Rows changed, over all steps."),
    "edges_read": ("counter", "Edges pushed along or read, over all steps."),
    "stored_bytes": ("gauge", "Bytes held besides the model."),
    "drift": ("gauge", "Largest share of its bound that has moved through a row; 1 renews it."),
}
"""Kind and meaning of each number of a model."""


class Metrics(dict[str, float]):
    """Numbers by name; see `IncrementalModel.metrics`.

    Args:
        values: The numbers.
        about: Kind (`'counter'` or `'gauge'`) and meaning of each.
    """

    def __init__(
        self, values: Mapping[str, float], about: Mapping[str, tuple[str, str]] = ABOUT
    ) -> None:
        super().__init__(values)
        self._about = dict(about)

    @classmethod
    def of(cls, stats: Any, prefix: str) -> "Metrics":
        """The counts of a dataclass, its fields that are integers, under names of their own."""
        counts = {f"{prefix}{f.name}": getattr(stats, f.name) for f in fields(stats)}
        counts = {name: n for name, n in counts.items() if type(n) is int}
        return cls(counts, dict.fromkeys(counts, ("counter", "")))

    def beside(self, other: "Metrics") -> "Metrics":
        """These and other numbers."""
        return Metrics({**self, **other}, self._about | other._about)

    def prometheus(
        self, *, prefix: str = "pyg_incremental_", labels: Mapping[str, str] | None = None
    ) -> str:
        """The same as text of Prometheus' exposition format, version 0.0.4.

        Serve it as `text/plain; version=0.0.4`. Names of counters end in `_total`.

        Args:
            prefix: What names begin with.
            labels: Names and values that every number gets, such as `{'model': 'fraud'}`.

        Raises:
            ValueError: If the name of a label is none.
        """
        for name in labels or {}:
            if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name):
                raise ValueError(
                    f"labels: expected names of letters, digits and underscores (got {name!r})"
                )
        held = ",".join(f'{name}="{_escaped(value)}"' for name, value in (labels or {}).items())
        held = f"{{{held}}}" if held else ""
        lines = []
        for name, value in self.items():
            kind, about = self._about[name]
            full = f"{prefix}{name}{'_total' if kind == 'counter' else ''}"
            lines += [f"# HELP {full} {about}"] if about else []
            lines += [f"# TYPE {full} {kind}", f"{full}{held} {value!r}"]
        return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Tally:
    """Adds up the work of updates. Of each it only notes that it was; see `add_up`.

    Attributes:
        recent: Updates that are not added up yet, the latest last.
        slow: How many seconds make an update slow.
    """

    def __init__(self) -> None:
        self.recent: list[UpdateStats] = []
        self.slow = float("inf")
        self._sums: Counter[str] = Counter(dict.fromkeys(_ADDED, 0))
        self._median = 0.0

    def full_pass(self, seconds: float) -> None:
        """All rows were computed."""
        self._sums["full_passes"] += 1
        self._sums["full_pass_seconds"] += seconds  # type: ignore[assignment]

    def note_slow(self, stats: UpdateStats, version: int) -> None:
        """An update took longer than `slow`."""
        self._sums["slow_updates"] += 1
        _log.info(
            "slow update: version %d took %.3f s, the median is %.6f s; %s, %d rows, %d edges",
            version, stats.seconds, self._median, stats.mode, stats.rows, stats.edges,
        )  # fmt: skip

    def add_up(self) -> None:
        """Add up the work of the recent updates, and say anew what is slow."""
        done, self.recent = self.recent, []
        if not done:
            return
        sums = self._sums
        sums["updates"] += len(done)
        sums["fallbacks"] += sum(s.mode != "incremental" for s in done)
        seconds = [s.seconds for s in done]
        sums["update_seconds"] += sum(seconds)  # type: ignore[assignment]
        sums["edges_added"] += sum(s.edges_added for s in done)
        sums["edges_deleted"] += sum(s.edges_deleted for s in done)
        rows, changed, edges = totals_of(done)
        sums.update(rows_recomputed=rows, rows_changed=changed, edges_read=edges)
        self._median = median(seconds)
        if len(done) == RECENT:
            self.slow = max(SLOW * self._median, AT_LEAST)

    def sums(self) -> dict[str, float]:
        """What was done so far."""
        self.add_up()
        return {**self._sums, "update_seconds_median": self._median}


_ADDED = tuple(name for name, (kind, _) in ABOUT.items() if kind == "counter")
