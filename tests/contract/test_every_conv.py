"""Every other conv with its usual options: every kind of delta is exact, on both backends."""

import pytest
import torch

from tests.side_by_side import SideBySide
from tests.strategies import EVERY
from tests.zoo_attention import ATTENTION_CASES
from tests.zoo_edge_functions import EDGE_FUNCTION_CASES
from tests.zoo_hops import HOP_CASES

pytestmark = pytest.mark.unmeasured

CASES = [*HOP_CASES, *ATTENTION_CASES, *EDGE_FUNCTION_CASES]
RUNS = [pytest.param(case, fmt, id=f"{case}-{fmt}") for case in CASES for fmt in case.formats]


@pytest.mark.matrix
@pytest.mark.parametrize(("case", "fmt"), RUNS)
def test_exact_in_float64(case, fmt, seed):
    after = case.compiled_from(fmt)
    sides = SideBySide(case, fmt, seed=seed, backend="compiled", compile_after=after)
    assert sides.inc.backend == "compiled"
    assert sides.inc.mode in case.modes(fmt), sides.inc
    sides.walk(kinds=EVERY if fmt == case.formats[0] else None)


@pytest.mark.matrix
@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_on_reference_kernels(case, seed):
    SideBySide(case, case.formats[0], seed=seed + 1, backend="reference").walk()


@pytest.mark.matrix
@pytest.mark.parametrize("case", CASES, ids=str)
def test_close_in_float32(case, seed):
    SideBySide(case, case.formats[0], torch.float32, seed + 2).walk()


BY_ROWS = {"agnn-list", "rgat-f-additive", "point-list"}
"""Cases computed by the conv's own forward, row by row."""


@pytest.mark.parametrize("case", ATTENTION_CASES, ids=str)
def test_convs_are_programs(case):
    inc = SideBySide(case, case.formats[0]).inc
    rows = {s.output.name.split(".")[-1] for s in inc.program.steps if s.kind == "rows"}
    assert inc.mode == "incremental"
    assert ("forward" in rows) == (case.name.removesuffix("-sorted") in BY_ROWS)
    picks = any(word in case.name for word in ("max", "min", "std", "median"))
    assert rows <= {"forward", "fill", *(("attention", "aggr") if picks else ())}
