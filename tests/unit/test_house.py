"""The package stays as small and short as it is; `python -m tests.house` prints the figures."""

import pytest

from tests.house import files, functions, ways

LINES, LINES_OF_A_FUNCTION = 400, 60
LONGER_FUNCTIONS = {"kernels/compiled/machine_extremum.py extremum": 61}
AT_THE_ROOT = 9
MODULES = {"plain": 23, "ordinary": 39, "partitioned": 56}


def test_no_file_is_long():
    long = {name: count for name, count in files().items() if count > LINES}
    assert not long, "one file, one thought: split it"


def test_no_function_is_long():
    known = LONGER_FUNCTIONS
    long = {k: n for k, n in functions().items() if n > known.get(k, LINES_OF_A_FUNCTION)}
    assert not long, "name a part of it"


def test_the_root_holds_the_face_alone():
    assert sum("/" not in name for name in files()) <= AT_THE_ROOT


@pytest.fixture(scope="module")
def visited():
    return ways()


@pytest.mark.parametrize("kind", MODULES)
def test_an_update_visits_few_modules(visited, kind):
    assert len(visited[kind]) <= MODULES[kind], visited[kind]
