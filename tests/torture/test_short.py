"""A short and always equal part of the torture; `make torture` runs the long one."""

import os

import pytest

from tests.torture.apart import Lost, apart
from tests.torture.damaged import files
from tests.torture.evaluations import evaluations
from tests.torture.exceptions import batch
from tests.torture.kills import kills
from tests.torture.services import services
from tests.torture.writes import writes

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    # A fault while a model is tried may be taken for the model's; the harness calls it again then.
    pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning"),
]
LIMIT = 300


@pytest.mark.parametrize("number", range(6))
def test_exceptions(number, seed):
    counts = apart(batch, LIMIT, 1000 * seed + number, 25)
    assert sum(counts.values()) == 25


def test_kills(seed):
    assert apart(kills, LIMIT, seed, 6)["kill"] == 6


def test_files(seed):
    counts = apart(files, LIMIT, seed, 60)
    assert sum(counts.values()) == 60
    assert min(counts["cut"], counts["flipped"], counts["overwritten"]) > 5


def test_evaluations(seed):
    """Killed, damaged, and called with other options, arguments and graphs."""
    counts = apart(evaluations, LIMIT, seed, 8)
    assert counts["killed"] + counts["finished"] == 8
    # How many are refused depends on when the kills came; in an emptied folder the rows are right.
    assert min(counts["killed"], counts["files damaged"]) > 0
    assert counts["right"] >= counts["folders"] > 0


def test_writes(seed):
    assert apart(writes, LIMIT, seed, 6)["writes"] >= 6


@pytest.mark.more
def test_services(seed):
    counts = apart(services, LIMIT, seed, 2)
    assert sum(n for name, n in counts.items() if name.startswith("coordinator")) == 2


def test_a_crash_is_told():
    with pytest.raises(Lost, match="exit code -11 in: the crash"):
        apart(_crash, LIMIT)


def test_a_hang_is_told():
    with pytest.raises(Lost, match="hung for 1 s"):
        apart(_hang, 1)


def test_a_wrong_answer_is_told():
    with pytest.raises(Lost, match="AssertionError: 1 is not 2"):
        apart(_wrong, LIMIT)


def _crash(say):
    say("the crash")
    os.kill(os.getpid(), 11)


def _hang(say):
    while True:
        pass


def _wrong(say):
    raise AssertionError("1 is not 2")
