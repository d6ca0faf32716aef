"""Which cases become the same kind of program, so that the whole matrix of walks is run for one.

The signature of a program is the set of its steps without names, maps and wiring: of each
aggregation as an engine runs it, and of each step on all rows, the class, every option that is a
number, a flag or a word, and whether it reads what was handed in, what a map made, or what another
such step made. Nor does the format of the graph count, because the one that stands for others runs
in all of its own.
"""

import dataclasses
import enum
import functools
import hashlib
import warnings
from pathlib import Path

from pyg_incremental.engine.terms import with_terms
from pyg_incremental.program.steps import Input, Ones, Program, RowMap, Step, Value

TABLE = Path(__file__).with_name("representatives.txt")
PLAIN = (str, int, float, bool, enum.Enum, type(None))
LEFT_OUT = ("output", "inputs", "reason", "graph")
TERMS = ("own", "factor", "loop")
"""Left out where there is none."""


def signature(program: Program | None) -> str:
    """A short word for the kind of a program; of a model that runs whole there is none."""
    return hashlib.sha256("\n".join(lines(program)).encode()).hexdigest()[:8]


def lines(program: Program | None) -> list[str]:
    """What makes up the signature, one line for each kind of step."""
    if program is None:
        return ["full pass"]
    steps = with_terms(program)
    made = {step.output: step for step in steps}
    kinds = {
        f"{type(step).__name__} {' '.join(options(step, made))}"
        for step in steps
        if not isinstance(step, (RowMap, Input, Ones))
    }
    return [f"hops {min(program.depth, 2)}", *sorted(kinds)]


def options(step: Step, made: dict[Value, Step]) -> list[str]:
    """The fields of a step, in the order of its class."""
    fields = [f.name for f in dataclasses.fields(step) if f.name not in LEFT_OUT]
    fields = [name for name in fields if name not in TERMS or getattr(step, name) is not None]
    return [f"{name}={worded(getattr(step, name), made)}" for name in fields]


def worded(field: object, made: dict[Value, Step]) -> str:
    if isinstance(field, Value):
        kind = "input" if isinstance(made[field], (Input, Ones)) else "step"
        return f"{field.domain.value} {'map' if isinstance(made[field], RowMap) else kind}"
    if isinstance(field, PLAIN):
        return str(field)
    if isinstance(field, tuple):
        return f"[{', '.join(worded(one, made) for one in field)}]"
    if dataclasses.is_dataclass(field):
        return worded(tuple(getattr(field, f.name) for f in dataclasses.fields(field)), made)
    return "~"  # a function or a tensor


# The table #######################################################################################


@functools.cache
def table() -> dict[str, list[str]]:
    """The cases that stand for others, with the signatures of theirs that came first."""
    rows = (line.split() for line in TABLE.read_text().splitlines() if not line.startswith("#"))
    return {name: words for name, *words in rows}


def representatives() -> set[str]:
    """The names of the cases that run the whole matrix."""
    return set(table())


@functools.cache
def known() -> set[str]:
    """The signatures of these cases."""
    return {word for words in table().values() for word in words}


def written() -> str:
    """The table, made afresh: cases in the order of the zoo, each if its program is new."""
    from tests.hetero_side_by_side import HeteroSides
    from tests.side_by_side import SideBySide
    from tests.zoo_all import PLAIN as ONE
    from tests.zoo_all import SEVERAL

    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for case in (*ONE, *SEVERAL):
        formats = [f for f in getattr(case, "formats", ("",)) if f != "sparse_tensor"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sides = [SideBySide(case, f) if f else HeteroSides(case) for f in formats]
        fresh = {signature(s.inc.program) for s in sides} - seen
        if fresh:
            seen |= fresh
            found[str(case)] = sorted(fresh)
    head = ["# Cases that stand for a kind of program, and its signatures: see tests/signatures.py"]
    return "\n".join([*head, *(f"{name} {' '.join(words)}" for name, words in found.items()), ""])


if __name__ == "__main__":
    from tests.conftest import make_each_conv_once

    make_each_conv_once()
    TABLE.write_text(written())
    print(f"{len(known())} kinds of programs, {len(representatives())} cases stand for them")
