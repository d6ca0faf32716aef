"""Tools to test convs of your own: `check_conv`, `assert_matches_full` and random deltas."""

from pyg_incremental.testing.check import ConvReport, assert_matches_full, check_conv, random_delta
from pyg_incremental.testing.random_changes import CHANGES
from pyg_incremental.testing.subject import ConvCheckError

__all__ = [
    "CHANGES",
    "ConvCheckError",
    "ConvReport",
    "assert_matches_full",
    "check_conv",
    "random_delta",
]
