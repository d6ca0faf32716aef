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


def test_a_mean_of_powers_with_a_learned_exponent_is_a_program():
    (case,) = (case for case in ATTENTION_CASES if case.name == "gen-powermean-learned")
    inc = SideBySide(case, case.formats[0]).inc
    assert inc.mode == "incremental"
    assert not any(step.kind == "rows" for step in inc.program.steps)
