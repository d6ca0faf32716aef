"""Every case of the zoo: its first pass in every format, and a walk in a configuration of its own.

Where a walk begins with such a first pass, in the same format, it is not made once more, but for
the cases that coverage sees, and but for one in float64 of each case. A case of each kind of
program walks, and of the others a part that is drawn. The same walks in every format, dtype,
backend and store are those of the other files here: for cases of each kind, of which a part is
drawn as well. `--all-cases` runs all of them for all. A walk goes through a part of the kinds of
delta, drawn for it.
"""

import warnings

import pytest
import torch

from pyg_incremental import IncrementalWarning
from pyg_incremental.ops import maps as executors
from pyg_incremental.trace.supported import scheme_of
from tests.hetero_side_by_side import HeteroSides
from tests.pairwise import Drawn
from tests.side_by_side import SideBySide
from tests.signatures import known, lines, representatives, signature
from tests.zoo_all import PLAIN, SEVERAL
from tests.zoo_attention import ATTENTION_CASES

# PyG says so whenever it is given a CSC adjacency.
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR:UserWarning")

FACTORS = {
    "dtype": (torch.float64, torch.float32),
    "backend": ("compiled", "reference"),
    "store": ("fast", "minimal"),
    "compile_after": (8, 1, None),
    "accumulate_dtype": (None, torch.float64),
    "scrub_rows": (0, 3),
}
ATTENTION = {str(case) for case in ATTENTION_CASES}
BY_ROWS = {"rgat-f-additive"}
"""Cases computed by the conv's own forward, row by row."""
PART = {"part": (2048, 2)}  # rows that a map computes at a time


def formats_of(case):
    """Those without `SparseTensor`, which has tests of its own."""
    return tuple(fmt for fmt in case.formats if fmt != "sparse_tensor")


def spelled(row):
    return "-".join(str(setting).removeprefix("torch.") for setting in row.values())


DRAWN, DRAWN_FOR_SEVERAL = Drawn({**FACTORS, **PART}), Drawn(FACTORS)
WALKS = [(case, DRAWN(str(case), formats_of(case))) for case in PLAIN]
WALKS_OF_SEVERAL = [(case, DRAWN_FOR_SEVERAL(str(case), ("types",))) for case in SEVERAL]


def first_passes():
    """Those that no walk begins with; where all do, in float32, the one in the first format."""
    for case, row in WALKS:
        formats = formats_of(case)
        is_counted = str(case) in representatives()
        chosen = [fmt for fmt in formats if fmt != row["fmt"]]
        if is_counted or not (chosen or row["dtype"] is torch.float64):
            chosen = list(dict.fromkeys([formats[0], *chosen]))
        for i, fmt in enumerate(chosen):
            marks = [pytest.mark.measured if is_counted and i == 0 else pytest.mark.unmeasured]
            if not is_counted and i:  # a kind of program stands in all formats of one case
                marks.append(pytest.mark.many)
            yield pytest.param(case, fmt, id=f"{case}-{fmt}", marks=marks)


def given(walks):
    """One of each kind of program walks in every run."""
    for case, row in walks:
        marks = () if str(case) in representatives() else pytest.mark.many
        yield pytest.param(case, row, id=f"{case}-{spelled(row)}", marks=marks)


def assert_known(case, program):
    """A kind of program that is new needs a case that stands for it."""
    said = f"no case stands for this kind of program; run `python -m tests.signatures {case}`:"
    assert signature(program) in known(), "\n".join([said, *lines(program)])


def assert_is_a_program(case, inc):
    """Little of a conv with attention is recomputed row by row.

    That are whole convs in `BY_ROWS` only, and picks. So it is with a learned exponent that was
    drawn larger than two; `test_every_conv.py` has one that is not.
    """
    rows = {s.output.name.split(".")[-1] for s in inc.program.steps if s.kind == "rows"}
    assert inc.mode == "incremental"
    assert ("forward" in rows) == (case.name.removesuffix("-sorted") in BY_ROWS)
    picks = any(word in case.name for word in ("max", "min", "std", "median", "powermean-learned"))
    assert rows <= {"forward", "fill", *(("attention", "aggr") if picks else ())}


def started(case, fmt, dtype, seed, **options):
    """Both sides behind a first pass, which is of a known kind and has left the model as it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncrementalWarning)
        sides = SideBySide(case, fmt, dtype, seed, **options)
    assert sides.inc.mode in case.modes(fmt), sides.inc
    assert case.scheme in ("", scheme_of(sides.inc.program)), sides.inc.program
    assert_known(case, sides.inc.program)
    if str(case) in ATTENTION:
        assert_is_a_program(case, sides.inc)
    assert not sides.inc.model.training
    theirs = sides.twin.state_dict()
    for name, value in sides.inc.model.state_dict().items():
        assert torch.equal(value, theirs[name]), f"the wrapper changed {name}"
    return sides


@pytest.mark.parametrize(("case", "fmt"), [*first_passes()])
def test_first_pass(case, fmt, seed):
    started(case, fmt, torch.float64, seed + 9)


@pytest.mark.unmeasured
@pytest.mark.parametrize(("case", "row"), [*given(WALKS)])
def test_a_walk(case, row, seed, monkeypatch):
    monkeypatch.setattr(executors, "PART", row["part"])
    options = {name: row[name] for name in FACTORS if name != "dtype"}
    sides = started(case, row["fmt"], row["dtype"], seed + 10, **options)
    assert sides.inc.backend == row["backend"]
    sides.walk()


@pytest.mark.unmeasured
@pytest.mark.parametrize(("case", "row"), [*given(WALKS_OF_SEVERAL)])
def test_a_walk_over_several_kinds(case, row, seed):
    options = {name: row[name] for name in FACTORS if name != "dtype"}
    sides = HeteroSides(case, row["dtype"], seed + 10, **options)
    assert sides.inc.mode in case.mode, sides.inc
    assert_known(case, sides.inc.program)
    sides.walk()
