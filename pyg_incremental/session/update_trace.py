"""An update step by step: what reaches each step, what it makes of that, and how long it takes."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.ops.operator import Operator
from pyg_incremental.session.preview import step_by_step
from pyg_incremental.session.session import Session


@dataclass(frozen=True)
class TracedStep:
    """What one step does in an update.

    Attributes:
        name: The value that it makes, as in `print(inc.program)`.
        kind: As in `StepStats`.
        reads: The values that it reads.
        rows_in: Rows of these that have changed.
        rows: Rows computed or touched.
        changed: Rows that differ from what was stored.
        edges: Edges along which something was pushed or read.
        way: How an aggregation took the changes in: `'push'`, `'pull'` or `'all'`; else empty.
        seconds: What it took.
    """

    name: str
    kind: str
    reads: tuple[str, ...]
    rows_in: int
    rows: int
    changed: int
    edges: int
    way: str
    seconds: float


@dataclass(frozen=True)
class UpdateTrace:
    """The steps of an update, in the order in which they ran; `print` shows a table.

    Attributes:
        steps: One entry for each step, those that had nothing to do included.
    """

    steps: tuple[TracedStep, ...]

    def __iter__(self) -> Iterator[TracedStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def seconds(self) -> float:
        """What all of them took together."""
        return sum(s.seconds for s in self.steps)

    def __str__(self) -> str:
        width = max([len(s.name) for s in self.steps] + [4])
        counted = "".join(f"{name:>9}" for name in ("rows in", "rows", "rows out", "edges", "us"))
        lines = [f"{'step':{width}}  {'kind':8}{counted}  way, reads"]
        for s in self.steps:
            counts = f"{s.rows_in:9,}{s.rows:9,}{s.changed:9,}{s.edges:9,}{1e6 * s.seconds:9,.0f}"
            said = ", ".join(filter(None, [s.way, *s.reads]))
            lines.append(f"{s.name:{width}}  {s.kind:8}{counts}  {said}".rstrip())
        lines.append(f"{1e6 * self.seconds:,.0f} us in all")
        return "\n".join(lines)


def traced(session: Session, delta: GraphDelta) -> UpdateTrace:
    """Carry a delta out step by step, and put everything back.

    Args:
        session: The running state.
        delta: The delta.

    Raises:
        InvalidDeltaError: If it does not fit the graph.
    """
    took: defaultdict[str, float] = defaultdict(float)
    engine, last = session.engine, time.perf_counter()

    def done(step: Operator) -> None:
        nonlocal last
        took[step.out.value.name] += time.perf_counter() - last
        last = time.perf_counter()

    heard, engine.done = engine.done, done
    try:
        last = time.perf_counter()
        stats = step_by_step(session, delta).stats
    finally:
        engine.done = heard
    changed = Counter({s.name: s.changed for s in stats})
    steps = []
    for e in engine.executors:
        name, reads = e.step.output.name, tuple(v.name for v in e.step.inputs)
        work = stats[name]
        steps.append(
            TracedStep(
                name, e.step.kind, reads, sum(changed[v] for v in reads), work.rows, work.changed,
                work.edges, work.way, took[name],
            )
        )  # fmt: skip
    return UpdateTrace(tuple(steps))
