"""Every case of the zoo: its first pass in every format, and a walk in a configuration of its own.

Where a walk begins with such a first pass, in the same format and dtype, it is not made once more,
but for the cases that coverage sees. The same walks in every format, dtype, backend and store are
those of the other files here. These run for a case of each kind of program; `--all-cases` runs them
for all. A walk goes through a part of the kinds of delta, drawn for it.
"""

import warnings

import pytest
import torch

from pyg_incremental import IncrementalWarning
from pyg_incremental.conv.supported import scheme_of
from pyg_incremental.transform import maps as executors
from tests.hetero_side_by_side import HeteroSides
from tests.pairwise import Drawn
from tests.side_by_side import SideBySide
from tests.signatures import known, lines, representatives, signature
from tests.zoo_all import PLAIN, SEVERAL

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
PART = {"part": (2048, 2)}  # rows that a map computes at a time


def formats_of(case):
    """Those without `SparseTensor`, which has tests of its own."""
    return tuple(fmt for fmt in case.formats if fmt != "sparse_tensor")


def spelled(row):
    return "-".join(str(setting).removeprefix("torch.") for setting in row.values())


DRAWN, DRAWN_FOR_SEVERAL = Drawn({**FACTORS, **PART}), Drawn(FACTORS)
WALKS = [(case, DRAWN(str(case), formats_of(case))) for case in PLAIN]
WALKS_OF_SEVERAL = [(case, DRAWN_FOR_SEVERAL(str(case), ("types",))) for case in SEVERAL]


BY_WALKS = {(str(case), row["fmt"]) for case, row in WALKS if row["dtype"] is torch.float64}
"""First passes that a walk begins with, in the same dtype."""


def first_passes():
    for case in PLAIN:
        stands_for_others = str(case) in representatives()
        for i, fmt in enumerate(formats_of(case)):
            is_counted = stands_for_others and i == 0
            mark = pytest.mark.measured if is_counted else pytest.mark.unmeasured
            if is_counted or (str(case), fmt) not in BY_WALKS:
                yield pytest.param(case, fmt, id=f"{case}-{fmt}", marks=mark)


def given(walks):
    return [pytest.param(case, row, id=f"{case}-{spelled(row)}") for case, row in walks]


def assert_known(program):
    """A kind of program that is new needs a case that stands for it."""
    said = "no case stands for this kind of program; run `python -m tests.signatures`:"
    assert signature(program) in known(), "\n".join([said, *lines(program)])


def started(case, fmt, dtype, seed, **options):
    """Both sides behind a first pass, which is of a known kind and has left the model as it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncrementalWarning)
        sides = SideBySide(case, fmt, dtype, seed, **options)
    assert sides.inc.mode in case.modes(fmt), sides.inc
    assert case.scheme in ("", scheme_of(sides.inc.program)), sides.inc.program
    assert_known(sides.inc.program)
    assert not sides.inc.model.training
    theirs = sides.twin.state_dict()
    for name, value in sides.inc.model.state_dict().items():
        assert torch.equal(value, theirs[name]), f"the wrapper changed {name}"
    return sides


@pytest.mark.parametrize(("case", "fmt"), [*first_passes()])
def test_first_pass(case, fmt, seed):
    started(case, fmt, torch.float64, seed + 9)


@pytest.mark.unmeasured
@pytest.mark.parametrize(("case", "row"), given(WALKS))
def test_a_walk(case, row, seed, monkeypatch):
    monkeypatch.setattr(executors, "PART", row["part"])
    options = {name: row[name] for name in FACTORS if name != "dtype"}
    sides = started(case, row["fmt"], row["dtype"], seed + 10, **options)
    assert sides.inc.backend == row["backend"]
    sides.walk()


@pytest.mark.unmeasured
@pytest.mark.parametrize(("case", "row"), given(WALKS_OF_SEVERAL))
def test_a_walk_over_several_kinds(case, row, seed):
    options = {name: row[name] for name in FACTORS if name != "dtype"}
    sides = HeteroSides(case, row["dtype"], seed + 10, **options)
    assert sides.inc.mode in case.mode, sides.inc
    assert_known(sides.inc.program)
    sides.walk()
