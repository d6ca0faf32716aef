"""Ranks that are real processes, with both engines."""

import pytest

from tests.distributed.launch import start
from tests.distributed.worker import PATIENCE
from tests.distributed.worlds import CASES_BY_SIZE

pytestmark = pytest.mark.unmeasured  # ranks end at once, without writing what was measured

# A rank of MPI is started by itself, and loads PyTorch and PyG for itself: six seconds of a core.
RANKS = {"torch": 4, "mpi": 3}


@pytest.mark.parametrize("engine", RANKS)
def test_ranks_as_processes(engine, tmp_path):
    """One test, as workers that share the tests of a file would start the ranks once for each."""
    reports = start(engine, RANKS[engine], "tests.distributed.worker", tmp_path)
    outputs_and_changed_rows_are_those_of_one_process(reports)
    a_mistake_on_one_rank_is_the_same_error_on_all(reports)
    calls_that_do_not_belong_together_are_the_same_error_on_both(reports)
    ctrl_c_on_one_rank_crashes_nobody(reports)
    a_lost_rank_makes_the_others_raise_in_time(reports)


def outputs_and_changed_rows_are_those_of_one_process(reports):
    for rank, report in enumerate(reports):
        run = {
            f"{name}-{size}" for size, names in CASES_BY_SIZE.items() for name in names
            if rank < size <= len(reports)
        }  # fmt: skip
        assert set(report["cases"]) == run


def a_mistake_on_one_rank_is_the_same_error_on_all(reports):
    for size in range(1, len(reports) + 1):
        said = {report[f"said-{size}"] for report in reports[:size]}
        assert len(said) == 1
        assert "edge (1, 1) at position 0 is not in the graph" in said.pop()


def calls_that_do_not_belong_together_are_the_same_error_on_both(reports):
    said = {report["out_of_step"] for report in reports[:2]}
    assert len(said) == 1
    assert "rank 0 is in apply_delta" in said.pop()


def ctrl_c_on_one_rank_crashes_nobody(reports):
    assert reports[0]["interrupted"] == "KeyboardInterrupt"
    assert reports[1]["interrupted"] in ("RankFailedError", "OutOfStepError")


def a_lost_rank_makes_the_others_raise_in_time(reports):
    for report in reports[:-1]:
        assert "Restart the ranks" in report["lost"]
        assert report["seconds"] < PATIENCE + 8
