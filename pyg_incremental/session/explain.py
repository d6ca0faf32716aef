"""How a model is followed, in the terms of who wrote it: line by line of its `forward`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pyg_incremental.program.origin import Origin, Place
from pyg_incremental.program.steps import Domain, Program, Step, Value
from pyg_incremental.session.advice import advice_on
from pyg_incremental.session.session import Session
from pyg_incremental.session.values import understood
from pyg_incremental.telemetry.table import html_table
from pyg_incremental.telemetry.work import StepStats, UpdateStats

Runs = Literal["incremental", "row recompute", "all rows", "full pass"]


@dataclass(frozen=True)
class ExplainedStep:
    """What one line of a model does in an update.

    Attributes:
        place: The file and the number of the line; None where it is not known.
        code: What is written there.
        what: The modules and functions that it calls.
        runs: `'incremental'`: the rows that a change reaches are brought up to date by what
            changed. `'row recompute'`: they are computed again from all of their in-edges. `'all
            rows'`: whenever something it reads has changed. `'full pass'`: with every update.
        why: Why it is not incremental; empty if it is.
        instead: What to write instead; empty if there is nothing to gain, or to say.
        rows: Rows that the last update has computed or touched; None before the first one, and
            where that is counted with the line that reads it.
        of: How many rows there are; None for what has none.
        edges: Edges along which the last update has pushed or read something.
    """

    place: Place | None
    code: str
    what: tuple[str, ...]
    runs: Runs
    why: str
    instead: str
    rows: int | None
    of: int | None
    edges: int

    @property
    def cost(self) -> str:
        """Rows and edges of the last update in words."""
        if self.rows is None:
            return "-"
        of = "" if self.of is None else f" of {self.of:,}"
        return f"{self.rows:,}{of} rows" + (f", {self.edges:,} edges" if self.edges else "")

    @property
    def line(self) -> str:
        """The place, or the operations where no place is known."""
        place = self.place
        return ", ".join(self.what) if place is None else str(replace(place, inside=""))


@dataclass(frozen=True)
class Explanation:
    """How a model is followed: a table, in the order in which its lines run.

    `print` shows it as text, a notebook as a table.

    Attributes:
        model: The class of the model.
        mode: As in `inc.mode`.
        steps: One entry for each line; of a loop, for each round.
        version: How many updates have been applied.
        seconds: What the last one took; None before the first.
        checked: On what the first call held the program against the model, such as `'16 nodes'`;
            empty if it did not.
        found_late: Which writes to the model's tensors are not noticed before the next update;
            empty if all are.
        roles: What arguments are that do not show it by name or shape, and how that is known, such
            as `{'users': "'ids': the model picks rows of nodes by it"}`.
    """

    model: str
    mode: str
    steps: tuple[ExplainedStep, ...]
    version: int
    seconds: float | None
    checked: str = ""
    found_late: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ExplainedStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def head(self) -> str:
        """One sentence about the whole model."""
        counts = Counter(s.runs for s in self.steps)
        lines = ", ".join(f"{count} {runs}" for runs, count in counts.items())
        many = f"{len(self)} line{'s' if len(self) != 1 else ''}"
        last = "no update yet" if self.seconds is None else (
            f"update {self.version} took {1e3 * self.seconds:.3f} ms"
        )  # fmt: skip
        return f"{self.model}, {many}: {lines}; {last}"

    def __str__(self) -> str:
        rows = [("line", "code", "runs", "last update")]
        rows += [(s.line, _short(s.code), s.runs, s.cost) for s in self.steps]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = [self.head]
        for row, step in zip(rows, (None, *self.steps), strict=True):
            cells = [f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)]
            lines.append("  ".join([*cells, row[3]]).rstrip())
            if step is not None and step.why:
                lines.append(f"    why: {step.why}")
            if step is not None and step.instead:
                lines.append(f"    instead: {step.instead}")
        return "\n".join([*lines, *self._more])

    @property
    def _more(self) -> list[str]:
        """What is said below the table."""
        told = [f"argument '{name}' is {role}" for name, role in self.roles.items()]
        return [*told, self.found_late] if self.found_late else told

    def _repr_html_(self) -> str:
        names = ("line", "code", "runs", "last update", "why", "instead")
        body = [(s.line, s.code, s.runs, s.cost, s.why, s.instead) for s in self.steps]
        return html_table(self.head, names, body, self._more)


def explained(session: Session, last: UpdateStats | None) -> Explanation:
    """How a session follows its model.

    Args:
        session: The session.
        last: The work of its last update, if there was one.
    """
    site, known = session.plan.site, understood(session)
    why = {n: f"'{known[n]}': {site.why[n]}" for n in known if n in site.why}
    work = {} if last is None else {s.name: s for s in last.steps}
    steps = (_of_line(session, group, last, work) for group in _lines(session))
    return Explanation(
        type(session.plan.site.model).__name__, session.mode, tuple(steps),
        session.committed.version, None if last is None else last.seconds, session.checked,
        "" if session.watch is None else session.watch.found_late, why,
    )  # fmt: skip


@dataclass
class _Line:
    """The values that one line makes, and the operations that they come from."""

    place: Place | None
    what: list[str]
    values: list[Value]
    passes: bool = False


def _lines(session: Session) -> list[_Line]:
    """Values by the line that they come from, in the order of the model.

    A line with two modules that pass messages, as that of a loop has, stands there twice.
    """
    program = session.plan.program
    makers = {s.output: s for s in program.steps}
    passing = {o for v, o in program.origins.items() if v in makers and makers[v].gathers}
    modules = {path.removeprefix("model.") for path, _ in session.plan.site.named_modules()}
    found: list[_Line] = []
    last: Origin | None = None
    for value, origin in program.origins.items():
        if value not in makers and value.domain is not Domain.EDGE:
            continue
        again = origin in passing and origin.what in modules and bool(found) and found[-1].passes
        again = again and origin.what not in found[-1].what
        known = bool(found) and found[-1].place == origin.place
        known = known and (origin.place is not None or origin.what in found[-1].what)
        if origin is not last and (again or not known):
            found.append(_Line(origin.place, [], []))
        line = found[-1]
        line.values.append(value)
        line.passes |= origin in passing
        if origin.what not in line.what:
            line.what.append(origin.what)
        last = origin
    return found


def _of_line(
    session: Session, line: _Line, last: UpdateStats | None, work: dict[str, StepStats]
) -> ExplainedStep:
    program, plan = session.plan.program, session.plan
    stored = {f"{v.name}_rows" for v in line.values}
    steps = [
        s for s in program.steps if s.output in line.values or s.output.name in stored
    ]  # an edge row that is stored has the name of the value that it holds
    runs, reasons = _how(program, steps)
    if plan.fallback:
        runs, reasons = "full pass", [plan.fallback]
    rowed = [s.output for s in steps if s.output.domain is not Domain.WHOLE]
    of = None if not rowed else (
        session.num_nodes[rowed[-1].kind] if rowed[-1].domain is Domain.NODE
        else session.graphs[rowed[-1].kind].num_edges
    )  # fmt: skip
    names = {e.out.value.name for e in session.engine.executors}
    own = [s for s in steps if s.output.name in names]
    done = [work[s.output.name] for s in own if s.output.name in work]
    alike = {s.output.name for s in own if not rowed or _alike(s.output, rowed[-1])}
    rows = max((s.rows for s in done if s.name in alike), default=0)
    return ExplainedStep(
        line.place, "" if line.place is None else line.place.code, tuple(line.what), runs,
        "; ".join(reasons), next(filter(None, map(advice_on, reasons)), ""),
        None if last is None or not own else rows, of, sum(s.edges for s in done),
    )  # fmt: skip


def _alike(value: Value, other: Value) -> bool:
    """Whether rows of two values stand for the same."""
    return (value.domain, value.kind) == (other.domain, other.kind)


def _how(program: Program, steps: Sequence[Step]) -> tuple[Runs, list[str]]:
    """How the steps of a line run, and why not incrementally."""
    whole = [s for s in steps if s.of_all]
    if whole:
        reasons = [_in_words(program, s) for s in whole if s.reason]
        return "all rows", list(dict.fromkeys(reasons))
    again = [s for s in steps if s.recomputes and ".loop" not in s.output.name]
    if again:
        names = ", ".join(dict.fromkeys(program.origins[s.output].what for s in again))
        return "row recompute", [f"{names}: a row is a function of all of its in-edges at once"]
    return "incremental", []


def _in_words(program: Program, step: Step) -> str:
    """The reason of a step by the name of the operation, not of the value that it makes."""
    name, _, reason = step.reason.partition(": ")
    origin = program.origins.get(step.output)
    return f"{name if origin is None else origin.what}: {reason}"


def _short(code: str, width: int = 60) -> str:
    return code if len(code) <= width else f"{code[: width - 3]}..."
