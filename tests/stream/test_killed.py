"""The process of a stream is killed at any moment: see `killed`."""

import os

import pytest

from tests.stream import killed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the process is a fork of this one")
def test_kills(tmp_path):
    assert killed.case(tmp_path, seed=0, kills=8) > 0
