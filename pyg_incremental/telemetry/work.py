"""The work of an update, step by step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pyg_incremental.telemetry.table import html_table


class StepStats(NamedTuple):
    """The work of one step in one update.

    Attributes:
        name: The value that the step makes, as in `print(inc.program)`.
        kind: `'input'`, `'map'`, `'sum'`, `'max'`, `'min'`, `'softmax'`, `'rows'` or `'whole'`.
        rows: Rows computed or touched.
        changed: Rows that differ from what was stored; a step that does not compare counts all of
            `rows`.
        edges: Edges along which something was pushed or read.
        reread: Rows made afresh over all of their in-edges.
        channels: Of the rows `reread`, the channels that were read; only these of a row are made
            afresh. This and what follows is counted for a maximum or minimum only, where the four
            classes of rows, those of InkStream, add up to `rows`.
        resilient: Rows that came out as they were, without being read again.
        no_reset: Rows that changed, but of which no edge that gave a channel its value has left or
            changed: they took in larger (smaller) messages.
        covered: Rows that changed and lost such an edge, but nothing had to be read: inserted
            messages covered the loss, or no in-edge was left.
        exposed: Rows with a loss that nothing covered, and rows whose own part of the messages
            changed; equal to `reread`.
        way: How an aggregation took the changes in: `'push'` along the edges that carry them,
            `'pull'` of the rows that they reach over all of their in-edges, or `'all'` rows; empty
            for other steps. Chosen by counts; see "Kinds of aggregation" in the documentation.
    """

    name: str
    kind: str
    rows: int
    changed: int
    edges: int = 0
    reread: int = 0
    channels: int = 0
    resilient: int = 0
    no_reset: int = 0
    covered: int = 0
    exposed: int = 0
    way: str = ""


Work = list[tuple[Any, ...]]
"""The fields of one `StepStats`, or the first of them, for each step that had anything to do.

Or, for several steps, their names, kinds and ways and a table of the other fields; these are looked
at when somebody asks.
"""


@dataclass(slots=True)  # frozen ones take a microsecond longer to make
class UpdateStats:
    """The work of one update.

    Attributes:
        mode: `'incremental'`, `'mixed'` (some steps run on all rows) or `'full pass'`.
        edges_added: Edges added by the delta, both directions counted.
        edges_deleted: Edges deleted, those that left with removed nodes included.
        seconds: Time spent in `apply_delta`.
    """

    mode: str
    edges_added: int
    edges_deleted: int
    seconds: float
    _work: Work = field(repr=False)

    @property
    def steps(self) -> list[StepStats]:
        """One entry for each step that had anything to do, in the order in which they ran."""
        found = []
        for work in self._work:
            if len(work) > 2:
                found.append(StepStats(*work))
                continue
            for (*named, way), counts in zip(*work, strict=True):
                if counts[0]:
                    found.append(StepStats(*named, *counts.tolist())._replace(way=way))
        return found

    @property
    def rows(self) -> int:
        """Rows computed or touched, over all steps."""
        return sum(s.rows for s in self.steps)

    @property
    def changed(self) -> int:
        """Rows changed, over all steps."""
        return sum(s.changed for s in self.steps)

    @property
    def edges(self) -> int:
        """Edges pushed along or read, over all steps."""
        return sum(s.edges for s in self.steps)

    def totals(self) -> tuple[int, int, int]:
        """`rows`, `changed` and `edges`, without an entry for each step."""
        return totals_of([self])

    def __iter__(self) -> Iterator[StepStats]:
        """Over `steps`."""
        return iter(self.steps)

    def __getitem__(self, name: str) -> StepStats:
        """The entry of one step; all zero where the step had nothing to do."""
        return next((s for s in self.steps if s.name == name), StepStats(name, "-", 0, 0))

    def __str__(self) -> str:
        width = max([len(s.name) for s in self.steps] + [4])
        lines = [
            f"{'step':{width}}  {'kind':8}{'rows':>9}{'changed':>9}{'edges':>10}{'reread':>8}  way"
        ]
        for s in self.steps:
            counts = f"{s.rows:9,}{s.changed:9,}{s.edges:10,}{s.reread:8,}"
            lines.append(f"{s.name:{width}}  {s.kind:8}{counts}  {s.way}".rstrip())
            if s.kind in ("max", "min"):
                lines.append(
                    f"{'':{width}}    {s.resilient:,} resilient, {s.no_reset:,} no reset, "
                    f"{s.covered:,} covered, {s.exposed:,} exposed ({s.channels:,} channels read)"
                )
        return "\n".join([*lines, self._head])

    @property
    def _head(self) -> str:
        return (
            f"{self.mode}: {self.edges_added:,} edges added, {self.edges_deleted:,} deleted, "
            f"{1e3 * self.seconds:.3f} ms"
        )

    def _repr_html_(self, above: str = "") -> str:
        names = ("step", "kind", "rows", "changed", "edges", "reread", "way")
        rows = ((s.name, s.kind, s.rows, s.changed, s.edges, s.reread, s.way) for s in self.steps)
        return html_table(above or self._head, names, rows)


def totals_of(updates: Sequence[UpdateStats]) -> tuple[int, int, int]:
    """The `rows`, `changed` and `edges` of all updates, without an entry for each step."""
    done = [work for stats in updates for work in stats._work]
    counts = [np.array([StepStats(*work)[2:5]]) if len(work) > 2 else work[1] for work in done]
    if not counts:
        return 0, 0, 0
    rows, changed, edges = np.concatenate([c[:, :3] for c in counts]).sum(0).tolist()
    return rows, changed, edges
