"""Some seeds of the simulated world; `make simulate` runs as many as are asked for."""

import sys

import pytest

from tests.stream import simulate


@pytest.mark.skipif(sys.platform != "linux", reason="it looks up names of open files")
@pytest.mark.parametrize("first", [0, 4])
def test_some_seeds(first, tmp_path):
    crashes = 0
    for seed in range(first, first + 4):
        (tmp_path / str(seed)).mkdir()
        crashes += simulate.case(seed, tmp_path / str(seed))
    assert crashes > 4
