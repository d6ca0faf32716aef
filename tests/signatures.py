"""Which cases become the same kind of program, so that the whole matrix of walks is run for one.

The signature of a program is the set of its steps without names, maps and wiring: of each
aggregation as an engine runs it, and of each step on all rows, the class, every option that is a
number, a flag or a word, and whether it reads what was handed in, what a map made, or what another
such step made. Nor does the format of the graph count, because the one that stands for others runs
in all of its own.
"""

import argparse
import dataclasses
import enum
import fnmatch
import functools
import hashlib
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

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
    """The signatures of each case, in the order of the zoo."""
    rows = (line.split() for line in TABLE.read_text().splitlines() if not line.startswith("#"))
    return {name: words for name, *words in rows}


@functools.cache
def representatives() -> set[str]:
    """The names of the cases that run the whole matrix: each that is the first of its kind."""
    seen: set[str] = set()
    found = set()
    for name, words in table().items():
        if not seen.issuperset(words):
            found.add(name)
        seen.update(words)
    return found


def is_drawn(name: str, seed: int) -> bool:
    """Whether a test that has many of its kind runs: one in sixteen, drawn by the seed."""
    return zlib.crc32(f"{seed} {name}".encode()) % 16 == 0


@functools.cache
def known() -> set[str]:
    """The signatures of all cases."""
    return {word for words in table().values() for word in words}


def written(again: Callable[[str], bool]) -> str:
    """The table with the cases that are new to the zoo, and without those that have left it.

    Args:
        again: Which other cases are tried once more, by name.
    """
    from tests.zoo_all import PLAIN as ONE
    from tests.zoo_all import SEVERAL

    head = ["# The cases of the zoo and the kinds of their programs: see tests/signatures.py"]
    old = table()
    cases = {str(case): case for case in (*ONE, *SEVERAL)}
    made = {name: signatures_of(case) for name, case in tqdm(cases.items(), disable=None)
            if name not in old or again(name)}  # fmt: skip
    lines = (" ".join([name, *(made.get(name) or old[name])]) for name in cases)
    return "\n".join([*head, *lines, ""])


def signatures_of(case: object) -> list[str]:
    """Those of a case in all of its formats."""
    from tests.hetero_side_by_side import HeteroSides
    from tests.side_by_side import SideBySide

    formats = [f for f in getattr(case, "formats", ("",)) if f != "sparse_tensor"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sides = [SideBySide(case, f) if f else HeteroSides(case) for f in formats]
    return sorted({signature(s.inc.program) for s in sides})


if __name__ == "__main__":
    from tests.conftest import make_each_conv_once

    parser = argparse.ArgumentParser(description="Brings tests/representatives.txt up to date.")
    parser.add_argument("cases", nargs="*", help="cases whose programs have changed (such as gat*)")
    parser.add_argument("--all", action="store_true", help="try every case again: five minutes")
    given = parser.parse_args()
    make_each_conv_once()
    TABLE.write_text(
        written(lambda name: given.all or any(fnmatch.fnmatch(name, p) for p in given.cases))
    )
    for cached in (table, known, representatives):
        cached.cache_clear()
    print(f"{len(known())} kinds of programs, {len(representatives())} cases stand for them")
