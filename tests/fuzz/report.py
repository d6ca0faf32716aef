"""Counts over many trials, and what they say in the end."""

from collections import Counter
from dataclasses import dataclass, field

from tests.fuzz.draw import ORDINARY, operations


@dataclass
class Report:
    """What a run of the fuzzer has seen.

    Attributes:
        kinds: Models by how they went.
        modes: Models that were followed, by `inc.mode`.
        ops: How often each operation was in a model that was followed.
        followed: Deltas after which output and original were compared.
        failing: Deltas on which the original fails.
        seconds: Time for the trials, over all workers.
        by_mode: For models about one operation, these by `inc.mode` (or by how they went).
        failures: Path or name, and what was wrong.
    """

    kinds: Counter = field(default_factory=Counter)
    modes: Counter = field(default_factory=Counter)
    ordinary: Counter = field(default_factory=Counter)
    ops: Counter = field(default_factory=Counter)
    followed: int = 0
    failing: int = 0
    seconds: float = 0.0
    by_mode: dict[str, list[str]] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def take(self, trial, outcome, seconds):
        self.kinds[outcome.kind] += 1
        self.seconds += seconds
        if outcome.kind == "redrawn":
            return
        if trial.about:
            self.by_mode.setdefault(outcome.mode or outcome.kind, []).append(trial.about)
        self.ops.update(s.op for s in trial.model.statements)
        self.followed += outcome.followed
        self.failing += outcome.failing
        if outcome.mode:
            self.modes[outcome.mode] += 1
            if is_ordinary(trial.model):
                self.ordinary[outcome.mode] += 1

    @property
    def models(self):
        return sum(self.kinds.values()) - self.kinds["redrawn"]

    def __str__(self):
        seen = len(operations() & set(self.ops))
        counts = (
            f"{self.models} models ({self.kinds['right']} right, {self.kinds['wrong']} wrong, "
            f"{self.kinds['refused']} refused; {self.kinds['redrawn']} drawn again), "
            f"{self.followed} deltas compared, {self.failing} on which the original fails"
        )
        lines = [
            counts,
            f"{seen} of {len(operations())} operations seen",
            f"of all models followed: {shares(self.modes)}",
            f"of those made of ordinary statements: {shares(self.ordinary)}",
            f"{self.seconds / max(self.models, 1):.3f} s per model",
        ]
        lines += [f"FAILED {where}: {why}" for where, why in self.failures]
        return "\n".join(lines)

    def by_operation(self):
        """How models about one operation are followed."""
        lines = []
        for mode, names in sorted(self.by_mode.items()):
            lines.append(f"{mode}: {len(names)} operations: {'; '.join(sorted(names))}")
        return "\n".join(lines)


def is_ordinary(model):
    """Whether a model is of convs and row-wise statements alone, one output."""
    *body, last = model.statements
    names = {*ORDINARY, "convs"} - {"vectors"}
    return {s.family for s in body} <= names and last.op == "return rows"


def shares(counts):
    total = max(sum(counts.values()), 1)
    return ", ".join(f"{name} {100 * n / total:.0f}%" for name, n in counts.most_common())
