"""Models as people write them: how each is followed, and that it is right."""

import pytest

from tests.example import INCREMENTAL, MIXED, ROWS, Run
from tests.zoo_examples import EXAMPLES, NOT_INCREMENTAL, STANDS

pytestmark = pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_is_followed_and_right(example, seed):
    runs, why = NOT_INCREMENTAL.get(str(example), (INCREMENTAL, ""))
    run = Run(example, seed)
    assert run.runs == runs, run.inc
    assert why in repr(run.inc)
    run.walk(seed)
    check_explained(run.inc, run.runs)  # which a walk may change, as where all edges leave


def check_explained(inc, runs):
    """Every line that is not incremental says why, and nearly every one what to write instead."""
    steps = inc.explain().steps
    worst = {MIXED: "all rows"}.get(runs, runs)
    assert worst in {step.runs for step in steps}
    assert {step.runs for step in steps} <= {INCREMENTAL, ROWS, worst}
    for step in steps:
        assert bool(step.why) == (step.runs != INCREMENTAL)
        assert step.instead or step.runs in (INCREMENTAL, ROWS), step.why


def test_the_examples_are_many_and_named():
    names = [str(example) for example in EXAMPLES]
    assert len(set(names)) == len(names) >= 100
    assert all(example.source for example in EXAMPLES)
    assert set(NOT_INCREMENTAL) <= set(names)
    assert len(STANDS) <= 17
