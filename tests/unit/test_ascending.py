"""Ids of changed rows in ascending order, by sorting or by marks."""

import numpy as np
import pytest

from pyg_incremental.rows.backend import SPARSE, ascending
from tests.strategies import generator

MANY = 1025
"""Fewer are always sorted."""


@pytest.mark.parametrize("nodes", [MANY, SPARSE * MANY // 2, 4 * SPARSE * MANY])
@pytest.mark.parametrize("count", [0, 1, MANY - 1, MANY])
def test_as_sorted(nodes, count, seed):
    ids = generator(seed).permutation(nodes)[:count]
    given, found = ids.copy(), ascending(ids)
    assert found.dtype == np.int64
    assert np.array_equal(found, np.sort(given))
    assert np.array_equal(ids, given)
    assert np.array_equal(ascending(found), found)
